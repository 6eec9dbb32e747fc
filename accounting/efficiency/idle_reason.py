"""Why a held GPU is idle, and when its holder is notified: pure, from measurements.

Sources of the default thresholds: notices at 60 and 105 minutes and an end at 120 are those of Princeton's
job_defense_shield (docs/alert/cancel_gpu_jobs.md); 30 minutes for pods that of wseaton/gpu-pruner.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from gpuvigil.faults import Blame, where
from gpuvigil.model import Incident

# With a smaller share of a span's samples nobody is notified; the incident takes fewer, where they lie evenly.
_COVERAGE = 0.8
# A board at 0 % draws a tenth to a fifth of its limit, a small one of 70 W up to two fifths: from this share on the 0
# is a wrong reading. The largest modules are known best (an H100 with a context draws 118 to 121 of 700 W:
# docs/reference/h100_workload_stats.csv), so a lower share is enough for them.
_WORKING_POWER, _WORKING_POWER_SMALL, _WORKING_POWER_LARGE = 0.3, 0.4, 0.25
_SMALL_BOARD_WATTS, _LARGE_BOARD_WATTS = 300.0, 600.0
# An idle board draws the same all the time; one that swings by this share of its limit works in bursts [chosen].
_SWING = 0.1
# A context without data takes some hundred MiB; a waiting model takes much of the memory.
_PARKED = 0.1
# nvml.h, nvmlClocksEventReason*: HW slowdown, SW and HW thermal slowdown, HW power brake.
_THROTTLED = 0x08 | 0x20 | 0x40 | 0x80


# The idle fault: it has one detector, and notices to holders carry its key.
(IDLE,) = where(lambda row: row.blame is Blame.HOLDER)
END = "end"  # the stage after the notices


class Idleness(str, Enum):
    """Why a held GPU computes nothing."""

    NO_PROCESS = "no process"
    NOTHING_COMPUTED = "process, nothing computed"
    MEMORY_PARKED = "memory parked"
    SOME_GPUS = "some of its GPUs"
    WAITS = "waits for data or a dead peer"
    FAULTY = "GPU faulty or throttled"
    NO_DATA = "no trustworthy data"
    STANDBY = "standby by declaration"
    NO_REQUESTS = "no requests"

    @property
    def blames(self) -> bool:
        """Whether the holder can do something about it; nobody is notified for the others."""
        return self in _HOLDERS_OWN


_HOLDERS_OWN = frozenset(
    {
        Idleness.NO_PROCESS,
        Idleness.NOTHING_COMPUTED,
        Idleness.MEMORY_PARKED,
        Idleness.SOME_GPUS,
        Idleness.NO_REQUESTS,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measurements of a held GPU over the idle span; a value that was not measured is None."""

    coverage: float  # share of the expected samples that are there
    utilization_most_percent: float | None
    memory_utilization_most_percent: float | None = None
    processes_most: float | None = None
    memory_least_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_watts: float | None = None  # mean
    power_least_watts: float | None = None
    power_most_watts: float | None = None
    power_limit_watts: float | None = None
    sm_activity_most_percent: float | None = None
    clock_event_reasons: int | None = None
    requests: float | None = None  # of the inference servers on this GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleContext:
    """What is known besides the GPU's own numbers."""

    faulty: bool = False  # the GPU or its node has an active fault
    peers_busy: bool = False  # other GPUs of the holder computed
    peers_faulty: bool = False  # another GPU or node of the holder has an active fault
    waits_for_data: bool = False  # programs on its nodes were stuck on storage
    standby: bool = False  # the holder is declared to wait for work


def idleness(
    measured: Measured, around: IdleContext, below_percent: float = 1.0
) -> Idleness | None:
    """Return why a GPU is idle; None when it computed something within the span.

    Excuses come first: nobody is blamed for a fault, or because of bad readings.
    """
    most = (measured.utilization_most_percent, measured.memory_utilization_most_percent)
    if any(percent is not None and percent >= below_percent for percent in most):
        return None
    memory = _share(measured.memory_least_bytes, measured.memory_total_bytes)
    cases = (
        (Idleness.FAULTY, around.faulty or (measured.clock_event_reasons or 0) & _THROTTLED),
        (Idleness.NO_DATA, not _trustworthy(measured, below_percent)),
        (Idleness.STANDBY, around.standby),
        (Idleness.WAITS, around.peers_faulty or around.waits_for_data),
        # Requests that were answered between two samples are work, which the samples do not show.
        (Idleness.NO_DATA, (measured.requests or 0.0) > 0),
        (Idleness.NO_REQUESTS, measured.requests == 0),
        (Idleness.SOME_GPUS, around.peers_busy),
        (Idleness.NO_DATA, measured.processes_most is None),
        (Idleness.NO_PROCESS, measured.processes_most == 0),
        (Idleness.MEMORY_PARKED, memory >= _PARKED),
    )
    return next((why for why, holds in cases if holds), Idleness.NOTHING_COMPUTED)


def _trustworthy(measured: Measured, below_percent: float) -> bool:
    """Return whether there are enough samples, and neither power nor other counters contradict the 0 %."""
    if measured.utilization_most_percent is None or measured.coverage < _COVERAGE:
        return False
    if (measured.sm_activity_most_percent or 0.0) >= below_percent:
        return False
    limit = measured.power_limit_watts
    mean, least, most = (
        _share(watts, limit)
        for watts in (measured.power_watts, measured.power_least_watts, measured.power_most_watts)
    )
    swings = measured.power_least_watts is not None and most - least >= _SWING
    return not swings and max(mean, least) < _working_power(limit)


def _working_power(limit_watts: float | None) -> float:
    """Return the share of its power limit from which a board is at work."""
    if limit_watts is None or _SMALL_BOARD_WATTS <= limit_watts < _LARGE_BOARD_WATTS:
        return _WORKING_POWER
    return _WORKING_POWER_SMALL if limit_watts < _SMALL_BOARD_WATTS else _WORKING_POWER_LARGE


def _share(part: float | None, whole: float | None) -> float:
    return part / whole if part is not None and whole else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of a partition or namespace for idle holders."""

    notices: tuple[timedelta, ...] = (timedelta(minutes=60), timedelta(minutes=105))
    end_after: timedelta | None = None  # nothing is ended unless asked for
    interactive_exempt: bool = True
    busy_share_exempt: float = 0.5  # used this share of its GPU time since its start
    work_days: frozenset[int] = frozenset(range(7))  # only on these days; Monday is 0

    def stages(self) -> tuple[tuple[str, timedelta], ...]:
        """Return the names of the stages and the idle time at which each comes due, in order."""
        told = [(f"notice {n}", after) for n, after in enumerate(self.notices, 1)]
        return (*told, *(((END, self.end_after),) if self.end_after is not None else ()))


FOR_JOBS = Policy()
FOR_PODS = Policy(notices=(timedelta(minutes=30),))


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleHolder:
    """A job or pod whose GPUs are idle."""

    why: Idleness
    since: datetime
    interactive: bool = False
    used_share: float | None = None  # of its measured GPU-seconds since its start


def due(
    policy: Policy, idler: IdleHolder, sent: Mapping[str, datetime], now: datetime
) -> str | None:
    """Return the stage whose notice is due now; None if there is none.

    Each stage is given once and in order. After a pause in which several came due they keep their distance,
    so that between the first notice and the end there is always the time that the policy promises.
    """
    if not idler.why.blames or now.weekday() not in policy.work_days:
        return None
    if idler.interactive and policy.interactive_exempt:
        return None
    if idler.used_share is not None and idler.used_share >= policy.busy_share_exempt:
        return None
    before = timedelta()
    told_at: datetime | None = None
    for name, after in policy.stages():
        if name not in sent:
            reached = now - idler.since >= after
            waited = told_at is None or now - told_at >= after - before
            return name if reached and waited else None
        before, told_at = after, sent[name]
    return None


def gpus_idle_since(active: Iterable[Incident]) -> dict[str, datetime]:
    """Return since when GPUs are idle, by key, as far as incidents say so; late incidents are left out."""
    found: dict[str, datetime] = {}
    for one in active:
        if one.fault == IDLE and not one.late:
            for key in one.members or (one.subject.key,):
                found[key] = min(one.since, found.get(key, one.since))
    return found
