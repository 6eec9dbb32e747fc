"""A port that is down or flaps: what ends it, and what is said of it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from analyzer.detectors.port_down import DETECTOR, NO_FABRIC, broken_ports
from gpuvigil.model import Event, EventKind, Finding, Subject

from .scene import (
    NOON,
    SETTINGS,
    Scene,
    allocation,
    event,
    gpu,
    healthy,
    incident,
    node,
    port,
    told,
    with_port_down,
)

SECOND, MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
TICK = NOON - 10 * SECOND  # when the newest line was read
CALM = healthy(nodes=1, seconds=300.0)
DOWN = {"up": 0, "physical_state": 2}


def found(scene: Scene) -> list[Finding]:
    return broken_ports(scene.window((DETECTOR,)))


def went(seconds: float, message: str = "", kind: EventKind = EventKind.PORT_DOWN) -> Event:
    return replace(event(kind, port(), NOON - timedelta(seconds=seconds)), message=message)


def test_a_port_is_told_with_all_that_is_known_of_it() -> None:
    scene = CALM.changed(port(), DOWN, 15)
    lines = "physical state: 2 (limit 5, link up); speed before: 400 Gb/s"
    (it,) = found(scene)
    assert told(it).startswith(f"warning; {lines}")
    assert (it.since, it.certain, it.late) == (TICK, False, False)
    (it,) = found(scene.with_events(went(20, "link lost")))
    words = "down since: 11:59:40 UTC on 31 Jan; message: link lost"
    assert told(it).startswith(f"warning; {words}; {lines}")
    assert it.since == NOON - 20 * SECOND
    (it,) = found(scene.with_events(went(20)).changed(port(), {"physical_state": None}))
    assert "message" not in told(it)
    assert "physical state" not in told(it)


def test_without_a_line_the_event_says_so_and_may_be_late() -> None:
    word = went(20)
    alone = CALM.without(lambda s: s.subject == port()).with_events(word)
    for late in (True, False):
        (it,) = found(replace(alone, late=frozenset({word.id} if late else ())))
        assert (it.late, it.since) == (late, word.at)
        assert told(it).startswith("warning; down since: 11:59:40 UTC on 31 Jan")


@pytest.mark.parametrize("after", [-MICROSECOND, 0 * SECOND, MICROSECOND])
def test_a_line_is_over_with_an_event_at_or_after_it(after: timedelta) -> None:
    up = replace(went(0, kind=EventKind.PORT_UP), at=TICK + after)
    assert bool(found(CALM.changed(port(), DOWN, 15).with_events(up))) is (after < 0 * SECOND)
    unknown = tuple(
        replace(it, ports=tuple(replace(p, was_up=False) for p in it.ports))
        for it in CALM.inventories
    )
    # That it came up says that it was up before.
    never = replace(CALM.changed(port(), DOWN, 15), inventories=unknown)
    assert found(never) == []
    assert bool(found(never.with_events(up))) is (after < 0 * SECOND)


@pytest.mark.parametrize(("after", "count"), [(-MICROSECOND, 0), (0 * SECOND, 1)])
def test_an_event_is_over_with_a_younger_line_or_event(after: timedelta, count: int) -> None:
    word = replace(went(0), at=TICK + after)
    assert len(found(CALM.with_events(word))) == count
    up = went(5, kind=EventKind.PORT_UP)
    word = replace(went(0), at=up.at + after)
    assert len(found(CALM.with_events(word, up))) == count


@pytest.mark.parametrize(("enabled", "count"), [(0, 0), (1, 1)])
def test_a_port_that_was_switched_off_is_so_while_its_numbers_have_a_gap(
    enabled: int, count: int
) -> None:
    scene = CALM.changed(port(), {**DOWN, "enabled": enabled}, 160).with_events(went(160))
    gap = scene.without(lambda s: s.subject == port() and s.at > NOON - 100 * SECOND)
    assert len(found(gap)) == count


@pytest.mark.parametrize(("until", "count"), [(100, 0), (210, 1)])
def test_an_event_is_over_in_a_gap_where_the_last_line_before_it_said_up(
    until: int, count: int
) -> None:
    """Not everybody reports that a port is up again: its event must not come back with each gap."""
    told_once = CALM.with_events(went(200))
    gap = told_once.without(lambda s: s.subject == port() and s.at > NOON - until * SECOND)
    assert len(found(gap)) == count


@pytest.mark.parametrize(("silent", "count"), [(0.0, 1), (0.9, 1), (1.1, 0)])
def test_of_a_silent_node_an_old_event_says_nothing_new(silent: float, count: int) -> None:
    """As of a node that was switched off while somebody worked on the cable; an open incident goes on."""
    span = SETTINGS.port_flap_window_seconds * SECOND
    gone = CALM.without(lambda s: s.subject == port()).with_events(went(3000))
    late = replace(gone, heard={node().key: NOON - silent * span})
    assert len(found(late)) == count
    known = (incident("port_down", port(), since=timedelta(seconds=-3000)),)
    window = replace(late.window((DETECTOR,)), recent_incidents=known)
    assert [it.fault for it in broken_ports(window)] == ["port_down"]


@pytest.mark.parametrize(
    ("lines", "seconds", "count"), [(15, 1.6, 1), (15, 1.7, 0), (65, 49.0, 1), (65, 51.0, 0)]
)
def test_what_only_lines_say_they_must_have_said_for_that_long(
    lines: int, seconds: float, count: int
) -> None:
    """Of a single line, after which none came, six times as long."""
    patient = replace(SETTINGS, port_down_seconds=seconds)
    assert len(found(replace(CALM.changed(port(), DOWN, lines), settings=patient))) == count


@pytest.mark.parametrize(
    ("numbers", "seconds", "count"),
    [(True, 2.0, 1), (True, 2.1, 0), (False, 3.3, 1), (False, 3.4, 0)],
)
def test_where_no_line_has_come_since_its_event_it_is_waited_for(
    numbers: bool, seconds: float, count: int
) -> None:
    """Ten times as long where the port has lines: they say whether somebody switched it off."""
    late = CALM.without(
        lambda s: s.subject == port() and (not numbers or s.at > NOON - 25 * SECOND)
    )
    patient = replace(
        late.with_events(went(20)), settings=replace(SETTINGS, port_down_seconds=seconds)
    )
    assert len(found(patient)) == count


@pytest.mark.parametrize(("seconds", "count"), [(55, 0), (65, 1)])
def test_lines_of_a_whole_minute_say_that_a_port_is_down(seconds: int, count: int) -> None:
    usual = replace(SETTINGS, port_down_seconds=30.0)
    scene = replace(CALM.changed(port(), DOWN, seconds), settings=usual)
    assert len(found(scene)) == count
    # One of them is not two, nor is a port down that somebody switched off.
    one = scene.without(lambda s: s.subject == port() and s.at not in {TICK, NOON - 70 * SECOND})
    assert found(one) == []
    assert found(scene.changed(port(), {"enabled": 0}, seconds)) == []


@pytest.mark.parametrize(("minutes", "count"), [(9, 0), (11, 1)])
def test_links_may_take_their_time_after_a_boot(minutes: int, count: int) -> None:
    usual = replace(SETTINGS, port_down_seconds=30.0)
    booted = event(EventKind.BOOT, node(), NOON - minutes * 60 * SECOND)
    scene = replace(CALM.changed(port(), DOWN, 65), settings=usual)
    assert len(found(scene.with_events(booted))) == count


def stopped(*gpus: Subject, watts: float = 200.0, seconds: float = 20.0) -> Scene:
    """Let a port go down so long ago, and a job of two nodes with these GPUs spin in the last line."""
    scene = healthy(nodes=3, seconds=300.0).changed(port(), DOWN, 15).with_events(went(seconds))
    for one in gpus:
        scene = scene.changed(one, {"power_watts": watts}, 15)
    job = tuple(allocation(gpu(n, i), "job 7") for n in (1, 2) for i in (0, 1))
    return replace(scene, allocations=job, settings=replace(SETTINGS, port_down_seconds=30.0))


def of_role(scene: Scene, role: str) -> Scene:
    return replace(
        scene,
        inventories=tuple(
            replace(it, ports=tuple(replace(p, role=role) for p in it.ports))
            for it in scene.inventories
        ),
    )


JOB = [gpu(n, i) for n in (1, 2) for i in (0, 1)]


def test_a_port_is_told_at_once_where_a_job_stopped_with_it() -> None:
    (it,) = found(stopped(*JOB))
    assert it.certain
    said = "its job stopped: job 7 of alice: 4 of its 4 GPUs draw at least 30 % less power"
    assert said in told(it)


@pytest.mark.parametrize("scene", [
    stopped(*JOB, watts=500.0),  # the job works on
    stopped(*JOB[:3]),  # not all of it waits
    stopped(*JOB[:2]),  # only those of the port's own node do
    stopped(*JOB, seconds=10.5),  # less than a second before the line
    replace(stopped(*JOB), allocations=()),
    replace(stopped(*JOB), allocations=stopped().allocations[:2]),  # on one node
    stopped(*JOB).changed(port(), {"enabled": 0}, 15),
    stopped(*JOB).without(lambda s: s.subject == port() and s.at > NOON - 15 * SECOND),
    of_role(stopped(*JOB), "storage"),  # jobs do not communicate over it
    stopped(*JOB).with_events(went(600)),  # it came back from another loss
    stopped(*JOB).with_events(replace(went(19), subject=port(3), id="another port of the rail")),
])  # fmt: skip
def test_elsewhere_a_link_may_come_back(scene: Scene) -> None:
    assert found(scene) == []


LIMIT, SPAN = SETTINGS.port_flap_count, SETTINGS.port_flap_events_seconds


@pytest.mark.parametrize(
    ("oldest", "flaps"), [(SPAN - 1.0, True), (SPAN, False), (SPAN + 1.0, False)]
)
def test_a_port_flaps_by_events_within_their_span(oldest: float, flaps: bool) -> None:
    events = [went(oldest), *(went(30.0 - n) for n in range(LIMIT - 1))]
    scene = CALM.with_events(*events, went(5, kind=EventKind.PORT_UP))
    for late in (True, False):
        told_late = replace(scene, late=frozenset(it.id for it in events) if late else frozenset())
        them = found(told_late)
        assert [told(it) for it in them] == [
            f"warning; went down: {LIMIT} times in {SPAN / 60.0:g} min (limit fewer than {LIMIT})"
        ] * flaps
        assert [(it.since, it.certain, it.late) for it in them] == [
            (events[0].at, True, late)
        ] * flaps


def test_a_port_flaps_by_its_counter_as_well() -> None:
    flap = SETTINGS.port_flap_window_seconds
    for more, count in ((LIMIT - 1, 0), (LIMIT, 1)):
        them = found(CALM.changed(port(), {"link_downed": 3 + more}, 15))
        assert [told(it) for it in them] == [
            f"warning; went down: {LIMIT} times in {flap / 60.0:g} min (limit fewer than {LIMIT})"
        ] * count
        assert [(it.since, it.certain, it.late) for it in them] == [
            (NOON - timedelta(seconds=flap), False, False)
        ] * count
    # As often over half an hour: not every node tells of each time by an event.
    long = replace(CALM, settings=replace(SETTINGS, port_flap_window_seconds=10.0))
    for more, count in ((LIMIT - 1, 0), (LIMIT, 1)):
        them = found(long.changed(port(), {"link_downed": 3 + more}, 15))
        assert [told(it) for it in them] == [
            f"warning; went down: {LIMIT} times in {SETTINGS.trend_seconds / 60.0:g} min"
            f" (limit fewer than {LIMIT})"
        ] * count
    once = went(20)
    counted = CALM.changed(port(), {"link_downed": 3 + LIMIT}, 15).with_events(once)
    (it,) = found(replace(counted, late=frozenset({once.id})))
    assert (it.since, it.certain, it.late) == (once.at, False, False)


@pytest.mark.parametrize(
    ("kind", "physical", "condition"),
    [
        ("infiniband", 5, "no_subnet_manager"),
        ("infiniband", 4, ""),  # it still trains
        ("roce", 5, ""),  # nobody manages those
    ],
)
def test_a_link_that_nobody_manages_is_no_bad_cable(
    kind: str, physical: int, condition: str
) -> None:
    (one,) = CALM.inventories
    scene = replace(CALM, inventories=(replace(one, ports=(replace(one.ports[0], kind=kind),)),))
    (it,) = found(scene.changed(port(), {"up": 0, "physical_state": physical}, 15))
    assert it.condition == condition
    assert ("subnet manager" in it.action, "subnet manager" in it.title) == (bool(condition),) * 2
    assert ("limit 5" in told(it)) is (physical != 5)


@pytest.mark.parametrize("physical", [5, 2])
def test_a_node_whose_ports_nobody_manages_is_not_sent_for_its_cables(physical: int) -> None:
    other = replace(port(), device="mlx5_1")
    (one,) = CALM.inventories
    ports = tuple(
        replace(one.ports[0], device=name, kind="infiniband") for name in ("mlx5_0", "mlx5_1")
    )
    twin = tuple(replace(s, subject=other) for s in CALM.samples if s.subject == port())
    scene = replace(CALM, inventories=(replace(one, ports=ports),), samples=(*CALM.samples, *twin))
    for subject in (port(), other):
        scene = scene.changed(subject, {"up": 0, "physical_state": physical}, 15)
    (it,) = found(scene)
    assert it.condition == "no_fabric"
    assert ("subnet manager" in it.action) is (physical == 5)


def test_of_a_node_with_another_port_the_port_is_told() -> None:
    (it,) = found(with_port_down(healthy(nodes=1), 1))
    assert (it.subject, it.members, it.condition) == (port(), (), "")


@pytest.mark.parametrize(
    ("told_late", "late"), [((), False), ((0,), False), ((1,), False), ((0, 1), True)]
)
def test_a_node_without_fabric_is_told_late_where_each_of_its_ports_was(
    told_late: tuple[int, ...], late: bool
) -> None:
    other = replace(port(), device="mlx5_1")
    words = [went(20), replace(went(15), subject=other, id="of the other")]
    (one,) = CALM.inventories
    both = replace(one, ports=(*one.ports, replace(one.ports[0], device="mlx5_1")))
    scene = CALM.without(lambda s: s.subject == port()).with_events(*words)
    scene = replace(scene, inventories=(both,), late=frozenset(words[at].id for at in told_late))
    (it,) = found(scene)
    assert (it.condition, it.members, it.late) == ("no_fabric", (port(), other), late)


# --- since when, and how long it is waited for ----------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "fields", "since"),
    [
        (1e9, {}, NOON - SETTINGS.port_flap_window_seconds * SECOND),
        (1e9, {"enabled": 1}, NOON - SETTINGS.port_flap_window_seconds * SECOND),
        (50, {}, TICK),
        (15, {}, TICK),
    ],
)
def test_lines_say_since_when_it_is_surely_down(
    seconds: float, fields: Mapping[str, Any], since: datetime
) -> None:
    (it,) = found(CALM.changed(port(), {**DOWN, **fields}, seconds))
    assert (it.since, it.certain, it.late) == (since, False, False)
    # Before it was switched on again nobody could say.
    off = CALM.changed(port(), {**DOWN, "enabled": 0}).changed(port(), {"enabled": 1}, 15)
    (it,) = found(off)
    assert it.since == TICK


@pytest.mark.parametrize(
    ("ago", "is_read", "is_told"),
    [
        (20.0, True, True),
        (10.000001, True, True),  # its line came a microsecond later
        (10.0, True, False),  # none came since
        (59.999999, False, False),
        (60.0, False, True),
    ],
)
def test_a_port_is_told_after_its_patience_and_six_times_that_without_a_line(
    ago: float, is_read: bool, is_told: bool
) -> None:
    patient = replace(SETTINGS, port_down_seconds=10.0)
    scene = replace(CALM.changed(port(), DOWN, ago), settings=patient).with_events(went(ago))
    if not is_read:
        scene = scene.without(lambda s: s.subject == port())
    assert bool(found(scene)) is is_told


def with_other(scene: Scene, role: str = "fabric") -> tuple[Scene, Subject]:
    """Every node has a second port, which does what its first one does."""
    twin = tuple(
        replace(s, subject=replace(s.subject, device="mlx5_1"))
        for s in scene.samples
        if s.subject.kind == "port"
    )
    inventories = tuple(
        replace(it, ports=(*it.ports, replace(it.ports[0], device="mlx5_1", role=role)))
        for it in scene.inventories
    )
    other = replace(port(), device="mlx5_1")
    return replace(scene, samples=(*scene.samples, *twin), inventories=inventories), other


@pytest.mark.parametrize("nodes", [(), (1,), (2,), (1, 2)])
def test_a_node_without_fabric_is_critical_where_a_job_of_it_is_on_another_node_too(
    nodes: tuple[int, ...],
) -> None:
    scene, other = with_other(healthy(nodes=2, seconds=300.0))
    held = tuple(allocation(gpu(number), "job 7") for number in nodes)
    scene = replace(scene, allocations=held)
    for subject in (port(), other):
        scene = scene.changed(subject, DOWN, 15)
    (it,) = found(scene)
    assert (it.subject, it.members, it.title) == (node(), (port(), other), NO_FABRIC)
    assert it.severity.value == ("critical" if nodes == (1, 2) else "warning")
    assert told(it).endswith("fabric ports up: 0 of 2; ports: mlx5_0, mlx5_1")
    alone = healthy(nodes=2, seconds=300.0).changed(port(), DOWN, 15)
    (it,) = found(replace(alone, allocations=held))
    assert (it.subject, it.members, it.title) == (port(), (), "")
    assert it.severity.value == ("critical" if nodes == (1, 2) else "warning")
    assert told(it).endswith("fabric ports up: 0 of 1")


@pytest.mark.parametrize("sure", [(), (0,), (1,), (0, 1)])
def test_of_all_its_ports_the_first_speaks_and_all_must_be_certain(sure: tuple[int, ...]) -> None:
    scene, other = with_other(CALM)
    ports = (port(), other)
    for subject in ports:
        scene = scene.changed(subject, DOWN, 25)
    for number in sure:
        word = replace(went(20 + number), subject=ports[number], id=f"of {number}")
        scene = scene.with_events(word)
    (it,) = found(scene)
    assert it.certain is (len(sure) == 2)
    assert it.since == (NOON - (20 + max(sure)) * SECOND if sure else TICK)


def test_a_port_that_is_no_fabrics_is_told_beside_the_node() -> None:
    scene, other = with_other(CALM, role="storage")
    for subject in (port(), other):
        scene = scene.changed(subject, DOWN, 15)
    assert [(it.subject, it.members) for it in found(scene)] == [(port(), ()), (other, ())]
    texts = [told(it) for it in found(scene)]
    assert ["fabric ports up" in text for text in texts] == [True, False]
