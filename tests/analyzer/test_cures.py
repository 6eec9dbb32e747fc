"""What was tried twice in vain is not asked for a third time."""

from datetime import timedelta

import pytest

from analyzer.evidence.cures import in_vain
from gpuvigil.model import Event, EventKind, Finding, Severity

from .scene import NOON, Scene, event, gpu, healthy, node
from .test_correlate import seen

MINUTE = timedelta(minutes=1)


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


def test_what_stands_without_a_new_event_survived_the_last_cure_too() -> None:
    scene = told("xid 79", "boot", "xid 79", "boot")
    found = Finding(
        fault="gpu_lost",
        subject=gpu(),
        severity=Severity.CRITICAL,
        since=NOON,
        evidence=(),
        detector="gpu_lost",
        action="do",
        source="s",
    )
    assert [cure.kind for cure in in_vain(scene.window(), found)] == [EventKind.BOOT] * 2
