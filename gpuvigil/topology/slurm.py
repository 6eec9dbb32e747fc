"""Slurm's topology.conf and topology.yaml (their manual pages, topology.conf(5) and topology.yaml(5)).

Slurm says which switch or block a node is in, but not by which of its ports.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from ..hostlist import expand
from .model import Imported, Placed, Source, Uplink

_PAIR = re.compile(r"(\w+)\s*=\s*(\S+)")


def from_conf(text: str) -> Imported:
    """Parse a topology.conf: trees by `SwitchName`, blocks by `BlockName`; keys in any case."""
    found = Imported()
    joined = re.sub(r"\\\n", " ", text)
    for line in joined.splitlines():
        words = {key.lower(): value for key, value in _PAIR.findall(line.partition("#")[0])}
        name = words.get("switchname") or words.get("blockname")
        if name:
            found += _named(name, words.get("nodes", ""), words.get("switches", ""))
    return found


def from_yaml(text: str) -> Imported:
    """Parse a topology.yaml with all its topologies; raise ValueError or TypeError when it is not one."""
    try:
        whole = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    if not isinstance(whole, list):
        raise TypeError("a topology.yaml is a list of topologies")
    found = Imported()
    for name, nodes, children in (it for one in whole for it in _entries(one)):
        found += _named(name, nodes, children)
    return found


def _entries(topology: Any) -> Iterator[tuple[str, str, str]]:
    """Yield each switch or block, its nodes and the switches below it."""
    for form, entries, key in (("tree", "switches", "switch"), ("block", "blocks", "block")):
        shape = topology.get(form) if isinstance(topology, Mapping) else None
        listed = shape.get(entries) if isinstance(shape, Mapping) else None
        for one in listed if isinstance(listed, list) else ():
            if not isinstance(one, Mapping) or not one.get(key):
                raise ValueError(f"an entry of {form}.{entries} has no {key}")
            yield str(one[key]), str(one.get("nodes") or ""), str(one.get("children") or "")


def _named(name: str, nodes: str, children: str) -> Imported:
    return Imported(
        places=tuple(
            Placed(node=node, place=name, source=Source.SLURM) for node in expand(nodes) if node
        ),
        uplinks=tuple(
            Uplink(lower=lower, upper=name, source=Source.SLURM)
            for lower in expand(children)
            if lower
        ),
    )
