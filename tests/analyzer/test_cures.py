"""What was tried twice in vain is not asked for a third time."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.gpu_xid import xid_faults
from analyzer.evidence.cures import cured_at, failed_cures, last_cure, with_failed_cures
from gpuvigil.model import Event, EventKind, Finding, Severity, Subject

from .scene import NOON, Scene, event, gpu, healthy, incident, node, port
from .test_correlate import seen

SECOND, MINUTE, MICROSECOND = timedelta(0, 1), timedelta(minutes=1), timedelta(0, 0, 1)
TICK = NOON - 10 * SECOND  # when the newest lines were read


def told(*story: str) -> Scene:
    """Xids, losses, resets and boots, ten minutes from each other, the last one just now."""
    events: list[Event] = []
    for number, word in enumerate(reversed(story)):
        when = NOON - number * 10 * MINUTE - timedelta(seconds=5)
        kind, _, code = word.partition(" ")
        subject = node() if kind == "boot" else gpu(1, 1) if code == "other" else gpu()
        xid = int(code) if code.isdigit() else None
        events.append(event(EventKind(kind), subject, when, xid))
    return healthy().with_events(*events)


def advice(scene: Scene) -> tuple[str, dict[str, str]]:
    (found,) = [c for c in seen(scene).candidates.values() if c.finding.subject == gpu()]
    return found.finding.action, {item.name: item.value for item in found.finding.evidence}


def test_one_cure_without_effect_changes_nothing() -> None:
    once, evidence = advice(told("xid 95", "gpu_reset", "xid 95"))
    assert once == advice(told("xid 95"))[0]
    assert "came back after" not in evidence


def test_two_cures_without_effect_ask_for_an_inspection_and_are_named() -> None:
    action, evidence = advice(told("xid 95", "gpu_reset", "xid 95", "boot", "xid 48"))
    assert action.startswith("Drain the node and inspect it: it came back after two cures.")
    assert evidence["came back after"] == (
        "reset at 11:29:55 UTC on 31 Jan, reboot at 11:49:55 UTC on 31 Jan"
    )


def test_a_gpu_that_is_lost_after_each_boot_is_inspected() -> None:
    lost = ("xid 79", "boot", "gpu_lost", "boot", "xid 79")
    action, evidence = advice(told(*lost))
    assert "inspect" in action
    assert evidence["came back after"].count("reboot") == 2


@pytest.mark.medium
@pytest.mark.parametrize(
    "story",
    [
        ("gpu_reset", "gpu_reset", "xid 95"),  # before it was ill at all
        ("gpu_reset", "xid 95", "gpu_reset", "xid 95"),  # only one of them after
        ("xid 95", "gpu_reset", "gpu_reset", "boot", "xid 95"),  # nobody knows what each one did
        ("xid 95", "gpu_back", "xid 95", "gpu_back", "xid 95"),  # nothing was tried
        ("xid 95", "gpu_reset other", "xid 95", "gpu_reset other", "xid 95"),  # another GPU's
        ("xid 31", "gpu_reset", "xid 31", "gpu_reset", "xid 95"),  # programs' errors
    ],
)
def test_only_cures_of_this_fault_that_it_survived_count(story: tuple[str, ...]) -> None:
    assert "inspect" not in advice(told(*story))[0]


def stands(fault: str, subject: Subject, since: timedelta = timedelta(0)) -> Finding:
    return Finding(
        fault=fault,
        subject=subject,
        severity=Severity.CRITICAL,
        since=NOON + since,
        evidence=(),
        detector=fault,
        action="do",
        source="s",
    )


def test_what_stands_without_a_new_event_survived_the_last_cure_too() -> None:
    scene = told("xid 79", "boot", "xid 79", "boot")
    found = stands("gpu_lost", gpu())
    assert [cure.kind for cure in failed_cures(scene.window(), found)] == [EventKind.BOOT] * 2


@pytest.mark.parametrize(("after", "count"), [(-MICROSECOND, 0), (0 * SECOND, 1)])
def test_what_began_before_the_last_cure_did_not_survive_it(after: timedelta, count: int) -> None:
    scene = told("xid 79", "boot")
    found = replace(stands("gpu_lost", gpu()), since=NOON - 5 * SECOND + after)
    assert len(failed_cures(scene.window(), found)) == count


@pytest.mark.medium
@pytest.mark.parametrize(
    ("fault", "first", "again", "is_back"),
    [
        ("gpu_xid", "xid 95", "xid 95", True),
        ("gpu_xid", "xid 95", "xid 31", False),  # a program's error is over by itself
        ("gpu_xid", "xid 95", "xid 79", False),  # that code has a fault of its own
        ("gpu_xid", "xid 95", "xid", False),
        ("gpu_xid", "xid 95", "gpu_lost", False),
        ("gpu_lost", "gpu_lost", "gpu_lost", True),
        ("gpu_lost", "gpu_lost", "xid 79", True),
        ("gpu_lost", "gpu_lost", "xid 95", False),
        ("gpu_lost", "gpu_lost", "driver_silent", False),
        ("gpu_lost", "gpu_lost", "gpu_lost other", False),
    ],
)
def test_a_fault_is_back_with_what_tells_of_it(
    fault: str, first: str, again: str, is_back: bool
) -> None:
    scene = told(first, "gpu_reset", again)
    early = stands(fault, gpu(), since=-timedelta(hours=1))
    assert len(failed_cures(scene.window(), early)) == is_back


@pytest.mark.parametrize(("code", "count"), [(22003, 1), (11004, 0)])
def test_a_failing_nvswitch_is_back_with_a_fatal_code_only(code: int, count: int) -> None:
    def said(number: int, minutes: int) -> Event:
        return replace(event(EventKind.SXID, node(), NOON - minutes * MINUTE), sxid=number)

    boot = event(EventKind.BOOT, node(), NOON - 20 * MINUTE)
    scene = healthy().with_events(said(22003, 30), boot, said(code, 10))
    early = stands("nvswitch_error", node(), since=-timedelta(hours=1))
    assert len(failed_cures(scene.window(), early)) == count


@pytest.mark.parametrize(
    ("count", "words"), [(2, "two"), (3, "three"), (4, "four"), (5, "5"), (6, "6")]
)
def test_so_many_cures_are_counted_in_the_advice(count: int, words: str) -> None:
    scene = told("xid 79", *("boot", "xid 79") * count)
    asked = with_failed_cures(scene.window(), stands("gpu_lost", gpu()))
    assert f"came back after {words} cures" in asked.action
    assert asked.evidence[-1].value.count("reboot") == count
    assert (asked.own_limit, asked.source) == (True, "s; two cures without effect are ours")


@pytest.mark.parametrize("severity", list(Severity))
def test_a_note_asks_for_no_inspection(severity: Severity) -> None:
    scene = told("xid 79", "boot", "xid 79", "boot", "xid 79")
    found = replace(stands("gpu_lost", gpu()), severity=severity)
    assert (with_failed_cures(scene.window(), found) == found) is (severity is Severity.INFO)


def test_a_cable_that_no_boot_mends_is_not_asked_to_be_inspected_for_its_boots() -> None:
    def down(minutes: int) -> Event:
        return event(EventKind.PORT_DOWN, port(), NOON - minutes * MINUTE)

    boots = [event(EventKind.BOOT, node(), NOON - n * MINUTE) for n in (40, 20)]
    scene = healthy().with_events(*map(down, (50, 30, 10)), *boots)
    found = stands("port_down", port())
    assert with_failed_cures(scene.window(), found) == found


# --- what ends a fault ----------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize(
    ("up", "after", "is_over"),
    [
        (1, -MICROSECOND, True),
        (1, 0 * SECOND, False),
        (1, MICROSECOND, False),
        (0, -MICROSECOND, False),
        (None, -MICROSECOND, False),
    ],
)
def test_a_boot_ends_a_gpus_fault_once_it_has_answered(
    up: int | None, after: timedelta, is_over: bool
) -> None:
    boot = event(EventKind.BOOT, node(), TICK + after)
    window = healthy().changed(gpu(), {"up": up}, 15).with_events(boot).window()
    assert cured_at(window, "gpu_lost", gpu()) == (boot.at if is_over else None)
    # What is the node's is over with it.
    assert cured_at(window, "driver_silent", node()) == boot.at
    unread = healthy().without(lambda s: s.subject == gpu()).with_events(boot)
    assert cured_at(unread.window(), "gpu_lost", gpu()) is None


@pytest.mark.parametrize(
    ("xid_minutes", "boot_minutes", "has_incident", "told"),
    [
        (300.0, 5.0, False, False),
        (300.0, 5.0, True, True),  # nobody knows yet that it is over
        (300.0, 30.0, False, True),  # the boot did not bring the GPU back
        (4.0, 5.0, False, True),  # since the boot
    ],
)
def test_what_came_before_a_boot_opens_no_incident_while_its_gpu_has_yet_to_answer(
    xid_minutes: float, boot_minutes: float, has_incident: bool, told: bool
) -> None:
    boot = event(EventKind.BOOT, node(), NOON - boot_minutes * MINUTE)
    xid = event(EventKind.XID, gpu(), NOON - xid_minutes * MINUTE, 74)
    scene = healthy().without(lambda s: s.subject == gpu()).with_events(xid, boot)
    known = (incident("gpu_xid", gpu()),) if has_incident else ()
    window = replace(scene, recent_incidents=known).window()
    assert [found.subject for found in xid_faults(window)] == ([gpu()] if told else [])


@pytest.mark.parametrize(
    ("heard", "is_over"),
    [(MINUTE, True), (MINUTE - MICROSECOND, False), (None, False)],
)
def test_what_a_boot_ended_does_not_begin_anew_while_the_node_is_late(
    heard: timedelta | None, is_over: bool
) -> None:
    boot = event(EventKind.BOOT, node(), NOON - 90 * MINUTE)
    xid = event(EventKind.XID, gpu(), NOON - 300 * MINUTE, 74)
    late = healthy().without(lambda s: s.subject.of_node() == node()).with_events(xid, boot)
    window = late.window()
    told = {} if heard is None else {node().key: boot.at + heard}
    window = replace(window, last_seen=told)
    assert cured_at(window, "gpu_xid", gpu()) == (boot.at if is_over else None)
    assert [found.subject for found in xid_faults(window)] == ([] if is_over else [gpu()])
    # One of its GPUs alone says nothing: that GPU has not answered.
    alone = healthy().without(lambda s: s.subject == gpu()).with_events(xid, boot).window()
    assert cured_at(alone, "gpu_xid", gpu()) is None


def test_a_fault_ends_with_the_newest_of_its_own_events() -> None:
    reset, back = (
        event(kind, gpu(), NOON - minutes * MINUTE)
        for kind, minutes in ((EventKind.GPU_RESET, 3), (EventKind.GPU_BACK, 2))
    )
    others = (
        event(EventKind.GPU_RESET, gpu(1, 1), NOON - MINUTE),
        event(EventKind.GPU_RESET, gpu(2), NOON - MINUTE),
        event(EventKind.PORT_UP, port(), NOON - MINUTE),
        event(EventKind.DRIVER_BACK, gpu(), NOON - MINUTE),
    )
    window = healthy().with_events(back, reset, *others).window()
    assert last_cure(window, "gpu_lost", gpu()) == back
    assert last_cure(window, "port_down", port()) == others[2]
    assert last_cure(window, "gpu_lost", gpu(2, 1)) is None
    assert last_cure(window, "of_tomorrow", gpu()) is None
