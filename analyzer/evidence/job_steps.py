"""What a job's ranks report of their steps: whether they go on, which rank is waited for, which is gone.

A rank that waits for the others is past its own work (`collective`), so the culprit of a stalled
job is the rank that has not come so far. A rank is gone if its process ended and left its file: one
that ends in order removes it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from gpuvigil.model import Evidence, Subject
from gpuvigil.store import Aggregate, Function

from ..window.holdings import holder_key
from ..window.rows import Row
from ..window.subject_names import label
from ..window.window import Need, Span, Window

AGE, P99, PHASE = "step_age_seconds", "step_p99_seconds", "step_phase"
_PHASE_SECONDS, _RANK, _GONE = "step_phase_seconds", "rank", "rank_gone_seconds"
_BUSY, _WATTS, _LIMIT = "utilization_percent", "power_watts", "power_limit_watts"
_LEAST_PHASE, _PHASES = (
    Aggregate(function=function, field=PHASE) for function in (Function.MIN, Function.COUNT)
)
NEEDS = (
    Need(
        measurement="gpu",
        span=Span.NOW,
        fields=(AGE, P99, PHASE, _PHASE_SECONDS, _RANK, _GONE, _BUSY, _WATTS, _LIMIT),
    ),
    Need(measurement="gpu", span=Span.RECENT, aggregates=(_LEAST_PHASE, _PHASES)),
)

# Values of `step_phase`, and what a rank that the others wait for does in them.
_COLLECTIVE, PAUSES, _STOPPED = 2, frozenset({3, 4}), 5
_DOES = {0: "still at its own work", 1: "waits for its input", _STOPPED: "stopped by a signal"}
_DOES_NOTHING = "its GPU is idle while the others' spin"
_WORK, _INPUT = 0, 1
# A GPU that waits in a collective spins: fully used, at little more power than an open context
# needs. One that does nothing is not used at all.
BUSY_PERCENT, POWER_SHARE, IDLE_PERCENT = 98, 0.4, 5
# The first rank saves and evaluates for the others.
FIRST_RANK = 0
# A rank is late without a step for this long, and for so many times its own steps' 99th percentile.
STEP_SECONDS, STEP_TIMES = 60.0, 5.0
# If the ranks' reports show that some of them are waited for, less patience is enough.
ONE_SIDED_SECONDS, ONE_SIDED_TIMES = 45.0, 1.5
# A rank that was stopped by a signal in more than half of the recent span's samples, and running in
# none, does not pause, however long its pauses take; a profiler stops it only for moments.
_STOPPED_LOOKS = 0.5
# A checkpoint or an evaluation that takes longer than this no longer counts as a pause.
PAUSE_SECONDS = 1800.0
# Ranks write once a second, so one whose last step is this long ago waits for the rank that is
# gone, or soon will: no step ends without it.
_WAIT_SECONDS = 2.0
# A step that was under way when a rank died may end this much later; clocks differ by as much.
_IN_FLIGHT_SECONDS = 2.0


# The cluster and the keys of a GPU's holders; the GPU's own key if nobody holds it.
Holders = tuple[str, ...]


def holders(window: Window, gpu: Subject) -> Holders:
    """Return the cluster and holders of a GPU; GPUs of one job have the same."""
    held = sorted({holder_key(a) for a in window.held(gpu)})
    return (gpu.cluster, *(held or (gpu.key,)))


def gpus_of_same_holders(window: Window, gpus: Iterable[Subject]) -> frozenset[Subject]:
    """Return these GPUs, and all other GPUs of their holders."""
    them = frozenset(gpus)
    keys = {holder_key(a) for gpu in them for a in window.held(gpu)}
    return them.union(*(window.holdings[key].gpus for key in keys if key in window.holdings))


def stopped_jobs(window: Window) -> dict[Holders, list[tuple[Subject, Row]]]:
    """Return by holder the GPUs whose steps have stopped, if they have on all that report steps.

    A job whose ranks are all stopped by a signal is suspended, and does not hang.
    """
    rows = window.get("gpu", Span.NOW)
    # Only for these few is it checked whether their own steps take that long.
    late = (rows.values(AGE) >= ONE_SIDED_SECONDS) & ~np.isnan(rows.values(P99))
    found: dict[Holders, list[tuple[Subject, Row]]] = defaultdict(list)
    for subject, row in rows.where(late):
        found[holders(window, subject)].append((subject, row))
    return {
        key: them
        for key, them in found.items()
        if not goes_on(window, [gpu for gpu, _ in them])
        and any(row[PHASE] != _STOPPED for _, row in them)
    }


def goes_on(window: Window, gpus: Iterable[Subject]) -> bool:
    """Tell whether a rank of these GPUs' job reports that its steps go on, or that it pauses."""
    told = [
        (gpu, row)
        for gpu, row in _newest_rows(window, gpus_of_same_holders(window, gpus))
        if row[AGE] is not None and row[P99] is not None
    ]
    patience = patience_with(window, told)
    return any(row[AGE] < step_limit(row, patience) or _pauses(row) for _, row in told)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPatience:
    """How long a job may go without a step: at least `seconds`, and `times` its longest steps."""

    seconds: float = STEP_SECONDS
    times: float = STEP_TIMES


_ONE_SIDED = StepPatience(seconds=ONE_SIDED_SECONDS, times=ONE_SIDED_TIMES)


def patience_with(window: Window, late: Sequence[tuple[Subject, Row]]) -> StepPatience:
    """Return the patience with a job: less if some ranks are waited for than if all do the same."""
    waited = ranks_waited_for(late)
    if not waited:
        return StepPatience()
    is_stopped = any(_is_kept_stopped(window, gpu) for gpu, _ in waited)
    return replace(_ONE_SIDED, times=0.0) if is_stopped else _ONE_SIDED


def step_limit(row: Row, patience: StepPatience) -> float:
    """Return the age of its last step, in seconds, from which on a rank is late."""
    return max(patience.seconds, patience.times * float(row[P99]))


def _is_kept_stopped(window: Window, gpu: Subject) -> bool:
    row = window.get("gpu", Span.RECENT).get(gpu)
    if row is None or row[_LEAST_PHASE.column] != _STOPPED:
        return False
    return bool(row[_PHASES.column] > _STOPPED_LOOKS * row["samples"])


def reports_phases(late: Iterable[tuple[Subject, Row]]) -> bool:
    """Tell whether any rank reports its phase; if it reports only steps, a pause looks like a hang."""
    return any(row[PHASE] is not None for _, row in late)


def ranks_waited_for(late: Sequence[tuple[Subject, Row]]) -> list[tuple[Subject, Row]]:
    """Return which of the ranks whose steps have stopped the others wait for; none if unknown."""
    by_signal = [(gpu, row) for gpu, row in late if row[PHASE] == _STOPPED]
    return by_signal or _behind(late) or _idle(late)


def _behind(late: Sequence[tuple[Subject, Row]]) -> list[tuple[Subject, Row]]:
    """Return the ranks that have not come as far as the others, by their own reports."""
    waiting = [gpu for gpu, row in late if row[PHASE] == _COLLECTIVE]
    others = [(gpu, row) for gpu, row in late if row[PHASE] in _DOES]
    if not waiting:
        # If a program reports input but no collectives, ranks at work are past their input.
        waiting = [gpu for gpu, row in late if row[PHASE] == _WORK]
        others = [(gpu, row) for gpu, row in others if row[PHASE] == _INPUT]
    return others if len(others) < len(waiting) else []


def _idle(late: Sequence[tuple[Subject, Row]]) -> list[tuple[Subject, Row]]:
    """Return the ranks whose GPU does nothing while all others' spin, if no rank reports a wait.

    If a program reports no pauses, its first rank may save, or evaluate on a CPU, while others
    wait.
    """
    if any(row[PHASE] not in {None, _WORK} for _, row in late):
        return []
    idle = [(gpu, row) for gpu, row in late if _does_nothing(row)]
    spinning = sum(_spins(row) for _, row in late)
    if len(idle) + spinning < len(late) or len(idle) >= spinning:
        return []
    may_pause = any(row[PHASE] is None and row[_RANK] in {None, FIRST_RANK} for _, row in idle)
    return [] if may_pause else idle


def _does_nothing(row: Row) -> bool:
    return row[_BUSY] is not None and row[_BUSY] < IDLE_PERCENT


def _spins(row: Row) -> bool:
    busy, watts, limit = row[_BUSY], row[_WATTS], row[_LIMIT]
    if None in {busy, watts, limit}:
        return False
    return bool(busy >= BUSY_PERCENT and watts < POWER_SHARE * limit)


def culprits(window: Window, late: Sequence[tuple[Subject, Row]]) -> tuple[Evidence, ...]:
    """Return evidence that names the ranks which the others wait for."""
    told = {gpu for gpu, row in late if row[PHASE] == _STOPPED} or {gpu for gpu, _ in _behind(late)}
    return tuple(
        Evidence(
            name="the others wait for",
            value=f"{_rank(row)}{label(window, gpu)}: "
            + (f"{_DOES[row[PHASE]]}{_since(row)}" if gpu in told else _DOES_NOTHING),
        )
        for gpu, row in ranks_waited_for(late)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneRanks:
    """Ranks of one job that are gone while others wait."""

    gpus: tuple[Subject, ...]
    since: datetime
    is_sure: bool  # all others wait, or all pause, as far as is known yet
    waits: bool  # some rank waits already: those that pause will wait after that
    evidence: tuple[Evidence, ...]


def jobs_with_gone_ranks(window: Window) -> Mapping[Holders, GoneRanks]:
    """Return by holder the ranks that are gone, if most of its ranks are there and wait or pause."""
    rows = window.get("gpu", Span.NOW)
    them: dict[Holders, list[tuple[Subject, Row]]] = defaultdict(list)
    for subject, row in rows.where(~np.isnan(rows.values(_GONE))):
        them[holders(window, subject)].append((subject, row))
    found = {key: _gone(window, of_one) for key, of_one in them.items()}
    return {key: one for key, one in found.items() if one is not None}


def _gone(window: Window, dead: list[tuple[Subject, Row]]) -> GoneRanks | None:
    gpus = {gpu for gpu, _ in dead}
    others = [
        (g, row)
        for g, row in _newest_rows(window, gpus_of_same_holders(window, gpus) - gpus)
        if row[AGE] is not None
    ]
    since = min(row["at"] - timedelta(seconds=row[_GONE]) for _, row in dead)
    # If most are gone, the job is ending.
    if len(dead) > len(others) or any(_has_ended_a_step(row, since) for _, row in others):
        return None
    # Lines from before that, or from too soon after, do not tell whether a rank waits.
    others = [(gpu, row) for gpu, row in others if row["at"] > since and not _is_early(row)]
    waiting = [row for _, row in others if _waits(row)]
    pausing = [row for _, row in others if row[PHASE] in PAUSES]
    if not waiting and not pausing:
        return None
    return GoneRanks(
        gpus=tuple(sorted(gpus)),
        since=since,
        is_sure=len(others) in {len(waiting), len(pausing)},
        waits=bool(waiting),
        evidence=(
            *(
                Evidence(
                    name="process gone",
                    value=f"{_rank(row)}{label(window, gpu)}, for {row[_GONE]:.0f} s: it left its step file behind",
                )
                for gpu, row in dead
            ),
            _of_others(waiting, pausing, len(others)),
        ),
    )


def _of_others(waiting: Sequence[Row], pausing: Sequence[Row], count: int) -> Evidence:
    if not waiting:
        value = f"{len(pausing)} of {count} at a checkpoint or an evaluation"
        return Evidence(name="other ranks", value=value)
    longest = max(row[AGE] for row in waiting)
    return Evidence(
        name="other ranks",
        value=f"{len(waiting)} of {count} wait, with no step for up to {longest:.0f} s",
        limit=f"{_WAIT_SECONDS:g} s",
    )


def _has_ended_a_step(row: Row, since: datetime) -> bool:
    ended = row["at"] - timedelta(seconds=row[AGE])
    return bool(ended > since + timedelta(seconds=_IN_FLIGHT_SECONDS))


def _is_early(row: Row) -> bool:
    """Tell whether a rank cannot wait yet: its last step was under way when the other rank died."""
    return row[PHASE] not in PAUSES and bool(row[AGE] < _WAIT_SECONDS)


def _waits(row: Row) -> bool:
    return row[PHASE] not in PAUSES and bool(row[AGE] >= _WAIT_SECONDS)


def _pauses(row: Row) -> bool:
    seconds = row[_PHASE_SECONDS]
    return row[PHASE] in PAUSES and seconds is not None and seconds < PAUSE_SECONDS


def _newest_rows(window: Window, gpus: Iterable[Subject]) -> list[tuple[Subject, Row]]:
    rows = window.get("gpu", Span.NOW)
    return [(gpu, row) for gpu in gpus if (row := rows.get(gpu)) is not None]


def _rank(row: Row) -> str:
    return "" if row[_RANK] is None else f"rank {row[_RANK]}, "


def _since(row: Row) -> str:
    seconds = row[_PHASE_SECONDS]
    return "" if seconds is None else f" for {seconds:.0f} s"
