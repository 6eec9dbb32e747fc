"""A host that does not keep up: its limits to the single count, its peers, and when it is over."""

from dataclasses import replace

import pytest

from analyzer.detectors.port_receiver import (
    DETECTOR,
    slow_hosts,
    stopping,
    would_show_slow_receiver,
)

from .scene import PORT_FIELDS, SETTINGS, Scene, healthy, incident, port, told

PAUSES, UNBUFFERED, DISCARDS = (
    "transmit_pause_microseconds",
    "out_of_buffer",
    "receive_discards",
)
TEN_MINUTES = replace(SETTINGS, steady_seconds=600.0, trend_seconds=600.0)
FLEET = replace(healthy(nodes=2, seconds=600.0, gpus=0), settings=TEN_MINUTES)
# The lines of the last minute are 50 seconds apart, the first and the last of ten minutes 590.
MINUTE, LONG = 50, 590
# What is counted, and its limits per second: of the last minute, and of ten of them.
SIGNS = [(PAUSES, 50_000, 30_000), (UNBUFFERED, 100, 100), (DISCARDS, 1, 1)]


def gained(field: str, in_all: int, lately: int, number: int = 1, scene: Scene = FLEET) -> Scene:
    """A port's counter rose by so much in ten minutes, and by so much of that in the last one."""
    before = PORT_FIELDS[field] + in_all - lately
    scene = scene.changed(port(number), {field: before}, 65)
    return scene.changed(port(number), {field: before + lately}, 15)


@pytest.mark.parametrize(("field", "lately", "steady"), SIGNS)
@pytest.mark.parametrize(
    ("fewer", "fewer_lately", "is_told"), [(0, 0, True), (1, 0, False), (0, 1, False)]
)
def test_a_host_is_slow_from_both_its_limits_on(
    field: str, lately: int, steady: int, fewer: int, fewer_lately: int, is_told: bool
) -> None:
    scene = gained(field, steady * LONG - fewer, lately * MINUTE - fewer_lately)
    found = slow_hosts(scene.window((DETECTOR,)))
    assert [it.subject for it in found] == [port()] * is_told


@pytest.mark.parametrize(
    ("seconds", "is_told"), [(250.0, False), (300.0, False), (310.0, True), (400.0, True)]
)
def test_half_of_the_ten_minutes_must_have_been_seen(seconds: float, is_told: bool) -> None:
    young = replace(healthy(nodes=2, seconds=seconds, gpus=0), settings=TEN_MINUTES)
    found = slow_hosts(young.rising(port(), UNBUFFERED, 200.0).window((DETECTOR,)))
    assert bool(found) is is_told


@pytest.mark.parametrize(
    ("nodes", "rate", "is_told"),
    [(2, 200, True), (3, 999, False), (3, 1000, True), (4, 999, False)],
)
def test_from_three_ports_on_ten_times_the_middle_one_is_slow(
    nodes: int, rate: int, is_told: bool
) -> None:
    scene = replace(healthy(nodes=nodes, seconds=600.0, gpus=0), settings=TEN_MINUTES)
    for number in range(2, nodes + 1):
        scene = scene.rising(port(number), UNBUFFERED, 100.0)
    scene = scene.rising(port(), UNBUFFERED, float(rate))
    told_of = {it.subject for it in slow_hosts(scene.window((DETECTOR,)))}
    assert (port() in told_of) is is_told


@pytest.mark.parametrize(("share", "value"), [(0.5, "50"), (1.0, "100"), (1.2, "100")])
def test_nobody_is_stopped_for_more_than_all_of_the_time(share: float, value: str) -> None:
    (it,) = slow_hosts(FLEET.rising(port(), PAUSES, share * 1e6).window((DETECTOR,)))
    assert told(it) == f"warning; pauses its switch: {value} % of the time (limit 5 %)"


@pytest.mark.parametrize(("field", "lately", "steady"), SIGNS)
def test_a_tenth_of_what_is_slow_over_ten_minutes_or_all_of_it_in_one_stops_others(
    field: str, lately: int, steady: int
) -> None:
    first_sign = lately * LONG // 10
    for in_all, of_it_lately, stops in (
        (first_sign, 0, True),
        (first_sign - 1, 0, False),
        (lately * MINUTE, lately * MINUTE, True),
        (lately * MINUTE - 1, lately * MINUTE - 1, False),
    ):
        window = gained(field, in_all, of_it_lately).window((DETECTOR,))
        assert stopping(window) == ({port()} if stops else set())


@pytest.mark.parametrize("seconds", [60.0, 100.0, 300.0])
def test_one_minute_is_enough_to_see_who_stops_others(seconds: float) -> None:
    young = replace(healthy(nodes=2, seconds=seconds, gpus=0), settings=TEN_MINUTES)
    assert stopping(young.window((DETECTOR,))) == set()
    for rate, them in ((99.0, set()), (100.0, {port()})):
        assert stopping(young.rising(port(), UNBUFFERED, rate).window((DETECTOR,))) == them


@pytest.mark.parametrize(("field", "lately", "steady"), SIGNS)
def test_a_slow_host_is_over_just_below_the_limit_of_ten_minutes(
    field: str, lately: int, steady: int
) -> None:
    active = incident("port_slow_receiver", port())
    for fewer, is_over in ((0, False), (1, True)):
        window = gained(field, steady * LONG - fewer, 0).window((DETECTOR,))
        assert would_show_slow_receiver(window, active) is is_over
    unknown = FLEET.changed(port(), {field: None for field, *_ in SIGNS})
    assert would_show_slow_receiver(unknown.window((DETECTOR,)), active) is False
    assert would_show_slow_receiver(Scene().window((DETECTOR,)), active) is False
