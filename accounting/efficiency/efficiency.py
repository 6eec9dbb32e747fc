"""Busy jobs that get little out of their GPUs, and what would help: pure, from measurements.

A GPU's utilisation says that a kernel ran, not how much of the GPU it filled. That an activity of the
multiprocessors (SM) under 50 % "likely indicates ineffective GPU usage" is from NVIDIA's DCGM user
guide, "Feature Overview, Profiling Metrics"; the other limits are ours, chosen so that only obvious cases
are reported. A GPU that runs kernels for less than a tenth of the time is hardly used, however well it is
filled then. A missing measurement says nothing: older GPUs have no such counters, and a GPU that was lost
or hung has few samples, each of them 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import fsum

# From here on a GPU is busy; under it a job waits for something else than its GPU.
BUSY_PERCENT = 80.0
LITTLE_SM_PERCENT = 50.0
# A job for a slice or a smaller model: so little of the multiprocessors, and of the memory.
SMALL_SM_PERCENT = 25.0
SMALL_MEMORY_SHARE = 0.25
# Half of the memory is free and neither it nor its bandwidth is what holds the job up.
ROOM_MEMORY_SHARE = 0.5
ROOM_DRAM_PERCENT = 50.0
NOTHING_PERCENT = 1.0
# Used for less of the time than this a GPU is hardly used; one that was this busy at a sample works in bursts.
HARDLY_PERCENT = 10.0
BURST_PERCENT = 50.0
# A smaller share of a span's samples is too little to judge an hour.
COVERAGE = 0.8
_GIB = 1024**3


class Advice(str, Enum):
    """What a holder could do."""

    FEWER = "ask for fewer GPUs"
    GATHER = "gather the work, or share the GPU"
    FEED = "feed it faster, or take a slice"
    SMALLER = "a smaller GPU or a slice would do"
    BATCH = "the batch can grow"
    LITTLE = "busy and doing little"


# Advice about the share of time in which a GPU is used, not about how well it is filled then.
HARDLY_USED = frozenset({Advice.GATHER, Advice.FEED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of one held GPU over a span; a value that was not measured is None."""

    utilization_percent: float | None  # this and the other percents are means, `most` is a maximum
    utilization_most_percent: float | None
    sm_percent: float | None = None
    tensor_percent: float | None = None
    dram_percent: float | None = None
    memory_most_bytes: float | None = None
    memory_total_bytes: float | None = None
    coverage: float = 1.0  # share of the expected samples, from the span's beginning on


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyAdvice:
    """The advice for one holder, and how many of its GPUs it is about."""

    advice: Advice
    text: str
    gpus: int
    wasted_share: float  # share of these GPUs' time


def judge(works: Sequence[Work], on_call: bool = False) -> EfficiencyAdvice | None:
    """Return the most obvious advice for all GPUs of one holder; None where there is nothing to say.

    GPUs that computed nothing come first; a job whose GPUs all computed nothing is idle, which is reported
    elsewhere. Nothing is said about a holder with a GPU that has too few samples. A holder that is
    `on_call` is not blamed for low utilisation.
    """
    if any(one.coverage < COVERAGE for one in works):
        return None
    known = [one for one in works if one.utilization_most_percent is not None]
    still = [one for one in known if (one.utilization_most_percent or 0.0) < NOTHING_PERCENT]
    if still and len(still) < len(works) == len(known):
        left = len(works) - len(still)
        said = f"{len(still)} of its {len(works)} GPUs computed nothing: {left} would have done"
        return EfficiencyAdvice(advice=Advice.FEWER, text=said, gpus=len(still), wasted_share=1.0)
    if len(still) == len(works):
        return None
    busy = _mean([one.utilization_percent for one in works])
    sm = _mean([one.sm_percent for one in works])
    if busy is not None and busy < HARDLY_PERCENT and not on_call:
        return _hardly_used(busy, sm, works)
    return None if busy is None or sm is None else _hardly_filled(busy, sm, works)


def _hardly_filled(busy: float, sm: float, works: Sequence[Work]) -> EfficiencyAdvice | None:
    """Judge GPUs that compute but leave most of their multiprocessors and memory free."""
    memory = _memory(works)
    if sm < SMALL_SM_PERCENT and memory is not None and memory < SMALL_MEMORY_SHARE:
        advice = Advice.SMALLER
        said = f"uses {sm:.0f} % of the multiprocessors and {_bytes(works)} of memory at most"
    elif _has_room(busy, sm, memory, works):
        advice, said = Advice.BATCH, _room_words(busy, sm, works)
    elif busy >= BUSY_PERCENT and sm < LITTLE_SM_PERCENT:
        advice = Advice.LITTLE
        said = (
            f"a kernel runs {busy:.0f} % of the time and fills {sm:.0f} % of the multiprocessors"
            f"{_tensor_words(works)}: small kernels, or many of them one by one"
        )
    else:
        return None
    return EfficiencyAdvice(
        advice=advice, text=said, gpus=len(works), wasted_share=max(1.0 - sm / 100.0, 0.0)
    )


def _hardly_used(busy: float, sm: float | None, works: Sequence[Work]) -> EfficiencyAdvice:
    """Judge GPUs that compute for a small share of the time; one busy sample identifies bursts."""
    most = max((one.utilization_most_percent or 0.0 for one in works), default=0.0)
    bursts = most >= BURST_PERCENT
    said = (
        f"works in bursts: {busy:.1f} % used in the mean, {most:.0f} % at most"
        if bursts
        else f"is used for {busy:.1f} % of the time in the mean, and never for more than {most:.0f} %"
    )
    return EfficiencyAdvice(
        advice=Advice.GATHER if bursts else Advice.FEED,
        text=said,
        gpus=len(works),
        wasted_share=max(1.0 - (busy if sm is None else sm) / 100.0, 0.0),
    )


def _has_room(busy: float, sm: float, memory: float | None, works: Sequence[Work]) -> bool:
    dram = _mean([one.dram_percent for one in works])
    return (
        busy >= BUSY_PERCENT
        and sm < LITTLE_SM_PERCENT
        and memory is not None
        and memory < ROOM_MEMORY_SHARE
        and dram is not None
        and dram < ROOM_DRAM_PERCENT
    )


def _room_words(busy: float, sm: float, works: Sequence[Work]) -> str:
    return (
        f"busy {busy:.0f} % of the time with {sm:.0f} % of the multiprocessors, and only"
        f" {_bytes(works)} of memory is used: larger batches would fill it"
    )


def _tensor_words(works: Sequence[Work]) -> str:
    tensor = _mean([one.tensor_percent for one in works])
    return "" if tensor is None else f", the tensor cores {tensor:.0f} %"


def _memory(works: Sequence[Work]) -> float | None:
    """Return the largest share of a GPU's memory in use; None if any GPU lacks the measurement."""
    shares = [
        one.memory_most_bytes / one.memory_total_bytes
        for one in works
        if one.memory_most_bytes is not None and one.memory_total_bytes
    ]
    return max(shares) if len(shares) == len(works) and shares else None


def _bytes(works: Sequence[Work]) -> str:
    most = max((one.memory_most_bytes or 0.0 for one in works), default=0.0)
    total = max((one.memory_total_bytes or 0.0 for one in works), default=0.0)
    return f"{most / _GIB:.0f} of {total / _GIB:.0f} GiB"


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None if any value was not measured, since a part says nothing about all."""
    seen = [value for value in values if value is not None]
    return fsum(seen) / len(seen) if seen and len(seen) == len(values) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scattered:
    """Free GPUs on partly held nodes."""

    gpus: int
    nodes: int
    whole: int  # nodes that these GPUs would make if they were together


def scattered(free_and_all: Sequence[tuple[int, int]]) -> Scattered | None:
    """Return the fragmentation, from (free, total) GPUs per node; None where it costs no whole node."""
    parts = [(free, gpus) for free, gpus in free_and_all if 0 < free < gpus]
    largest = max((gpus for _, gpus in free_and_all), default=0)
    gpus = sum(free for free, _ in parts)
    whole = gpus // largest if largest else 0
    return Scattered(gpus=gpus, nodes=len(parts), whole=whole) if whole else None
