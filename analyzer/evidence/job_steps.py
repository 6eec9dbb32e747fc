"""What a job's ranks say of their steps: whether they go on, which one the others wait for, and which is gone.

A rank is past its own work (`collective`) when it waits for the others, so of a job that stands the
culprit is who has not come so far. A rank that is gone is one whose process ended and left its file:
one that ends in order takes it away.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from gpuvigil.model import Evidence, Subject

from ..window.holdings import holder_key
from ..window.rows import Row
from ..window.subject_names import label
from ..window.window import Need, Span, Window

AGE, P99, PHASE = "step_age_seconds", "step_p99_seconds", "step_phase"
_PHASE_SECONDS, _RANK, _GONE = "step_phase_seconds", "rank", "rank_gone_seconds"
NEED = Need(
    measurement="gpu", span=Span.NOW, fields=(AGE, P99, PHASE, _PHASE_SECONDS, _RANK, _GONE)
)

# `step_phase`, and what a rank does in it that the others wait for.
_COLLECTIVE, _PAUSES, _STOPPED = 2, frozenset({3, 4}), 5
_DOES = {0: "still at its own work", 1: "waits for its input", _STOPPED: "stopped by a signal"}
_WORK, _INPUT = 0, 1
# Without a step for so long, and for so many of the longest hundredth of its own steps.
STEP_SECONDS, STEP_TIMES = 60.0, 5.0
# Where ranks say that the others wait for some of them, no longer gap than their own is waited out.
ONE_SIDED_SECONDS, ONE_SIDED_TIMES = 45.0, 1.5
# A checkpoint or an evaluation that takes longer than this is no pause any more.
PAUSE_SECONDS = 1800.0
# Ranks write once a second, so one whose last step is so long ago waits for the one that is gone, or soon
# will: no step ends without it.
_WAIT_SECONDS = 2.0
# A step that was on its way when a rank died may end after that, and so do clocks differ.
_IN_FLIGHT_SECONDS = 2.0


# The cluster and who holds a GPU; the GPU itself where nobody does.
Holders = tuple[str, ...]


def holders(window: Window, gpu: Subject) -> Holders:
    """Whose GPU it is; GPUs of one job have the same."""
    held = sorted({holder_key(a) for a in window.held(gpu)})
    return (gpu.cluster, *(held or (gpu.key,)))


def whole(window: Window, gpus: Iterable[Subject]) -> frozenset[Subject]:
    """These, and all other GPUs of their holders."""
    them = frozenset(gpus)
    keys = {holder_key(a) for gpu in them for a in window.held(gpu)}
    return them.union(*(window.holdings[key].gpus for key in keys if key in window.holdings))


def stopped(window: Window) -> dict[Holders, list[tuple[Subject, Row]]]:
    """By holder the GPUs whose steps have stopped, where they have on all that tell of steps.

    A job whose ranks are all stopped by a signal is suspended, and hangs not.
    """
    rows = window.get("gpu", Span.NOW)
    # Which of them are within what their own steps take is asked of these few.
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
    """Whether their job says of one of its GPUs that its steps go on, or why they do not."""
    told = [
        (gpu, row)
        for gpu, row in _said(window, whole(window, gpus))
        if row[AGE] is not None and row[P99] is not None
    ]
    one_sided = bool(waited_for(told))
    return any(row[AGE] < step_limit(row, one_sided) or _pauses(row) for _, row in told)


def step_limit(row: Row, one_sided: bool = False) -> float:
    """From when on a rank without a step is late: sooner where its job's ranks say that some of
    them are waited for than where all do the same.
    """
    if one_sided:
        return max(ONE_SIDED_SECONDS, ONE_SIDED_TIMES * float(row[P99]))
    return max(STEP_SECONDS, STEP_TIMES * float(row[P99]))


def tells_pauses(late: Iterable[tuple[Subject, Row]]) -> bool:
    """Whether any rank says what it does; of one that tells its steps alone a pause looks like a hang."""
    return any(row[PHASE] is not None for _, row in late)


def waited_for(late: Sequence[tuple[Subject, Row]]) -> list[tuple[Subject, Row]]:
    """Of ranks whose steps have stopped those that the others wait for; none where it is not told."""
    by_signal = [(gpu, row) for gpu, row in late if row[PHASE] == _STOPPED]
    if by_signal:
        return by_signal
    waiting = [gpu for gpu, row in late if row[PHASE] == _COLLECTIVE]
    others = [(gpu, row) for gpu, row in late if row[PHASE] in _DOES]
    if not waiting:
        # Of a program that tells its input and no collectives, these are in its work; input comes first.
        waiting = [gpu for gpu, row in late if row[PHASE] == _WORK]
        others = [(gpu, row) for gpu, row in others if row[PHASE] == _INPUT]
    return others if len(others) < len(waiting) else []


def culprits(window: Window, late: Sequence[tuple[Subject, Row]]) -> tuple[Evidence, ...]:
    """The ranks that the others wait for, in words."""
    return tuple(
        Evidence(
            name="the others wait for",
            value=f"{_rank(row)}{label(window, gpu)}: {_DOES[row[PHASE]]}{_since(row)}",
        )
        for gpu, row in waited_for(late)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """Ranks of one job that are gone while others wait."""

    gpus: tuple[Subject, ...]
    since: datetime
    is_sure: bool  # all others wait, of whom it can be known yet
    evidence: tuple[Evidence, ...]


def gone(window: Window) -> Mapping[Holders, Gone]:
    """By holder the ranks that are gone, while most of its ranks are there and wait."""
    rows = window.get("gpu", Span.NOW)
    them: dict[Holders, list[tuple[Subject, Row]]] = defaultdict(list)
    for subject, row in rows.where(~np.isnan(rows.values(_GONE))):
        them[holders(window, subject)].append((subject, row))
    found = {key: _gone(window, of_one) for key, of_one in them.items()}
    return {key: one for key, one in found.items() if one is not None}


def _gone(window: Window, dead: list[tuple[Subject, Row]]) -> Gone | None:
    gpus = {gpu for gpu, _ in dead}
    others = [
        (g, row) for g, row in _said(window, whole(window, gpus) - gpus) if row[AGE] is not None
    ]
    since = min(row["at"] - timedelta(seconds=row[_GONE]) for _, row in dead)
    # Where most are gone the job ends.
    if len(dead) > len(others) or any(_has_ended_a_step(row, since) for _, row in others):
        return None
    # What was read before says nothing of whether it waits, nor does what was read too soon after.
    others = [(gpu, row) for gpu, row in others if row["at"] > since and not _is_early(row)]
    waiting = [row for _, row in others if _waits(row)]
    if not waiting:
        return None
    longest = max(row[AGE] for row in waiting)
    return Gone(
        gpus=tuple(sorted(gpus)),
        since=since,
        is_sure=len(waiting) == len(others),
        evidence=(
            *(
                Evidence(
                    name="process gone",
                    value=f"{_rank(row)}{label(window, gpu)}, for {row[_GONE]:.0f} s: it left its step file behind",
                )
                for gpu, row in dead
            ),
            Evidence(
                name="other ranks",
                value=f"{len(waiting)} of {len(others)} wait, with no step for up to {longest:.0f} s",
                limit=f"{_WAIT_SECONDS:g} s",
            ),
        ),
    )


def _has_ended_a_step(row: Row, since: datetime) -> bool:
    ended = row["at"] - timedelta(seconds=row[AGE])
    return bool(ended > since + timedelta(seconds=_IN_FLIGHT_SECONDS))


def _is_early(row: Row) -> bool:
    """Whether it had no time to wait yet: its last step was on its way when the other rank died."""
    return row[PHASE] not in _PAUSES and bool(row[AGE] < _WAIT_SECONDS)


def _waits(row: Row) -> bool:
    return row[PHASE] not in _PAUSES and bool(row[AGE] >= _WAIT_SECONDS)


def _pauses(row: Row) -> bool:
    seconds = row[_PHASE_SECONDS]
    return row[PHASE] in _PAUSES and seconds is not None and seconds < PAUSE_SECONDS


def _said(window: Window, gpus: Iterable[Subject]) -> list[tuple[Subject, Row]]:
    rows = window.get("gpu", Span.NOW)
    return [(gpu, row) for gpu in gpus if (row := rows.get(gpu)) is not None]


def _rank(row: Row) -> str:
    return "" if row[_RANK] is None else f"rank {row[_RANK]}, "


def _since(row: Row) -> str:
    seconds = row[_PHASE_SECONDS]
    return "" if seconds is None else f" for {seconds:.0f} s"
