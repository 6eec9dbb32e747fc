"""Parses the output of `iblinkinfo -l` and `ibqueryerrors`; see iblinkinfo(8) and ibqueryerrors(8)."""

import re
from collections.abc import Mapping

from gpuvigil.topology.infiniband import switch_names

from ..fabric.seen import Counters, SeenPort, SeenSwitch

_LINK = re.compile(
    r'0x(?P<guid>[0-9a-f]{16}) "\s*(?P<name>.*?)"\s+\d+\s+(?P<port>\d+)\[.*?\] ==\('
    r"\s*(?:(?P<lanes>\d+)X\s+)?(?:(?P<gbps>[\d.]+) Gbps)?.*?/\s*(?P<physical>\w+)\)==>"
    r'\s+(?:0x(?P<far>[0-9a-f]{16})\s+\d+\s+(?P<far_port>\d+))?(?:\[.*?\])?\s*"(?P<far_name>.*?)"'
)
_STATE = re.compile(r"(\w+)/\s*\w+\)==>")
_GUID = re.compile(r"GUID 0x([0-9a-f]+) port (\d+):(.*)")
_CHECKED = re.compile(r"Summary: (\d+) nodes checked")
_FAILED = "query failed"  # of a port, or of a switch whole
_COUNTER = re.compile(r"\[(\w+) == (\d+)")
_UP = frozenset({"Active", "Armed", "Initialize"})
_UNANSWERED = "Port not available"  # in the place of the other end's name
_MOST_UNREADABLE = 0.5
_GIGA = 1_000_000_000
# The tools print what a lane signals, people name it by what it carries: EDR, HDR, NDR, XDR.
_CARRIES = {"25.78125": 25.0, "53.125": 50.0, "106.25": 100.0, "212.5": 200.0}
_FIELDS = {
    "SymbolErrorCounter": "symbol_errors",
    "PortRcvErrors": "receive_errors",
    "LinkErrorRecoveryCounter": "link_recoveries",
    "LocalLinkIntegrityErrors": "local_integrity_errors",
    "PortXmitDiscards": "transmit_discards",
}
# What counts traffic is 0 where it is not printed, and says no more once its 16 bits are full
# (InfiniBand Architecture 1.2.1, table 246, PortCounters).
_OF_TRAFFIC: Counters = {"transmit_discards": 0}
_FULL = 0xFFFF
_NOTHING: Mapping[str, str] = {}


def read(links: str, errors: str, known: Mapping[str, str] = _NOTHING) -> dict[str, SeenSwitch]:
    """The switches by name; ValueError where most lines that tell of a link cannot be read.

    `known`: names by GUID that switches had before. One keeps its name while it describes itself so.
    """
    told = [text for text in links.splitlines() if "==>" in text]
    lines = [found for found in map(_LINK.search, told) if found is not None]
    if len(told) - len(lines) > _MOST_UNREADABLE * len(told):
        other = next(text for text in told if _LINK.search(text) is None)
        raise ValueError(f"iblinkinfo: {other.strip()[:200]!r} is no line of a link")
    names = _named({it["guid"]: it["name"] for it in lines}, known)
    counted = _errors(errors)
    # A port that has counted nothing is not printed, nor is one that could not be asked.
    checked = _CHECKED.search(errors)
    whole = checked is not None and int(checked[1]) >= len(names) and _FAILED not in errors
    others: Counters | None = _OF_TRAFFIC if whole else None
    ports: dict[str, dict[int, SeenPort]] = {guid: {} for guid in names}
    for it in lines:
        number = int(it["port"])
        if number:  # port 0 is the switch itself
            ports[it["guid"]][number] = _port(it, names, counted.get((it["guid"], number), others))
    return {names[guid]: SeenSwitch(guid=guid, ports=ports[guid]) for guid in names}


def _named(told: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """What switches are called, by GUID: two of a chassis are told apart also when one is away."""
    names = switch_names(told)
    taken = {name: guid for guid, name in known.items()}
    for guid, name in names.items():
        before = known.get(guid, "")
        plain = name.removesuffix(f" {guid.lstrip('0')}")
        if before in {plain, f"{plain} {guid.lstrip('0')}"}:
            names[guid] = before
        elif taken.get(name, guid) != guid:
            names[guid] = f"{plain} {guid.lstrip('0')}"
    return names


def _port(it: "re.Match[str]", names: Mapping[str, str], counters: Counters | None) -> SeenPort:
    state = _STATE.search(it[0])
    if state is None or state[1] not in _UP:
        return SeenPort(up=False, physical_state=it["physical"], counters=counters)
    far, lanes = it["far"] or "", it["lanes"] and int(it["lanes"])
    gbps = it["gbps"] and _CARRIES.get(it["gbps"], float(it["gbps"]))
    said = it["far_name"].strip()
    return SeenPort(
        up=True,
        physical_state=it["physical"],
        peer=names.get(far, "" if said == _UNANSWERED else said),
        peer_guid=far,
        peer_port=int(it["far_port"] or 0),
        at_switch=far in names,
        bits_per_second=round(gbps * lanes * _GIGA) if gbps and lanes else None,
        lanes=lanes or None,
        counters=counters,
    )


def _errors(text: str) -> dict[tuple[str, int], Counters]:
    found: dict[tuple[str, int], Counters] = {}
    for line in text.splitlines():
        if of := _GUID.search(line):
            values: dict[str, int | None] = {**_OF_TRAFFIC}
            for name, value in _COUNTER.findall(of[3]):
                if name in _FIELDS:
                    values[_FIELDS[name]] = int(value)
            full = {name: None for name in _OF_TRAFFIC if (values[name] or 0) >= _FULL}
            found[of[1].rjust(16, "0"), int(of[2])] = values | full
    return found
