"""A topology that people write themselves, as TOML: `[[ports]]` and `[[switches]]`."""

from collections.abc import Mapping
from typing import Any

import tomllib

from ..hostlist import expand
from .model import Imported, Source, Uplink, Wire

_PORT_KEYS = frozenset({"nodes", "device", "port", "switch", "switch_port", "rail"})
_SWITCH_KEYS = frozenset({"names", "uplinks"})


def from_toml(text: str) -> Imported:
    """Parse the file's text; ValueError or TypeError names the table and the key that is wrong."""
    whole = tomllib.loads(text)
    if unknown := set(whole) - {"ports", "switches"}:
        raise ValueError(f"{sorted(unknown)[0]} is unknown: known are ports and switches")
    wires, uplinks = [], []
    for told in _tables(whole, "ports", _PORT_KEYS, ("nodes", "device", "switch")):
        wires += [
            Wire(
                node=node,
                device=told["device"],
                port=told.get("port", "1"),
                switch=told["switch"],
                switch_port=told.get("switch_port"),
                rail=told.get("rail"),
                source=Source.FILE,
            )
            for node in expand(told["nodes"])
        ]
    for told in _tables(whole, "switches", _SWITCH_KEYS, ("names", "uplinks")):
        uplinks += [
            Uplink(lower=lower, upper=upper, source=Source.FILE)
            for lower in expand(told["names"])
            for upper in expand(told["uplinks"])
        ]
    return Imported(wires=tuple(wires), uplinks=tuple(uplinks))


def _tables(
    whole: Mapping[str, Any], name: str, known: frozenset[str], needed: tuple[str, ...]
) -> list[dict[str, str]]:
    """Return the entries of a list of tables, with every value as text."""
    found = []
    tables = whole.get(name, [])
    if not isinstance(tables, list):
        raise TypeError(f"{name} must be a list of tables: [[{name}]]")
    for number, table in enumerate(tables, 1):
        where = f"[[{name}]] number {number}"
        if unknown := set(table) - known:
            raise ValueError(f"{where}: {sorted(unknown)[0]} is unknown; known are {sorted(known)}")
        if missing := [key for key in needed if not table.get(key)]:
            raise ValueError(f"{where}: {missing[0]} is missing")
        found.append({key: str(value) for key, value in table.items()})
    return found
