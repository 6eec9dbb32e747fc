"""Which GPUs of a job were read at the same moments: only their means can be compared.

A node that is read less often than its job's others, or with gaps, saw other steps of the work. But
all GPUs of a node are read at once, so that of such a node they are compared with each other.
"""

from collections.abc import Sequence

import numpy as np

from ..window.columns import Codes, Floats, Mask, combined_codes, group_count, per_group

# Means are of the same moments if they are of nearly as many lines.
_OTHER_LINES, _ONE_LINE = 0.05, 1.0


def groups_of(job: Codes, node: Codes, known: Mask, lines: Sequence[Floats]) -> Codes:
    """Return a code per GPU: its job's, or one of its own for a node that was read otherwise.

    `lines`: how many each GPU has in every span that is compared. A node is read otherwise if most
    of its GPUs have not as many as the middle GPU of their job.
    """
    odd = known & ~read_alike(job, known, lines)
    if not odd.any():
        return job
    there = combined_codes(job, node)
    apart = 2.0 * group_count(there, odd) > group_count(there, known)
    return combined_codes(job, np.where(apart, node + 1, 0))


def parted(group: Codes, unmeasured: Mask) -> Codes:
    """Return the groups with those GPUs apart of which something is not measured: they are compared with each other."""
    return combined_codes(group, unmeasured.astype(np.int64)) if unmeasured.any() else group


def read_alike(group: Codes, known: Mask, lines: Sequence[Floats]) -> Mask:
    """Tell which GPUs have about as many lines as the middle one of their group, in every span."""
    found = known.copy()
    for one in lines:
        usual, _ = per_group(group, np.where(found, one, np.nan))
        found &= np.abs(one - usual) <= np.fmax(_OTHER_LINES * usual, _ONE_LINE)
    return found
