"""Decide which nodes are shown, which are silent, and which of their rows are recent enough to trust."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import numpy as np

from gpuvigil.model import SWITCH_DEVICE, Inventory, Subject
from gpuvigil.model.expected_nodes import expected
from gpuvigil.model.reporting import silent_after

from ..model.facts import Facts
from ..model.gpus import Column
from .keys import Keys, NodeName

DEFAULT_TICK_SECONDS = 10.0

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
NEVER = np.iinfo(np.int64).min // 2  # far enough from the limit to calculate with


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowTimes:
    """The rows of one measurement: their subjects, and their times in microseconds."""

    keys: Keys
    at: Column


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeLiveness:
    """When each node was heard, in the roster's order; times in microseconds, NEVER for none."""

    heard: Sequence[datetime | None]
    heard_at: Column
    silent: Column
    trusted_since: Column  # older rows lag too far behind their node's newest
    newest_row: Column


def heard(facts: Facts, tables: Iterable[RowTimes]) -> dict[NodeName, datetime]:
    """Return when the hub last got something from each node, or its newest row if the hub cannot say."""
    found = dict(facts.last_seen)
    for sent in tables:
        if not facts.last_seen.keys() >= set(sent.keys.nodes):
            for name, at in sent.keys.newest(sent.at).items():
                if name not in facts.last_seen:
                    found[name] = max(found.get(name, time_of(at)), time_of(at))
    return found


def shown_nodes(
    facts: Facts,
    heard_at: Mapping[NodeName, datetime],
    inventories: Mapping[NodeName, Inventory],
) -> frozenset[NodeName]:
    """Return the expected nodes and those with an open incident, without switches."""
    # An inventory's time is by the node's own clock, so what the hub heard overrides it.
    told = {**{name: one.at for name, one in inventories.items()}, **heard_at}
    retired = {(one.node.cluster, one.node.node): one.at for one in facts.retirements}
    subjects = (one.subject for one in facts.incidents)
    incidents = {(it.cluster, it.node) for it in subjects if it.device != SWITCH_DEVICE}
    return expected(told, retired, incidents, facts.now, facts.listening_since)


def node_liveness(
    nodes: Sequence[NodeName],
    patience: Column,
    last_seen: Mapping[NodeName, datetime],
    newest_row: Column,
    now: datetime,
) -> NodeLiveness:
    """Return when nodes were heard and which are silent.

    Silence is judged by the hub's clock, the lag of a row by its node's clock. `patience` is how long a
    node may be silent, in microseconds.
    """
    last = [last_seen.get(name) for name in nodes]
    heard_at = np.array([NEVER if at is None else micro(at) for at in last], np.int64)
    silent = (heard_at == NEVER) | (micro(now) - heard_at > patience)
    return NodeLiveness(
        heard=last,
        heard_at=heard_at,
        silent=silent,
        trusted_since=np.where(newest_row == NEVER, heard_at, newest_row) - patience,
        newest_row=newest_row,
    )


def patience(inventory: Inventory | None, silent_after_seconds: float) -> int:
    """Return how long a node may be silent, in microseconds."""
    tick = inventory.tick_seconds if inventory is not None else DEFAULT_TICK_SECONDS
    return silent_after(silent_after_seconds, tick) // _MICROSECOND


def extended_limits(facts: Facts) -> dict[NodeName, int]:
    """Return how long, in microseconds, the analyzer waits for nodes that are heard with gaps."""
    found: dict[NodeName, int] = {}
    for pulse in facts.pulses:
        told = pulse.body.get("waited_for") if pulse.id == "analyzer" else None
        for key, seconds in (told or {}).items():
            node = Subject.parse(key)
            found[node.cluster, node.node] = int(seconds * 1_000_000)
    return found


def micro(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def time_of(at: int) -> datetime:
    return _EPOCH + at * _MICROSECOND
