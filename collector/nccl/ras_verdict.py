"""Judges a job by two answers of NCCL's RAS, half a minute apart. Pure.

Counts rise on the host when a collective is launched, not when it is over, and ranks are asked one
after the other: one answer alone proves nothing. Of the communicators that stand still, those with
unequal counts decide; the others wait for them.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpuvigil.model import MOST_RANKS, Collective, RankState, RankStatus, Source

from .ras_status import (
    FINE,
    IN_PROGRESS,
    Communicator,
    Place,
    Rank,
    Status,
    by_size,
    numbers_in_the_job,
)

GpuOf = Callable[[Place], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """A communicator that stands still with unequal counts of one type of collective."""

    of: Communicator
    operation: str
    entered: int
    behind: Mapping[Place, int]  # and the count that each launched
    ahead: frozenset[Place]


def verdict(
    before: Status, after: Status, holder: str, gpu_of: GpuOf, own_hosts: Container[str]
) -> Collective | None:
    """Return how the job stands; None where it goes on, or the answers share no communicator.

    `gpu_of` returns the UUIDs of GPUs of this node's own processes.
    """
    earlier = {one.key: one for one in before.communicators}
    pairs = [(earlier[one.key], one) for one in after.communicators if one.key in earlier]
    if not pairs:
        return None
    names = numbers_in_the_job(after.communicators)
    largest = by_size(after for _, after in pairs)[0]
    hosts = sorted({place.host for place in names if place.host in own_hosts})

    def collective(
        stand: RankState, places: Mapping[Place, int | None], gap: _Gap | None = None
    ) -> Collective:
        found = sorted(places, key=lambda place: (names[place], place.host))
        return Collective(
            by=Source.RAS,
            holder=holder,
            stand=stand,
            group=(largest if gap is None else gap.of).key,
            size=(largest if gap is None else gap.of).size,
            operation="" if gap is None else gap.operation,
            entered=None if gap is None else gap.entered,
            count=len(found),
            ranks=tuple(
                RankStatus(
                    rank=names[place],
                    stand=stand,
                    gpu=gpu_of(place),
                    host=place.host,
                    device=place.device if place.device >= 0 else None,
                    reached=places[place],
                )
                for place in found[:MOST_RANKS]
            ),
            hosts=tuple(hosts[:MOST_RANKS]),
        )

    if lost := _lost(pairs, after):
        return collective(*lost)
    if any(_moved(*pair) for pair in pairs):
        return None
    if ill := _ill(pairs):
        return collective(*ill)
    gaps = [gap for _, now in pairs for gap in _gaps(now)]
    if gaps:
        gap, roots = _root_gap(gaps)
        return collective(RankState.BEHIND, {place: gap.behind[place] for place in roots}, gap)
    return collective(RankState.TOGETHER, {})


_Pairs = Iterable[tuple[Communicator, Communicator]]


def _lost(pairs: _Pairs, after: Status) -> tuple[RankState, Mapping[Place, int | None]] | None:
    """Return the dead ranks; else those silent in both answers, if a timeout was counted."""
    pairs = list(pairs)
    dead = {m.place for _, now in pairs for m in now.missing if m.dead}
    if dead:
        return RankState.DEAD, dict.fromkeys(dead)
    silent = {m.place for then, _ in pairs for m in then.missing if m.unresponsive}
    silent &= {m.place for _, now in pairs for m in now.missing if m.unresponsive}
    return (RankState.UNREACHABLE, dict.fromkeys(silent)) if silent and after.timeouts else None


def _moved(before: Communicator, after: Communicator) -> bool:
    earlier = {rank.rank: rank.counts for rank in before.ranks}
    return any(earlier.get(one.rank, one.counts) != one.counts for one in after.ranks)


def _ill(pairs: _Pairs) -> tuple[RankState, Mapping[Place, int | None]] | None:
    """Return the ranks failed in both answers; else those whose communicator is not made by then."""
    found: dict[RankState, dict[Place, int | None]] = defaultdict(dict)
    for before, after in pairs:
        earlier = {rank.rank: _illness(rank) for rank in before.ranks}
        for rank in after.ranks:
            ill = _illness(rank)
            if ill is not None and earlier.get(rank.rank) is ill:
                found[ill][rank.place] = None
    for stand in (RankState.FAILED, RankState.STARTING):
        if stand in found:
            return stand, found[stand]
    return None


def _illness(rank: Rank) -> RankState | None:
    codes = {rank.init_state, rank.async_error}
    if rank.aborted or codes - {FINE, IN_PROGRESS}:
        return RankState.FAILED
    return RankState.STARTING if rank.init_state == IN_PROGRESS else None


def _gaps(of: Communicator) -> Iterator[_Gap]:
    """Yield a gap for each type of collective whose counts differ."""
    ranks = [rank for rank in of.ranks if not rank.ending]
    for operation in sorted({name for rank in ranks for name in rank.counts}):
        counts = {rank.place: rank.counts.get(operation, 0) for rank in ranks}
        lowest, highest = min(counts.values()), max(counts.values())
        if lowest < highest:
            yield _Gap(
                of=of,
                operation=operation,
                entered=highest,
                behind={place: count for place, count in counts.items() if count == lowest},
                ahead=frozenset(place for place, count in counts.items() if count == highest),
            )


def _root_gap(gaps: list[_Gap]) -> tuple[_Gap, list[Place]]:
    """Return the narrowest gap, with the ranks behind that wait in no other communicator.

    A rank that waits in one communicator is late in all others.
    """
    waits = {place for gap in gaps for place in gap.ahead}
    free = [(gap, [place for place in gap.behind if place not in waits]) for gap in gaps]
    found = [(gap, them) for gap, them in free if them] or [(gap, list(gap.behind)) for gap in gaps]
    return min(
        found,
        key=lambda it: (
            len(it[1]),
            len(it[0].behind),
            -it[0].of.size,
            it[0].of.key,
            it[0].operation,
        ),
    )
