"""Power that no GPU draws at rest: it shows work even if a counter of utilisation is stuck."""

import re

import numpy as np

from gpuvigil.model import Inventory, Subject

from ..window.columns import Floats
from ..window.rows import Rows
from ..window.window import Window

# As a share of the power limit, in the mean and at any clock: a GPU with a context rests at up to
# 0.24 of it, an MI300X, a B200 or an A100. Small boards rest at more, an L4 at some 28 of 72 W: for
# them it is half the limit, up to so many watts. The numbers are ours.
_SHARE, _OF_SMALL, _SMALL_WATTS = 0.3, 0.5, 150.0
# The limit that boards are sold with, by the driver's name, first match: NVIDIA's data sheets. Many
# exporters report no limit, dcgm-exporter by default among them.
_BOARDS = tuple(
    (re.compile(rf"\b(?:{model})\b", re.IGNORECASE), watts)
    for model, watts in (
        (r"H200 NVL", 600.0),
        (r"H100 NVL", 400.0),
        (r"H100 PCIe", 350.0),
        (r"H[12]00", 700.0),
        (r"A[18]00.PCIE.40GB", 250.0),
        (r"A[18]00.*PCIe", 300.0),
        (r"A[18]00", 400.0),
        (r"GB200", 1200.0),
        (r"B200", 1000.0),
        (r"V100.*PCIE", 250.0),
        (r"V100", 300.0),
        (r"A40", 300.0),
        (r"L40S", 350.0),
        (r"L40", 300.0),
        (r"A30", 165.0),
        (r"A10", 150.0),
        (r"L4", 72.0),
        (r"T4", 70.0),
    )
)
# The most that a board of any model draws: a GB300.
_LARGEST = 1400.0


def limits(window: Window, rows: Rows, column: str, of: Rows | None = None) -> Floats:
    """Return each GPU's power limit in watts, as read (by `of`, else by `rows`), else as its model is sold.

    NaN if unknown.
    """
    read = (rows if of is None else of).beside(rows, column)
    if not np.isnan(read).any():
        return read
    found: Floats = np.where(np.isnan(read), window.of_inventories(rows, _sold_with), read)
    return found


def least_at_work(limit: Floats) -> Floats:
    """Return the watts from which on a GPU works, by its limit; if unknown, those of the largest."""
    small: Floats = np.minimum(_OF_SMALL * limit, _SMALL_WATTS)
    found: Floats = np.maximum(_SHARE * limit, small)
    return np.where(np.isnan(found), _SHARE * _LARGEST, found)


def _sold_with(subject: Subject, inventory: Inventory | None) -> float:
    gpus = () if inventory is None else inventory.gpus
    model = next((gpu.model for gpu in gpus if gpu.uuid == subject.gpu), None) or ""
    return next((watts for name, watts in _BOARDS if name.search(model)), np.nan)
