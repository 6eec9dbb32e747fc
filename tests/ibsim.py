"""A real InfiniBand subnet on one machine: ibsim with OpenSM, whose answers the usual tools read.

It needs no device and no root: the tools run with a preloaded library that talks to the simulator.
"""

import os
import re
import secrets
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.polling import wait_until

PROGRAMS = (
    *("ibsim", "ibsim-run", "opensm", "sminfo", "ibnetdiscover"),
    *("iblinkinfo", "ibqueryerrors", "ibportstate"),
)
PROMPT = "sim> "
PORTS = 64
"""How many ports every switch has."""

Cable = tuple[str, str, str]
"""A host, its device, and the leaf at the other end."""


def netlist(cables: Sequence[Cable], spines: int) -> str:
    """Return the netlist of a fabric.

    Hosts are at the first ports of their leaves, and each leaf is at each spine by its last ports. The
    simulator wants every cable at both of its ends, and a blank line between nodes.
    """
    leaves = sorted({leaf for _, _, leaf in cables})
    hosts = {leaf: [(host, it) for host, it, at in cables if at == leaf] for leaf in leaves}
    uplinks = [
        (leaf, f"spine{n}", PORTS - n, number)
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
    return [f"switchguid=0x{guid:x}({guid:x})", f'Switch {PORTS} "S-{name}" # "{name}" {port0}']


class Subnet:
    """A netlist's running subnet with its manager, as seen from device mlx5_0 of `host`."""

    def __init__(self, folder: Path, net: str, host: str = "host1") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "net").write_text(net)
        self._folder = folder
        self.variables = {
            # Several subnets may be up at once.
            "IBSIM_SOCKNAME": f"gpuvigil-{secrets.token_hex(8)}",
            "SIM_HOST": f"H-{host}-mlx5_0",
            "OSM_CACHE_DIR": str(folder),
            "OSM_TMP_DIR": str(folder),
        }
        self._environment = {**os.environ, **self.variables}
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Subnet":
        try:
            # The simulator's console ends with its input, and the simulator with its console.
            self._start("ibsim", "-s", "net")
            wait_until("the subnet", lambda: "simulator ready" in self._said("ibsim"), 10.0)
            # Traps report changes, but some get lost, so opensm also sweeps every second.
            self._start("ibsim-run", "opensm", "-s", "1", "-f", str(self._folder / "osm.log"))
            wait_until("its manager", lambda: "MASTER" in self.run("sminfo"), 30.0)
        except BaseException:
            self._end()
            raise
        return self

    def run(self, *words: str, timeout: float = 30.0) -> str:
        """Run a tool and return its output, whatever its exit code: ibqueryerrors fails where it finds errors."""
        done = subprocess.run(
            ["ibsim-run", *words],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        return done.stdout.decode()

    def say(self, line: str) -> None:
        """Send a command to the simulator's console, and return once it is done."""
        before = self._said("ibsim").count(PROMPT)
        console = self._processes[0].stdin
        assert console is not None
        console.write(f"{line}\n".encode())
        console.flush()
        wait_until(line, lambda: self._said("ibsim").count(PROMPT) > before, 10.0)
        answer = self._said("ibsim").split(PROMPT, before)[-1]
        assert not re.search("^# ", answer, re.MULTILINE), answer

    def kill(self) -> None:
        """End the simulator, and leave the manager running."""
        self._processes[0].kill()
        self._processes[0].wait()

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


Port = tuple[str, int]
"""A node's description and the port's number."""

# Bits of LinkWidthEnabled; the simulator takes the widest at once.
_WIDTHS = {1: 1, 4: 1 | 2}


@dataclass
class Ibsim:
    """Leaves and spines with hosts of several rails, whose cables can be broken; a context manager.

    Nodes go by their descriptions: `leaf1`, `spine1`, `host01 mlx5_0`. The tools look from `mgmt mlx5_0`, at
    leaf1. The simulator serves 9 tools at once, and may still count one that was killed.
    """

    folder: Path
    leaves: int = 4
    spines: int = 2
    hosts: int = 8
    rails: int = 4

    def __post_init__(self) -> None:
        assert self.leaves % self.rails == 0, "each rail of a pod has a leaf"
        pods = self.leaves // self.rails
        cables = [("mgmt", "mlx5_0", self.leaf(1))]
        for n in range(1, self.hosts + 1):
            first = (n - 1) * pods // self.hosts * self.rails + 1
            cables += [
                (f"host{n:02}", f"mlx5_{rail}", self.leaf(first + rail))
                for rail in range(self.rails)
            ]
        at_most = max(Counter(leaf for _, _, leaf in cables).values())
        assert at_most + self.spines < PORTS, "a leaf has no ports for so many hosts"
        net = netlist(cables, self.spines)
        self._far = _wires(net)
        self._subnet = Subnet(self.folder, net, "mgmt")

    def __enter__(self) -> "Ibsim":
        self._subnet.__enter__()
        try:
            wait_until("all ports are active", self._all_active, 20.0)
        except BaseException:
            self._subnet.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._subnet.__exit__(kind, error, trace)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that a tool needs beside its own environment; it must be started in `folder`."""
        script = shutil.which("ibsim-run")
        assert script is not None
        library = re.search("^sim_so=(.+)$", Path(script).read_text(), re.MULTILINE)
        assert library is not None
        return {**self._subnet.variables, "LD_PRELOAD": library[1]}

    def tool(self, *words: str, timeout: float = 30.0) -> str:
        """Run a tool and return its output, whatever its exit code."""
        return self._subnet.run(*words, timeout=timeout)

    def leaf(self, n: int) -> str:
        """Return a leaf's name, counted from 1; the rails of the first pod come first."""
        return f"leaf{n}"

    def spine(self, n: int) -> str:
        """Return a spine's name, counted from 1."""
        return f"spine{n}"

    def host(self, n: int, rail: int = 0) -> str:
        """Return a host's description; hosts are counted from 1, and rails from 0."""
        return f"host{n:02} mlx5_{rail}"

    def ports_of(self, name: str) -> Mapping[int, Port]:
        """Return the far ends of a node's cables by port, including cables that are cut."""
        return {port: far for (node, port), far in self._far.items() if node == name}

    def port_to(self, name: str, far: str) -> int:
        """Return the port of `name` with the cable to `far`."""
        (port,) = (port for port, (node, _) in self.ports_of(name).items() if node == far)
        return port

    def cut(self, name: str, port: int | None = None) -> None:
        """Remove a cable, or all cables of a node."""
        self.say(f"Unlink {_place(name, port)}")

    def join(self, name: str, port: int | None = None) -> None:
        """Restore what was cut; opensm needs a second for it."""
        self.say(f"ReLink {_place(name, port)}")

    def swap(self, one: Port, other: Port) -> None:
        """Exchange the far ends of two connected cables; opensm needs a second for it."""
        crossed = {one: self._far[other], other: self._far[one]}
        for end in crossed:
            self.cut(*end)
        for end, far in crossed.items():
            self.say(f"Link {_place(*end)} {_place(*far)}")
            self._far |= {end: far, far: end}

    def errors(
        self, name: str, port: int, counter: str = "SymbolErrorCounter", count: int = 100
    ) -> None:
        """Set one of perfquery's counters; names of 64-bit ones begin with `PortCountersExtended.`."""
        field = counter if "." in counter else f"PortCounters.{counter}"
        self.say(f"PerformanceSet {_place(name, port)} {field}={count}")

    def width(self, name: str, port: int, lanes: int) -> None:
        """Let a link that is up run at 1 lane, or at 4 again; takes more than a second."""
        if " " in name:
            # ibportstate also sets the port's LID: a host would lose it, while a switch does not care.
            name, port = self._far[name, port]
        ends = ((name, port), self._far[name, port])

        def has_them() -> bool:
            if self._holds(ends, lanes):
                return True
            # Set it the first time, and again if a sweep that opensm had begun before has undone it.
            self._set_width(name, port, lanes)
            return False

        wait_until(f"{name} {port} has {lanes} lanes", has_them, 30.0)

    def _holds(self, ends: Sequence[Port], lanes: int) -> bool:
        for _ in range(5):
            found = self.links()
            for node, port in ends:
                if not re.search(rf'" *{node}" +[0-9]+ +{port}\[ *\] ==\( *{lanes}X ', found):
                    return False
            time.sleep(0.25)
        return True

    def _set_width(self, name: str, port: int, lanes: int) -> None:
        line = re.search(f'^0x[0-9a-f]+ " *{name}" +([0-9]+) ', self.links(), re.MULTILINE)
        assert line is not None, f"{name} is not to be seen"
        self.tool("ibportstate", line[1], str(port), "width", str(_WIDTHS[lanes]))

    def links(self) -> str:
        """Return the output of iblinkinfo, a line for each port."""
        return self.tool("iblinkinfo", "-l")

    def say(self, line: str) -> None:
        """Send any other command to the simulator's console, with its own names for nodes."""
        self._subnet.say(line)

    def kill(self) -> None:
        """End the simulator; tools that query it then wait for ever."""
        self._subnet.kill()

    def _all_active(self) -> bool:
        return self.links().count(" Active/") == len(self._far)


def _place(name: str, port: int | None) -> str:
    """Return the simulator's name for a node or port."""
    node = f"H-{name.replace(' ', '-')}" if " " in name else f"S-{name}"
    return f'"{node}"' if port is None else f'"{node}"[{port}]'


def _wires(net: str) -> dict[Port, Port]:
    """Return the far end of each cable end of a netlist."""
    names = dict(re.findall(r'^(?:Switch|Ca) [0-9]+ "(.+?)" +# "(.+?)"', net, re.MULTILINE))
    far, node = {}, ""
    for line in net.splitlines():
        if heading := re.match(r'(?:Switch|Ca) [0-9]+ "(.+?)"', line):
            node = names[heading[1]]
        elif wire := re.match(r'\[([0-9]+)\]\S* "(.+?)"\[([0-9]+)\]', line):
            far[node, int(wire[1])] = names[wire[2]], int(wire[3])
    return far
