"""How much heat slows the processors of hosts down, as their kernels count it."""

from gpuvigil.store import Aggregate, Function

from ..window.columns import Floats, divided, seconds
from ..window.rows import Rows

THROTTLED = Aggregate(function=Function.INCREASE, field="cpu_throttled_milliseconds")
TIMES = Aggregate(function=Function.INCREASE, field="cpu_throttles")
OF_NODES = (THROTTLED, TIMES)


def share(rows: Rows) -> Floats:
    """Return for each node's row the share of the time in which heat slowed its processors down.

    NaN where the kernel counts none. It is counted when it ends, so that one long time may be more
    than the span.
    """
    return divided(rows.values(THROTTLED.column) / 1e3, seconds(rows)).clip(max=1.0)
