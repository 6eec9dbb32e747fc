"""Two real lldpd on a cable, a node's and a leaf's, in namespaces of their own."""

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

# Each has a network namespace, and what lldpd writes below /run is in memory. The leaf's end of the cable is
# moved to the namespace of a sleeping process.
_SCRIPT = """
set -eu
mount -t tmpfs none /run && mkdir /run/lldpd
unshare --net sleep infinity & leaf=$!
until [ "$(readlink /proc/$leaf/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
ip link add name "$1" type veth peer name swp7
ip link set swp7 netns $leaf
ip link set "$1" up
nsenter -t $leaf -n ip link set swp7 up
nsenter -t $leaf -n lldpd -d -u leaf.sock -O leaf.conf & lldpd -d -u node.sock -O node.conf &
while read -r do; do nsenter -t $leaf -n ip link set swp7 "$do"; done
wait
"""


def is_possible() -> bool:
    """Return whether this user may create namespaces and interfaces."""
    made = ["unshare", "--mount", "--net", "ip", "link", "add", "veth8", "type", "veth"]
    return (
        os.geteuid() == 0 and not subprocess.run(made, capture_output=True, check=False).returncode
    )


class Cable:
    """A cable from `interface` of a node to port swp7 of a leaf, which names itself `leaf1`."""

    def __init__(self, folder: Path, interface: str) -> None:
        folder.mkdir()
        for name, more in (("node", ""), ("leaf", "configure lldp portidsubtype ifname\n")):
            host = "leaf1" if name == "leaf" else "n1"
            said = f"configure system hostname {host}\nconfigure lldp tx-interval 1\n{more}"
            (folder / f"{name}.conf").write_text(said)
        # Debian's lldpcli switches to the user _lldpd, who may not enter this folder; a copy stays root.
        shutil.copyfile("/usr/sbin/lldpcli", folder / "copy")
        (folder / "copy").chmod(0o755)
        self.program = folder / "lldpcli"
        self.program.write_text(f'#!/bin/sh\nexec {folder}/copy -u {folder}/node.sock "$@"\n')
        self.program.chmod(0o755)
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"),
                    *("--mount-proc", "sh", "-c", _SCRIPT, "sh", interface),
                ],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def set(self, state: str) -> None:
        """Take the leaf's port `down`, or `up` again."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{state}\n".encode())
        self._process.stdin.flush()

    def __enter__(self) -> "Cable":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
