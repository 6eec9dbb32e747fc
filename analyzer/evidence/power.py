"""What no GPU draws at rest: a counter of utilisation may be stuck, and power tells all the same."""

import numpy as np

from ..window.columns import Floats

# Of the power limit, in the mean and at whatever clock: a GPU with a context rests at up to 0.24 of it,
# an MI300X, a B200 or an A100. Small boards at more, an L4 at some 28 of 72 W: of them half, up to so many
# watts. The numbers are ours.
_SHARE, _OF_SMALL, _SMALL_WATTS = 0.3, 0.5, 150.0


def least_at_work(limit: Floats) -> Floats:
    """Watts from which on a GPU works, by its power limit; NaN where that is not known."""
    small: Floats = np.minimum(_OF_SMALL * limit, _SMALL_WATTS)
    return np.maximum(_SHARE * limit, small)
