"""Who holds a GPU, in words for evidence and actions."""

from gpuvigil.clock import moment
from gpuvigil.model import Allocation, Evidence

from ..window.holdings import name


def holder_evidence(allocation: Allocation) -> Evidence:
    """Return evidence like `job 7 of alice: train.py, since 10:00:00 UTC on 31 Jan`."""
    since = moment(allocation.started_at) + (" or earlier" if allocation.began_before else "")
    return Evidence(name="allocated to", value=f"{holder_with_command(allocation)}, since {since}")


def holder_with_command(allocation: Allocation) -> str:
    """Return a holder with its command, as in `job 7 of alice: train.py`."""
    command = f": {allocation.command}" if allocation.command else ""
    return f"{name(allocation)}{command}"
