"""What `iblinkinfo -l` and `ibqueryerrors` print, as values; see iblinkinfo(8) and ibqueryerrors(8)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpuvigil.topology.infiniband import switch_names

_LINK = re.compile(
    r'0x(?P<guid>[0-9a-f]{16}) "\s*(?P<name>.*?)"\s+\d+\s+(?P<port>\d+)\[.*?\] ==\('
    r"\s*(?:(?P<lanes>\d+)X\s+(?P<gbps>[\d.]+) Gbps)?.*?/\s*(?P<physical>\w+)\)==>"
    r'\s+(?:0x(?P<far>[0-9a-f]{16})\s+\d+\s+(?P<far_port>\d+))?\[.*?\] "(?P<far_name>.*?)"'
)
_STATE = re.compile(r"(\w+)/\s*\w+\)==>")
_GUID = re.compile(r"GUID 0x([0-9a-f]+) port (\d+):(.*)")
_CHECKED = re.compile(r"Summary: (\d+) nodes checked")
_FAILED = "query failed"  # of a port, or of a switch whole
_COUNTER = re.compile(r"\[(\w+) == (\d+)")
_UP = frozenset({"Active", "Armed", "Initialize"})
_GIGA = 1_000_000_000
# The tools print what a lane signals, people name it by what it carries: EDR, HDR, NDR, XDR.
_CARRIES = {"25.78125": 25.0, "53.125": 50.0, "106.25": 100.0, "212.5": 200.0}
_FIELDS = {
    "SymbolErrorCounter": "symbol_errors",
    "PortRcvErrors": "receive_errors",
    "LinkErrorRecoveryCounter": "link_recoveries",
    "LocalLinkIntegrityErrors": "local_integrity_errors",
}
Counters = Mapping[str, int]
"""By the field of `ErrorCount`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPort:
    """A port of a switch as it is now; without a link nothing is known of its other end.

    `counters` None: they were not read.
    """

    up: bool
    physical_state: str
    peer: str = ""
    peer_port: int = 0
    at_switch: bool = False
    bits_per_second: int | None = None
    lanes: int | None = None
    counters: Counters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSwitch:
    """A switch that answered."""

    guid: str
    ports: Mapping[int, SeenPort]


def read(links: str, errors: str) -> dict[str, SeenSwitch]:
    """The switches by name; ValueError where a line that tells of a link cannot be read."""
    lines = [_line(text) for text in links.splitlines() if "==>" in text]
    told = {it["guid"]: it["name"] for it in lines}
    names, counted = switch_names(told), _errors(errors)
    # A port that has counted nothing is not printed, nor is one that could not be asked.
    checked = _CHECKED.search(errors)
    whole = checked is not None and int(checked[1]) >= len(names) and _FAILED not in errors
    others: Counters | None = {} if whole else None
    ports: dict[str, dict[int, SeenPort]] = {guid: {} for guid in names}
    for it in lines:
        number = int(it["port"])
        if number:  # port 0 is the switch itself
            ports[it["guid"]][number] = _port(it, names, counted.get((it["guid"], number), others))
    return {names[guid]: SeenSwitch(guid=guid, ports=ports[guid]) for guid in names}


def _line(text: str) -> "re.Match[str]":
    found = _LINK.search(text)
    if found is None:
        raise ValueError(f"iblinkinfo: {text.strip()[:200]!r} is no line of a link")
    return found


def _port(it: "re.Match[str]", names: Mapping[str, str], counters: Counters | None) -> SeenPort:
    state = _STATE.search(it[0])
    up = state is not None and state[1] in _UP and it["lanes"] is not None
    if not up:
        return SeenPort(up=False, physical_state=it["physical"], counters=counters)
    lanes = int(it["lanes"])
    return SeenPort(
        up=True,
        physical_state=it["physical"],
        peer=names.get(it["far"] or "", it["far_name"].strip()),
        peer_port=int(it["far_port"] or 0),
        at_switch=(it["far"] or "") in names,
        bits_per_second=round(_CARRIES.get(it["gbps"], float(it["gbps"])) * lanes * _GIGA),
        lanes=lanes,
        counters=counters,
    )


def _errors(text: str) -> dict[tuple[str, int], Counters]:
    found: dict[tuple[str, int], Counters] = {}
    for line in text.splitlines():
        if of := _GUID.search(line):
            values = {
                _FIELDS[name]: int(value)
                for name, value in _COUNTER.findall(of[3])
                if name in _FIELDS
            }
            found[of[1].rjust(16, "0"), int(of[2])] = values
    return found
