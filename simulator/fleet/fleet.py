"""The fleet: planned once, played as often as wanted."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from gpuvigil.faults import where
from gpuvigil.model import Subject

from ..fabric.cabling import SPINES, UPLINKS
from .costs import pace_taken
from .hardware import MODELS
from .kinds import kinds_of
from .model import Block, FaultOrder, FleetSettings, Happening, Truth
from .plan import Plan, make
from .play import Playing
from .records import RecordReporter
from .site import FaultKind, Site
from .switches import SwitchLooks
from .trainings import workloads_of
from .workloads import DAY


class Fleet:
    """A planned fleet; the package's docstring says what its blocks hold."""

    def __init__(self, settings: FleetSettings, plan: Plan) -> None:
        self.settings = settings
        self.plan = plan

    def truths(self) -> list[Truth]:
        """Return every fault of the horizon, in order of start."""
        return [self._truth(kind, site) for kind, site in self.plan.sites]

    def happenings(self) -> list[Happening]:
        """Return the events of normal operation, which are no faults, in order of start."""
        turns = sorted(self.plan.life.life_events, key=lambda turn: (turn.start, turn.subject))
        return [
            Happening(
                kind=turn.kind,
                subject=self.subject(turn.subject),
                start=self.at(turn.start),
                end=self.at(turn.end),
            )
            for turn in turns
        ]

    def blocks(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        tick_seconds: float = 10.0,
        block_seconds: float = 3600.0,
    ) -> Iterator[Block]:
        """Play from `start` to `end` (the whole horizon by default).

        The time before `start` is played too, but not returned: counters and heat have a past.
        ValueError when the times are not whole ticks.
        """
        first = self._seconds(start, 0.0)
        last = self._seconds(end, self.settings.days * DAY)
        if first % tick_seconds or block_seconds % tick_seconds:
            raise ValueError("start and block_seconds are whole numbers of ticks")
        playing = Playing(self.settings, self.plan, tick_seconds)
        teller = RecordReporter(self.settings, self.plan, tick_seconds)
        looks = SwitchLooks.of(self.settings, self.plan)
        happenings = self.happenings()
        at = 0.0
        while at < last:
            until = min(at + block_seconds, last if at >= first else first)
            ticks = np.arange(_ticks(at, tick_seconds), _ticks(until, tick_seconds))
            shown = playing.play(ticks, shown=at >= first)
            switches = looks.until(until)
            if shown is not None:
                tables, arrivals = shown
                begun = _begun(happenings, self.at(at), self.at(until))
                block = teller.block((at, until), first, tables, arrivals, begun)
                yield replace(block, switches=switches) if switches else block
            at = until

    def subject(self, what: tuple[str, int]) -> Subject:
        """Return the subject of ("gpu" | "port" | "node" | "switch" | "switch port", number)."""
        kind, number = what
        topology = self.plan.topology
        if topology.cabling is not None and kind == "switch":
            return topology.cabling.subject(number)
        if topology.cabling is not None and kind == "switch port":
            return topology.cabling.port_subject(number)
        if kind == "gpu":
            return topology.gpu_subject(number)
        return topology.port_subject(number) if kind == "port" else topology.node_subject(number)

    def at(self, seconds: float) -> datetime:
        return self.settings.start + timedelta(seconds=seconds)

    def _seconds(self, at: datetime | None, otherwise: float) -> float:
        return otherwise if at is None else (at - self.settings.start).total_seconds()

    def _truth(self, kind: FaultKind, site: Site) -> Truth:
        subject = site.subject
        affected = dict.fromkeys(one for one in site.affected if one != subject)
        return Truth(
            id=_id(kind, site),
            fault=kind.key,
            subject=self.subject(subject),
            start=self.at(site.start),
            end=self.at(site.end),
            detectable_from=self.at(site.seen),
            cause=kind.cause,
            symptoms=kind.symptoms,
            severity=kind.severity,
            action=kind.action,
            magnitude=site.magnitude,
            unit=kind.unit,
            affected=tuple(self.subject(one) for one in affected),
            group=site.group,
            also=tuple(self.subject(one) for one in site.also),
            named_by=self._named_by(kind, site),
            pace_lost=pace_taken(site, self.plan.jobs),
            costs=site.costs,
        )

    def _named_by(self, kind: FaultKind, site: Site) -> tuple[str, ...]:
        """Return what of the product names a fault; on a node that does not read it, nobody can tell its cause."""
        sort, alike = kind.unread or ("", ())
        unread = self.plan.topology.unread.get(sort)
        if unread is None or not unread[site.node]:
            return kind.named_by
        return tuple(sorted(where(lambda row: not set(alike).isdisjoint(row.simulated_as))))


def _id(kind: FaultKind, site: Site) -> str:
    order = site.order
    beyond = [f" {it}" for it in (order.uplink, order.spine) if it is not None]
    return f"{kind.key} {site.node} {order.gpu} {order.port}{''.join(beyond)} {site.start}"


def _begun(
    happenings: Sequence[Happening], start: datetime, end: datetime
) -> tuple[Happening, ...]:
    """Return the happenings that begin within the span."""
    first = bisect_left(happenings, start, key=lambda one: one.start)
    last = bisect_left(happenings, end, key=lambda one: one.start)
    return tuple(happenings[first:last])


def _ticks(seconds: float, tick_seconds: float) -> int:
    """Return the first tick that is not before that moment."""
    return -int(-seconds // tick_seconds)


def build(settings: FleetSettings) -> Fleet:
    """Plan a fleet; ValueError says which setting makes no sense."""
    _check(settings)
    return Fleet(settings, make(settings))


def _check(settings: FleetSettings) -> None:
    if settings.nodes < 1 or settings.gpus_per_node < 1 or settings.days <= 0.0:
        raise ValueError("a fleet has at least one node, one GPU per node and some time")
    known = kinds_of(settings)
    for names, there, word in (
        (settings.models, MODELS, "model"),
        (settings.workloads or (), workloads_of(settings), "workload"),
        ([*(settings.kinds or ()), *(order.kind for order in settings.faults)], known, "fault"),
    ):
        for name in names:
            if name not in there:
                raise ValueError(f"{name!r} is no {word}; there are {', '.join(there)}")
    for order in settings.faults:
        if not 0 <= order.node < settings.nodes:
            raise ValueError(f"fault {order.kind!r}: there is no node {order.node}")
        _check_place(order, known[order.kind].target, settings)


def _check_place(order: FaultOrder, target: str, settings: FleetSettings) -> None:
    per_node = settings.gpus_per_node
    needed = {
        "gpu": (("gpu", order.gpu, per_node),),
        "port": (("port", order.port, per_node),),
        "node": (),
        "uplink": (("port", order.port, per_node), ("uplink", order.uplink, UPLINKS)),
        "spine": (("spine", order.spine, SPINES),),
    }[target]
    for word, place, below in needed:
        if place is None or not 0 <= place < below:
            raise ValueError(f"fault {order.kind!r} needs a {word} of 0 to {below - 1}")
