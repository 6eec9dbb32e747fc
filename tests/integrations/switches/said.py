"""Answers of Prometheus for these tests, in the shortest words."""

from collections.abc import Mapping

from integrations.fabric.seen import SeenPort, SeenSwitch
from integrations.switches.answers import Sample
from integrations.switches.mapping import parse

NEIGHBOURS = parse(
    """
switch = "s"
port = "p"
[state]
query = "q"
up = [1]
down = [2]
[neighbour]
query = "n"
system = "sys"
port = "pid"
""",
    "f",
)


def heard(switch: str, port: str, system: str, far: str) -> Sample:
    return Sample(labels={"s": switch, "p": port, "sys": system, "pid": far}, value="1")


def state(switch: str, port: str, value: int = 1) -> Sample:
    return Sample(labels={"s": switch, "p": port}, value=str(value))


def only(found: Mapping[str, SeenSwitch]) -> SeenPort:
    ((port,),) = ([*it.ports.values()] for it in found.values())
    return port
