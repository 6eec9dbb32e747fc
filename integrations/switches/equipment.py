"""Power and cooling of nodes and racks as Prometheus knows them, from look to look."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from gpuvigil.clock import Clock
from gpuvigil.log import Log
from gpuvigil.model import UNREADABLE, Record, Subject, readable
from gpuvigil.model.equipment import Equipment, FailedPart, PartKind, rack_subject

from ..fabric.seen import NotReadError
from ..fabric.watch import at_once
from .answers import LONGEST, Sample, finite, without_port
from .equipment_mapping import EquipmentMapping, PartTable

# What is as it was is told again, so that its age says that somebody looks.
_REPORT_EVERY = timedelta(minutes=5)
# What has just failed is told with each look: the next one confirms it.
_YOUNG = timedelta(minutes=10)
_RECORDS_AT_ONCE = 500

Ask = Callable[[EquipmentMapping, PartTable, int], Sequence[Sample]]
"""What Prometheus answers to the table with this number; NotReadError where it does not."""


@dataclass(slots=True)
class Parts:
    """The parts of one node or rack in one look: how many of each kind, what has failed, and what has a value."""

    counted: Counter[PartKind] = field(default_factory=Counter)
    failed: dict[tuple[PartKind, str], str] = field(default_factory=dict)
    has_value: dict[tuple[PartKind, str], bool] = field(default_factory=dict)


def seen(mapping: EquipmentMapping, ask: Ask) -> dict[str, Parts]:
    """The parts by node or rack; NotReadError where a query fails, or none has a series.

    One query that fails may be the one of a part that has failed, so nothing is told then.
    """
    found: dict[str, Parts] = {}
    for number, table in enumerate(mapping.parts, 1):
        for name, part, value in _labelled(mapping, table, number, ask(mapping, table, number)):
            parts = found.setdefault(name, Parts())
            key = table.kind, part
            # Of several series of one part any value will do.
            parts.has_value[key] = value is not None or parts.has_value.get(key, False)
            if value is None:
                continue
            parts.counted[table.kind] += 1
            if table.is_failed(value):
                parts.failed[key] = table.text_of(value)
    found = {name: parts for name, parts in found.items() if parts.counted}
    if not found:
        raise NotReadError(f"{mapping.file}: Prometheus has no series for any of its queries")
    return found


def _labelled(
    mapping: EquipmentMapping, table: PartTable, number: int, samples: Sequence[Sample]
) -> Iterator[tuple[str, str, float | None]]:
    """Each series with its node or rack, its part and its number, if any; NotReadError where all lack a label."""
    needed = (mapping.whose, table.name)
    complete = [it for it in samples if all(it.labels.get(label) for label in needed)]
    if samples and not complete:
        label = next(label for label in needed if not samples[0].labels.get(label))
        has = ", ".join(sorted(set(samples[0].labels) - {"__name__"}))[:LONGEST] or "none"
        raise NotReadError(
            f"{mapping.where(number)}: the answer has no label {label!r}; its labels are {has}"
        )
    for it in complete:
        # Below zero is no value either: some exporters say -1 where a sensor does not answer.
        name, part = without_port(it.labels[mapping.whose]), it.labels[table.name][:LONGEST]
        yield name, part, finite(it.value)


class EquipmentWatch:
    """Keeps the hub's picture of what powers and cools nodes."""

    def __init__(
        self,
        mappings: Sequence[EquipmentMapping],
        ask: Ask,
        cluster: str,
        file: Path,
        clock: Clock,
        log: Log,
    ) -> None:
        """What has failed is remembered in `file`, so that a restart does not begin it anew."""
        self._mappings, self._ask, self._cluster = mappings, ask, cluster
        self._file, self._clock, self._log = file, clock, log
        self._reported: dict[str, Equipment] = {it.subject.key: it for it in _remembered(file)}
        self._why = ""

    def round(self, send: Callable[[Sequence[Record]], None]) -> None:
        """One look, told, and only then remembered as told; what cannot be read grows old."""
        at, why = self._clock.now(), []
        now: dict[str, Equipment] = {}
        unread: set[tuple[bool, PartKind]] = set()  # of racks or of nodes
        for mapping in self._mappings:
            try:
                for name, parts in seen(mapping, self._ask).items():
                    self._add(now, mapping, name, parts, at)
            except NotReadError as error:
                why.append(str(error))
                unread |= {(mapping.of_racks, table.kind) for table in mapping.parts}
        self._log_change("; ".join(why))
        found = {key: _with_unread(it, self._reported.get(key), unread) for key, it in now.items()}
        news = [it for key, it in found.items() if _is_changed(self._reported.get(key), it)]
        for records in at_once((it.to_record() for it in news), _RECORDS_AT_ONCE):
            send(records)
        self._reported |= {it.subject.key: it for it in news}
        # Without a promise: what is lost is seen again.
        with suppress(OSError):
            _remember(self._file, self._reported.values())

    def _add(
        self,
        now: dict[str, Equipment],
        mapping: EquipmentMapping,
        name: str,
        parts: Parts,
        at: datetime,
    ) -> None:
        """Of a node that two files name, what both say; a failed part without a value has not recovered."""
        subject = (
            rack_subject(self._cluster, name)
            if mapping.of_racks
            else Subject(cluster=self._cluster, node=name)
        )
        before = _by_part(self._reported.get(subject.key))
        failed = _by_part(now.get(subject.key))
        failed |= {
            key: before[key] for key, has in parts.has_value.items() if key in before and not has
        }
        for (kind, part), said in parts.failed.items():
            known = before.get((kind, part))
            since = at if known is None else known.since
            failed[kind, part] = FailedPart(kind=kind, name=part, said=said, since=since)
        now[subject.key] = Equipment(
            subject=subject, at=at, failed=tuple(failed[key] for key in sorted(failed))
        )

    def _log_change(self, why: str) -> None:
        """One log line when something cannot be read, and one when all can again."""
        if why and why != self._why:
            self._log.warning("power and cooling are not read", why=why)
        elif self._why and not why:
            self._log.info("power and cooling are read again")
        self._why = why


def _is_changed(reported: Equipment | None, now: Equipment) -> bool:
    if reported is None or _by_part(reported).keys() != _by_part(now).keys():
        return True
    young = any(it.since >= now.at - _YOUNG for it in now.failed)
    return young or now.at - reported.at >= _REPORT_EVERY


def _with_unread(
    now: Equipment, reported: Equipment | None, unread: Collection[tuple[bool, PartKind]]
) -> Equipment:
    """With parts that had failed and of whose kind one file could not be read: they may still have."""
    kept = {**_by_part(reported), **_by_part(now)}
    failed = [
        it for key, it in kept.items() if key in _by_part(now) or (now.is_rack, it.kind) in unread
    ]
    return replace(now, failed=tuple(failed))


def _by_part(of: Equipment | None) -> dict[tuple[PartKind, str], FailedPart]:
    return {} if of is None else {(it.kind, it.name): it for it in of.failed}


def _remember(file: Path, known: Iterable[Equipment]) -> None:
    kept = [it.to_record().to_json() for it in known if it.failed]
    written = file.with_suffix(".new")
    written.write_text(json.dumps(kept), encoding="utf-8")
    written.replace(file)


def _remembered(file: Path) -> Iterator[Equipment]:
    """What failed as far as it was remembered; a file that cannot be read is none."""
    with suppress(OSError, *UNREADABLE):
        records = map(Record.from_json, json.loads(file.read_text(encoding="utf-8")))
        yield from readable(records, Equipment.from_record)


def summary(mapping: EquipmentMapping, found: Mapping[str, Parts]) -> list[str]:
    """What was found, for people, a line for each kind."""
    what = "rack" if mapping.of_racks else "node"
    lines = [f"{mapping.file}: {len(found)} {what}{'' if len(found) == 1 else 's'}"]
    for kind in dict.fromkeys(table.kind for table in mapping.parts):
        count = sum(parts.counted[kind] for parts in found.values())
        failed = [
            f"{name} {part} ({said})"
            for name, parts in sorted(found.items())
            for (of, part), said in sorted(parts.failed.items())
            if of is kind
        ]
        shown = f": {'; '.join(failed[:5])}" if failed else ""
        lines.append(f"  {kind.value}: {count} measured, {len(failed)} failed{shown}")
    return lines
