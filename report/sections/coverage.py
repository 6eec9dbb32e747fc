"""Coverage: how much of a span is known, and the range that the rest leaves open."""

import math
from dataclasses import dataclass
from datetime import datetime

from accounting.usage import BUCKET, Usage

from ..model.rounding import near

# Below this, a single number would claim more than is known.
FULL_PERCENT = 95.0
# Below this, two spans are not compared.
COMPARABLE_PERCENT = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Known and unknown GPU-seconds of a span.

    If counting began within the span, the span is taken from then on. A quarter of an hour that is missing
    after that counts with as many GPUs as the one before it.
    """

    known: float
    unknown: float  # counted, but in an unknown state
    missing: float  # not counted at all
    quarters: int
    quarters_missing: int
    counted_since: datetime | None  # None: counting began before the span

    @property
    def whole(self) -> float:
        return self.known + self.unseen

    @property
    def unseen(self) -> float:
        return self.unknown + self.missing

    @property
    def percent(self) -> float | None:
        return 100.0 * self.known / self.whole if self.whole > 0 else None

    @property
    def is_full(self) -> bool:
        return self.percent is not None and self.percent >= FULL_PERCENT


def coverage(usage: Usage, before: Usage) -> Coverage:
    """Return the coverage of `usage`; `before` shows whether counting had begun by then."""
    seconds = usage.seconds
    first = None if before.buckets or not usage.buckets else usage.buckets[0]
    began = None if first is None else first.began
    if began is not None and began < usage.start + BUCKET:
        began = None
    start = began or usage.start
    quarters = max(math.ceil((usage.end - start) / BUCKET), len(usage.buckets))
    return Coverage(
        known=seconds.known,
        unknown=seconds.unknown,
        missing=_missing(usage, start),
        quarters=quarters,
        quarters_missing=quarters - len(usage.buckets),
        counted_since=began,
    )


def _missing(usage: Usage, start: datetime) -> float:
    """Return GPU-seconds between the counted quarters, assuming that the number of GPUs stayed the same."""
    if not usage.buckets:
        return 0.0
    missing, reached, gpus = 0.0, start, usage.buckets[0].gpus
    for bucket in usage.buckets:
        missing += max((bucket.start - reached).total_seconds(), 0.0) * gpus
        reached, gpus = bucket.start + BUCKET, bucket.gpus
    return missing + max((usage.end - reached).total_seconds(), 0.0) * gpus


def allocated_range(usage: Usage, cover: Coverage) -> tuple[float, float] | None:
    """Return allocated percent if none, and if all, of the unknown had been allocated; None if not needed."""
    if cover.is_full or cover.whole <= 0 or usage.allocated_percent is None:
        return None
    allocated = usage.seconds.allocated
    return near(100 * allocated / cover.whole), near(100 * (allocated + cover.unseen) / cover.whole)


def used_range(usage: Usage, cover: Coverage) -> tuple[float, float] | None:
    """Return used percent if the unknown had been allocated and unused, or fully used; None if not needed."""
    seconds = usage.seconds
    unseen = cover.unseen + max(seconds.allocated - seconds.measured, 0.0)
    whole = seconds.measured + unseen
    if cover.is_full or whole <= 0:
        return None
    return near(100 * seconds.used / whole), near(100 * (seconds.used + unseen) / whole)


def comparison(now: Coverage, before: Coverage, word: str) -> tuple[bool, str]:
    """Return whether the previous span may be compared with this one, and the sentence that says so."""
    if before.percent is None or before.counted_since is not None:
        return False, f"No comparison: nothing, or only a part, was counted in {word}."
    low = min(now.percent or 0.0, before.percent)
    if now.counted_since is not None or low < COMPARABLE_PERCENT:
        return False, f"No comparison with {word}: less than 90 % of one of them is known."
    return True, f"Changes are against {word}."
