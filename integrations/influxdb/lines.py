"""Incidents, states and usage as line protocol. Pure; no person is named."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from accounting.usage.model import Bucket
from gpuvigil.clock import to_ns
from gpuvigil.faults.gpu_states import gpu_state
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.lineprotocol import encode
from gpuvigil.model import (
    UNREADABLE,
    GpuState,
    Incident,
    Inventory,
    Record,
    RecordKind,
    Severity,
    Subject,
)

# What a row of `gpu` has to say of a GPU's state.
STATE_FIELDS = ("up", "unmeasured_reason", "utilization_percent", "compute_processes")
# What is followed as it changes.
KINDS = frozenset({RecordKind.INCIDENT, RecordKind.USAGE})
_AMOUNTS = ("allocated", "measured", "used", "idle", "shared", "energy_joules")
_INCIDENTS, _STATES = "gpuvigil_incidents", "gpuvigil_gpu_states"
_USAGE, _ACCOUNTS = "gpuvigil_usage", "gpuvigil_usage_accounts"

Rows = Iterable[Mapping[str, Any]]


def of_record(record: Record) -> list[str] | None:
    """The lines of an incident or a quarter of an hour of usage; None for one that cannot be read."""
    if record.marked:
        return []
    try:
        if record.kind is RecordKind.INCIDENT:
            return _of_incident(Incident.from_record(record))
        return list(_of_usage(Bucket.from_record(record, places=False)))
    except UNREADABLE:
        return None


def _of_incident(one: Incident) -> list[str]:
    """As it was at its last change; the same change again is the same line."""
    subject = one.subject
    place = subject.gpu or (f"{subject.device}/{subject.port}" if subject.device else "node")
    line = encode(
        _INCIDENTS,
        {
            "cluster": subject.cluster,
            "node": subject.node,
            "subject": place,
            "fault": one.fault,
            "severity": one.severity.value,
        },
        {
            "id": one.id,
            "state": one.state,
            "open": int(State(one.state) in ACTIVE),
            "title": one.title,
            "label": one.label,
            "gpus": one.impact.gpus,
            "held": int(one.out_of_service is not None),
            "since": one.since.timestamp(),
        },
        to_ns(one.updated_at),
    )
    return [line] if line else []


def _of_usage(bucket: Bucket) -> Iterator[str]:
    """The cluster's, and each account's; a quarter that is counted again replaces its lines."""
    at = to_ns(bucket.start)
    counted = {"gpus": bucket.gpus, "nodes": bucket.nodes, "settled": int(bucket.settled)}
    seconds = {name: float(value) for name, value in asdict(bucket.seconds).items()}
    yield from _some(encode(_USAGE, {"cluster": bucket.cluster}, {**counted, **seconds}, at))
    shares: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for share in bucket.shares:
        for name in _AMOUNTS:
            shares[share.account or "none", share.partition or "none"][name] += getattr(share, name)
    for (account, partition), amounts in sorted(shares.items()):
        tags = {"cluster": bucket.cluster, "account": account, "partition": partition}
        values = {name: float(amounts[name]) for name in _AMOUNTS}
        yield from _some(encode(_ACCOUNTS, tags, values, at))


def of_states(
    inventories: Sequence[Inventory],
    rows: Rows,
    held: Iterable[Subject],
    active: Iterable[Incident],
    now: datetime,
) -> list[str]:
    """How many GPUs of each node are in which state; every GPU that is known is in one."""
    newest = {(row["cluster"], row["node"], row["uuid"]): row for row in rows}
    holds, faults = set(held), _faults(active)
    found = []
    for inventory in inventories:
        node = inventory.subject
        if node.marked:
            continue
        counted = dict.fromkeys((state.value for state in GpuState), 0)
        for gpu in inventory.gpus:
            subject = Subject(cluster=node.cluster, node=node.node, gpu=gpu.uuid)
            state, _ = gpu_state(
                newest.get((node.cluster, node.node, gpu.uuid)),
                held=subject in holds,
                faults={**faults[node.key], **faults[subject.key]},
            )
            counted[state.value] += 1
        tags = {"cluster": node.cluster, "node": node.node}
        found += _some(encode(_STATES, tags, counted, to_ns(now)))
    return found


def _faults(active: Iterable[Incident]) -> defaultdict[str, dict[str, Severity]]:
    """The open incidents of each subject, by its key."""
    found: defaultdict[str, dict[str, Severity]] = defaultdict(dict)
    for one in active:
        for key in {one.subject.key, *one.members}:
            found[key][one.fault] = one.severity
    return found


def _some(line: str | None) -> list[str]:
    return [line] if line else []
