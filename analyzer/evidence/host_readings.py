"""How long a node's own sensors are read before they say anything: neither that a part fails, nor that it works again."""

from gpuvigil.model import Incident

from ..window.columns import Mask, seconds
from ..window.rows import Rows
from ..window.window import Span, Window

# At least half of the recent span: one reading may just be of a busy bus, or of a disk that is full for a moment.
_COVERAGE = 0.5


def lasting(window: Window, rows: Rows) -> Mask:
    """Return which nodes were read for long enough within the recent span."""
    found: Mask = seconds(rows) >= _COVERAGE * window.settings.window_seconds - window.ticks(rows)
    return found


def would_show(window: Window, incident: Incident) -> bool:
    """Return whether the node was read for long enough to show that an open incident is over.

    A full disk loses readings, and between two of them nothing is over.
    """
    row = window.get("node", Span.RECENT).get(incident.subject.of_node())
    if row is None:
        return False
    read = (row["last_at"] - row["first_at"]).total_seconds()
    tick = window.tick_seconds(incident.subject.of_node())
    return bool(read >= _COVERAGE * window.settings.window_seconds - tick)
