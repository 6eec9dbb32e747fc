"""Compare one GPU with the others of its node, in words; pure."""

from collections.abc import Sequence

import numpy as np

from gpuvigil.numbers_in_words import counted

from .curves import Chart
from .grid import Floats


def against(drawn: Sequence[Chart], others: int) -> str:
    """Return each curve's median in the window beside that of the others; empty without others."""
    told = [text for text in map(_of, drawn) if text]
    if not others or not told:
        return ""
    who = counted(others, "other GPU")
    return f"In this window, beside the median of the node's {who}: {'; '.join(told)}."


def _of(chart: Chart) -> str:
    own = next((it.values for it in reversed(chart.curves) if it.look == "own"), None)
    peers = next((it.values for it in chart.curves if it.look == "peers"), None)
    mine = None if own is None else _middle(own)
    theirs = None if peers is None else _middle(peers)
    if mine is None or theirs is None:
        return ""
    digits = chart.digits
    unit = chart.unit
    return f"{chart.title} {mine:,.{digits}f} {unit} (others {theirs:,.{digits}f} {unit})"


def _middle(values: Floats) -> float | None:
    measured = values[np.isfinite(values)]
    return float(np.median(measured)) if len(measured) else None
