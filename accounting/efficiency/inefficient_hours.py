"""Inefficient holders, hour by hour, as kept for reports.

An hour is judged once, when it is over. A holder that had its GPUs alone and all the hour is judged by
`efficiency.judge`, as in `gpuvigil inefficient`. A holder that had them for a part of it is judged by the
whole quarters in that part. The waste counts for as long as it held them, or for as long as it was judged
where it hardly used them. Less than a quarter is not judged.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from datetime import datetime, timedelta
from urllib.parse import unquote

from gpuvigil.clock import to_text
from gpuvigil.model import Allocation, Incident, Inventory, Record, RecordKind, Subject

from ..usage.model import BUCKET, cluster_key
from .efficiency import HARDLY_USED, judge, scattered
from .efficiency_query import worked
from .idle_query import Excuses, Row, excuses
from .on_call import is_on_call

HOUR = timedelta(hours=1)
LEAST_PART = BUCKET  # the least part of an hour that can be judged
Span = tuple[datetime, datetime]
_Holder = tuple[str, str | None]  # and its user


@dataclass(frozen=True, slots=True)
class Waste:
    """The GPU time that one holder did not fill in an hour."""

    holder: str
    user: str | None
    account: str | None
    partition: str | None
    model: str | None  # of its GPUs
    advice: str
    gpus: int
    gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WasteHour:
    """The waste in one cluster in one hour."""

    cluster: str
    start: datetime
    wastes: tuple[Waste, ...]
    scattered_gpus: int  # free GPUs on partly held nodes that together would make whole nodes

    def to_record(self, version: int = 1) -> Record:
        """Return a record of kind `waste`; a later judgement of the same hour has a higher version."""
        return Record(
            kind=RecordKind.WASTE,
            id=f"{cluster_key(self.cluster)}|{to_text(self.start)}",
            at=self.start,
            subject=cluster_key(self.cluster),
            version=version,
            body={
                "wastes": [list(astuple(one)) for one in self.wastes],
                "scattered_gpus": self.scattered_gpus,
            },
        )

    @classmethod
    def from_record(cls, record: Record) -> "WasteHour":
        """Read what `to_record` wrote; ValueError, KeyError or TypeError for any other record."""
        count = len(fields(Waste))
        return cls(
            cluster=unquote(record.subject),
            start=record.at,
            wastes=tuple(Waste(*one[:count]) for one in record.body["wastes"]),
            scattered_gpus=int(record.body["scattered_gpus"]),
        )


def waste_hour(
    cluster: str,
    start: datetime,
    allocations: Iterable[Allocation],
    inventories: Sequence[Inventory],
    rows: Mapping[Span, Mapping[str, Row]],
    incidents: Iterable[Incident] = (),
) -> WasteHour:
    """Judge an hour of a cluster; holders that one of the `incidents` kept from computing are left out.

    `rows` are those of `work_span.ASKED` by GPU key, over the hour and over parts of it (`parts_of`).
    """
    hour = start, start + HOUR
    held = [one for one in allocations if _overlaps(one, hour)]
    ticks = {one.subject.key: one.tick_seconds for one in inventories}
    models = {
        replace(one.subject, gpu=it.uuid).key: it.model for one in inventories for it in one.gpus
    }
    excused = _Excused(incidents, hour)
    wastes = []
    for span, them in _judged_over(held, hour, rows):
        found = rows[span]
        keys = [one.subject.key for one in them]
        if any(key not in found for key in keys) or excused.hold_up(them):
            continue
        works = [worked(found[key], span, ticks.get(_node(key), 10.0)) for key in keys]
        judged = judge(works, on_call=any(map(is_on_call, them)))
        if judged is not None:
            one = them[0]
            # How well a program fills a GPU holds for the minutes beside the span; pauses do not.
            hardly = judged.advice in HARDLY_USED
            hours = (span[1] - span[0]) / HOUR if hardly else _part(them, hour)
            wastes.append(
                Waste(
                    holder=str(one.holder),
                    user=one.user,
                    account=one.account,
                    partition=one.partition,
                    model=models.get(keys[0]),
                    advice=judged.advice.value,
                    gpus=judged.gpus,
                    gpu_hours=round(judged.gpus * judged.wasted_share * hours, 4),
                )
            )
    return WasteHour(
        cluster=cluster,
        start=start,
        wastes=tuple(sorted(wastes, key=lambda one: (-one.gpu_hours, one.holder, one.user or ""))),
        scattered_gpus=_scattered(held, rows[hour], hour[1]),
    )


def parts_of(allocations: Iterable[Allocation], start: datetime) -> frozenset[Span]:
    """Return the parts of the hour from `start`, in whole quarters, that somebody held without holding all of it."""
    hour = start, start + HOUR
    parts = (_quarters(one, hour) for one in allocations if _overlaps(one, hour))
    return frozenset(part for part in parts if part[0] < part[1] and part != hour)


def _judged_over(
    held: Sequence[Allocation], hour: Span, parts: Collection[Span]
) -> Iterator[tuple[Span, Sequence[Allocation]]]:
    """Yield each holder that had its GPUs alone, with the part of the hour by which it is judged."""
    for span in sorted(parts):
        within = [one for one in held if _overlaps(one, span)]
        for them in _alone(within, span).values():
            if all(_quarters(one, hour) == span for one in them):
                yield span, them


def _quarters(one: Allocation, hour: Span) -> Span:
    """Return the part of the hour that an allocation had, in whole quarters."""
    begin, end = max(one.started_at, hour[0]), min(one.ended_at or hour[1], hour[1])
    first, last = -((hour[0] - begin) // BUCKET), (end - hour[0]) // BUCKET
    return hour[0] + first * BUCKET, hour[0] + last * BUCKET


def _part(held: Sequence[Allocation], hour: Span) -> float:
    """Return the mean share of the hour that the allocations had."""
    seconds = (min(one.ended_at or hour[1], hour[1]) - max(one.started_at, hour[0]) for one in held)
    return sum(seconds, timedelta()) / HOUR / len(held)


class _Excused:
    """The incidents of an hour, as excuses: one that was over before a holder had its GPUs excuses nothing."""

    def __init__(self, incidents: Iterable[Incident], hour: Span) -> None:
        self._hour = hour
        stood = (one for one in incidents if one.since < hour[1])
        self._stood = [one for one in stood if one.resolved_at is None or one.resolved_at > hour[0]]
        self._of: dict[Span, Excuses] = {}

    def hold_up(self, held: Sequence[Allocation]) -> bool:
        """Return whether an incident kept this holder from computing."""
        begin, until = self._hour
        begin = max(begin, min(one.started_at for one in held))
        until = min([until, *(one.ended_at for one in held if one.ended_at is not None)])
        if (begin, until) not in self._of:
            stood = (one for one in self._stood if one.since < until)
            self._of[begin, until] = excuses(stood, since=begin)
        return self._of[begin, until].hold_up([one.subject for one in held])


def _alone(
    held: Sequence[Allocation], span: tuple[datetime, datetime]
) -> Mapping[_Holder, Sequence[Allocation]]:
    """Return the holders that had each of their GPUs alone and over the whole span."""
    of_gpu: defaultdict[str, set[_Holder]] = defaultdict(set)
    found: defaultdict[_Holder, list[Allocation]] = defaultdict(list)
    out: set[_Holder] = set()
    for one in held:
        key = str(one.holder), one.user
        of_gpu[one.subject.key].add(key)
        found[key].append(one)
        whole = one.started_at <= span[0] and (one.ended_at is None or one.ended_at >= span[1])
        if one.part is not None or not whole:
            out.add(key)
    for holders in of_gpu.values():
        if len(holders) > 1:
            out |= holders
    return {key: them for key, them in found.items() if key not in out}


def _scattered(held: Sequence[Allocation], rows: Mapping[str, Row], at: datetime) -> int:
    """Return the measured GPUs free at the end, on partly held nodes, if together they make whole nodes."""
    taken = {one.subject.key for one in held if one.ended_at is None or one.ended_at >= at}
    gpus: defaultdict[str, list[bool]] = defaultdict(list)
    for key in rows:
        gpus[_node(key)].append(key not in taken)
    found = scattered([(sum(free), len(free)) for free in gpus.values()])
    return 0 if found is None else found.gpus


def _overlaps(one: Allocation, span: tuple[datetime, datetime]) -> bool:
    return one.started_at < span[1] and (one.ended_at is None or one.ended_at > span[0])


def _node(gpu: str) -> str:
    return Subject.parse(gpu).of_node().key
