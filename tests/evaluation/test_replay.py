"""The analyzer's own code, in fast time."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from evaluation.judge.claims import Claim, claims
from evaluation.replay import Replay
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import EventKind, Finding, Severity, Subject
from tests.evaluation.made import NOON, Made, event, gpu, node, port

pytestmark = [pytest.mark.slow, pytest.mark.site]

LATER = NOON + timedelta(minutes=12)


def played(made: Made, minutes: int = 30) -> list[Claim]:
    replay = Replay(AnalyzerSettings(idle_after_seconds=600.0))
    for block in made.blocks(minutes):
        replay.feed(block)
    assert replay.passes == minutes * 6
    return claims(replay.transitions)


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


def test_an_idle_gpu_is_found_once_the_whole_span_was_idle() -> None:
    def idle(subject: Subject, at: datetime) -> dict[str, Any]:
        quiet = {"utilization_percent": 0, "memory_utilization_percent": 0}
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
