"""GPUs that draw less power beside their job's others than they usually do: the job waits for them.

This also finds GPUs that are slow from a job's start on. Chips differ, so each GPU is compared with
its own place beside the others in earlier jobs. A GPU with less work draws less, too: so it must
move as many bytes over NVLink as the others, which ranks of one collective do and pipeline stages
do not. One that was idle while the others spun saves or evaluates for them. At rest, chips differ
otherwise than at work, so a job that pauses shows nothing and teaches nothing. What ranks report of
their own work says more (`own_steps.py`).
"""

from dataclasses import dataclass

import numpy as np

from gpuvigil.clock import micros
from gpuvigil.store import Aggregate, Function

from ..window.columns import (
    Codes,
    Floats,
    Mask,
    combined_codes,
    divided,
    group_count,
    models,
    nodes,
    per_group,
    seconds,
)
from ..window.rows import Rows
from ..window.usual import Usual
from ..window.window import Need, Span, Window
from .job_pace import NVLINK_BYTES, PEERS, held_since, jobs, stands_out
from .own_steps import OWN, draws_less
from .power import least_at_work, limits
from .read_alike import groups_of, parted, read_alike
from .usual import Teaching

WATTS = Aggregate(function=Function.MEAN, field="power_watts")
CLOCK = Aggregate(function=Function.MEAN, field="sm_clock_hertz")
_MOVED = Aggregate(function=Function.INCREASE, field="nvlink_receive_bytes")
_USED = Aggregate(function=Function.MEAN, field="utilization_percent")
LIMIT = Aggregate(function=Function.MAX, field="power_limit_watts")
_MEANS = (WATTS, CLOCK)
NEEDS = (
    Need(measurement="gpu", span=Span.NOW, fields=(OWN,)),
    Need(measurement="gpu", span=Span.RECENT, aggregates=(*_MEANS, _USED)),
    Need(measurement="gpu", span=Span.STEADY, aggregates=(*_MEANS, _USED, _MOVED, LIMIT)),
)

# The least loss of power at its clock [ours]. At 4 % there were ten wrong messages in 200
# node-days, of GPUs 4.0 and 4.7 % below others.
LEAST = 0.06
# The same for the whole span, as a minute scatters more: one of a sound job's four GPUs was 6.7 %
# below in the minute and 3.9 % in the span.
LEAST_OF_SPAN = 0.05
# A GPU that is further below does something else, or nothing.
_FARTHEST = 0.35
# A GPU is slow if it is so in the last minute, and in the span by this share of that: while a job
# pauses, all its GPUs draw the same. It is over where it is less than half of the limit in both.
_LASTS, _ALIKE = 0.4, 0.5
# Known after two steady spans.
DRAWS = Teaching(name="draws", levels=1, known=2.0, far=0.01)
# Ranks of one collective move the same number of bytes; means of one span may be this far apart.
_SAME_BYTES = 0.015
# A rank that saves for the others is idle while they spin: by this much less a GPU may be used.
_SAME_USE_PERCENT = 3.0
_COVERAGE, _LINES, _POWER_OF_CLOCK = 0.8, 5.0, 2.0
_MOST_SHARE, _OTHER_CLOCK = 1.0 / 3.0, 0.1
# A clock this far from its job's teaches nothing: what a GPU draws at rest goes with no clock, so
# that it seems to draw more, and less once its clock is back [ours].
_TEACHES_CLOCK = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerAmongPeers:
    """Power draw beside a job's other GPUs, per GPU that one job has had for a steady span."""

    rows: Rows
    job: Codes  # or the part of it that is compared
    offset: Floats  # power at its clock beside its job's median, as the logarithm of a ratio
    draws: Floats  # the same in the last minute, less what it usually is
    part: Floats  # the share of the span for which it was so
    peers: Floats
    slow: Mask
    alike: Mask
    less: Mask  # draws less than its job's others now: by more than chips differ, or than it usually does


def power_among_peers(window: Window, _asked: None = None) -> PowerAmongPeers | None:
    """Return how much each GPU draws beside its job's others; None where nothing was measured."""
    rows, recent = window.get("gpu", Span.STEADY), window.get("gpu", Span.RECENT)
    if not len(rows) or not len(recent):
        return None
    whole = combined_codes(jobs(window, rows), models(window, rows))
    known, lines = _known(window, whole, rows), (rows.values("samples"),)
    # Without a clock plain power counts, which says nothing about power at a clock.
    untold = np.isnan(rows.values(CLOCK.column))
    job = parted(groups_of(whole, nodes(rows), known, lines), untold)
    known &= read_alike(job, known, lines)
    known &= _moves_the_same(job, rows, known)
    known &= _is_as_busy(job, known, rows, rows) & _is_as_busy(job, known, rows, recent)
    usual = DRAWS.usual(window, rows, np.zeros(len(rows), np.int64))
    at_work = (known & _works(window, job, rows, known, it) for it in (rows, recent))
    mean, last = (
        _apart(job, np.where(told, _at_clock(job, rows, it), np.nan))
        for told, it in zip(at_work, (rows, recent), strict=True)
    )
    draws, lately = (_apart(job, it - usual) for it in (mean, last))
    least, peers = -np.log1p(-LEAST), per_group(job, lately)[1]
    slow = (lately <= -least) & (lately >= -_FARTHEST) & (draws <= _LASTS * lately)
    slow &= draws <= np.log1p(-LEAST_OF_SPAN)
    slow &= (peers >= PEERS) & stands_out(job, lately, slow)
    slow &= (group_count(job, slow) <= _MOST_SHARE * peers) & ~_any_rank_reports(
        window, whole, rows
    )
    near = group_count(job, known & _other_clock(job, rows, _OTHER_CLOCK)) <= _MOST_SHARE * peers
    slow &= near
    less = draws_less(job, np.stack([last, mean])) & (per_group(job, mean)[1] >= PEERS)
    less |= draws_less(job, np.stack([lately, draws])) & (peers >= PEERS)
    return PowerAmongPeers(
        rows=rows,
        job=job,
        offset=mean,
        draws=lately,
        part=np.clip(divided(-draws, -lately), 0.0, 1.0),
        peers=peers,
        slow=slow,
        alike=(peers >= PEERS) & (np.fmin(draws, lately) > -_ALIKE * least),
        less=less & near,
    )


def learned(window: Window) -> Usual:
    """Return what each GPU usually draws beside its job's others, updated by this pass."""
    rows, found = window.get("gpu", Span.STEADY), window.once(power_among_peers, None)
    if found is None or not DRAWS.is_due(window, rows):
        return DRAWS.before(window)
    level = np.where(_other_clock(found.job, rows, _TEACHES_CLOCK), -1, 0)
    return DRAWS.learned(window, rows, found.offset, level)


def _any_rank_reports(window: Window, job: Codes, rows: Rows) -> Mask:
    """Tell for each row whether any rank of its job reports its own work."""
    own = window.get("gpu", Span.NOW).beside(rows, OWN)
    found: Mask = group_count(job, ~np.isnan(own)) > 0.0
    return found


def _known(window: Window, job: Codes, rows: Rows) -> Mask:
    """Tell which GPUs one job had all the span, with enough samples."""
    length = window.settings.steady_seconds
    known = seconds(rows) >= _COVERAGE * length - window.ticks(rows)
    known &= window.of_allocations(rows, held_since) <= micros(window.now) - length * 1e6
    found: Mask = known & (rows.values("samples") >= _LINES) & (job != 0)
    return found


def _works(window: Window, job: Codes, rows: Rows, known: Mask, of: Rows) -> Mask:
    """Tell for each row whether the middle GPU of its job draws what none at rest does."""
    watts = np.where(known, of.beside(rows, WATTS.column), np.nan)
    least = least_at_work(limits(window, rows, LIMIT.column))
    found: Mask = per_group(job, watts)[0] >= least
    return found


def _at_clock(job: Codes, rows: Rows, of: Rows) -> Floats:
    """Return the logarithm of each GPU's power at its clock, or of plain power without a clock.

    Without clocks a lower clock also counts as slow.
    """
    watts, clock = (of.beside(rows, it.column) for it in _MEANS)
    clocks = _apart(job, np.log(np.where(clock > 0.0, clock, np.nan)))
    found: Floats = np.log(np.where(watts > 0.0, watts, np.nan))
    return found - _POWER_OF_CLOCK * np.nan_to_num(clocks)


def _other_clock(job: Codes, rows: Rows, far: float) -> Mask:
    """Tell which rows' clocks are far from their job's median: power at a clock compares near ones.

    If a third of a job has another clock, as on a node whose clocks somebody set, the others only
    seem to draw less.
    """
    clock = rows.values(CLOCK.column)
    found: Mask = np.abs(_apart(job, np.log(np.where(clock > 0.0, clock, np.nan)))) > far
    return found


def _apart(job: Codes, values: Floats) -> Floats:
    found: Floats = values - per_group(job, values)[0]
    return found


def _moves_the_same(job: Codes, rows: Rows, known: Mask) -> Mask:
    moved = divided(rows.values(_MOVED.column), seconds(rows))
    moved = np.log(np.where(known & (moved >= NVLINK_BYTES), moved, np.nan))
    found: Mask = np.abs(_apart(job, moved)) <= _SAME_BYTES
    return found


def _is_as_busy(job: Codes, known: Mask, rows: Rows, of: Rows) -> Mask:
    used = np.where(known, of.beside(rows, _USED.column), np.nan)
    found: Mask = _apart(job, used) >= -_SAME_USE_PERCENT
    return found
