"""What follows from what is told once, under its cause."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.correlation.correlate import observe
from analyzer.correlation.halted_jobs import halts_job
from analyzer.incidents.book import Book
from gpuvigil.faults import FAULTS
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.faults.relations import Halts
from gpuvigil.model import EventKind, Evidence, Finding, Severity, Subject

from .scene import (
    NOON,
    Scene,
    allocation,
    event,
    gpu,
    healthy,
    incident,
    node,
    port,
    with_port_down,
)
from .test_book import Keeper
from .test_correlate import lost, seen

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
SPINS = {
    "utilization_percent": 100,
    "memory_utilization_percent": 0,
    "power_watts": 130.0,
    "pcie_receive_bytes_per_second": 0.0,
}


COUNTED = CONDITIONS["uncorrected_growth"].title


def faults(scene: Scene, *active: object) -> dict[str, str]:
    """Title by fault of all candidates."""
    found = seen(scene, active)  # type: ignore[arg-type]
    return {c.finding.fault: c.title for c in found.candidates.values()}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("code", "title"), [(48, "Xid 48"), (63, COUNTED), (94, "Xid 94"), (95, "Xid 95")]
)
def test_an_uncorrectable_count_and_its_xid_are_one_incident(code: int, title: str) -> None:
    """In the words of the Xid, unless that is only a note."""
    counted = healthy().changed(gpu(), {"ecc_uncorrected_errors": 3}, 15)
    reported = counted.with_events(event(EventKind.XID, gpu(), NOON - SECOND, code))
    assert faults(counted) == {"gpu_memory": COUNTED}
    ((_, told),) = faults(reported).items()
    assert told.partition(":")[0] == title
    # Whichever came first keeps its incident.
    active = incident("gpu_memory", gpu())
    assert set(faults(reported, active)) == {"gpu_memory"}


def test_a_failing_nvswitch_is_one_incident_with_what_its_gpus_say() -> None:
    fatal = replace(event(EventKind.SXID, node(), NOON - 5 * SECOND), sxid=22003)
    echoes = [event(EventKind.XID, gpu(1, i), NOON - 4 * SECOND, 74) for i in (0, 1)]
    other = event(EventKind.XID, gpu(2), NOON - 4 * SECOND, 74)
    found = seen(healthy().with_events(fatal, *echoes, other))
    assert sorted(c.finding.fault for c in found.candidates.values()) == [
        "gpu_xid",
        "nvswitch_error",
    ]
    assert [c.finding.subject for c in found.candidates.values()].count(gpu(2)) == 1
    own = healthy().with_events(fatal, event(EventKind.XID, gpu(), NOON - 4 * SECOND, 79))
    assert set(faults(own)) == {"nvswitch_error", "gpu_lost"}


def test_an_xid_and_the_state_that_it_speaks_of_are_one() -> None:
    told = healthy().with_events(event(EventKind.XID, gpu(), NOON - 20 * SECOND, 64))
    both = told.changed(gpu(), {"remap_failure": 1}, 15)
    assert faults(both) == {"gpu_xid": "GPU failed to remap a memory row"}
    assert set(faults(both, incident("gpu_memory", gpu()))) == {"gpu_memory"}


def test_of_a_note_and_a_state_the_state_has_the_name() -> None:
    told = healthy().with_events(event(EventKind.XID, gpu(), NOON - 20 * SECOND, 63))
    full = told.changed(gpu(), {"retired_pages_corrected": 70, "retired_pages_pending": 1}, 15)
    (found,) = seen(full).candidates.values()
    assert found.finding.fault == "gpu_memory"
    assert found.severity is Severity.CRITICAL
    # The event stood first: its incident goes on, in the state's words.
    (found,) = seen(full, [incident("gpu_xid", gpu())]).candidates.values()
    assert (found.finding.fault, found.title) == (
        "gpu_xid",
        "GPU's list of retired memory pages is full",
    )


QUIET = healthy()


def slowness(fault: str, subject: Subject, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(
        fault=fault,
        subject=subject,
        severity=severity,
        since=NOON - MINUTE,
        evidence=(Evidence(name="n", value="1"),),
        detector=fault,
        action=f"do: {fault}",
        source="s",
    )


def look(keeper: Keeper, *findings: Finding) -> None:
    """What a pass makes of these, with what is open."""
    window = QUIET.shifted(keeper.now + 10 * SECOND - NOON).window()
    believed = keeper.book.believed(new_rows=True)
    keeper.look(observe(window, findings, keeper.book.active(), believed))


SLOW, STUCK = slowness("gpu_slow", gpu()), slowness("gpu_clocks", gpu())


@pytest.mark.medium
@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(((SLOW,), (STUCK,), (SLOW, STUCK), (STUCK, SLOW))), max_size=6))
def test_slowness_that_is_named_is_one_incident_in_whatever_order_both_are_seen(
    looks: list[tuple[Finding, ...]],
) -> None:
    keeper = Keeper(book=Book())
    for found in ((SLOW,), (SLOW,), *looks):
        look(keeper, *found)
    (one,) = keeper.incidents.values()
    assert one.body["fault"] == "gpu_slow"
    (stands,) = keeper.book.active()
    # A reason that is not certain counts once it is seen again.
    is_named = any(STUCK in one and STUCK in other for one, other in pairwise(looks))
    # What was named once keeps its name while it lasts.
    assert stands.title == FAULTS["gpu_clocks" if is_named else "gpu_slow"].title
    assert stands.action == ("do: gpu_clocks" if is_named else "do: gpu_slow")


def test_only_what_can_slow_a_gpu_down_names_its_slowness() -> None:
    old = incident("gpu_slow", gpu())
    for other in (
        slowness("gpu_power", gpu(), Severity.INFO),
        slowness("gpu_clocks", gpu(1, 1)),
        slowness("gpu_memory", gpu()),
    ):
        found = observe(QUIET.window(), [SLOW, other], [old], {SLOW.fingerprint, other.fingerprint})
        assert other.fingerprint in found.candidates
    # What stands by itself already keeps its own incident, and covers the slowness.
    clocks = incident("gpu_clocks", gpu())
    found = observe(QUIET.window(), [SLOW, STUCK], [old, clocks], {STUCK.fingerprint})
    assert set(found.candidates) == {STUCK.fingerprint}
    assert old.fingerprint in found.covered


def test_what_is_graver_than_a_slowness_or_a_racks_opens_by_its_own_name() -> None:
    old = incident("gpu_slow", gpu())
    hot = slowness("gpu_hot", gpu(), Severity.CRITICAL)
    for believed in (set[str](), {SLOW.fingerprint}, {SLOW.fingerprint, hot.fingerprint}):
        (found,) = [
            c
            for c in observe(QUIET.window(), [SLOW, hot], [old], believed).candidates.values()
            if c.finding.fault != "gpu_slow"
        ]
        assert (found.finding.fault, found.severity) == ("gpu_hot", Severity.CRITICAL)
    note = replace(old, severity=Severity.INFO)
    found_of = observe(QUIET.window(), [SLOW, STUCK], [note], {STUCK.fingerprint})
    assert set(found_of.candidates) == {STUCK.fingerprint}
    whole = incident("gpu_slow", node())
    feed = replace(slowness("gpu_power", node()), members=(gpu(1), gpu(2)))
    found_of = observe(QUIET.window(), [feed], [whole], {feed.fingerprint})
    assert set(found_of.candidates) == {feed.fingerprint}


def test_a_reason_counts_once_it_is_believed_and_two_of_them_are_one_matter() -> None:
    old, link = incident("gpu_slow", gpu()), slowness("gpu_nvlink", gpu())
    found = observe(QUIET.window(), [SLOW, STUCK], [old], {SLOW.fingerprint})
    assert {c.finding.fault: c.title for c in found.candidates.values()} == {
        "gpu_slow": FAULTS["gpu_slow"].title,
        "gpu_clocks": FAULTS["gpu_clocks"].title,
    }
    believed = {SLOW.fingerprint, STUCK.fingerprint, link.fingerprint}
    found = observe(QUIET.window(), [SLOW, link, STUCK], [old], believed)
    (one,) = found.candidates.values()
    assert (one.finding.fault, one.title) == ("gpu_slow", FAULTS["gpu_clocks"].title)
    assert (len(one.finding.evidence), found.covered) == (2, {})
    # What named it first goes on, believed anew or not.
    named = replace(old, title=FAULTS["gpu_nvlink"].title, condition="gpu_nvlink")
    (one,) = observe(QUIET.window(), [link, STUCK], [named], believed).candidates.values()
    assert one.title == named.title


def test_what_slows_one_gpu_down_explains_its_node() -> None:
    whole, link = slowness("gpu_slow", node()), slowness("gpu_nvlink", gpu())
    believed = {whole.fingerprint, link.fingerprint}
    found = observe(QUIET.window(), [whole, link], [], believed)
    assert set(found.candidates) == {link.fingerprint}
    elsewhere = slowness("gpu_nvlink", gpu(2))
    believed = {whole.fingerprint, elsewhere.fingerprint}
    found = observe(QUIET.window(), [whole, elsewhere], [], believed)
    assert set(found.candidates) == believed


def test_an_xid_about_something_else_is_another_matter() -> None:
    told = healthy().with_events(event(EventKind.XID, gpu(), NOON - 20 * SECOND, 119))
    assert set(faults(told.changed(gpu(), {"remap_failure": 1}, 15))) == {"gpu_xid", "gpu_memory"}


def test_a_switch_hides_the_ports_of_every_node_of_its() -> None:
    scene = healthy(nodes=4)
    for number in (1, 2, 3):
        scene = with_port_down(scene, number)
    old = incident("port_down", port(2))
    found = seen(scene, [old])
    assert [c.finding.fault for c in found.candidates.values()] == ["switch_down"]
    assert old.fingerprint in found.covered


def racked(scene: Scene) -> Scene:
    return replace(scene, inventories=tuple(replace(i, rack="r1") for i in scene.inventories))


def test_a_rack_stays_as_urgent_as_the_incident_that_it_ends_on_another_node() -> None:
    scene = racked(healthy())
    for one in (gpu(1, 0), gpu(1, 1), gpu(2, 0), gpu(2, 1)):
        scene = scene.rising(one, "power_brake_seconds", 0.3)
    (found,) = seen(scene).candidates.values()
    assert found.severity is Severity.WARNING
    old = replace(incident("gpu_power", node(2)), severity=Severity.CRITICAL)
    observation = seen(scene, [old])
    (found,) = observation.candidates.values()
    assert old.fingerprint in observation.covered
    assert (found.finding.subject, found.severity) == (node(1), Severity.CRITICAL)


def test_a_limit_that_somebody_lowered_is_another_matter_than_a_brake() -> None:
    scene = healthy(nodes=4).changed(gpu(), {"power_limit_watts": 500.0})
    for index in (0, 1):
        scene = scene.rising(gpu(1, index), "power_brake_seconds", 1.0)
    told = {c.finding.subject: c.title for c in seen(scene).candidates.values()}
    assert told == {
        node(): "GPUs are slowed by the power brake",
        gpu(): "GPU's power limit was lowered",
    }
    # Also where the brake stands already, and the limit's GPU is one of those.
    braked = replace(incident("gpu_power", node()), members=(gpu().key, gpu(1, 1).key))
    braked = replace(braked, condition="power_brake", severity=Severity.CRITICAL)
    assert gpu() in {c.finding.subject for c in seen(scene, [braked]).candidates.values()}


def test_a_silent_node_does_not_hide_what_its_switch_does_to_others() -> None:
    scene = healthy(nodes=4)
    for number in (1, 2, 3):
        scene = with_port_down(scene, number)
    (found,) = seen(scene).candidates.values()
    assert set(found.members) == {port(n).key for n in (1, 2, 3)}
    away = replace(scene, heard={**scene.heard, node().key: NOON - MINUTE})
    assert set(faults(away)) == {"switch_down", "node_silent"}
    # Nor when it was seen before and is not now: its other nodes say whether it is over.
    old = replace(incident("switch_down", port()), members=found.members)
    quiet = replace(healthy(nodes=4), heard=away.heard)
    assert old.fingerprint not in seen(quiet, [old]).covered
    alone = replace(old, members=(port().key,))
    assert alone.fingerprint in seen(quiet, [alone]).covered


def test_a_silent_node_does_not_hide_what_its_rack_suffers() -> None:
    scene = racked(healthy(nodes=3))
    for one in (gpu(2, 0), gpu(2, 1), gpu(3, 0), gpu(3, 1)):
        scene = scene.rising(one, "power_brake_seconds", 1.0)
    away = replace(scene, heard={**scene.heard, node().key: NOON - MINUTE})
    assert set(faults(away)) == {"gpu_power", "node_silent"}


def test_gpus_that_wait_for_a_dead_one_are_not_hung() -> None:
    held = tuple(allocation(gpu(n, i), "job 7") for n in (1, 2) for i in (0, 1))
    scene = replace(healthy(), allocations=held)
    waiting = scene.changed(gpu(2, 0), SPINS).changed(gpu(2, 1), SPINS)
    assert set(faults(waiting)) == {"gpu_hung"}
    found = seen(lost(waiting))
    assert [c.finding.fault for c in found.candidates.values()] == ["gpu_lost"]
    assert [why for why in found.covered.values() if "fell off the bus" in why.what]


def test_a_job_on_one_node_is_not_halted_by_a_port() -> None:
    def told(*jobs: str) -> set[str]:
        gpus = [gpu(n, i) for n in (1, 2) for i in (0, 1)]
        held = tuple(allocation(one, job) for one, job in zip(gpus, jobs, strict=True))
        scene = with_port_down(replace(healthy(), allocations=held), 1)
        return set(faults(scene.changed(gpu(1, 0), SPINS).changed(gpu(1, 1), SPINS)))

    assert told("job 7", "job 7", "job 8", "job 8") == {"gpu_hung", "port_down"}
    assert told("job 7", "job 7", "job 7", "job 7") == {"port_down"}


def test_an_xid_keeps_the_words_of_the_state_that_explained_it() -> None:
    told = healthy().with_events(event(EventKind.XID, gpu(), NOON - 20 * SECOND, 48))
    flagged = told.changed(gpu(), {"sram_threshold_exceeded": 1}, 15)
    (both,) = seen(flagged).candidates.values()
    words = CONDITIONS["sram_threshold"].title
    assert both.title == words
    known = replace(
        incident("gpu_xid", gpu()), severity=Severity.CRITICAL, title=words, action="Replace it."
    )
    known = replace(known, condition="sram_threshold")
    (later,) = seen(told, [known]).candidates.values()
    assert (later.title, later.finding.action) == (words, "Replace it.")
    # A repair that no longer waits is done, and a code that stands goes on as it is.
    for lesser in (
        replace(known, severity=Severity.INFO),
        replace(known, title="Xid 48: as said", xid=48),
    ):
        (alone,) = seen(told, [lesser]).candidates.values()
        assert alone.title.startswith("Xid 48: ")
        assert alone.finding.action != "Replace it."


def test_a_node_that_is_rebooted_for_its_fault_is_not_another_one() -> None:
    away = replace(healthy(), heard={**healthy().heard, node().key: NOON - MINUTE})
    old = incident("driver_silent", node(), since=-timedelta(hours=1))
    assert faults(away, old) == {}
    assert set(faults(away)) == {"node_silent"}
    # What began with the silence is no reason to reboot.
    assert set(faults(away, incident("driver_silent", node(), since=-MINUTE))) == {"node_silent"}
    long = replace(away, heard={**away.heard, node().key: NOON - timedelta(minutes=31)})
    assert set(faults(long, old)) == {"node_silent"}


def test_a_silence_that_costs_nobody_anything_takes_over_nothing_that_stood_before() -> None:
    free = replace(healthy(), allocations=(allocation(gpu(2)),))
    away = replace(free, heard={**free.heard, node().key: NOON - MINUTE})
    old = incident("gpu_settings", gpu(), since=-timedelta(hours=1))
    assert faults(away, old) == {}
    assert old.fingerprint in seen(away, [old]).unknown
    # Somebody's job makes it a warning.
    busy = replace(away, allocations=(allocation(gpu(1), "pid 7"), allocation(gpu(2))))
    assert set(faults(busy, old)) == {"node_silent"}


def test_a_node_that_is_rebooted_for_a_critical_wakes_nobody_again() -> None:
    away = replace(healthy(), heard={**healthy().heard, node().key: NOON - MINUTE})
    for fault in ("gpu_xid", "gpu_memory", "gpu_lost", "gpu_power"):
        old = incident(fault, gpu(), since=-timedelta(hours=1))
        critical = replace(old, severity=Severity.CRITICAL)
        found = seen(away, [critical])
        # It stands meanwhile, and its node's silence is nobody's news.
        assert (found.candidates, critical.fingerprint in found.unknown) == ({}, True)
        assert critical.fingerprint not in found.covered
    warning = replace(
        incident("gpu_memory", gpu(), since=-timedelta(hours=1)), severity=Severity.WARNING
    )
    found = seen(away, [warning])
    assert [c.finding.fault for c in found.candidates.values()] == ["node_silent"]
    assert warning.fingerprint in found.covered


def test_clocks_that_heat_or_power_hold_down_are_no_fault_of_their_own() -> None:
    scene = healthy(nodes=2, gpus=4).changed(gpu(), {"sm_clock_hertz": 990_000_000})
    assert set(faults(scene)) == {"gpu_clocks"}
    braked = scene
    for index in range(4):
        braked = braked.rising(gpu(1, index), "power_brake_seconds", 0.6)
    assert set(faults(braked)) == {"gpu_power"}


@pytest.mark.parametrize("severity", list(Severity))
def test_a_job_waits_for_what_its_fault_says_and_for_no_note_of_some(severity: Severity) -> None:
    for fault, row in FAULTS.items():
        told = replace(incident(fault, gpu()), severity=severity)
        waits = row.halts is not Halts.NO
        if row.halts is Halts.UNLESS_NOTE:
            waits = severity is not Severity.INFO
        assert halts_job(told) is waits
    assert not halts_job(replace(incident("gpu_memory", gpu()), fault="of_tomorrow"))
