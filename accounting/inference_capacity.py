"""Whether a model has more replicas than its requests need: pure, from measurements.

A step is a minute or a few. In each step a replica reports how many requests ran and waited and how full
its key-value cache was, and its GPUs how active they were. The cache use and the activity of the replicas
add up: the load of the service in a step is the larger of the two sums, in full replicas. The activity is
that of the multiprocessors where it is measured, else the utilisation. Both can only overstate what one
replica would need for the work of two, since requests that are computed together share the reading of the
model. The limits are ours, chosen so that only obvious cases are reported.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil, fsum

from gpuvigil.numbers_in_words import of_many

# A replica is full from this share on: vLLM begins to preempt requests when its cache is full.
FULL_SHARE = 0.8
# A load counts as carried when it is carried in this share of the steps.
CARRIED_SHARE = 0.95
# A smaller share of a span's steps is too little to judge; the same as in the idle detector.
COVERAGE = 0.8
# Requests must wait in this share of the steps, and at least this many in each of these.
WAITING_SHARE = 0.2
WAITING_REQUESTS = 1.0
# The busiest replica must have this many times the load of the least busy, and this many requests at once.
UNBALANCED_TIMES = 3.0
UNBALANCED_REQUESTS = 2.0
UNBALANCED_ANSWERED = 100.0  # where only answers are counted: this many in the span
_NEARLY = 1e-9
Steps = Sequence[float | None]


class Verdict(str, Enum):
    """The judgement of a service."""

    NO_REQUESTS = "no requests"
    SATURATED = "saturated"
    UNBALANCED = "unbalanced"
    OVER_PROVISIONED = "over-provisioned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica over a span, in steps shared by all replicas; None in a step is not measured."""

    name: str
    gpus: tuple[str, ...] = ()  # keys of the GPUs that serve it, as far as known
    running: Steps = ()  # requests
    waiting: Steps = ()
    cache_percent: Steps = ()
    activity_percent: Steps = ()  # mean over its GPUs
    answered: float | None = None  # requests in the span
    preempted: float | None = None  # preemptions of requests in the span
    standby: bool = False  # declared to wait for work


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityVerdict:
    """The judgement of one service."""

    verdict: Verdict
    text: str  # the evidence
    advice: str
    replicas: int
    needed: int | None = None  # replicas that would carry the load
    spare_gpus: int = 0  # GPUs that could be given back


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The figures of a service over the span, for tables; None is not measured."""

    running_p95: float | None
    waiting_p95: float | None
    cache_p95_percent: float | None  # of the fullest replica in each step
    activity_percent: float | None
    answered: float | None
    needed: int | None


def judge(replicas: Sequence[Replica]) -> CapacityVerdict | None:
    """Return the most obvious judgement of the replicas of one model; None where there is nothing to say.

    Replicas declared as standby are left out.
    """
    serving = [one for one in replicas if not one.standby]
    if not serving:
        return None
    if all(_has_none(one) for one in serving):
        return CapacityVerdict(
            verdict=Verdict.NO_REQUESTS,
            text="no request ran, waited or was answered",
            advice="scale to zero, or declare it as standby",
            replicas=len(serving),
            needed=0,
            spare_gpus=_gpus(serving),
        )
    return _unbalanced(serving) or _saturated(serving) or _over(serving)


def needed(replicas: Sequence[Replica]) -> int | None:
    """Return how many such replicas carry the load of all in 95 % of the steps; at least one.

    None where too little was measured: the activity of every replica's GPUs in 80 % of the steps is needed.
    """
    asked = _asked(replicas)
    steps = max((len(one.activity_percent) for one in replicas), default=0)
    if not asked or len(asked) < COVERAGE * steps:
        return None
    return max(ceil(percentile(asked, CARRIED_SHARE) / FULL_SHARE - _NEARLY), 1)


def numbers(replicas: Sequence[Replica]) -> Numbers:
    """Return the figures of the service, for tables."""
    fullest = _each_step(replicas, "cache_percent", max)
    activity = _each_step(replicas, "activity_percent", _mean)
    answered = [one.answered for one in replicas if one.answered is not None]
    return Numbers(
        running_p95=_p95(_each_step(replicas, "running", fsum)),
        waiting_p95=_p95(_each_step(replicas, "waiting", fsum)),
        cache_p95_percent=_p95(fullest),
        activity_percent=_mean(activity) if activity else None,
        answered=fsum(answered) if answered else None,
        needed=needed(replicas),
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(ceil(share * len(ordered) - _NEARLY), 1) - 1]


def _has_none(one: Replica) -> bool:
    """Return whether enough steps were measured, and nothing ran, waited or was answered in them."""
    seen = [value for value in one.running if value is not None]
    waited = [value for value in one.waiting if value is not None]
    known = max(len(seen), len(waited))
    steps = max(len(one.running), len(one.waiting))
    # A short request may fall between two scrapes, but the server's own count includes it.
    nothing = not one.answered and not any(seen) and not any(waited)
    return bool(known) and known >= COVERAGE * steps and nothing


def _unbalanced(serving: Sequence[Replica]) -> CapacityVerdict | None:
    loads = _loads(serving)
    if loads is None or len(serving) < 2:
        return None
    unit, by_name = loads
    (least, low), *_, (busiest, high) = sorted(by_name.items(), key=lambda one: (one[1], one[0]))
    enough = UNBALANCED_REQUESTS if unit == "requests at once" else UNBALANCED_ANSWERED
    if high < enough or high < UNBALANCED_TIMES * low:
        return None
    if any(_waits(one) >= WAITING_SHARE for one in serving if one.name == least):
        return None  # nobody has room
    waits = max((_waits(one) for one in serving), default=0.0)
    waiting = f"; requests wait {waits * 100:.0f} % of the time at one of them" if waits else ""
    return CapacityVerdict(
        verdict=Verdict.UNBALANCED,
        text=f"{busiest} has {_rounded(high)} {unit} and {least} {_rounded(low)}{waiting}",
        advice="balance by requests under way or by cache, not in turn; look for sticky sessions",
        replicas=len(serving),
        needed=needed(serving),
    )


def _saturated(serving: Sequence[Replica]) -> CapacityVerdict | None:
    waits = [_waits(one) for one in serving]
    full = [one for one, share in zip(serving, waits, strict=True) if share >= WAITING_SHARE]
    if not full or len(full) * 2 < len(serving):
        return None
    found = numbers(full)
    cache = found.cache_p95_percent
    put_back = fsum(one.preempted or 0.0 for one in full)
    least = min(share for share in waits if share >= WAITING_SHARE)
    said = f"requests wait at least {least * 100:.0f} % of the time"
    said += f" at {len(full)} of {len(serving)} replicas, {_rounded(found.waiting_p95 or 0.0)} at the p95"
    if cache is not None:
        said += f"; the cache is {cache:.0f} % full at the p95"
    said += f", {of_many(put_back, 'requests')} put back" if put_back else ""
    tight = cache is None or cache >= 100.0 * FULL_SHARE
    return CapacityVerdict(
        verdict=Verdict.SATURATED,
        text=said,
        advice="add replicas, or shorten contexts"
        if tight
        else "the cache has room: let more requests run at once (max_num_seqs, instances)",
        replicas=len(serving),
        needed=needed(serving),
    )


def _over(serving: Sequence[Replica]) -> CapacityVerdict | None:
    would = needed(serving)
    waited = _each_step(serving, "waiting", fsum)
    if would is None or would >= len(serving) or (waited and percentile(waited, 0.95) > 0.5):
        return None
    found = numbers(serving)
    cache = found.cache_p95_percent
    told = "" if cache is None else f", the fullest cache {cache:.0f} %"
    ran = (
        ""
        if found.running_p95 is None
        else f"{_rounded(found.running_p95)} requests at the p95{told}; "
    )
    spare = round(_gpus(serving) * (len(serving) - would) / len(serving))
    return CapacityVerdict(
        verdict=Verdict.OVER_PROVISIONED,
        text=f"{ran}{would} of {len(serving)} replicas would carry it, none over {FULL_SHARE * 100:.0f} % full",
        advice=f"run {would} and let an autoscaler add more",
        replicas=len(serving),
        needed=would,
        spare_gpus=spare,
    )


def _asked(replicas: Sequence[Replica]) -> list[float]:
    """Return the load in full replicas, for each step in which all replicas are known."""
    found = []
    cached = all(any(value is not None for value in one.cache_percent) for one in replicas)
    for place in range(min((len(one.activity_percent) for one in replicas), default=0)):
        sums = [_sum_at(replicas, "activity_percent", place)]
        if cached:
            sums.append(_sum_at(replicas, "cache_percent", place))
        known = [one for one in sums if one is not None]
        if len(known) == len(sums):
            found.append(max(known) / 100.0)
    return found


def _sum_at(replicas: Sequence[Replica], name: str, place: int) -> float | None:
    values = [_at(getattr(one, name), place) for one in replicas]
    known = [value for value in values if value is not None]
    return fsum(known) if len(known) == len(values) else None


def _each_step(
    replicas: Sequence[Replica], name: str, of: Callable[[Sequence[float]], float]
) -> list[float]:
    """Return one number for each step in which any replica has a value."""
    found = []
    for place in range(max((len(getattr(one, name)) for one in replicas), default=0)):
        values = [_at(getattr(one, name), place) for one in replicas]
        known = [value for value in values if value is not None]
        if known:
            found.append(of(known))
    return found


def _loads(serving: Sequence[Replica]) -> tuple[str, Mapping[str, float]] | None:
    """Return the load of each replica by name, in a unit measured for all; None where there is no such unit."""
    ran = {one.name: _at_once(one) for one in serving}
    if all(value is not None for value in ran.values()):
        return "requests at once", {name: value or 0.0 for name, value in ran.items()}
    if all(one.answered is not None for one in serving):
        return "requests answered", {one.name: one.answered or 0.0 for one in serving}
    return None


def _at_once(one: Replica) -> float | None:
    """Return the mean number of requests at once, running and waiting; None where too little is known."""
    pairs = [
        (ran, waited)
        for ran, waited in zip(one.running, one.waiting, strict=False)
        if ran is not None and waited is not None
    ]
    if not pairs or len(pairs) < COVERAGE * len(one.running):
        return None
    return fsum(ran + waited for ran, waited in pairs) / len(pairs)


def _waits(one: Replica) -> float:
    """Return the share of the steps in which requests waited; 0.0 where too little is known."""
    known = [value for value in one.waiting if value is not None]
    if not known or len(known) < COVERAGE * len(one.waiting):
        return 0.0
    return sum(value >= WAITING_REQUESTS for value in known) / len(known)


def _gpus(replicas: Sequence[Replica]) -> int:
    return len({gpu for one in replicas for gpu in one.gpus})


def _rounded(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 10.0 else f"{amount:.2g}"


def _at(values: Steps, place: int) -> float | None:
    return values[place] if place < len(values) else None


def _p95(values: Sequence[float]) -> float | None:
    return percentile(values, CARRIED_SHARE) if values else None


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)
