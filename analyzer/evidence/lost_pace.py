"""What is said of a job that lost pace, and of the GPU that it waits for."""

from datetime import datetime, timedelta

import numpy as np

from gpuvigil.clock import EPOCH
from gpuvigil.model import Evidence, Subject

from ..window.columns import Floats, per_group
from ..window.window import Span, Window
from .few_gpus import far_of_two
from .job_pace import PEERS, Change, Timescale, change_of, held_alone
from .own_steps import SM_CLOCK


def minutes(window: Window, scale: Timescale) -> tuple[float, float]:
    """Return in minutes how long the span is, and how long the time before it that it is compared with."""
    settings = window.settings
    now, long = {
        Span.STEADY: (settings.steady_seconds, settings.trend_seconds),
        Span.RECENT: (settings.window_seconds, settings.steady_seconds),
    }[scale.now]
    return now / 60.0, (long - now) / 60.0


def lost_pace(window: Window, gpu: Subject, scale: Timescale) -> Evidence | None:
    """Return evidence of how much pace the job lost that has a GPU to itself.

    None if the loss is below `least_loss`, or too little is known.
    """
    change = window.once(change_of, scale)
    place = None if change is None else change.rows.index.number(gpu)
    if change is None or place is None:
        return None
    if not (change.peers[place] >= PEERS or change.slow[place]):
        return None
    lost = -float(change.pace[place])
    held = held_alone(window.allocations.get(gpu.key))
    if held is None or not lost >= scale.least_loss:
        return None
    share, (_, before) = 100.0 * (1.0 - np.exp(-lost)), minutes(window, scale)
    return Evidence(
        name="its job",
        value=f"{held.holder} gets {share:.0f} % less done than in the {before:g} min before",
        limit=f"{100.0 * scale.least_loss:.0f} %",
    )


def is_by_clock(scale: Timescale, change: Change, row: int) -> bool:
    """Tell whether a GPU is slow by its clock, and not by what it draws at it."""
    return bool(change.peers[row] >= PEERS and change.clock[row] <= -scale.least_clock)


def evidence_of(window: Window, scale: Timescale, change: Change, row: int) -> tuple[Evidence, ...]:
    """Return the evidence of a slow GPU: its job's pace, and its power or clock beside the others'."""
    length, _ = minutes(window, scale)
    pace = lost_pace(window, change.rows.subjects[row], scale)
    by_clock = is_by_clock(scale, change, row)
    name, apart = (SM_CLOCK, change.clock) if by_clock else ("power at its clock", change.draws)
    least = scale.least_clock if by_clock else scale.least
    if few := change.peers[row] < PEERS:
        least = float(far_of_two(-change.pace[row]))
    watts, hertz = window.once(_of_others, scale)
    return (
        *(() if pace is None else (pace,)),
        Evidence(
            name=name,
            value=f"{100.0 * (np.exp(apart[row]) - 1.0):+.1f} % in {length:g} min,"
            " beside what it was",
            limit=f"-{100.0 * least:.2g} %",
            peers="the job's other GPU"
            if few
            else f"{change.peers[row] - 1:.0f} other GPUs of the job",
        ),
        Evidence(
            name="power",
            value=_power(change.watts[row], change.hertz[row]),
            peers=_power(watts[row], hertz[row]),
        ),
    )


def changed_at(change: Change, row: int) -> datetime:
    """Return since when a GPU has been as far from its job's others as in the last minute."""
    first, last = (float(change.rows.values(name)[row]) for name in ("first_at", "last_at"))
    return EPOCH + timedelta(microseconds=last - float(change.part[row]) * (last - first))


def _of_others(window: Window, scale: Timescale) -> tuple[Floats, Floats]:
    """Return the median watts and hertz of each row's job; of a job of two, those of the other GPU."""
    change = window.once(change_of, scale)
    if change is None:
        return np.empty(0), np.empty(0)
    own = np.stack([change.watts, change.hertz])
    usual, _ = per_group(change.job, own)
    watts, hertz = np.where(change.peers < PEERS, 2.0 * usual - own, usual)
    return watts, hertz


def _power(watts: float, hertz: float) -> str:
    return f"{watts:.0f} W" + ("" if np.isnan(hertz) else f" at {hertz / 1e6:.0f} MHz")
