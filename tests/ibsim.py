"""A real InfiniBand subnet in one box: ibsim with OpenSM, whose answers the usual tools read.

No device and no root: the tools are run with a library before them that speaks to the simulator.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from tests.polling import wait_until

PROGRAMS = ("ibsim", "ibsim-run", "opensm", "sminfo", "ibnetdiscover")


def netlist(leaves: int, spines: int, hosts_per_leaf: int) -> str:
    """Leaves with hosts at their first ports and spines at the next.

    The simulator wants every cable at both of its ends, and a blank line between nodes.
    """
    return "\n".join(_nodes(leaves, spines, hosts_per_leaf))


def _nodes(leaves: int, spines: int, per_leaf: int) -> Iterator[str]:
    for leaf in range(1, leaves + 1):
        yield f'switchguid=0x1000{leaf:04x}(1000{leaf:04x})\nSwitch 64 "S-leaf{leaf}" # "leaf{leaf}" enhanced port 0 lid 0 lmc 0'
        for p in range(1, per_leaf + 1):
            host = (leaf - 1) * per_leaf + p
            yield f'[{p}] "H-host{host}"[1] # "host{host} mlx5_0" lid 0 4xHDR'
        for spine in range(1, spines + 1):
            yield f'[{per_leaf + spine}] "S-spine{spine}"[{leaf}] # "spine{spine}" lid 0 4xHDR'
        yield ""
    for spine in range(1, spines + 1):
        yield f'switchguid=0x2000{spine:04x}(2000{spine:04x})\nSwitch 64 "S-spine{spine}" # "spine{spine}" enhanced port 0 lid 0 lmc 0'
        for leaf in range(1, leaves + 1):
            yield f'[{leaf}] "S-leaf{leaf}"[{per_leaf + spine}] # "leaf{leaf}" lid 0 4xHDR'
        yield ""
    for host in range(1, leaves * per_leaf + 1):
        leaf, p = (host - 1) // per_leaf + 1, (host - 1) % per_leaf + 1
        yield f'caguid=0x3000{host:04x}\nCa 1 "H-host{host}" # "host{host} mlx5_0"'
        yield f'[1](3100{host:04x}) "S-leaf{leaf}"[{p}] # lid 0 lmc 0 "leaf{leaf}" lid 0 4xHDR\n'


class Subnet:
    """The subnet of a netlist, up and with a manager; as seen from `host1`."""

    def __init__(self, folder: Path, net: str) -> None:
        folder.mkdir()
        (folder / "net").write_text(net)
        self._folder = folder
        self._environment = {
            **os.environ,
            "IBSIM_SOCKNAME": f"gpuvigil-{os.getpid()}-{folder.parent.name}"[:60],
            "SIM_HOST": "H-host1",
            "OSM_CACHE_DIR": str(folder),
            "OSM_TMP_DIR": str(folder),
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Subnet":
        try:
            # Its console ends with its input, and the simulator with that.
            self._start("ibsim", "-s", "net")
            wait_until("the subnet", lambda: "simulator ready" in self._said("ibsim"), 10.0)
            self._start("ibsim-run", "opensm", "-f", str(self._folder / "osm.log"))
            wait_until("its manager", lambda: "MASTER" in self.run("sminfo"), 30.0)
        except BaseException:
            self._end()
            raise
        return self

    def run(self, *words: str) -> str:
        """What a tool prints."""
        done = subprocess.run(
            ["ibsim-run", *words],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            timeout=30,
            check=False,
        )
        return done.stdout.decode()

    def _start(self, *words: str) -> None:
        with (self._folder / f"{words[0]}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    words,
                    cwd=self._folder,
                    env=self._environment,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                )
            )

    def _said(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.communicate()
