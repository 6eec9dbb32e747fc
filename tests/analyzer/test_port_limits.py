"""Ports that lose packets, run below their speed or wait: each limit to the single count."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.port_congested import DETECTOR as CONGESTED
from analyzer.detectors.port_degraded import DETECTOR as DEGRADED
from analyzer.detectors.port_losses import DETECTOR as LOSSES
from analyzer.evidence.waits_less import would_show_waiting
from gpuvigil.model import Evidence, Finding, Subject

from .scene import (
    NOON,
    PORT_FIELDS,
    SETTINGS,
    Scene,
    allocation,
    carrying,
    gpu,
    healthy,
    incident,
    node,
    port,
    told,
)
from .test_port_waits import rail, with_more_ports

SPANS = replace(SETTINGS, steady_seconds=120.0, trend_seconds=360.0)
FLEET = replace(healthy(nodes=4, seconds=360.0, gpus=1), settings=SPANS)
# Lines of the last minute are 50 seconds apart, of two minutes 110, and what is before these is 240 long.
MINUTE, STEADY, BEFORE = 50, 110, 240
RESENT, PAUSED, TICKS = "retransmits", "receive_pause_microseconds", "transmit_wait_ticks"
GBIT = 10**9


def counted(scene: Scene, one: Subject, field: str, before: int, steady: int, lately: int) -> Scene:
    """A counter rose by so much before two minutes ago, since then, and by so much of it in one."""
    value = PORT_FIELDS[field]
    for more, seconds in ((before, 125), (steady - lately, 65), (lately, 15)):
        value += more
        scene = scene.changed(one, {field: value}, seconds)
    return scene


def losses(scene: Scene) -> list[Finding]:
    return LOSSES.find(scene.window((LOSSES,)))


@pytest.mark.parametrize("fewer", [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_one_packet_a_second_before_and_now_and_lately_is_a_loss(fewer: Sequence[int]) -> None:
    before, steady, lately = (
        most - less for most, less in zip((BEFORE, STEADY, MINUTE), fewer, strict=True)
    )
    found = losses(counted(FLEET, port(), RESENT, before, steady, lately))
    assert [it.subject for it in found] == [port()] * (not any(fewer))


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_from_three_ports_on_ten_times_the_middle_one_is_a_loss(nodes: int) -> None:
    scene = replace(healthy(nodes=nodes, seconds=360.0, gpus=1), settings=SPANS)
    for number in range(2, nodes + 1):
        scene = counted(scene, port(number), RESENT, BEFORE, STEADY, MINUTE)
    for fewer in (0, 1):
        steady = 10 * STEADY - fewer
        found = losses(counted(scene, port(), RESENT, 10 * BEFORE, steady, 10 * MINUTE))
        assert (port() in {it.subject for it in found}) is (nodes == 2 or not fewer)
        if nodes > 2 and found:
            assert told(found[0]).startswith(
                "warning; packets sent again: 10.0 per second (limit 1 per second, peers 1)"
            )


@pytest.mark.parametrize(("lately", "count"), [(50 * MINUTE, 1), (50 * MINUTE - 1, 0)])
def test_fifty_packets_a_second_are_felt_in_a_minute(lately: int, count: int) -> None:
    scene = carrying(FLEET, rail(1, 2, 3, 4), 0.5, 60.0)
    found = losses(counted(scene, port(), RESENT, 0, lately, lately))
    assert len(found) == count
    assert losses(counted(FLEET, port(), RESENT, 0, lately, lately)) == []


@pytest.mark.parametrize(("lost", "more"), [(0.0, []), (0.1, ["traffic: 10 % less than before"])])
def test_what_a_loss_costs_is_told_where_it_costs_anything(lost: float, more: list[str]) -> None:
    scene = carrying(FLEET, rail(1, 2, 3, 4), lost, 120.0)
    (it,) = losses(counted(scene, port(), RESENT, BEFORE, STEADY, MINUTE))
    assert [text for text in told(it).split("; ") if "traffic" in text] == more
    (first,) = {s.at for s in scene.samples if s.at == NOON - timedelta(seconds=120)}
    assert it.since == first


# --- a slow link ----------------------------------------------------------------------------------

SLOW: Mapping[str, Any] = {"speed_bits_per_second": 200 * GBIT, "width_lanes": 2}
FIVE = replace(healthy(nodes=5, seconds=360.0, gpus=0), settings=SPANS)


def degraded(scene: Scene) -> list[Finding]:
    return DEGRADED.find(scene.window((DEGRADED,)))


@pytest.mark.parametrize(
    ("slow", "seconds", "count"),
    [
        (SLOW, 70, 1),
        (SLOW, 25, 0),  # it had another speed in this minute
        ({**SLOW, "speed_bits_per_second": 0}, 70, 0),
        ({**SLOW, "speed_bits_per_second": 1}, 70, 1),
        ({**SLOW, "up": 0}, 70, 0),
        ({**SLOW, "up": 0}, 15, 0),
        ({**SLOW, "speed_bits_per_second": 400 * GBIT - 1}, 70, 1),
        ({**SLOW, "speed_bits_per_second": 400 * GBIT}, 70, 0),
    ],
)
def test_a_link_is_slow_where_it_was_up_at_one_lower_speed_for_the_minute(
    slow: Mapping[str, Any], seconds: int, count: int
) -> None:
    assert len(degraded(FIVE.changed(port(), slow, seconds))) == count


@pytest.mark.parametrize(("lines", "count"), [(1, 0), (2, 1), (3, 1)])
def test_two_lines_are_enough_to_tell_a_speed(lines: int, count: int) -> None:
    oldest = NOON - timedelta(seconds=10 * lines)
    few = FIVE.changed(port(), SLOW).without(lambda s: s.subject == port() and s.at < oldest)
    assert len(degraded(few)) == count


@pytest.mark.parametrize(
    ("nodes", "slow", "count"), [(4, 1, 0), (5, 1, 1), (5, 2, 0), (9, 2, 0), (10, 2, 2), (10, 3, 0)]
)
def test_four_of_five_ports_of_a_name_say_what_its_speed_is(
    nodes: int, slow: int, count: int
) -> None:
    scene = replace(healthy(nodes=nodes, seconds=60.0, gpus=0), settings=SPANS)
    for number in range(1, slow + 1):
        scene = scene.changed(port(number), SLOW)
    assert len(degraded(scene)) == count


@pytest.mark.parametrize(("nodes", "tells"), [(1, False), (3, False), (4, True), (5, True)])
def test_four_ports_tell_whether_an_active_one_would_show(nodes: int, tells: bool) -> None:
    scene = replace(healthy(nodes=nodes, seconds=360.0, gpus=0), settings=SPANS)
    assert DEGRADED.would_show is not None
    for value, is_over in (("400 Gb/s", tells), ("200 Gb/s", True)):
        evidence = (Evidence(name="lanes", value=value), Evidence(name="speed", value=value))
        active = incident("port_degraded", port(), evidence=evidence)
        assert DEGRADED.would_show(scene.window((DEGRADED,)), active) is is_over
    # One that was faster just before says nothing yet.
    falls = scene.changed(port(), SLOW, 15)
    assert DEGRADED.would_show(falls.window((DEGRADED,)), active) is tells


def test_a_slow_link_is_told_with_what_is_known_of_it() -> None:
    alone = replace(healthy(nodes=1, seconds=360.0, gpus=0), settings=SPANS)
    (it,) = degraded(alone.changed(port(), SLOW, 65))
    assert told(it) == "warning; speed: 200 Gb/s (limit 400 Gb/s); lanes: 2 (limit 4)"
    assert (it.since, it.detector) == (NOON - timedelta(seconds=60), "port_degraded")
    (it,) = degraded(alone.changed(port(), {**SLOW, "width_lanes": None}, 65))
    assert told(it) == "warning; speed: 200 Gb/s (limit 400 Gb/s)"
    never = alone.changed(port(), {"width_lanes": None}).changed(port(), SLOW, 65)
    (it,) = degraded(never)
    assert told(it) == "warning; speed: 200 Gb/s (limit 400 Gb/s); lanes: 2 (limit 2)"


# --- ports that wait ------------------------------------------------------------------------------


def congested(scene: Scene) -> list[Finding]:
    return CONGESTED.find(scene.window((CONGESTED,)))


def waiting(scene: Scene, ports: Iterable[Subject], share: float = 0.3) -> Scene:
    """These ports are stopped for this share of the last two minutes."""
    for one in ports:
        micros = int(share * 1e6)
        scene = counted(scene, one, PAUSED, 0, micros * STEADY, micros * MINUTE)
    return scene


EVERY = rail(1, 2, 3, 4)
CARRYING = carrying(FLEET, EVERY, 0.4, 120.0)


@pytest.mark.parametrize(
    ("numbers", "faults"),
    [
        ((1,), ["port_congested"]),
        ((1, 2), ["switch_congested"]),
        ((1, 2, 3), ["switch_congested"]),
        ((1, 2, 3, 4), ["switch_congested"]),
    ],
)
def test_ports_of_one_name_of_a_job_are_a_switch(numbers: Sequence[int], faults: list[str]) -> None:
    found = congested(waiting(CARRYING, rail(*numbers)))
    assert [it.fault for it in found] == faults
    if len(numbers) > 1:
        assert (found[0].subject, found[0].members) == (port(), tuple(rail(*numbers[1:])))


@pytest.mark.medium
@pytest.mark.parametrize(("ports", "is_node"), [(2, True), (3, True), (4, True), (5, False)])
def test_two_and_half_of_a_nodes_ports_are_the_node(ports: int, is_node: bool) -> None:
    scene = with_more_ports(CARRYING, [f"mlx5_{n}" for n in range(1, ports)])
    first, second = (replace(port(), device=f"mlx5_{n}") for n in (0, 1))
    found = congested(waiting(scene, [first, second]))
    if is_node:
        (it,) = found
        assert (it.fault, it.subject, it.condition) == ("port_congested", node(), "node_network")
        assert it.members == (first, second)
        assert told(it).startswith(
            "warning; ports: mlx5_0, mlx5_1 of node-1; paused by its switch: 30 %"
        )
    else:
        assert [it.subject for it in found] == [first, second]
    assert [it.subject for it in congested(waiting(scene, [second]))] == [second]


@pytest.mark.parametrize(
    ("nodes", "told_of"),
    [(2, [("port_congested", "node")] * 2), (3, [("switch_congested", "port")])],
)
def test_all_ports_of_three_nodes_are_what_they_share(
    nodes: int, told_of: list[tuple[str, str]]
) -> None:
    scene = with_more_ports(CARRYING, ["mlx5_1"])
    them = [replace(port(n), device=f"mlx5_{i}") for n in range(1, nodes + 1) for i in (0, 1)]
    found = congested(waiting(scene, them))
    assert [(it.fault, it.subject.kind) for it in found] == told_of


@pytest.mark.parametrize(
    ("share", "value"), [(0.05, "5 %"), (0.5, "50 %"), (1.0, "100 %"), (1.5, "100 %")]
)
def test_a_port_is_stopped_for_a_share_of_the_time(share: float, value: str) -> None:
    scene = carrying(FLEET, EVERY, 0.08, 120.0)
    (it,) = congested(waiting(scene, [port()], share))
    assert f"paused by its switch: {value} of the time (limit 5 %)" in told(it)
    assert "times as long as before" not in told(it)


def test_ticks_are_told_where_nobody_stops_it() -> None:
    scene = counted(CARRYING, port(), TICKS, 2 * BEFORE, 10 * STEADY, 10 * MINUTE)
    (it,) = congested(scene)
    assert told(it).startswith(
        "warning; waits for credit: 5.0 times as long as before; traffic: 40 % less than before"
    )


def test_in_a_minute_every_job_of_a_port_must_be_heard() -> None:
    # Too little to be told over two minutes.
    scene = carrying(FLEET, rail(1, 2, 4), 0.152, 60.0)
    for one in rail(1, 2, 4):
        scene = counted(scene, one, PAUSED, 0, 300_000 * MINUTE, 300_000 * MINUTE)
    more = (allocation(gpu(1), "job 8"), allocation(gpu(3), "job 8"))
    scene = replace(scene, allocations=(*scene.allocations, *more))
    assert [it.fault for it in congested(scene)] == ["switch_congested"]
    since = NOON - timedelta(seconds=60)
    unheard = scene.without(lambda s: s.subject == port(3) and s.at >= since)
    assert congested(unheard) == []


@pytest.mark.parametrize("jobs", [1, 8, 9])
def test_no_more_than_eight_of_its_jobs_are_named(jobs: int) -> None:
    more = [allocation(gpu(n), f"job {100 + j}") for n in (1, 2) for j in range(jobs)]
    scene = waiting(replace(CARRYING, allocations=tuple(more)), [port()])
    (it,) = congested(scene)
    (named,) = [one.value for one in it.evidence if one.name == "its job"]
    assert named == ", ".join(f"job {100 + j}" for j in range(min(jobs, 8)))


@pytest.mark.medium
@pytest.mark.parametrize(("nodes", "more"), [(8, ""), (9, " and 1 more"), (11, " and 3 more")])
def test_no_more_than_eight_nodes_of_a_switch_are_named(nodes: int, more: str) -> None:
    them = rail(*range(1, nodes + 1))
    fleet = replace(healthy(nodes=nodes, seconds=360.0, gpus=1), settings=SPANS)
    (it,) = congested(waiting(carrying(fleet, them, 0.4, 120.0), them))
    names = sorted(one.node for one in them)[:8]
    assert it.evidence[0].value == f"mlx5_0 of {', '.join(names)}{more}"


def test_a_port_that_drops_and_waits_says_both_and_stands_alone() -> None:
    drops = {"transmit_discards": 12_000}
    scene = waiting(CARRYING, [port()]).changed(port(), drops, 15)
    (it,) = congested(scene)
    assert [one.name for one in it.evidence] == [
        "paused by its switch",
        "traffic",
        "its job",
        "discards",
        "beyond the port",
    ]
    assert it.since == NOON - timedelta(seconds=120)
    # In a minute one that waits is not told alone, unless it drops.
    minute = carrying(FLEET, EVERY, 0.4, 60.0)
    brief = counted(minute, port(), PAUSED, 0, 300_000 * MINUTE, 300_000 * MINUTE)
    brief = brief.changed(port(), {"transmit_wait_ticks": None})
    names = [it.subject for it in congested(brief.changed(port(), drops, 15))]
    assert names == [port()]


@pytest.mark.parametrize(("discards", "faults"), [(6000, []), (6001, ["switch_congested"])])
def test_ports_that_begin_to_drop_are_told_by_their_switch(
    discards: int, faults: list[str]
) -> None:
    scene = CARRYING
    for it in EVERY[:3]:
        scene = scene.changed(it, {"transmit_discards": discards}, 15)
    assert [it.fault for it in congested(scene)] == faults


@pytest.mark.parametrize(
    ("fault", "subject", "resolved", "is_told"),
    [
        ("switch_congested", port(3), False, False),
        ("switch_congested", port(3), True, True),
        ("port_congested", port(3), False, True),
        ("switch_congested", replace(port(3), device="mlx5_9"), False, True),
        ("switch_congested", port(3, cluster="d"), False, True),
    ],
)
def test_one_more_port_of_a_switch_that_stands_is_not_told(
    fault: str, subject: Subject, resolved: bool, is_told: bool
) -> None:
    active = replace(incident(fault, subject), resolved_at=NOON if resolved else None)
    scene = replace(waiting(CARRYING, [port()]), recent_incidents=(active,))
    assert bool(congested(scene)) is is_told


@pytest.mark.parametrize("field", [PAUSED, TICKS])
@pytest.mark.parametrize(("more", "is_back"), [(0, True), (1, False)])
def test_half_of_its_usual_wait_is_back(field: str, more: int, is_back: bool) -> None:
    """Over 350 s it waited 700 a second, and in the last minute half of that and what is more."""
    lately = 350 * MINUTE + more
    rises = counted(FLEET, port(), field, 700 * 350 - 350 * 100 - more, 350 * 100 + more, lately)
    other = {TICKS if field == PAUSED else PAUSED: None}
    window = rises.changed(port(), other).window((CONGESTED,))
    assert would_show_waiting(window, incident("port_congested", port())) is is_back


@pytest.mark.parametrize(("lost", "is_over"), [(0.5, True), (0.6, False)])
def test_a_port_whose_job_rests_for_a_minute_is_not_over(lost: float, is_over: bool) -> None:
    """It waits for nothing, and carries so much less than before."""
    scene = counted(carrying(FLEET, EVERY, lost, 65.0), port(), PAUSED, 10**6, 0, 0)
    active = incident("port_congested", port())
    assert would_show_waiting(scene.window((CONGESTED,)), active) is is_over
    ended = replace(scene, allocations=())
    assert would_show_waiting(ended.window((CONGESTED,)), active)


@pytest.mark.parametrize(
    ("steady", "lately", "is_over"),
    [(5_499, 4_000, True), (5_500, 4_000, False), (50_000, 249, True), (50_000, 250, False)],
)
def test_drops_are_over_at_half_of_the_limit_over_ten_minutes_or_at_next_to_none_now(
    steady: int, lately: int, is_over: bool
) -> None:
    """Lines of the steady span are 110 s apart, of the recent one 50."""
    scene = counted(FLEET, port(), "transmit_discards", 10**6, steady, lately)
    active = replace(incident("port_congested", port()), condition="drops")
    assert would_show_waiting(scene.window((CONGESTED,)), active) is is_over


def test_what_a_port_drops_is_not_over_while_nothing_is_heard_of_it() -> None:
    active = replace(incident("port_congested", port()), condition="drops")
    dropping = counted(FLEET, port(), "transmit_discards", 10**6, 5_500, 4_000)
    unheard = dropping.without(
        lambda s: s.subject == port() and s.at > NOON - timedelta(seconds=70)
    )
    assert not would_show_waiting(unheard.window((CONGESTED,)), active)
    uncounted = dropping.changed(port(), {"transmit_discards": None})
    assert would_show_waiting(uncounted.window((CONGESTED,)), active)


@pytest.mark.parametrize(
    ("ports", "back", "is_over"),
    [(4, 0, False), (4, 1, False), (4, 2, True), (4, 3, True), (5, 2, False), (5, 3, True)],
)
def test_a_switch_is_over_once_half_of_its_ports_are(ports: int, back: int, is_over: bool) -> None:
    scene, them = FIVE, rail(*range(1, ports + 1))
    for one in them:
        scene = scene.rising(one, PAUSED, 1_000.0)
    for number in range(1, back + 1):
        scene = counted(scene.changed(port(number), {PAUSED: 0}), port(number), PAUSED, 10**6, 0, 0)
    members = (node().key, *(one.key for one in them))
    active = replace(incident("switch_congested", port()), members=members)
    assert would_show_waiting(scene.window((CONGESTED,)), active) is is_over
