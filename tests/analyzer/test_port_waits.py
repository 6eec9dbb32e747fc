"""Ports that wait, that make others wait, that send again, and that run below their speed."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.port_congested import DETECTOR as CONGESTED
from analyzer.detectors.port_degraded import DETECTOR as DEGRADED
from analyzer.detectors.port_ecn import DETECTOR as ECN
from analyzer.detectors.port_losses import DETECTOR as LOSSES
from analyzer.detectors.port_receiver import DETECTOR as RECEIVER
from gpuvigil.model import Finding, Incident, PortIdentity, Severity, Subject

from .scene import (
    NOON,
    SETTINGS,
    Scene,
    allocation,
    carrying,
    healthy,
    incident,
    node,
    port,
    told,
)

MINUTES = replace(SETTINGS, steady_seconds=600.0, trend_seconds=1800.0)
FLEET = replace(healthy(nodes=6, seconds=1900.0), settings=MINUTES)
PAUSED, TICKS = "receive_pause_microseconds", "transmit_wait_ticks"
GBIT = 10**9


def congested(scene: Scene) -> list[Finding]:
    return CONGESTED.find(scene.window((CONGESTED,)))


def stopped(scene: Scene, ports: Iterable[Subject], share: float, seconds: float = 70.0) -> Scene:
    for one in ports:
        scene = scene.turned(one, PAUSED, 1_000.0, share * 1e6, seconds)
    return scene


def rail(*numbers: int) -> list[Subject]:
    return [port(number) for number in numbers]


EVERY = rail(1, 2, 3, 4)


def test_ports_of_one_name_that_wait_while_their_job_gets_less_through_are_their_switch() -> None:
    scene = stopped(carrying(FLEET, EVERY, 0.4), EVERY, 0.3)
    (it,) = congested(scene)
    assert (it.fault, it.severity) == ("switch_congested", Severity.WARNING)
    assert sorted({it.subject, *it.members}) == EVERY
    assert told(it) == (
        "warning; ports: mlx5_0 of node-1, node-2, node-3, node-4;"
        " paused by its switch: 30 % of the time (limit 5 %); traffic: 40 % less than before;"
        " its job: job 7; beyond the port: not observable without switch counters"
    )


@pytest.mark.medium
@pytest.mark.parametrize(("share", "lost", "is_told"), [
    (0.0995, 0.16, True), (0.049, 0.16, False), (0.3, 0.14, False), (0.3, 0.17, True),
])  # fmt: skip
def test_both_the_wait_and_what_is_lost_by_it_have_a_limit(
    share: float, lost: float, is_told: bool
) -> None:
    assert bool(congested(stopped(carrying(FLEET, EVERY, lost), EVERY, share))) is is_told


@pytest.mark.parametrize(("times", "is_told"), [(3.9, False), (4.1, True)])
def test_ticks_are_held_against_the_port_itself(times: float, is_told: bool) -> None:
    scene = carrying(FLEET, EVERY, 0.4)
    for one in EVERY:
        scene = scene.turned(one, TICKS, 1e6, times * 1e6, 60.0)
    assert bool(congested(scene)) is is_told


def test_a_burst_that_costs_nothing_is_none() -> None:
    assert congested(stopped(carrying(FLEET, EVERY, 0.0), EVERY, 0.9)) == []


@pytest.mark.parametrize(("lost", "is_told"), [(0.57, True), (0.63, False)])
def test_what_is_lost_must_have_been_waited_for(lost: float, is_told: bool) -> None:
    scene = stopped(carrying(FLEET, EVERY, lost, 60.0), EVERY, 0.301, 60.0)
    assert bool(congested(scene)) is is_told


def test_a_job_that_is_slow_by_itself_waits_less() -> None:
    assert congested(carrying(FLEET, EVERY, 0.6)) == []


def test_who_has_no_job_over_several_nodes_is_not_judged() -> None:
    scene = stopped(carrying(FLEET, EVERY, 0.4), EVERY, 0.3)
    assert congested(replace(scene, allocations=())) == []
    young = tuple(replace(one, started_at=NOON - timedelta(minutes=5)) for one in scene.allocations)
    assert congested(replace(scene, allocations=young)) == []
    alone = [allocation(replace(node(n), gpu=f"GPU-{n}-0"), f"job {n}") for n in (1, 2, 3, 4)]
    assert congested(replace(scene, allocations=tuple(alone))) == []


def test_one_port_alone_is_told_by_the_longer_look() -> None:
    one = rail(1)
    assert congested(stopped(carrying(FLEET, EVERY, 0.4), one, 0.3)) == []
    (it,) = congested(stopped(carrying(FLEET, EVERY, 0.4, 400.0), one, 0.3, 400.0))
    assert (it.fault, it.subject, it.members) == ("port_congested", port(), ())
    over = stopped(carrying(FLEET, EVERY, 0.4, 400.0), one, 0.3, 400.0)
    quiet = {PAUSED: None}
    assert congested(over.changed(port(), quiet, 60.0)) == []


def test_while_a_host_is_unheard_that_the_others_may_wait_for_the_minute_says_nothing() -> None:
    scene = stopped(carrying(FLEET, EVERY, 0.4), EVERY, 0.3)
    unheard = scene.without(lambda s: s.subject == port(4) and s.at > NOON - timedelta(seconds=80))
    assert congested(unheard) == []


def test_who_waits_for_a_host_that_does_not_keep_up_is_not_told() -> None:
    scene = stopped(carrying(FLEET, EVERY, 0.4), rail(1, 2, 3), 0.3)
    assert [it.fault for it in congested(scene)] == ["switch_congested"]
    slow = scene.turned(port(4), "transmit_pause_microseconds", 0.0, 200_000.0, 70.0)
    assert congested(slow) == []
    # A host of another job explains nothing.
    other = scene.turned(port(6), "transmit_pause_microseconds", 0.0, 200_000.0, 70.0)
    assert [it.fault for it in congested(other)] == ["switch_congested"]


@pytest.mark.medium
@pytest.mark.parametrize(("minutes", "is_told"), [(9.9, False), (10.1, True)])
def test_a_job_that_lost_links_to_a_switch_lately_crowds_its_other_links(
    minutes: float, is_told: bool
) -> None:
    scene = stopped(carrying(FLEET, EVERY, 0.4), rail(1, 2, 3), 0.3)

    def lost(known: Incident) -> list[str]:
        since = NOON - timedelta(minutes=minutes)
        return [
            it.fault
            for it in congested(replace(scene, recent_incidents=(replace(known, since=since),)))
        ]

    gone = replace(port(4), device="mlx5_1")
    of_switch = active("switch_down", replace(port(6), device="mlx5_1"), [gone])
    assert lost(of_switch) == ["switch_congested"] * is_told
    # One cable explains nothing, nor do hosts of another job, nor what is back.
    assert lost(active("port_down", gone)) == ["switch_congested"]
    assert lost(active("switch_down", port(6))) == ["switch_congested"]
    assert lost(replace(of_switch, resolved_at=NOON)) == ["switch_congested"]


def with_more_ports(scene: Scene, names: Iterable[str]) -> Scene:
    """Every node has these ports as well, which carry and wait as its first does."""
    samples, identities = [], []
    for name in names:
        samples += [
            replace(s, subject=replace(s.subject, device=name))
            for s in scene.samples
            if s.subject.kind == "port"
        ]
        identities.append(
            PortIdentity(device=name, port="1", kind="infiniband", role="fabric", was_up=True)
        )
    inventories = tuple(replace(i, ports=(*i.ports, *identities)) for i in scene.inventories)
    return replace(scene, samples=(*scene.samples, *samples), inventories=inventories)


def test_most_ports_of_one_node_are_the_node() -> None:
    scene = with_more_ports(stopped(carrying(FLEET, EVERY, 0.4), rail(2), 0.3), ["mlx5_1"])
    (it,) = congested(scene)
    assert (it.fault, it.subject, it.condition) == ("port_congested", node(2), "node_network")
    assert [member.device for member in it.members] == ["mlx5_0", "mlx5_1"]


@pytest.mark.parametrize(("seconds", "is_told"), [(45.0, False), (1e9, True)])
def test_a_link_that_has_just_become_slower_waits_for_itself(seconds: float, is_told: bool) -> None:
    scene = stopped(carrying(FLEET, EVERY, 0.4, 400.0), rail(1), 0.3, 400.0)
    slower = scene.changed(port(), SLOW, seconds)
    assert [it.fault for it in congested(slower)] == ["port_congested"] * is_told


@pytest.mark.parametrize(("beside", "told_of"), [
    (rail(1), [("port_congested", port(1), ""), ("port_congested", node(2), "node_network")]),
    (rail(1, 3), [("switch_congested", port(1), "")]),
])  # fmt: skip
def test_a_node_that_waits_at_a_full_leaf_is_not_slow_by_itself(
    beside: list[Subject], told_of: list[tuple[str, Subject, str]]
) -> None:
    scene = with_more_ports(carrying(FLEET, EVERY, 0.4, 400.0), ["mlx5_1", "mlx5_2"])
    others = [replace(port(2), device=name) for name in ("mlx5_1", "mlx5_2")]
    found = congested(stopped(scene, [port(2), *others, *beside], 0.3, 400.0))
    assert [(it.fault, it.subject, it.condition) for it in found] == told_of


def test_all_ports_of_several_nodes_of_a_job_are_one_matter_and_no_leaf_s() -> None:
    scene = with_more_ports(stopped(carrying(FLEET, EVERY, 0.4), EVERY, 0.3), ["mlx5_1"])
    (it,) = congested(scene)
    assert (it.fault, it.condition) == ("switch_congested", "nodes_wait")
    assert len({it.subject, *it.members}) == 8


def slowed(
    waits: float, lost: float, seconds: float, back: float = 0.0, counter: str = PAUSED
) -> Scene:
    """A port waits for so long, and its job carries less for so long, but for what is back in the last minute."""
    scene = carrying(FLEET, EVERY, lost, seconds).turned(port(), counter, 1e3, 3e5, waits)
    for one in EVERY:
        for way in ("receive_bytes", "transmit_bytes"):
            scene = scene.turned(one, way, 0.0, 1e9 * back, 60.0)
    return scene


@pytest.mark.parametrize(("back", "is_told"), [(0.0, True), (0.32, True), (0.34, False)])
def test_a_port_that_carries_again_what_it_did_is_not_congested(back: float, is_told: bool) -> None:
    assert bool(congested(slowed(400.0, 0.4, 400.0, back))) is is_told


@pytest.mark.parametrize("counter", [PAUSED, TICKS])
@pytest.mark.parametrize(("waits", "is_told"), [(440.0, True), (500.0, False)])
def test_a_pause_of_the_jobs_own_long_after_a_port_began_to_wait_is_no_congestion(
    counter: str, waits: float, is_told: bool
) -> None:
    assert bool(congested(slowed(waits, 0.4, 200.0, counter=counter))) is is_told


@pytest.mark.parametrize(("seconds", "is_told"), [(440.0, True), (500.0, False)])
def test_a_job_that_was_slow_long_before_its_port_waits_changed_by_itself(
    seconds: float, is_told: bool
) -> None:
    assert bool(congested(slowed(200.0, 0.4, seconds, counter=TICKS))) is is_told


def active(fault: str, subject: Subject, members: Iterable[Subject] = ()) -> Incident:
    keys = tuple(one.key for one in (subject, *members))
    return replace(incident(fault, subject), members=keys)


def test_one_more_port_of_a_switch_that_is_told_is_no_matter_of_its_own() -> None:
    scene = stopped(carrying(FLEET, EVERY, 0.4, 400.0), rail(4), 0.3, 400.0)
    assert [it.fault for it in congested(scene)] == ["port_congested"]
    known = active("switch_congested", port(1), rail(2, 3))
    assert congested(replace(scene, recent_incidents=(known,))) == []
    over = replace(known, resolved_at=NOON)
    assert [it.fault for it in congested(replace(scene, recent_incidents=(over,)))] == [
        "port_congested"
    ]


def test_an_active_one_is_over_once_its_ports_wait_much_less() -> None:
    known = active("switch_congested", port(1), rail(2, 3, 4))
    assert CONGESTED.would_show is not None
    # For so long that nothing before it is left to compare with.
    always = stopped(carrying(FLEET, EVERY, 0.4, 1900.0), EVERY, 0.3, 1900.0)
    assert CONGESTED.would_show(always.window((CONGESTED,)), known) is False
    over = FLEET
    for one in EVERY:
        over = over.turned(one, PAUSED, 300_000.0, 1_000.0, 70.0)
    assert CONGESTED.would_show(over.window((CONGESTED,)), known) is True
    unheard = over.without(lambda s: s.at > NOON - timedelta(seconds=61))
    assert CONGESTED.would_show(unheard.window((CONGESTED,)), known) is False
    nobody = {PAUSED: None, TICKS: None}
    for one in EVERY:
        over = over.changed(one, nobody)
    assert CONGESTED.would_show(over.window((CONGESTED,)), known) is True


def receivers(scene: Scene) -> list[str]:
    return [told(it) for it in RECEIVER.find(scene.window((RECEIVER,)))]


@pytest.mark.parametrize(("field", "below", "at", "what"), [
    ("transmit_pause_microseconds", 49_000.0, 51_000.0, "pauses its switch: 5 % of the time (limit 5 %)"),
    ("out_of_buffer", 99.0, 101.0, "packets without a buffer: 101 per second (limit 100 per second)"),
    ("receive_discards", 0.9, 1.1, "received and dropped: 1.1 packets per second (limit 1 per second)"),
])  # fmt: skip
def test_a_host_that_does_not_keep_up_says_so(
    field: str, below: float, at: float, what: str
) -> None:
    assert receivers(FLEET.rising(port(), field, below)) == []
    assert receivers(FLEET.rising(port(), field, at)) == [f"warning; {what}"]


def test_a_burst_of_pauses_is_a_checkpoint() -> None:
    pauses = "transmit_pause_microseconds"
    assert receivers(FLEET.turned(port(), pauses, 0.0, 300_000.0, 50.0)) == []
    assert len(receivers(FLEET.turned(port(), pauses, 0.0, 300_000.0, 75.0))) == 1


def test_what_all_hosts_do_is_none() -> None:
    scene = FLEET
    for number in range(1, 7):
        scene = scene.rising(port(number), "out_of_buffer", 200.0)
    assert receivers(scene) == []


@pytest.mark.medium
def test_a_port_alone_is_no_measure_of_itself() -> None:
    alone = replace(healthy(nodes=1, seconds=1900.0), settings=MINUTES)
    assert len(receivers(alone.rising(port(), "out_of_buffer", 200.0))) == 1
    (it,) = losses(alone.rising(port(), "retransmits", 20.0))
    assert "peers" not in told(it)


def test_a_slow_host_stands_until_it_stopped_nobody_for_the_whole_span() -> None:
    known, pauses = active("port_slow_receiver", port()), "transmit_pause_microseconds"
    assert RECEIVER.would_show is not None
    just = FLEET.turned(port(), pauses, 300_000.0, 0.0, 120.0)
    assert RECEIVER.would_show(just.window((RECEIVER,)), known) is False
    long = FLEET.turned(port(), pauses, 300_000.0, 0.0, 620.0)
    assert RECEIVER.would_show(long.window((RECEIVER,)), known) is True
    unheard = long.without(lambda s: s.subject == port())
    assert RECEIVER.would_show(unheard.window((RECEIVER,)), known) is False


def losses(scene: Scene) -> list[Finding]:
    return LOSSES.find(scene.window((LOSSES,)))


def test_what_is_sent_again_for_long_is_told_and_a_burst_is_not() -> None:
    assert losses(FLEET.rising(port(), "retransmits", 0.9)) == []
    (it,) = losses(FLEET.rising(port(), "retransmits", 1.2))
    assert told(it) == (
        "warning; packets sent again: 1.2 per second (limit 1 per second, peers 0);"
        " beyond the port: not observable without switch counters"
    )
    burst = FLEET.turned(port(), "retransmits", 0.0, 20.0, 300.0)
    assert losses(burst) == []
    # One that lies in both spans, and is over.
    over = FLEET
    for per_second, seconds in ((20.0, 720.0), (-20.0, 480.0)):
        over = over.turned(port(), "retransmits", 0.0, per_second, seconds)
    assert losses(over) == []


@pytest.mark.medium
def test_what_a_job_feels_is_told_at_once() -> None:
    few = FLEET.turned(port(), "retransmits", 0.0, 49.0, 60.0)
    assert losses(carrying(few, EVERY, 0.5)) == []
    burst = FLEET.turned(port(), "retransmits", 0.0, 51.0, 60.0)
    assert losses(carrying(burst, EVERY, 0.14)) == []
    (it,) = losses(carrying(burst, EVERY, 0.16))
    assert (it.fault, it.subject) == ("port_packet_loss", port())
    assert "traffic: 16 % less than before" in told(it)
    assert losses(replace(carrying(burst, EVERY, 0.16), allocations=())) == []


@pytest.mark.parametrize(("timeouts", "is_told"), [(0, False), (1, True)])
def test_where_a_card_counts_timeouts_what_it_sends_again_without_any_is_none(
    timeouts: int, is_told: bool
) -> None:
    scene = FLEET.rising(port(), "retransmits", 20.0).changed(port(), {"path_timeouts": 7})
    found = losses(scene.changed(port(), {"path_timeouts": 7 + timeouts}, 300.0))
    assert [it.subject for it in found] == [port()] * is_told
    assert all("timeouts on its paths: 1 (limit 0)" in told(it) for it in found)
    # What costs the job traffic is told without any.
    costs = FLEET.changed(port(), {"path_timeouts": 7}).turned(port(), "retransmits", 0, 90, 60)
    assert [it.subject for it in losses(carrying(costs, EVERY, 0.3))] == [port()]


def test_what_all_ports_send_again_is_no_port() -> None:
    scene = FLEET
    for number in range(1, 7):
        scene = scene.rising(port(number), "retransmits", 3.0)
    assert losses(scene) == []


@pytest.mark.parametrize(("before", "lost", "is_told"), [
    (4.9, 0.16, True), (5.1, 0.16, False), (4.9, 0.14, False),
])  # fmt: skip
def test_what_all_ports_of_a_job_begin_to_send_again_is_told_where_it_feels_that(
    before: float, lost: float, is_told: bool
) -> None:
    scene = carrying(FLEET, EVERY, lost, 60.0)
    for one in EVERY:
        scene = scene.turned(one, "retransmits", before, 51.0, 60.0)
    found = losses(scene)
    assert [sorted({it.subject, *it.members}) for it in found] == [EVERY] * is_told
    assert all("(limit 1 per second, peers 51)" in told(it) for it in found)


def degraded(scene: Scene) -> list[Finding]:
    return DEGRADED.find(scene.window((DEGRADED,)))


SLOW = {"speed_bits_per_second": 200 * GBIT, "width_lanes": 2}


def test_a_link_that_trained_with_fewer_lanes_is_told_with_both_speeds() -> None:
    (it,) = degraded(FLEET.changed(port(), SLOW, 70.0))
    assert told(it) == (
        "warning; speed: 200 Gb/s (limit 400 Gb/s, peers 400 Gb/s); lanes: 2 (limit 4)"
    )
    # A single line is one, whatever it says.
    assert degraded(FLEET.changed(port(), SLOW, 15.0)) == []
    assert degraded(FLEET.changed(port(), {**SLOW, "up": 0}, 70.0)) == []


def test_peers_tell_of_one_that_was_always_slow_where_there_are_enough() -> None:
    assert [it.subject for it in degraded(FLEET.changed(port(), SLOW))] == [port()]
    few = replace(healthy(nodes=3, seconds=1900.0), settings=MINUTES)
    assert degraded(few.changed(port(), SLOW)) == []
    two = FLEET.changed(port(), SLOW).changed(port(2), SLOW)
    # Of six, four are no longer nearly all.
    assert degraded(two) == []


def test_a_management_port_is_a_note() -> None:
    scene = replace(
        FLEET.changed(port(), SLOW, 70.0),
        inventories=tuple(
            replace(i, ports=tuple(replace(p, role="management") for p in i.ports))
            for i in FLEET.inventories
        ),
    )
    assert [it.severity for it in degraded(scene)] == [Severity.INFO]


def test_one_without_peers_stands_until_it_is_faster() -> None:
    alone = replace(healthy(nodes=1, seconds=1900.0), settings=MINUTES)
    (it,) = degraded(alone.changed(port(), SLOW, 70.0))
    known = replace(incident("port_degraded", port()), evidence=it.evidence)
    assert DEGRADED.would_show is not None
    still = alone.changed(port(), SLOW)
    assert DEGRADED.would_show(still.window((DEGRADED,)), known) is False
    assert DEGRADED.would_show(alone.window((DEGRADED,)), known) is True
    assert DEGRADED.would_show(Scene().window((DEGRADED,)), known) is False
    assert DEGRADED.would_show(FLEET.window((DEGRADED,)), known) is True


def test_marks_that_are_answered_or_whose_answers_nobody_counts_are_none() -> None:
    marked = FLEET.rising(port(), "ecn_marked_packets", 50.0)
    assert [it.fault for it in ECN.find(marked.window((ECN,)))] == ["port_ecn"]
    assert ECN.find(marked.rising(port(), "cnp_sent", 0.01).window((ECN,))) == []
    assert ECN.find(marked.changed(port(), {"cnp_sent": None}).window((ECN,))) == []


@pytest.mark.parametrize(
    ("ignored", "obeyed", "is_told"),
    [(50.0, 0.0, True), (50.0, 4.0, True), (50.0, 6.0, False), (0.3, 0.0, False)],
)
def test_a_port_that_ignores_what_it_is_notified_of_is_told(
    ignored: float, obeyed: float, is_told: bool
) -> None:
    scene = FLEET.changed(port(), {"cnp_ignored": 3, "cnp_handled": 3})
    notified = scene.rising(port(), "cnp_ignored", ignored).rising(port(), "cnp_handled", obeyed)
    found = [(it.fault, it.condition) for it in ECN.find(notified.window((ECN,)))]
    assert found == [("port_ecn", "cnp_ignored")] * is_told
    unknown = notified.changed(port(), {"cnp_handled": None})
    assert ECN.find(unknown.window((ECN,))) == []
