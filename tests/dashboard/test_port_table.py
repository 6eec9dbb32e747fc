"""What the table of a node's ports says of waits: shares of the time and times per second, or nothing."""

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from dashboard.device.grid import Grid
from dashboard.device.hub_queries import Numbers
from dashboard.device.ports import rows, table
from dashboard.model.ports import PortView
from gpuvigil.model import Subject

START = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
STEP, STEPS = 10.0, 7
SECONDS = STEP * (STEPS - 1)
PORTS = tuple((f"mlx5_{number}", "1") for number in range(4))


def congestion(gained: Mapping[int, Mapping[str, float]]) -> list[tuple[str, ...] | None]:
    """By port what its counters gained in the minute, evenly; they had counted a lot before it."""
    numbers = Numbers(
        grid=Grid(start=START, step=timedelta(seconds=STEP), count=STEPS),
        ports={
            PORTS[number]: {
                name: 3e8 + np.linspace(0.0, more, STEPS) for name, more in counters.items()
            }
            for number, counters in gained.items()
        },
        kinds=dict.fromkeys(PORTS, ("infiniband", "fabric")),
    )
    return [it.congestion for it in rows(PORTS[: len(gained)], (), numbers, "")]


def test_ticks_without_credit_of_a_sound_port_are_no_word() -> None:
    ticks = {"transmit_wait_ticks": 319_807_142.0}
    assert congestion({0: ticks, 1: ticks, 2: ticks}) == [(), (), ()]
    assert congestion({0: ticks}) == [()]


@pytest.mark.parametrize(
    ("times", "others", "said"),
    [
        (3.0, 2, ("waits 3 times as long as its peers here",)),
        (2.9, 2, ()),
        (9.0, 1, ()),
    ],
)
def test_one_that_waits_three_times_as_long_as_two_others_says_so(
    times: float, others: int, said: tuple[str, ...]
) -> None:
    usual = {number: {"transmit_wait_ticks": 1e6} for number in range(1, others + 1)}
    first, *rest = congestion({0: {"transmit_wait_ticks": times * 1e6}, **usual})
    assert first == said
    assert rest == [()] * others


@pytest.mark.parametrize(
    ("name", "per_second", "said"),
    [
        ("receive_pause_microseconds", 1_000.0, ("waits 0.1 % of the time",)),
        ("receive_pause_microseconds", 999.0, ()),
        ("transmit_pause_microseconds", 42_000.0, ("makes others wait 4.2 % of the time",)),
        ("ecn_marked_packets", 0.1, ("0.1 packets marked by ECN a second",)),
        ("ecn_marked_packets", 0.09, ()),
    ],
)
def test_pauses_are_shares_of_the_time_and_marks_are_per_second(
    name: str, per_second: float, said: tuple[str, ...]
) -> None:
    assert congestion({0: {name: per_second * SECONDS}}) == [said]


def test_what_was_not_measured_twice_is_not_measured() -> None:
    assert congestion({0: {"symbol_errors": 1e9}}) == [None]
    assert congestion({0: {"cnp_sent": float("nan")}}) == [None]


def test_a_port_of_the_fabric_leads_to_its_link_and_one_error_is_one() -> None:
    numbers = Numbers(
        grid=Grid(start=START, step=timedelta(seconds=STEP), count=STEPS),
        ports={PORTS[0]: {"receive_errors": np.linspace(0.0, 1.0, STEPS)}},
    )
    views = [
        PortView(
            subject=Subject(cluster="prod", node="n1", device=device, port="1"),
            kind=kind,
            role="fabric",
            up=True,
            was_up=True,
            speed_bits_per_second=4e11,
        )
        for device, kind in ((PORTS[0][0], "infiniband"), ("eno1", "ethernet"))
    ]
    drawn = table(rows([PORTS[0], ("eno1", "1")], views, numbers, ""))
    assert "/network?link=prod%2Fn1%2Fport%2Fmlx5_0%2F1" in drawn
    assert drawn.count("<a ") == 1, "nothing is known of the link of a management port"
    assert "<td>1 receive error</td>" in drawn
