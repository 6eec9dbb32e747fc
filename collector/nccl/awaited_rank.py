"""Finds the rank that a job's others wait for in collectives: the last to enter is in them least.

`coll_sn` counts for a communicator and a type of collective, so the same number at several ranks is
the same collective. The time that the others wait for one rank is compared with the time from one
collective to the next: when a job communicates most of the time, a slow rank costs little of it.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gpuvigil.model import Collective, RankState, RankStatus, Source

from .inspector import Op

# Ours: the least number of ranks and collectives. In nine of ten spans one rank must be in them for the
# shortest time, and be at least half as far from the next rank as from the median of the others.
LEAST_RANKS, LEAST_COMPARED = 4, 20
SPANS, LEAST_SPANS, LEAST_APART = 10, 9, 0.5
# The least share of the job's time that the waiting costs, in thousandths: for a rank that works a tenth longer
# it is 37 and more where communication or input takes most of the time. Without times of writing: the rank is in
# the collectives for at most half as long as the others.
LEAST_COST, MOST_OF_OTHERS = 25, 0.5
# The others must be in them this much longer: less is the order in which a ring goes round.
LEAST_MICROSECONDS = 200
# Files of a job with long steps reach far back: a rank may also be last in what was written this lately,
# at so many times of writing at least [ours].
LATELY_SECONDS, LEAST_WRITTEN = 60, SPANS
# Upper limit of `AwaitedRank.seconds`, whatever a file says.
MOST_SECONDS = 86_400
# A gap between written lines is a pause if it is over this many times the next longest one: each step
# may have a gap without any lines.
PAUSE_TIMES = 2

_Ranks = Mapping[int, Op]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedRank:
    """The rank of a communicator that the others wait for."""

    op: Op
    compared: int
    percent: int
    microseconds: int
    others: int
    pids: Mapping[str, set[int]]  # processes of all reporting ranks, by host
    cost: int | None = None  # thousandths of the job's time in which the others wait for it
    cost_before: int | None = None  # the same at a much earlier time; None: not known
    seconds: int = 0  # for which the rank has come last, at least

    @property
    def host(self) -> str:
        return self.op.host

    @property
    def pid(self) -> int:
        return self.op.pid

    def collective(self, holder: str, gpu: str | None) -> Collective:
        """Return the rank's stand as the event reports it."""
        rank = RankStatus(
            rank=self.op.rank,
            stand=RankState.FIRST,
            gpu=gpu,
            host=self.op.host,
            microseconds=self.microseconds,
        )
        return Collective(
            by=Source.INSPECTOR,
            holder=holder,
            stand=RankState.FIRST,
            group=self.op.communicator,
            size=self.op.size,
            operation=self.op.operation,
            count=1,
            ranks=(rank,),
            compared=self.compared,
            percent=self.percent,
            microseconds=self.others,
            cost=self.cost,
            cost_before=self.cost_before,
            seconds=self.seconds,
        )


def awaited_ranks(ops: Iterable[Op]) -> list[AwaitedRank]:
    """Return the rank that the others wait for in each communicator that has one; largest first.

    Lines of another user count as another communicator's.
    """
    ones = [_awaited_rank(them) for them in _by_communicator(ops).values()]
    return sorted(
        (it for it in ones if it is not None), key=lambda it: (-it.op.size, it.op.communicator)
    )


def with_earlier_cost(ones: Iterable[AwaitedRank], ops: Iterable[Op]) -> Iterator[AwaitedRank]:
    """Yield each rank with what the others' waiting for it cost earlier."""
    them = _by_communicator(ops)
    for one in ones:
        waits = _waits(them.get((one.op.owner, one.op.communicator), ()))
        is_known = waits is not None and one.op.rank in waits.times
        yield replace(one, cost_before=waits.cost(one.op.rank)) if waits and is_known else one


def _by_communicator(ops: Iterable[Op]) -> dict[tuple[int, str], Sequence[_Ranks]]:
    found: dict[tuple[int, str], dict[tuple[str, int, str], dict[int, Op]]] = defaultdict(dict)
    for op in ops:
        of = found[op.owner, op.communicator].setdefault((op.operation, op.number, op.clock), {})
        of[op.rank] = op
    return {key: list(them.values()) for key, them in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waits:
    """How long the ranks of a communicator are in its collectives."""

    whole: Sequence[_Ranks]
    times: Mapping[int, float]  # of each rank in microseconds: the median of the spans' means
    shortest: Mapping[int, int]  # in how many spans each rank is in them for the shortest time
    every: float | None  # microseconds from one collective to the next, where it is known

    def others(self, rank: int) -> float:
        return statistics.median([them for it, them in self.times.items() if it != rank])

    def cost(self, rank: int) -> int | None:
        if self.every is None:
            return None
        return int(max(1000.0 * (self.others(rank) - self.times[rank]) / self.every, 0.0))


def _waits(collectives: Sequence[_Ranks]) -> _Waits | None:
    """Return the ranks' times, from the collectives that as many ranks reported as ever did.

    None with too few ranks or collectives.
    """
    most = max(map(len, collectives), default=0)
    whole = [ranks for ranks in collectives if len(ranks) == most]
    if most < LEAST_RANKS or len(whole) < LEAST_COMPARED:
        return None
    whole.sort(key=lambda ranks: min((op.written, op.number) for op in ranks.values()))
    shortest: dict[int, int] = defaultdict(int)
    means: dict[int, list[float]] = defaultdict(list)
    for span in range(SPANS):
        part = whole[span * len(whole) // SPANS : (span + 1) * len(whole) // SPANS]
        sums: dict[int, int] = defaultdict(int)
        for op in (op for ranks in part for op in ranks.values()):
            sums[op.rank] += op.microseconds
        least, second = sorted(sums, key=lambda it: sums[it])[:2]
        shortest[least] += sums[least] < sums[second]
        for rank, of in sums.items():
            means[rank].append(of / len(part))
    return _Waits(
        whole=whole,
        times={rank: statistics.median(of) for rank, of in means.items()},
        shortest=shortest,
        every=_every(whole),
    )


def _every(whole: Sequence[_Ranks]) -> float | None:
    """Return the microseconds from one collective to the next, without pauses.

    None where all lines were written at once.
    """
    told: dict[str, dict[int, int]] = defaultdict(dict)
    for ranks in whole:
        op = ranks[min(ranks)]
        told[op.operation][op.written] = op.number
    pace = sum(_pace(list(numbers.items())) for numbers in told.values())
    return 1.0 / pace if pace > 0.0 else None


def _pace(lines: Sequence[tuple[int, int]]) -> float:
    """Return collectives per microsecond, by the last number written at each time: lines get lost."""
    gaps = sorted((last[0] - one[0], last[1] - one[1]) for one, last in pairwise(lines))
    if len(gaps) > 1 and gaps[-1][0] > PAUSE_TIMES * gaps[-2][0]:
        gaps.pop()
    return sum(count for _, count in gaps) / max(sum(length for length, _ in gaps), 1)


def _awaited_rank(collectives: Sequence[_Ranks]) -> AwaitedRank | None:
    """Return the rank that was last in all that is known, or else in the last minute."""
    return _last_in(collectives) or _last_in(_lately(collectives))


def _lately(collectives: Sequence[_Ranks]) -> Sequence[_Ranks]:
    """Return the collectives of the last minute; none where that is all, or too little."""
    written = [min(op.written for op in ranks.values()) for ranks in collectives]
    since = max(written, default=0) - 1_000_000 * LATELY_SECONDS
    times = {at for at in written if at >= since}
    if min(written, default=0) >= since or len(times) < LEAST_WRITTEN:
        return ()
    return [ranks for ranks, at in zip(collectives, written, strict=True) if at >= since]


def _last_in(collectives: Sequence[_Ranks]) -> AwaitedRank | None:
    waits = _waits(collectives)
    if waits is None:
        return None
    rank = min(waits.times, key=lambda it: (waits.times[it], it))
    if waits.shortest[rank] < LEAST_SPANS or not _is_much(waits, rank):
        return None
    told = [op for ranks in waits.whole for op in ranks.values()]
    pids: dict[str, set[int]] = defaultdict(set)
    for op in told:
        pids[op.host].add(op.pid)
    return AwaitedRank(
        op=next(op for op in reversed(told) if op.rank == rank),
        compared=len(waits.whole),
        percent=100 * sum(_is_shortest(ranks, rank) for ranks in waits.whole) // len(waits.whole),
        microseconds=int(waits.times[rank]),
        others=int(waits.others(rank)),
        pids=pids,
        cost=waits.cost(rank),
        seconds=_seconds(waits.whole[len(waits.whole) * (SPANS - LEAST_SPANS) // SPANS :]),
    )


def _seconds(collectives: Sequence[_Ranks]) -> int:
    """In which they were written."""
    written = [op.written for ranks in collectives for op in ranks.values()]
    return min((max(written) - min(written)) // 1_000_000, MOST_SECONDS)


def _is_much(waits: _Waits, rank: int) -> bool:
    own, others = waits.times[rank], waits.others(rank)
    second = min(them for it, them in waits.times.items() if it != rank)
    if others - own < LEAST_MICROSECONDS or second - own < LEAST_APART * (others - own):
        return False
    cost = waits.cost(rank)
    return own <= MOST_OF_OTHERS * others if cost is None else cost >= LEAST_COST


def _is_shortest(ranks: _Ranks, rank: int) -> bool:
    own = ranks[rank].microseconds
    return all(own < op.microseconds for it, op in ranks.items() if it != rank)
