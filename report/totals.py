"""Usage with its sums, made once: adding up months of buckets is work."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from accounting.usage import Bucket, Seconds, Usage, share_percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A `Usage`, and what it adds up to."""

    cluster: str
    start: datetime
    end: datetime
    buckets: Sequence[Bucket]
    seconds: Seconds
    gpus: int
    nodes: int

    @property
    def time(self) -> timedelta:
        """How much of the span was counted at all."""
        return sum((bucket.counted for bucket in self.buckets), timedelta())

    @property
    def allocated_percent(self) -> float | None:
        """As `Usage` has it."""
        return self.seconds.allocated_percent

    @property
    def used_percent(self) -> float | None:
        """As `Usage` has it."""
        return share_percent(self.seconds.used, self.seconds.measured)


def counted(usage: Usage) -> Counted:
    """The sums of a usage."""
    return Counted(
        cluster=usage.cluster,
        start=usage.start,
        end=usage.end,
        buckets=usage.buckets,
        seconds=usage.seconds,
        gpus=usage.gpus,
        nodes=usage.nodes,
    )
