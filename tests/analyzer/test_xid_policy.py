"""Whose an Xid is: the program's, nobody's, or the GPU's."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import permutations

import pytest

from analyzer.detectors.gpu_xid import xid_faults
from gpuvigil.model import Event, EventKind, Severity

from .scene import NOON, Scene, allocation, event, gpu, healthy

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def xid(code: int, at: datetime = NOON - MINUTE, message: str = "") -> Event:
    return replace(event(EventKind.XID, gpu(), at, code), message=message or f"Xid {code}")


def two_jobs(scene: Scene, user: str = "bob") -> Scene:
    """One job ended an hour ago, one of alice's holds the GPU now."""
    jobs = (
        allocation(gpu(), "job 1", user, started_at=NOON - 3 * HOUR, ended_at=NOON - HOUR),
        allocation(gpu(), "job 2", started_at=NOON - HOUR + MINUTE),
    )
    return replace(scene, allocations=jobs)


def test_45_is_silent_at_the_end_of_a_job_and_beside_another_xid() -> None:
    ended = replace(healthy(), allocations=(allocation(gpu(), "job 1", ended_at=NOON - MINUTE),))
    assert xid_faults(ended.with_events(xid(45), xid(45, NOON - 2 * MINUTE)).window()) == []
    (finding,) = xid_faults(
        healthy().with_events(xid(45), xid(45, NOON - MINUTE / 2), xid(48)).window()
    )
    assert finding.title.startswith("Xid 48")
    assert "45" not in str([item.text for item in finding.evidence])


def test_45_is_told_when_it_repeats_on_a_gpu_that_nobody_holds() -> None:
    once = healthy().with_events(xid(45))
    assert xid_faults(once.window()) == []
    again = once.with_events(xid(45, NOON - 2 * MINUTE))
    (finding,) = xid_faults(again.window())
    assert finding.severity is Severity.INFO
    held = replace(again, allocations=(allocation(gpu(), "job 1"),))
    assert xid_faults(held.window()) == []


def test_a_page_fault_is_the_programs_until_it_comes_back_with_many_others() -> None:
    def jobs(*users: str) -> Scene:
        """Each held the GPU for an hour, and had a page fault in it."""
        starts = [NOON - (len(users) - n) * HOUR for n in range(len(users))]
        held = (
            allocation(gpu(), f"job {n}", user, started_at=at, ended_at=at + HOUR - MINUTE)
            for n, (user, at) in enumerate(zip(users, starts, strict=True))
        )
        events = [xid(31, at + HOUR - 2 * MINUTE) for at in starts]
        return replace(healthy(), allocations=tuple(held)).with_events(*events)

    def found(*users: str) -> tuple[str, Severity, bool]:
        (finding,) = xid_faults(jobs(*users).window())
        return finding.fault, finding.severity, finding.confined

    program, hardware = ("gpu_program", Severity.INFO, True), ("gpu_xid", Severity.WARNING, False)
    assert found("alice", "bob", "carol") == program
    assert found("alice", "bob", "carol", "dave") == hardware
    assert found("alice", "bob", "carol", "bob", "alice") == program
    (finding,) = xid_faults(jobs("alice", "bob", "carol", "dave").window())
    assert "EUD" in finding.action
    old = replace(jobs("alice", "bob", "carol", "dave"), now=NOON + 22 * HOUR)
    late = old.with_events(xid(31, NOON + 22 * HOUR - MINUTE))
    assert [f.fault for f in xid_faults(late.window())] == ["gpu_program"]


def test_a_programs_error_and_a_gpus_are_two_incidents() -> None:
    (note,) = xid_faults(healthy().with_events(xid(13)).window())
    (fault,) = xid_faults(healthy().with_events(xid(13), xid(94)).window())
    assert (note.fault, fault.fault) == ("gpu_program", "gpu_xid")
    assert note.fingerprint != fault.fingerprint
    advice = xid(154, NOON - MINUTE / 2, "GPU recovery action changed from 0x0 to 0x1 (GPU Reset)")
    (raised,) = xid_faults(healthy().with_events(xid(13), advice).window())
    assert raised.fault == "gpu_xid"


def test_an_exception_counts_where_it_was() -> None:
    def at(place: str, when: datetime) -> Event:
        text = f"Graphics SM Warp Exception on ({place}, SM 0): Out Of Range Address"
        return xid(13, when, text)

    scene = two_jobs(healthy()).with_events(at("GPC 1, TPC 3", NOON - MINUTE))
    elsewhere = scene.with_events(at("GPC 2, TPC 3", NOON - 2 * HOUR))
    assert [f.severity for f in xid_faults(elsewhere.window())] == [Severity.INFO]
    same = scene.with_events(at("GPC 1, TPC 3", NOON - 2 * HOUR))
    assert [f.severity for f in xid_faults(same.window())] == [Severity.WARNING]


def test_advice_raises_and_never_lowers() -> None:
    def advised(target: str) -> Event:
        text = f"GPU recovery action changed from 0x0 (None) to {target}"
        return xid(154, NOON - MINUTE / 2, text)

    contained = healthy().with_events(xid(94))
    (alone,) = xid_faults(contained.window())
    (raised,) = xid_faults(contained.with_events(advised("0x2 (Node Reboot Required)")).window())
    assert alone.severity is Severity.WARNING
    assert raised.severity is Severity.CRITICAL
    assert raised.title == alone.title
    assert "reboot" in raised.action
    failed = healthy().with_events(xid(64))
    (kept,) = xid_faults(failed.with_events(advised("0x1 (GPU Reset Required)")).window())
    assert kept.severity is Severity.CRITICAL
    assert "field diagnostic" in kept.action
    assert xid_faults(healthy().with_events(advised("0x0 (None)")).window()) == []


def test_48_alone_waits_for_what_comes_with_it() -> None:
    (alone,) = xid_faults(healthy().with_events(xid(48)).window())
    assert not alone.certain
    (told,) = xid_faults(healthy().with_events(xid(48), xid(64, NOON - MINUTE / 2)).window())
    assert told.certain
    assert told.title.startswith("Xid 64")


def test_a_site_says_what_it_wants_to_hear() -> None:
    def severities(*overrides: str) -> list[Severity]:
        scene = healthy().with_events(xid(63))
        scene = replace(scene, settings=replace(scene.settings, xid_overrides=overrides))
        return [finding.severity for finding in xid_faults(scene.window())]

    assert severities() == [Severity.INFO]
    assert severities("63=critical", "31=ignore") == [Severity.CRITICAL]
    assert severities("63=ignore") == []


def judged(*codes: int, overrides: tuple[str, ...] = ()) -> tuple[str, Severity]:
    """What is said of a GPU that reported these codes, the last one newest."""
    events = [xid(code, NOON - MINUTE + timedelta(seconds=n)) for n, code in enumerate(codes)]
    scene = healthy().with_events(*events)
    scene = replace(scene, settings=replace(scene.settings, xid_overrides=overrides))
    (finding,) = xid_faults(scene.window())
    return finding.title.partition(":")[0], finding.severity


@pytest.mark.medium
@pytest.mark.parametrize("codes", list(permutations((46, 95, 63))))
def test_what_a_site_makes_less_of_hides_nothing_beside_it(codes: tuple[int, ...]) -> None:
    critical = Severity.CRITICAL
    assert judged(*codes, overrides=("46=info",)) == ("Xid 95", critical)
    assert judged(*codes, overrides=("46=info", "95=warning")) == ("Xid 95", Severity.WARNING)
    assert judged(*codes, overrides=("63=critical", "95=info", "46=ignore")) == ("Xid 63", critical)
    assert judged(*codes, overrides=("95=info",)) == ("Xid 46", critical)


def test_what_came_back_with_many_users_leads_a_newer_note() -> None:
    starts = [NOON - n * HOUR for n in (4, 3, 2, 1)]
    held = [
        allocation(gpu(), f"job {n}", f"user {n}", started_at=at, ended_at=at + HOUR - MINUTE)
        for n, at in enumerate(starts)
    ]
    events = [xid(31, at + HOUR - 2 * MINUTE) for at in starts]
    scene = replace(healthy(), allocations=tuple(held)).with_events(*events, xid(63))
    (finding,) = xid_faults(scene.window())
    assert (finding.title.partition(":")[0], finding.severity) == ("Xid 31", Severity.WARNING)


def test_the_gravest_advice_counts_and_the_site_may_make_less_of_it() -> None:
    def advised(number: int, seconds: int) -> Event:
        text = f"GPU recovery action changed from 0x0 (None) to {number:#x}"
        return xid(154, NOON - MINUTE + timedelta(seconds=seconds), text)

    scene = healthy().with_events(xid(94), advised(2, 1), advised(1, 2))
    (finding,) = xid_faults(scene.window())
    assert finding.severity is Severity.CRITICAL
    scene = replace(scene, settings=replace(scene.settings, xid_overrides=("154=info",)))
    (finding,) = xid_faults(scene.window())
    assert finding.severity is Severity.WARNING
