"""A real InfiniBand subnet in one box: ibsim with OpenSM, whose answers the usual tools read.

No device and no root: the tools are run with a library before them that speaks to the simulator.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.polling import wait_until

PROGRAMS = ("ibsim", "ibsim-run", "opensm", "sminfo", "ibnetdiscover")


Cable = tuple[str, str, str]
"""A host, its device and the leaf that it is at."""


def netlist(cables: Sequence[Cable], spines: int) -> str:
    """Hosts at the first ports of their leaves, and each leaf at each spine by its last ports.

    The simulator wants every cable at both of its ends, and a blank line between nodes.
    """
    leaves = sorted({leaf for _, _, leaf in cables})
    hosts = {leaf: [(host, it) for host, it, at in cables if at == leaf] for leaf in leaves}
    uplinks = [
        (leaf, f"spine{n}", 64 - n, number)
        for number, leaf in enumerate(leaves, 1)
        for n in range(1, spines + 1)
    ]
    lines = []
    for number, leaf in enumerate(leaves, 1):
        lines += _switch(0x10000000 + number, leaf)
        lines += [
            f'[{n}] "H-{host}-{it}"[1] # "{host} {it}" lid 0 4xHDR'
            for n, (host, it) in enumerate(hosts[leaf], 1)
        ]
        lines += [
            f'[{p}] "S-{spine}"[{q}] # "{spine}" lid 0 4xHDR'
            for at, spine, p, q in uplinks
            if at == leaf
        ]
        lines.append("")
    for number in range(1, spines + 1):
        lines += _switch(0x20000000 + number, f"spine{number}")
        lines += [
            f'[{q}] "S-{leaf}"[{p}] # "{leaf}" lid 0 4xHDR'
            for leaf, spine, p, q in uplinks
            if spine == f"spine{number}"
        ]
        lines.append("")
    for number, (host, it, leaf) in enumerate(cables, 1):
        lines += [f"caguid=0x3000{number:04x}", f'Ca 1 "H-{host}-{it}" # "{host} {it}"']
        p = hosts[leaf].index((host, it)) + 1
        lines += [f'[1](3100{number:04x}) "S-{leaf}"[{p}] # lid 0 lmc 0 "{leaf}" lid 0 4xHDR', ""]
    return "\n".join(lines)


def _switch(guid: int, name: str) -> list[str]:
    port0 = "enhanced port 0 lid 0 lmc 0"
    return [f"switchguid=0x{guid:x}({guid:x})", f'Switch 64 "S-{name}" # "{name}" {port0}']


class Subnet:
    """The subnet of a netlist, up and with a manager; as seen from device mlx5_0 of `host1`."""

    def __init__(self, folder: Path, net: str) -> None:
        folder.mkdir()
        (folder / "net").write_text(net)
        self._folder = folder
        self._environment = {
            **os.environ,
            "IBSIM_SOCKNAME": f"gpuvigil-{os.getpid()}-{folder.parent.name}"[:60],
            "SIM_HOST": "H-host1-mlx5_0",
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
