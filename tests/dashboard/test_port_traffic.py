"""The charts of a node's ports, in the unit that fits what they carry."""

from datetime import timedelta

import numpy as np
import pytest

from dashboard.device.grid import Floats, Grid
from dashboard.device.hub_queries import OFFSETS, Numbers
from dashboard.device.ports import traffic

from .scene import NOON

PORT = ("mlx5_0", "1")


@pytest.mark.parametrize(
    ("rate", "unit", "shown"),
    [(50.0, "B/s", 50.0), (800.0, "B/s", 800.0), (801.0, "kB/s", 0.801), (1e3, "kB/s", 1.0), (2e6, "MB/s", 2.0), (3e9, "GB/s", 3.0)],
)  # fmt: skip
def test_a_port_is_drawn_in_the_unit_that_fits(rate: float, unit: str, shown: float) -> None:
    grid = Grid(start=NOON, step=timedelta(seconds=10), count=6)
    sent: Floats = np.arange(6, dtype=np.float64) * (rate * 10.0)
    fields = {"receive_bytes": sent, "transmit_bytes": sent, OFFSETS: np.zeros(6)}
    drawn = traffic([PORT], Numbers(grid=grid, ports={PORT: fields}))
    assert drawn.unit == unit
    assert np.nanmax(drawn.panels[0].curves[-1].values) == pytest.approx(shown, rel=0.01)
    assert drawn.most is not None
    assert drawn.most >= shown


def test_ports_that_carry_nothing_have_a_unit_all_the_same() -> None:
    grid = Grid(start=NOON, step=timedelta(seconds=10), count=6)
    drawn = traffic([PORT], Numbers(grid=grid))
    assert (drawn.unit, drawn.most) == ("GB/s", None)
