"""Who is slow in a job of few GPUs, whose scatter says little.

Of two, none stands out from the others, and how far they are apart says only that they do not do the
same. But who waits spins, and draws less for it: if one of two became slow, the other one draws less at
its clock than before, too, and the slow one less still. Where one was given less to do, or the other
one more, that other one draws as before. Both move the same bytes, as ranks of one collective do, and
neither rests while the other works. One GPU alone shows nothing: a phase of its work looks the same.
"""

from collections.abc import Mapping

import numpy as np

from gpuvigil.store import Aggregate, Function

from ..window.columns import Codes, Floats, Mask, divided, per_group

# How far power and clocks go up and down within a minute.
SWINGS = tuple(
    (Aggregate(function=Function.MAX, field=field), Aggregate(function=Function.MIN, field=field))
    for field in ("power_watts", "sm_clock_hertz")
)
# From so few GPUs nobody learns how much they scatter. In a minute they may be apart by as much as power and clocks
# went up and down within it: six samples of a normal distribution have a range of 2.5 deviations (d2 of control
# charts, ASTM E2587), so that this is six deviations of their mean, and more where all GPUs move together. The least
# distances are ours.
_LEAST_OF_FEW, _LEAST_CLOCK_OF_FEW = 0.05, 0.06
# A GPU that was used by this many points less than the others saved or evaluated for them; once it no longer does,
# it draws more beside them than before.
RESTED_PERCENT = 3.0
# Of two, as logarithms of ratios, all ours: the least loss of their job's pace, and the least distance of the slow
# one from the other one, more for a larger loss. The other one draws less by such a share of the loss, too: who waits
# for a share of the time draws that much less at least. A GPU that is further away does something else.
_LEAST_LOSS, _MOST_LOSS, _LEAST_OF_TWO, _OF_LOSS, _FARTHEST = 0.07, 0.4, 0.03, 0.2, 0.35
# The last minute says so by half, and both moved the same bytes, as in `draws_least.py`.
_LATELY, _SAME_BYTES = 0.5, 0.015


def far_of_few(job: Codes, lately: Mapping[str, Floats], power_of_clock: float) -> Floats:
    """Return how far power at its clock, and the clock, must be from few GPUs' medians in a minute."""
    watts, clock = (
        per_group(job, np.log(divided(*(lately[it.column] for it in ends))))[0] for ends in SWINGS
    )
    clock = np.nan_to_num(clock)
    far = watts + power_of_clock * clock
    return np.stack([np.fmax(_LEAST_OF_FEW, far), np.fmax(_LEAST_CLOCK_OF_FEW, clock)])


def beside_other(job: Codes, values: Floats) -> Floats:
    """Return how far each of two GPUs is from the other one: their median lies in the middle."""
    found: Floats = 2.0 * (values - per_group(job, values)[0])
    return found


def far_of_two(lost: Floats) -> Floats:
    """Return how far from the other one is too far, by the pace that their job lost."""
    found: Floats = np.fmax(_LEAST_OF_TWO, _OF_LOSS * lost)
    return found


def slower_of_two(job: Codes, lost: Floats, draws: Floats, used: Floats, moved: Floats) -> Mask:
    """Tell which of two GPUs the other one waits for.

    `draws` are the changes of power at its clock over the look and in the last minute; `used` in
    percent and `moved` in bytes per second are those of the look.
    """
    apart, lately = beside_other(job, draws)
    other = draws[0] - apart
    found = (lost >= _LEAST_LOSS) & (lost <= _MOST_LOSS)
    found &= (apart <= -far_of_two(lost)) & (apart >= -_FARTHEST) & (lately <= _LATELY * apart)
    found &= other <= -_OF_LOSS * lost
    found &= beside_other(job, used) > -RESTED_PERCENT
    sent_apart = beside_other(job, np.log(np.where(moved > 0.0, moved, np.nan)))
    found &= np.abs(sent_apart) <= _SAME_BYTES
    return found
