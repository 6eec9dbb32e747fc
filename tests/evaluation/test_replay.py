"""The analyzer's own code, in fast time."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from analyzer.correlation.all_detectors import DETECTORS
from evaluation.judge.claims import Claim, claims
from evaluation.replay import Replay, read_every, wrong_by
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import EventKind, Finding, Severity, Subject
from simulator.fleet import FaultOrder, FleetSettings, build
from simulator.fleet.changes import Operation, Quantity
from simulator.fleet.site import FaultKind
from tests.evaluation.made import NOON, Made, event, gpu, node, port

pytestmark = [pytest.mark.slow, pytest.mark.site]

LATER = NOON + timedelta(minutes=12)


def played(made: Made, minutes: int = 30) -> list[Claim]:
    replay = Replay(AnalyzerSettings(idle_after_seconds=600.0))
    for block in made.blocks(minutes):
        replay.feed(block)
    assert replay.passes == minutes * 6
    return claims(replay.transitions)


@pytest.mark.parametrize(
    ("seconds", "window"), [(10.0, 60.0), (15.0, 60.0), (15.5, 62.0), (60.0, 240.0)]
)
def test_the_shortest_span_has_four_lines(seconds: float, window: float) -> None:
    settings = read_every(seconds)
    assert (settings.tick_seconds, settings.window_seconds) == (seconds, window)


def test_a_healthy_fleet_has_no_incident() -> None:
    assert played(Made()) == []


def test_an_event_opens_an_incident_when_it_arrives_and_not_at_the_next_pass() -> None:
    lost = event(EventKind.XID, gpu(1), LATER + timedelta(seconds=4), xid=79)
    (claim,) = played(Made(events=(lost,)))
    assert (claim.fault, claim.subject, claim.severity) == ("gpu_lost", gpu(1), Severity.CRITICAL)
    assert claim.opened_at == lost.at + timedelta(milliseconds=100)
    assert claim.pages == (claim.opened_at,)
    assert claim.spans[-1][1] is None


def test_a_cure_ends_it() -> None:
    lost = event(EventKind.XID, gpu(1), LATER, xid=79)
    back = event(EventKind.GPU_BACK, gpu(1), LATER + timedelta(minutes=5))
    (claim,) = played(Made(events=(lost, back)))
    assert claim.spans == (
        (lost.at + timedelta(milliseconds=100), back.at + timedelta(milliseconds=100)),
    )


def test_an_event_that_comes_long_after_it_happened_wakes_nobody() -> None:
    lost = event(EventKind.XID, gpu(1), LATER, xid=79)
    (claim,) = played(Made(events=(lost,), event_delay=timedelta(minutes=5)))
    assert claim.pages == ()


def test_a_node_that_falls_silent_is_one_incident() -> None:
    def silent(subject: Subject, at: datetime) -> dict[str, Any] | None:
        return None if subject.node == "n0" and at > LATER else {}

    (claim,) = played(Made(change=silent))
    assert (claim.fault, claim.subject) == ("node_silent", node(0))
    assert timedelta(seconds=540) <= claim.opened_at - LATER <= timedelta(seconds=560)


@pytest.mark.parametrize(("seconds", "faults"), [(9.0, []), (12.0, ["clock_wrong"])])
def test_a_clock_that_is_further_ahead_than_the_hub_puts_right_is_told(
    seconds: float, faults: list[str]
) -> None:
    """Its GPUs go on being watched: its lines count from when they arrive."""
    fleet = build(
        FleetSettings(
            seed=3,
            nodes=4,
            days=0.05,
            life=False,
            more_kinds=(_fast_clock(seconds),),
            faults=(FaultOrder(kind="fast clock", node=1, start_seconds=1200.0, seconds=1800.0),),
        )
    )
    replay = Replay()
    for block in fleet.blocks(block_seconds=1200.0):
        replay.feed(block)
    (truth,) = fleet.truths()
    found = [it for it in claims(replay.transitions) if it.subject == truth.subject]
    assert [it.fault for it in found] == faults
    for it in found:
        assert truth.start <= it.opened_at <= truth.start + timedelta(minutes=1)
        assert it.spans[-1][1] is not None


def _fast_clock(seconds: float) -> FaultKind:
    return FaultKind(
        key="fast clock",
        target="node",
        make=lambda site: site.add_change(
            Quantity.DELIVERY, "step", (site.node,), Operation.SET, seconds
        ),
        severity=Severity.WARNING,
        action="",
        cause="the node's clock is fast",
    )


def test_bodies_that_are_late_by_the_same_time_tell_of_a_clock_that_is_behind() -> None:
    alike = [-180_500_000 - 100_000 * (number % 5) for number in range(10)]
    assert wrong_by(alike, 10_000_000) == -180_500_000
    assert wrong_by(alike[:9], 10_000_000) is None
    assert wrong_by([*alike[:9], -183_000_000], 10_000_000) is None  # as from a spool
    assert wrong_by([-9_000_000] * 10, 1_000_000) is None


def test_what_is_late_by_less_than_bodies_are_apart_may_wait_for_the_next_to_be_sent() -> None:
    assert wrong_by([-59_000_000] * 10, 60_000_000) is None
    assert wrong_by([-61_000_000] * 10, 60_000_000) == -61_000_000


def test_nobody_is_silent_while_the_hub_is_away() -> None:
    until = LATER + timedelta(minutes=3)

    def silent(subject: Subject, at: datetime) -> dict[str, Any] | None:
        return None if LATER <= at < until else {}

    replay = Replay()
    replay.hub_away(LATER, until)
    for block in Made(change=silent).blocks(30):
        replay.feed(block)
    assert replay.transitions == []
    assert replay.passes == 30 * 6 - 18


@pytest.mark.medium
@pytest.mark.parametrize(("cluster", "goes_on"), [("played", True), ("simulated", False)])
def test_a_silence_goes_on_when_the_hub_restarts_unless_its_node_is_of_the_demo(
    cluster: str, goes_on: bool
) -> None:
    silent = FaultOrder(kind="dead collector", node=1, start_seconds=300.0, seconds=2700.0)
    small = FleetSettings(seed=5, nodes=3, days=1 / 24, gpus_per_node=2, life=False)
    fleet = build(replace(small, faults=(silent,), cluster=cluster))
    restart = fleet.settings.start + timedelta(minutes=35)
    replay = Replay(detectors=[it for it in DETECTORS if it.name == "node_silent"])
    replay.hub_away(restart, restart + timedelta(minutes=1))
    for block in fleet.blocks(block_seconds=600.0):
        replay.feed(block)
    [claim] = (it for it in claims(replay.transitions) if it.fault == "node_silent")
    [(since, until)] = claim.spans
    assert since < restart
    assert until is not None
    assert (until > fleet.truths()[0].end) is goes_on


def test_an_idle_gpu_is_found_once_the_whole_span_was_idle() -> None:
    def idle(subject: Subject, at: datetime) -> dict[str, Any]:
        quiet = {
            "utilization_percent": 0,
            "memory_utilization_percent": 0,
            "power_watts": 75.0,
        }
        return quiet if subject == gpu(0, 1) else {}

    (claim,) = played(Made(change=idle))
    assert (claim.fault, claim.severity) == ("gpu_idle_held", Severity.INFO)
    assert claim.opened_at >= NOON + timedelta(seconds=480)


def test_a_port_without_an_event_is_found_by_its_lines() -> None:
    def down(subject: Subject, at: datetime) -> dict[str, Any]:
        return {"up": 0} if subject == port(1) and at > LATER else {}

    (claim,) = played(Made(change=down))
    assert (claim.fault, claim.subject) == ("port_down", port(1))


def test_who_observes_sees_the_findings_of_every_pass() -> None:
    seen: list[tuple[datetime, str, int]] = []

    def observe(now: datetime, detector: str, found: "list[Finding] | Any") -> None:
        seen.append((now, detector, len(found)))

    replay = Replay(observe=observe)
    lost = event(EventKind.GPU_LOST, gpu(1), LATER)
    for block in Made(events=(lost,)).blocks(20):
        replay.feed(block)
    passes = [it for it in seen if it[1] == "node_silent"]
    assert len(passes) == 20 * 6
    assert {count for _, name, count in seen if name == "gpu_lost"} == {0, 1}
