"""The command that backtests the limit which would make a rule less noisy."""

from ..faults import FAULTS
from .settings import AnalyzerSettings

_DEFAULTS = AnalyzerSettings()


def tried_on_the_past(fault: str) -> str:
    """Return the command to type, with twice the default as an example; "" for a fault without a limit."""
    row = FAULTS.get(fault)
    if row is None or row.tuned_by is None:
        return ""
    key = row.tuned_by
    return f"gpuvigil backtest --last 7d --set analyzer.{key}={2 * getattr(_DEFAULTS, key):g}"
