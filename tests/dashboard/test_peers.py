"""A GPU against the others of its node, in words."""

import numpy as np

from dashboard.device.curves import Chart, Curve
from dashboard.device.peers import against


def chart(own: list[float], peers: list[float] | None) -> Chart:
    curves = [] if peers is None else [Curve(name="median", values=np.array(peers), look="peers")]
    curves.append(Curve(name="core", values=np.array(own)))
    return Chart(key="t", title="Temperature", unit="°C", curves=tuple(curves))


def test_the_middle_of_the_window_stands_beside_that_of_the_others() -> None:
    said = against([chart([70.0, 72.0, 90.0], [60.0, 61.0, float("nan")])], 7)
    assert said == (
        "In this window, beside the median of the node's 7 other GPUs: Temperature 72 °C (others 60 °C)."
    )


def test_without_others_or_numbers_nothing_is_compared() -> None:
    assert against([chart([70.0], [60.0])], 0) == ""
    assert against([chart([70.0], None)], 7) == ""
    assert against([chart([float("nan")], [60.0])], 7) == ""
    assert "1 other GPU:" in against([chart([70.0], [60.0])], 1)
