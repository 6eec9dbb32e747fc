"""A GPU is lost by an Xid, an event or its row: which of them stand, and what is said then."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.gpu_lost import DETECTOR, lost_gpus
from gpuvigil.faults import FAULTS
from gpuvigil.model import EventKind, Finding, Severity, Unmeasured

from .scene import NOON, Scene, event, gpu, healthy

SECOND = timedelta(seconds=1)
TICK = NOON - 10 * SECOND  # when the newest row was read
CALM = healthy(nodes=1, seconds=60.0)
XID, LOST, BACK = EventKind.XID, EventKind.GPU_LOST, EventKind.GPU_BACK


def lost(reason: Any = Unmeasured.LOST.value, **fields: Any) -> Scene:
    """The newest row says that the GPU does not answer."""
    return CALM.changed(gpu(), {"up": 0, "unmeasured_reason": reason, **fields}, 15)


def found(scene: Scene) -> list[Finding]:
    return lost_gpus(scene.window((DETECTOR,)))


def read(scene: Scene) -> list[str]:
    (finding,) = found(scene)
    return [item.text for item in finding.evidence]


@pytest.mark.parametrize(
    ("scene", "said"),
    [
        (lost(), ["driver: the GPU is lost"]),
        (lost(None), ["answers: no, no reason given"]),
        (lost(99), ["answers: no, no reason given"]),
        (lost(Unmeasured.NO_PERMISSION.value), ["answers: no, no permission"]),
        (lost(None, pcie_present=1), ["answers: no, no reason given", "PCI bus: still lists it"]),
        (lost(pcie_present=0), ["driver: the GPU is lost", "PCI bus: no longer lists it"]),
        (CALM.with_events(event(LOST, gpu(), NOON)), ["driver: the GPU is lost"]),
        (lost(None).with_events(event(LOST, gpu(), NOON)), ["driver: the GPU is lost"]),
    ],
)
def test_what_is_known_of_it_is_said(scene: Scene, said: list[str]) -> None:
    assert read(scene) == said


@pytest.mark.parametrize(
    ("word", "by_xid"),
    [("ignore", []), ("warning", [Severity.WARNING]), ("critical", [Severity.CRITICAL])],
)
def test_what_a_site_makes_of_the_xid_makes_nothing_of_the_lost_gpu(
    word: str, by_xid: list[Severity]
) -> None:
    only = CALM.with_events(event(XID, gpu(), NOON - 20 * SECOND, 79))
    wanted = replace(only.settings, xid_overrides=(f"79={word}",))
    assert [it.severity for it in found(replace(only, settings=wanted))] == by_xid
    for scene in (
        lost().with_events(event(XID, gpu(), NOON - 20 * SECOND, 79)),
        only.with_events(event(LOST, gpu(), NOON)),
    ):
        (finding,) = found(replace(scene, settings=wanted))
        assert finding.severity is Severity.CRITICAL


def test_an_xid_alone_says_nothing_of_what_nobody_read() -> None:
    only = CALM.with_events(event(XID, gpu(), NOON - 20 * SECOND, 79))
    assert [text.partition(":")[0] for text in read(only)] == [
        "Xid 79",
        "meaning",
        "called by the driver",
        "message",
    ]
    row = lost(None).with_events(event(XID, gpu(), NOON - 20 * SECOND, 79))
    assert read(row)[-1] == "answers: no, no reason given"
    assert found(CALM.with_events(event(XID, gpu(), NOON, 63))) == []


@pytest.mark.parametrize(("microseconds", "count"), [(-1, 0), (0, 1), (1, 1)])
def test_a_row_that_is_younger_ends_what_an_event_said(microseconds: int, count: int) -> None:
    at = TICK + timedelta(microseconds=microseconds)
    assert len(found(CALM.with_events(event(LOST, gpu(), at)))) == count
    # Unless it says the same, or nothing; and what an Xid said needs a cure.
    assert len(found(lost().with_events(event(LOST, gpu(), at)))) == 1
    unread = CALM.changed(gpu(), {"up": None}, 15)
    assert len(found(unread.with_events(event(LOST, gpu(), at)))) == 1
    assert len(found(CALM.with_events(event(XID, gpu(), at, 79)))) == 1


@pytest.mark.parametrize(("microseconds", "stands"), [(-1, True), (0, False), (1, False)])
def test_a_row_is_over_with_a_cure_at_or_after_it(microseconds: int, stands: bool) -> None:
    cure = event(BACK, gpu(), TICK + timedelta(microseconds=microseconds))
    assert bool(found(lost().with_events(cure))) is stands


@pytest.mark.parametrize("kind", [XID, LOST])
@pytest.mark.parametrize(("microseconds", "stands"), [(-1, True), (0, True), (1, False)])
def test_an_event_is_over_with_a_cure_after_it(
    kind: EventKind, microseconds: int, stands: bool
) -> None:
    came = event(kind, gpu(), NOON - SECOND, 79 if kind is XID else None)
    cure = event(BACK, gpu(), came.at + timedelta(microseconds=microseconds))
    assert bool(found(CALM.with_events(came, cure))) is stands


def test_it_is_lost_since_the_first_that_said_so_and_certainly() -> None:
    came = event(XID, gpu(), NOON - 20 * SECOND, 79)
    (row,) = found(lost())
    (both,) = found(lost().with_events(came))
    (late,) = found(lost().with_events(event(LOST, gpu(), NOON - SECOND)))
    assert [it.since for it in (row, both, late)] == [TICK, came.at, TICK]
    fault = FAULTS["gpu_lost"]
    for it in (row, both, late):
        assert (it.certain, it.severity, it.source) == (True, fault.severity, fault.source)


def test_it_came_late_when_nothing_else_says_so() -> None:
    came = [event(XID, gpu(), NOON - n * SECOND, 79) for n in (20, 19)]
    scene = replace(CALM.with_events(*came), late=frozenset(it.id for it in came))
    assert [it.late for it in found(scene)] == [True]
    assert [it.late for it in found(replace(scene, late=frozenset({came[0].id})))] == [False]
    assert [it.late for it in found(replace(scene, samples=lost().samples))] == [False]
    assert [it.late for it in found(lost())] == [False]
