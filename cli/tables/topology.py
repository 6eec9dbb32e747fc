"""`gpuvigil topology`: switches with their ports, the source of each fact, and contradictions."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from accounting.usage.allocations import MOST_RECORDS
from dashboard.lists.table import Column, Grid, percents, whole
from gpuvigil.hub_client import Hub
from gpuvigil.model import Event, Inventory, RecordKind, Retirement, Switch, readable
from gpuvigil.model.expected_nodes import is_retired
from gpuvigil.numbers_in_words import counted, natural
from gpuvigil.topology import Fact, Imported, Link, Topology, from_switches, learn, read

# The span whose events show which ports went down together.
_PAST = timedelta(days=7)
_NAMED = 3

SWITCHES = (
    Column(key="switch", title="SWITCH", flexible=True),
    Column(key="rail", title="RAIL"),
    Column(key="ports", title="PORTS", show=whole, right=True),
    Column(key="nodes", title="NODES", flexible=True),
    Column(key="uplinks", title="UPLINKS", flexible=True),
    Column(key="from", title="FROM", flexible=True),
    Column(key="confidence_percent", title="SURE", show=percents, right=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
)
PORTS = tuple(
    Column(key=key, title=key.upper())
    for key in (
        *("cluster", "node", "device", "port", "role", "was_up"),
        *("switch", "switch_port", "switch_from", "switch_confidence"),
        *("rail", "rail_from", "rail_confidence", "contradiction"),
    )
)
_ROWS_FOR_PEOPLE = 50
_EMPTY = (
    "No switch is known. Run lldpd on the nodes, or name a file that says how the fabric is wired:"
    " docs/topology.md."
)


def fetch(hub: Hub, files: Iterable[Path], now: datetime) -> dict[str, Topology]:
    """Return the fabric of each cluster that the hub knows; ConfigError for a file that cannot be read."""
    imported = sum((read(file) for file in files), Imported())
    retired = {
        one.node.key: one.at
        for one in readable(hub.records(RecordKind.RETIREMENT), Retirement.from_record)
    }
    clusters: dict[str, list[Inventory]] = defaultdict(list)
    records = hub.records(RecordKind.INVENTORY, limit=MOST_RECORDS)
    for node in readable(records, Inventory.from_record):
        if not node.subject.marked and not is_retired(retired.get(node.subject.key), node.at):
            clusters[node.subject.cluster].append(node)
    events: dict[str, list[Event]] = defaultdict(list)
    for event in readable(hub.records(RecordKind.EVENT, since=now - _PAST), Event.from_record):
        events[event.subject.cluster].append(event)
    switches: dict[str, list[Switch]] = defaultdict(list)
    for switch in readable(hub.records(RecordKind.SWITCH, since=now - _PAST), Switch.from_record):
        switches[switch.subject.cluster].append(switch)
    return {
        name: learn(clusters[name], imported + from_switches(switches[name]), events[name])
        for name in sorted({*clusters, *switches})
    }


def switches(clusters: Mapping[str, Topology]) -> Grid:
    """Return a row per leaf switch, for people; contradictions stand above the table."""
    rows = [
        _row(cluster, topology, switch)
        for cluster, topology in clusters.items()
        for switch in sorted(topology.leaves, key=natural)
    ]
    several = len(clusters) > 1
    return Grid(
        columns=SWITCHES,
        rows=rows,
        for_people=len(SWITCHES) - (not several),
        rows_for_people=_ROWS_FOR_PEOPLE,
        head=[
            f"{f'{cluster}: ' if several else ''}{doubt.question.value}: {doubt.text}"
            for cluster, topology in clusters.items()
            for doubt in topology.doubts
        ],
        notes=[
            f"{f'{cluster}: ' if several else ''}{words}"
            for cluster, topology in clusters.items()
            for words in _notes(topology)
        ],
        empty=_EMPTY,
    )


def _row(cluster: str, topology: Topology, switch: str) -> tuple[str | int | float | None, ...]:
    here = [it for it in topology.links if it.switch is not None and it.switch.value == switch]
    facts = [it.switch for it in here if it.switch is not None]
    sources = Counter(fact.source.value for fact in facts)
    rails = Counter(it.rail.value for it in here if it.rail is not None)
    rail, most = rails.most_common(1)[0] if rails else ("", 0)
    uplinks = sorted({up.upper for up in topology.uplinks if up.lower == switch}, key=natural)
    return (
        switch,
        rail if 2 * most > len(here) else None,
        len(here),
        _some(sorted({it.node for it in here}, key=natural)),
        _some(uplinks) if uplinks else None,
        ", ".join(f"{source} {n}" if len(sources) > 1 else source for source, n in sources.items()),
        100 * min(fact.confidence for fact in facts),
        cluster,
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    named = ", ".join(names[:_NAMED])
    return f"{named} and {more} more" if more > 0 else named


def _notes(topology: Topology) -> list[str]:
    fabric = [it for it in topology.links if it.role == "fabric" and it.was_up]
    unknown = [it for it in fabric if it.switch is None]
    found = []
    if unknown and len(unknown) < len(fabric):
        named = _some([f"{it.node} {it.name}" for it in unknown])
        found.append(f"{counted(len(unknown), 'port')} at no known switch: {named}.")
    blocks = Counter(fact.value for fact in topology.places.values())
    if blocks:
        names = _some(sorted(blocks, key=natural))
        found.append(f"{counted(len(topology.places), 'node')} in {names}.")
    return found


def ports(clusters: Mapping[str, Topology]) -> Grid:
    """Return a row per port, for programs."""
    rows = [
        (cluster, *_values(link), _contradictions(link, topology))
        for cluster, topology in clusters.items()
        for link in topology.links
    ]
    return Grid(columns=PORTS, rows=rows)


def _values(link: Link) -> tuple[str | float | bool | None, ...]:
    (switch, switch_from, sure), (rail, rail_from, rail_sure) = (
        _columns(link.switch),
        _columns(link.rail),
    )
    return (
        *(link.node, link.device, link.port, link.role, link.was_up),
        *(switch, link.switch_port, switch_from, sure, rail, rail_from, rail_sure),
    )


def _columns(fact: Fact | None) -> tuple[str | None, str | None, float | None]:
    if fact is None:
        return None, None, None
    return fact.value, fact.source.value, fact.confidence


def _contradictions(link: Link, topology: Topology) -> str | None:
    about = [it.question.value for it in topology.doubts if (link.node, link.name) in it.ports]
    return ", ".join(about) or None


def json_text(clusters: Mapping[str, Topology]) -> str:
    """Return each cluster's contradictions, ports, cables between switches and node places as JSON."""
    keys = [column.key for column in PORTS]
    rows = ports(clusters).rows
    whole_: dict[str, Any] = {
        cluster: {
            "contradictions": [
                {
                    "kind": doubt.question.value,
                    "text": doubt.text,
                    "ports": [{"node": node, "device": device} for node, device in doubt.ports],
                    "switches": list(doubt.switches),
                }
                for doubt in topology.doubts
            ],
            "ports": [dict(zip(keys, row, strict=True)) for row in rows if row[0] == cluster],
            "uplinks": [
                {
                    "lower": up.lower,
                    "lower_port": up.lower_port,
                    "upper": up.upper,
                    "upper_port": up.upper_port,
                    "from": up.source.value,
                }
                for up in topology.uplinks
            ],
            "places": {
                node: {"place": fact.value, "from": fact.source.value}
                for node, fact in topology.places.items()
            },
        }
        for cluster, topology in clusters.items()
    }
    return json.dumps(whole_, indent=2, ensure_ascii=False) + "\n"
