"""PFC at one end of a link only, by what host and switch count: just below and just above each limit."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.port_ecn import DETECTOR
from gpuvigil.model import ErrorCount, Finding, Severity

from .scene import NOON, Scene, healthy, port, told
from .test_ethernet_switches import NOTHING, changed, fabric, hearing

MINUTE = timedelta(minutes=1)
FOUR = healthy(nodes=4, seconds=400)
# The scene's spans are both 300 s; here the steady one is its last 100 s.
FOUR = replace(FOUR, settings=replace(FOUR.settings, steady_seconds=100.0))
Frames = Mapping[int, tuple[int | None, int | None]]


def counts(
    received: int | None, sent: int | None, minutes_ago: float = 5.0
) -> tuple[ErrorCount, ...]:
    """From nothing ten minutes ago."""

    def at(minutes: float, of: int | None, to: int | None) -> ErrorCount:
        return replace(
            NOTHING,
            at=NOON - minutes * MINUTE,
            pause_frames_received=of,
            pause_frames_sent=to,
        )

    begin = (None if it is None else 0 for it in (received, sent))
    return at(11, *begin), at(minutes_ago, received, sent)


def find(scene: Scene, frames: Frames, minutes_ago: float = 5.0) -> list[Finding]:
    """`frames`: by host, what came to its port of the switch, and what that port sent."""
    switches = fabric()
    for number, (received, sent) in frames.items():
        grown = counts(received, sent, minutes_ago)
        switches = changed(switches, "leaf1", f"Ethernet1/{number}", counts=grown)
    window = scene.window((DETECTOR,))
    return DETECTOR.find(
        replace(
            window,
            switches={it.subject.key: it for it in switches.values()},
            inventories={key: hearing(it) for key, it in window.inventories.items()},
        )
    )


def asking(*numbers: int, share: float = 0.05) -> Scene:
    """Hosts that ask their switch to stop, for this share of the time."""
    scene = FOUR
    for number in numbers:
        scene = scene.rising(port(number), "transmit_pause_microseconds", share * 1e6)
    return scene


def stopped(*numbers: int) -> Scene:
    scene = FOUR
    for number in numbers:
        scene = scene.rising(port(number), "receive_pause_microseconds", 1000.0)
    return scene


HEARD = {1: (0, 0), 2: (70_000, 0), 3: (0, 0)}
SENT = {1: (0, 1000), 2: (0, 1000)}


def test_a_switch_that_hears_no_pause_of_a_host_that_asks_for_it() -> None:
    (found,) = find(asking(1, 2), HEARD)
    assert (found.subject, found.severity, found.condition) == (
        port(),
        Severity.INFO,
        "pfc_one_sided",
    )
    assert told(found) == (
        "info; side without PFC: switch, leaf1 port Ethernet1/1;"
        " host pauses the switch for: 5.0 % of the time;"
        " pause frames received at leaf1 port Ethernet1/1: none in 10 min"
        " (peers some at 1 other port of it)"
    )


@pytest.mark.parametrize(("share", "expected"), [(0.0099, 0), (0.0101, 1)])
def test_a_host_asks_for_a_hundredth_of_the_time(share: float, expected: int) -> None:
    assert len(find(asking(1, share=share), HEARD)) == expected


def test_a_switch_that_counts_no_pauses_at_all_or_some_is_not_judged() -> None:
    assert find(asking(1, 2), {1: (0, 0), 2: (0, 0)}) == []
    assert find(asking(1, 2), {1: (None, None), 2: (70_000, 0)}) == []
    assert find(asking(1, 2), {1: (1, 0), 2: (70_000, 0)}) == []
    assert find(asking(1, 2), {}) == []


@pytest.mark.parametrize("seconds", [100.0, 250.0])
def test_a_host_that_began_to_ask_or_ceased_lately_may_be_ahead_of_the_switch(
    seconds: float,
) -> None:
    late = FOUR.turned(port(), "transmit_pause_microseconds", 0.0, 50_000.0, 100.0)
    over = FOUR.turned(port(), "transmit_pause_microseconds", 50_000.0, 0.0, seconds)
    assert find(late, HEARD) == []
    assert find(over, HEARD) == []


def test_a_host_that_its_switch_never_stops() -> None:
    (found,) = find(stopped(2), SENT)
    assert told(found) == (
        "info; side without PFC: host, mlx5_0;"
        " pause frames sent at leaf1 port Ethernet1/1: 1000 in 10 min;"
        " host was paused for: no time (peers some at 1 other port of that switch)"
    )


def test_of_fewer_frames_or_without_a_host_that_stops_nothing_is_said() -> None:
    assert find(stopped(2), {**SENT, 1: (0, 999)}) == []
    assert find(stopped(), SENT) == []
    assert find(stopped(1, 2), SENT) == []
    assert find(stopped(3), SENT) == []


def test_a_host_whose_card_does_not_say_is_not_judged() -> None:
    scene = stopped(2).changed(port(), {"receive_pause_microseconds": None})
    assert find(scene, SENT) == []


@pytest.mark.parametrize(("seconds_ago", "is_told"), [(69.0, False), (71.0, True)])
def test_a_host_has_a_minute_to_tell_that_it_was_stopped(seconds_ago: float, is_told: bool) -> None:
    """Its newest line is ten seconds old."""
    assert bool(find(stopped(2), SENT, seconds_ago / 60.0)) is is_told
