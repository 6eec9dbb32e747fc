"""A quarter of an hour counted again in plain words: second by second, one GPU or MIG device after the other."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Any

from accounting.usage.count import Facts, Roster
from accounting.usage.out_of_service import Part
from accounting.usage.ownership import AllocationTable, Owner, owner_of
from accounting.usage.slices import weight
from gpuvigil.model import Inventory
from gpuvigil.schedulers.out_of_service import LostTo

Gpu = tuple[str, str]
Key = tuple[str, str, str]  # user, holder and model
MINUTE = timedelta(minutes=1)
QUARTER = 15 * MINUTE
AMOUNTS = ("allocated", "measured", "used", "idle", "shared", "energy_joules")
UNKNOWN = Owner(user="", holder="unknown")


@dataclass(slots=True)
class Unit:
    """A GPU, or a device of one, in one minute."""

    gpu: Gpu
    seconds: float  # its own, by its part of the GPU
    used: float | None  # as a share
    processes: float | None
    power: float | None
    lost: bool = False
    released: bool = False
    held: list[tuple[Owner, float, bool]] = field(default_factory=list)  # by whom, seconds, shared


@dataclass(slots=True)
class Told:
    """What came of it."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    places: dict[tuple[str, str], dict[str, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )
    holders: dict[Key, dict[str, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )
    commands: dict[Key, dict[str, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )
    gpus: dict[Key, set[Gpu]] = field(default_factory=lambda: defaultdict(set))
    present: dict[Gpu, str] = field(default_factory=dict)  # with its model


Rows = Mapping[tuple[Gpu, int], Mapping[str, float | None]]
# GPU and minute: name and profile of each device that sent, and what it sent.
Devices = Mapping[tuple[Gpu, int], Mapping[tuple[str, str], Mapping[str, float | None]]]


def means(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, float | None]:
    """Of several rows of one minute."""
    found: dict[str, float | None] = {}
    for name in names:
        values = [
            row[name] for row in rows if row.get(name) is not None and math.isfinite(row[name])
        ]
        found[name] = sum(values) / len(values) if values else None
    return found


def model_of(uuid: str) -> str:
    """Of which model a GPU of these tests is."""
    return "NVIDIA A30" if uuid == "GPU-1" else "H100"


def counted(facts: Facts, rows: Rows, devices: Devices) -> Told:
    """As `accounting.usage.count.count` says it."""
    told = Told()
    first = _installed(facts, {gpu for gpu, _ in rows}, rows)
    spans = _spans(facts)
    models = {gpu: model_of(gpu[1]) for gpu, _ in rows}
    for one in _inventories(facts):
        models |= {(one.subject.node, gpu.uuid): gpu.model for gpu in one.gpus}
    named = {(gpu[0], mig) for (gpu, _), them in devices.items() for mig, _ in them} & spans.keys()
    for minute in range(15):
        for gpu, since in first.items():
            seconds = 0.0 if minute < since else _width(facts, gpu, minute, rows)
            if seconds <= 0:
                continue
            told.present[gpu] = models.get(gpu, "")
            row = rows.get((gpu, minute), {})
            for key, unit in _units(gpu, minute, seconds, row, devices.get((gpu, minute), {})):
                whole = key is None or (gpu[0], key) not in named
                holders = spans.get(gpu if whole else (gpu[0], key or ""), [])
                if key is None or not whole or (unit.processes or 0) > 0:
                    unit.held = _held(holders, minute, unit.seconds / seconds)
                if key is None and unit.seconds < seconds:
                    unit.held = []
                _add(told, facts, unit, minute, rows)
    return told


def _expected(facts: Facts) -> set[str]:
    """The nodes that are known and neither retired nor played out."""
    end = min(facts.start + QUARTER, facts.now)
    told = {one.subject.node: one.at for one in _inventories(facts)} | dict(facts.last_seen)
    found = set(told)
    for node, at in told.items():
        retired = facts.retired.get(node)
        if retired is not None and at <= retired <= facts.start:
            found.discard(node)
        listened = facts.listening_since is not None and at >= facts.listening_since
        if facts.cluster == "simulated" and not listened and end - at > 10 * MINUTE:
            found.discard(node)
    return found


def _inventories(facts: Facts) -> list[Inventory]:
    assert not isinstance(facts.inventories, Roster)
    return list(facts.inventories)


def _installed(facts: Facts, sending: set[Gpu], rows: Rows) -> dict[Gpu, int]:
    """Each GPU and its first minute."""
    end = min(facts.start + QUARTER, facts.now)
    nodes = _expected(facts)
    left = facts.retired.keys() - nodes
    found = dict.fromkeys(sending | {gpu for gpu in facts.sent if gpu[0] not in left}, 0)
    known = set(facts.sent)
    for one in _inventories(facts):
        node, gpus = one.subject.node, {(one.subject.node, gpu.uuid) for gpu in one.gpus}
        before = node in facts.nodes_sent
        if before or one.at < facts.start:
            known |= gpus
        if node in nodes and (before or one.at < end):
            late = max(math.ceil((one.at - facts.start) / MINUTE), 0)
            found |= dict.fromkeys(gpus - found.keys(), late)
    for gpu in found:
        if gpu in known:
            found[gpu] = 0
        elif gpu in sending:
            found[gpu] = min(minute for one, minute in rows if one == gpu)
    return found


def _width(facts: Facts, gpu: Gpu, minute: int, rows: Rows) -> float:
    at = facts.start + minute * MINUTE
    seconds = min(max((facts.now - at).total_seconds(), 0.0), 60.0)
    if at + MINUTE > facts.now - timedelta(seconds=15) and (gpu, minute) not in rows:
        return 0.0
    heard = any(of == minute for _, of in rows)
    watched = facts.watched_since is not None and at >= facts.watched_since
    return seconds if heard or watched else 0.0


def _units(
    gpu: Gpu,
    minute: int,
    seconds: float,
    row: Mapping[str, float | None],
    devices: Mapping[tuple[str, str], Mapping[str, float | None]],
) -> list[tuple[str | None, Unit]]:
    """The GPU, or what is left of it, and its devices."""
    up, reason, power = row.get("up"), row.get("unmeasured_reason"), row.get("power_watts")
    answers = up is not None and up >= 0.5
    used = row.get("utilization_percent") if answers else None
    whole = Unit(
        gpu=gpu,
        seconds=seconds,
        used=None if used is None else min(max(used, 0.0), 100.0) / 100.0,
        processes=row.get("compute_processes"),
        power=power if power is not None and power >= 0 else None,
        lost=(up is not None and up < 0.5) or (up is None and reason in {3.0, 7.0}),
        released=reason == 7.0,
    )
    parts = {key: weight(key[1], model_of(gpu[1])) for key in devices if answers}
    total = max(sum(parts.values()), 1.0)
    found: list[tuple[str | None, Unit]] = []
    for (mig, profile), part in parts.items():
        sent = devices[mig, profile]
        activity = sent["graphics_activity_percent"]
        activity = sent["sm_activity_percent"] if activity is None else activity
        share = None if activity is None else min(max(activity, 0.0), 100.0) / 100.0
        one = seconds * part / total
        found.append(
            (mig, Unit(gpu, one, share if part else None, sent["compute_processes"], whole.power))
        )
    if any(parts.values()):
        whole.seconds = seconds * max(1.0 - sum(parts.values()) / total, 0.0)
        whole.used, whole.processes = 0.0, 0.0
    return [(None, whole), *found]


def _spans(facts: Facts) -> dict[Gpu, list[tuple[float, float, Owner, bool]]]:
    """Of each GPU or named device who held it from when to when, in seconds of the quarter."""
    found: dict[Gpu, list[tuple[float, float, Owner, bool]]] = defaultdict(list)
    assert not isinstance(facts.allocations, AllocationTable)
    length = (min(facts.start + QUARTER, facts.now) - facts.start).total_seconds()
    for one in facts.allocations:
        words = (one.part or "").split(",")
        names = [word for word in words if word.startswith("MIG-")] or [one.subject.gpu or ""]
        since = max((one.started_at - facts.start).total_seconds(), 0.0)
        until = length
        if one.ended_at is not None:
            until = min((one.ended_at - facts.start).total_seconds(), length)
        if since < until:
            for name in names:
                span = (since, until, owner_of(one), "shared" in words)
                found[one.subject.node, name].append(span)
    return found


def _held(
    spans: Sequence[tuple[float, float, Owner, bool]], minute: int, part: float
) -> list[tuple[Owner, float, bool]]:
    """Each piece between two moments at which anything changes."""
    sliced = any(shared for *_, shared in spans)
    edges = {60.0 * minute, 60.0 * (minute + 1)}
    edges |= {at for since, until, *_ in spans for at in (since, until)}
    inside = sorted(at for at in edges if 60.0 * minute <= at <= 60.0 * (minute + 1))
    found = []
    for since, until in pairwise(inside):
        now = [owner for a, b, owner, _ in spans if a <= since and until <= b]
        keys = {owner.key for owner in now}
        for owner in now:
            commands = sum(other.key == owner.key for other in now)
            seconds = (until - since) / len(keys) / commands * part
            found.append((owner, seconds, sliced or len(keys) > 1))
    return found


def _add(told: Told, facts: Facts, unit: Unit, minute: int, rows: Rows) -> None:
    """What one minute of a unit adds."""
    node, seconds = unit.gpu[0], unit.seconds
    out = facts.out or {}
    node_parts = _in_minute(out.get((node, ""), ()), minute)
    taken = sum(node_parts.values())
    mended = (1.0 - taken) * sum(_in_minute(out.get(unit.gpu, ()), minute).values())
    measured = unit.used is not None
    known = measured or unit.lost
    held = min(sum(part for _, part, _ in unit.held), seconds)
    if measured and held == 0 and (unit.processes or 0) > 0:
        unit.held, held = [(UNKNOWN, seconds, False)], seconds
        blind = False
    else:
        blind = unit.processes is None
    used = unit.used or 0.0
    still = measured and used == 0
    rest = seconds - held if still else 0.0
    gone = seconds if unit.lost else 0.0 if known else seconds * (taken + mended)
    open_rest = rest * (1 - taken)
    amounts = {
        "installed": seconds,
        "active": seconds if measured and not still else 0.0,
        "idle": held if still else 0.0,
        "free": 0.0 if blind else open_rest,
        "unavailable": gone + rest * taken,
        "unknown": (0.0 if known else seconds - gone) + (open_rest if blind else 0.0),
        "allocated": held if known else 0.0,
        "measured": held if measured else 0.0,
        "used": held * used,
        "powered": 0.0 if unit.power is None else seconds,
        "energy_joules": seconds * (unit.power or 0.0),
        "unattributed": (seconds - held) * (1 - taken if still else 1.0)
        if measured and blind
        else 0.0,
    }
    if facts.out is not None:
        amounts["judged"] = seconds
        away = seconds if unit.lost or not known else 0.0
        lost = {to: (away + rest) * part for to, part in node_parts.items()}
        lost[LostTo.REPAIR] = lost.get(LostTo.REPAIR, 0.0) + away * mended
        to = _own_loss(unit, known, _absent(node, facts, rows))
        if to is not None:
            lost[to] = lost.get(to, 0.0) + seconds * (1 - taken - mended)
        amounts |= {f"lost_{to.value}": amount for to, amount in lost.items()}
    for name, amount in amounts.items():
        told.seconds[name] += amount
        told.places[node, told.present[unit.gpu]][name] += amount
    for owner, part, shared in unit.held:
        _give(told, unit, owner, part, shared)


def _own_loss(unit: Unit, known: bool, absent: bool) -> LostTo | None:
    """What a GPU is lost to beside its node and its repair."""
    if unit.lost:
        return LostTo.MAINTENANCE if unit.released else LostTo.FAULT
    return LostTo.UNKNOWN if absent and not known else None


def _in_minute(parts: Sequence[Part], minute: int) -> dict[LostTo, float]:
    """What share of a minute was lost to what."""
    found: dict[LostTo, float] = defaultdict(float)
    for one in parts:
        begin, until = max(one.since, 60.0 * minute), min(one.until, 60.0 * (minute + 1))
        found[one.to] += max(until - begin, 0.0) / 60.0
    return found


def _absent(node: str, facts: Facts, rows: Rows) -> bool:
    end = min(facts.start + QUARTER, facts.now)
    at = facts.last_seen.get(node)
    recent = at is not None and end - QUARTER <= at < end
    return not recent and not any(gpu[0] == node for gpu, _ in rows)


def _give(told: Told, unit: Unit, owner: Owner, part: float, shared: bool) -> None:
    measured = unit.used is not None
    part_known = part if measured or unit.lost else 0.0
    amounts = {
        "allocated": part_known,
        "measured": part if measured else 0.0,
        "used": part * (unit.used or 0.0),
        "idle": part if measured and unit.used == 0 else 0.0,
        "shared": part_known if shared else 0.0,
        "energy_joules": part * (unit.power or 0.0),
    }
    key = *owner.key, told.present[unit.gpu]
    if part_known:
        told.gpus[key].add(unit.gpu)
        told.commands[key][owner.command] += part_known
    for name, amount in amounts.items():
        told.holders[key][name] += amount
