"""The command that tries on the past the limit that would make a rule less noisy."""

from ..faults import FAULTS
from .settings import AnalyzerSettings

_DEFAULTS = AnalyzerSettings()


def tried_on_the_past(fault: str) -> str:
    """What to type, with an example's value: twice the default; empty where no limit says it."""
    row = FAULTS.get(fault)
    if row is None or row.tuned_by is None:
        return ""
    key = row.tuned_by
    return f"gpuvigil backtest --last 7d --set analyzer.{key}={2 * getattr(_DEFAULTS, key):g}"
