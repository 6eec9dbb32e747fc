"""What each detector says about the cases that are easy to get wrong."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.driver_silent import silent_drivers
from analyzer.detectors.gpu_idle_held import idle_held_gpus
from analyzer.detectors.gpu_lost import lost_gpus
from analyzer.detectors.gpu_silent import silent_gpus
from analyzer.detectors.gpu_xid import xid_faults
from analyzer.detectors.node_silent import silent_nodes
from analyzer.detectors.nvswitch_error import sxid_faults
from analyzer.detectors.port_down import broken_ports
from gpuvigil.faults import xid
from gpuvigil.model import Event, EventKind, Severity, Subject

from .scene import NOON, SETTINGS, TICK, Scene, allocation, event, gpu, healthy, node, port

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
IDLE = {"utilization_percent": 0, "memory_utilization_percent": 0}
LOST = {"up": 0, "unmeasured_reason": 3, "utilization_percent": None, "compute_processes": None}

SILENT = {**LOST, "up": None, "unmeasured_reason": 4}


# --- lost -----------------------------------------------------------------------------------------


def test_xid_79_the_lost_event_and_the_row_are_one_finding() -> None:
    scene = healthy().with_events(
        event(EventKind.XID, gpu(), NOON - 20 * SECOND, 79),
        event(EventKind.XID, gpu(), NOON - 19 * SECOND, 79),
        event(EventKind.GPU_LOST, gpu(), NOON - 18 * SECOND),
    )
    (finding,) = lost_gpus(scene.changed(gpu(), LOST, 15).window())
    assert [(item.text, item.detail) for item in finding.evidence] == [
        ("Xid 79: 2 times, last at 11:59:41 UTC on 31 Jan", False),
        (f"meaning: {xid(79).summary.rstrip('.')}", True),
        ("called by the driver: ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS", True),
        ("message: NVRM: Xid: 79", True),
        ("driver: the GPU is lost", False),
    ]
    assert finding.since == NOON - 20 * SECOND
    assert finding.certain
    assert finding.severity is Severity.CRITICAL


def test_a_lost_gpu_that_answers_again_is_not_lost_even_without_an_event() -> None:
    scene = healthy().with_events(event(EventKind.GPU_LOST, gpu(), NOON - 60 * SECOND))
    assert lost_gpus(scene.window()) == []


def test_xid_79_stands_until_it_is_cured_although_the_gpu_answers() -> None:
    scene = healthy().with_events(event(EventKind.XID, gpu(), NOON - 60 * SECOND, 79))
    assert lost_gpus(scene.window())
    for cure in (EventKind.GPU_BACK, EventKind.GPU_RESET):
        cured = scene.with_events(event(cure, gpu(), NOON - 30 * SECOND))
        assert lost_gpus(cured.window()) == []


def test_the_cure_of_another_gpu_cures_nothing() -> None:
    scene = healthy().with_events(
        event(EventKind.XID, gpu(), NOON - 60 * SECOND, 79),
        event(EventKind.GPU_BACK, gpu(1, 1), NOON - 30 * SECOND),
    )
    assert [finding.subject for finding in lost_gpus(scene.window())] == [gpu()]


def test_a_boot_cures_only_once_the_gpu_answers_after_it() -> None:
    scene = healthy().with_events(
        event(EventKind.XID, gpu(), NOON - 60 * SECOND, 79),
        event(EventKind.BOOT, node(), NOON - 15 * SECOND),
    )
    assert lost_gpus(scene.window()) == []
    assert lost_gpus(scene.without(lambda s: s.at > NOON - 15 * SECOND).window())
    assert lost_gpus(scene.changed(gpu(), LOST, 15).window())


def test_rows_from_before_the_return_no_longer_count() -> None:
    scene = healthy().changed(gpu(), LOST, 60)
    back = scene.with_events(event(EventKind.GPU_BACK, gpu(), NOON - SECOND))
    assert lost_gpus(scene.window())
    assert lost_gpus(back.window()) == []


def test_only_a_fault_that_rests_on_late_events_alone_is_late() -> None:
    came = event(EventKind.XID, gpu(), NOON - HOUR, 79)
    scene = replace(healthy().with_events(came), late=frozenset({came.id}))
    assert [finding.late for finding in lost_gpus(scene.window())] == [True]
    seen = scene.changed(gpu(), LOST, 15)
    assert [finding.late for finding in lost_gpus(seen.window())] == [False]


# --- Xid ------------------------------------------------------------------------------------------


def test_a_sticky_xid_stands_for_hours_and_a_passing_one_for_minutes() -> None:
    def codes(minutes: int) -> set[str]:
        events = [
            event(EventKind.XID, gpu(1, i), NOON - minutes * MINUTE, x)
            for i, x in enumerate([48, 13])
        ]
        found = xid_faults(healthy().with_events(*events).window())
        return {finding.evidence[0].name for finding in found}

    assert codes(minutes=9) == {"Xid 48", "Xid 13"}
    assert codes(minutes=11) == {"Xid 48"}
    assert codes(minutes=600) == {"Xid 48"}


def test_a_burst_is_one_finding_with_its_count_and_the_worst_code_speaks() -> None:
    burst = [event(EventKind.XID, gpu(), NOON - n * SECOND, 13) for n in range(1, 8)]
    worse = event(EventKind.XID, gpu(), NOON - 30 * SECOND, 95)
    (finding,) = xid_faults(healthy().with_events(*burst).window())
    assert any(item.value.startswith("7 times") for item in finding.evidence)
    (finding,) = xid_faults(healthy().with_events(*burst, worse).window())
    evidence = {item.name: item.value for item in finding.evidence}
    assert evidence["Xid 95"] == "reported at 11:59:30 UTC on 31 Jan"
    assert finding.title == "Xid 95: uncorrectable memory error that may touch several processes"
    assert evidence["other Xids"] == "13 x7"
    assert finding.severity is Severity.CRITICAL


def test_a_code_that_the_table_does_not_know_is_a_warning() -> None:
    scene = healthy().with_events(event(EventKind.XID, gpu(), NOON - SECOND, 9999))
    assert [finding.severity for finding in xid_faults(scene.window())] == [Severity.WARNING]


def test_a_reset_ends_a_sticky_xid_and_a_new_one_after_it_stands() -> None:
    scene = healthy().with_events(
        event(EventKind.XID, gpu(), NOON - 60 * SECOND, 48),
        event(EventKind.GPU_RESET, gpu(), NOON - 40 * SECOND),
    )
    assert xid_faults(scene.window()) == []
    again = scene.with_events(event(EventKind.XID, gpu(), NOON - 20 * SECOND, 48))
    (finding,) = xid_faults(again.window())
    assert finding.since == NOON - 20 * SECOND


# --- idle -----------------------------------------------------------------------------------------


def idle(scene: Scene) -> Scene:
    return scene.changed(gpu(), IDLE)


def test_the_holder_is_named_and_asked() -> None:
    scene = replace(idle(healthy()), allocations=(allocation(gpu(), "job 1042", "alice"),))
    (finding,) = idle_held_gpus(scene.window())
    assert "Ask alice" in finding.action
    assert "job 1042 of alice" in finding.action
    assert any(item.name == "memory held" and item.value == "8.0 GiB" for item in finding.evidence)


@pytest.mark.parametrize("began_before", [False, True])
def test_a_begin_that_nobody_saw_is_not_told_as_one(began_before: bool) -> None:
    held = replace(allocation(gpu(), "pid 7", "alice"), began_before=began_before)
    (finding,) = idle_held_gpus(replace(idle(healthy()), allocations=(held,)).window())
    (said,) = [item.value for item in finding.evidence if item.name == "allocated to"]
    assert said.endswith(" or earlier") is began_before


def test_processes_over_the_whole_span_hold_a_gpu_as_well() -> None:
    assert len(idle_held_gpus(idle(healthy()).window())) == 1


ABSENT = {"utilization_percent": None, "sm_activity_percent": None}
SEEN: Mapping[str, Mapping[str, float | None]] = {
    "utilisation and memory": {"utilization_percent": 0, "memory_utilization_percent": 0},
    "utilisation": {"utilization_percent": 0, "memory_utilization_percent": None},
    "SM activity": {
        **ABSENT,
        "sm_activity_percent": 0.0,
        "memory_utilization_percent": None,
        "power_watts": 75.0,
    },
    "all": dict.fromkeys((*ABSENT, "memory_utilization_percent"), 0),
}


@pytest.mark.parametrize("seen", SEEN)
def test_the_verdict_comes_when_the_span_is_full_whatever_measures_it(seen: str) -> None:
    """It worked until a moment that is just within the span, and just before it."""
    worked = {
        name: None if value is None else 5.0 if name == "sm_activity_percent" else 5
        for name, value in SEEN[seen].items()
    }
    span = SETTINGS.idle_after_seconds

    def told(idle_for: float) -> int:
        scene = healthy(seconds=500).changed(gpu(), worked).changed(gpu(), SEEN[seen], idle_for)
        return len(idle_held_gpus(scene.window()))

    assert told(span - 2 * TICK) == 0
    assert told(span) == 1


@pytest.mark.parametrize("memory", [0, None])
def test_a_gpu_of_which_nobody_measures_its_kernels_is_not_called_idle(memory: int | None) -> None:
    blind = {**ABSENT, "memory_utilization_percent": memory}
    assert idle_held_gpus(healthy().changed(gpu(), blind).window()) == []


def test_a_gpu_that_was_held_for_part_of_the_span_is_not_idle() -> None:
    free = idle(healthy()).changed(gpu(), {"compute_processes": 0}, 1000)
    held = free.changed(gpu(), {"compute_processes": 1}, 100)
    late = replace(held, allocations=(allocation(gpu(), started_at=NOON - 100 * SECOND),))
    ended = replace(held, allocations=(allocation(gpu(), ended_at=NOON - 100 * SECOND),))
    for scene in (free, held, late, ended):
        assert idle_held_gpus(scene.window()) == []


@pytest.mark.parametrize(
    "field", ["utilization_percent", "memory_utilization_percent", "sm_activity_percent"]
)
def test_one_sample_with_work_is_enough_not_to_be_idle(field: str) -> None:
    at = NOON - 200 * SECOND
    scene = idle(healthy())
    samples = tuple(
        replace(s, fields={**s.fields, field: 3}) if (s.subject, s.at) == (gpu(), at) else s
        for s in scene.samples
    )
    assert idle_held_gpus(replace(scene, samples=samples).window()) == []


def test_a_gpu_is_not_idle_before_the_whole_span_was_measured() -> None:
    assert idle_held_gpus(idle(healthy(seconds=150)).window()) == []
    half_measured = idle(healthy())
    unmeasured = replace(
        half_measured,
        samples=tuple(
            replace(s, fields={"up": 1, "compute_processes": 1})
            if s.subject == gpu() and s.at.second % 20
            else s
            for s in half_measured.samples
        ),
    )
    assert idle_held_gpus(unmeasured.window()) == []


def test_nobody_is_told_of_idle_time_that_was_not_measured() -> None:
    (young,) = idle_held_gpus(idle(healthy(seconds=260)).window())
    assert timedelta(seconds=240) <= NOON - young.since <= timedelta(seconds=260)
    measured = next(item for item in young.evidence if item.name == "utilisation")
    assert measured.value == "0 % at most in 4 min"
    (old,) = idle_held_gpus(idle(healthy(seconds=600)).window())
    assert old.since >= NOON - timedelta(seconds=SETTINGS.idle_after_seconds)


def test_a_lost_gpu_is_not_idle() -> None:
    assert idle_held_gpus(idle(healthy()).changed(gpu(), LOST, 15).window()) == []
    assert idle_held_gpus(idle(healthy()).changed(gpu(), SILENT, 15).window()) == []


def test_a_short_span_by_configuration_works_as_well() -> None:
    scene = idle(healthy(seconds=60))
    short = replace(scene, settings=replace(scene.settings, idle_after_seconds=40.0))
    assert len(idle_held_gpus(short.window())) == 1


# --- ports ----------------------------------------------------------------------------------------


def test_a_port_that_was_never_up_is_unprovisioned_and_silent() -> None:
    scene = healthy().changed(port(), {"up": 0})
    never = tuple(
        replace(i, ports=tuple(replace(p, was_up=False) for p in i.ports))
        for i in scene.inventories
    )
    assert broken_ports(replace(scene, inventories=never).window()) == []
    assert len(broken_ports(scene.window())) == 1


def test_a_port_is_down_from_its_event_until_it_is_up_again() -> None:
    down = event(EventKind.PORT_DOWN, port(), NOON - SECOND)
    scene = healthy().with_events(down)
    (finding,) = broken_ports(scene.window())
    assert finding.certain
    assert finding.since == down.at
    assert ("speed before", "400 Gb/s") in {(e.name, e.value) for e in finding.evidence}
    up = scene.with_events(event(EventKind.PORT_UP, port(), NOON - SECOND / 2))
    assert broken_ports(up.window()) == []


def test_a_port_that_a_younger_row_shows_up_is_not_down() -> None:
    scene = healthy().with_events(event(EventKind.PORT_DOWN, port(), NOON - 60 * SECOND))
    assert broken_ports(scene.window()) == []


@pytest.mark.parametrize(
    ("down", "patience", "count"),
    [(True, 20.0, 1), (True, 20.1, 0), (False, 3.3, 1), (False, 3.4, 0)],
)
def test_a_down_port_is_given_time_and_more_where_no_numbers_of_it_have_come(
    down: bool, patience: float, count: int
) -> None:
    scene = healthy().with_events(event(EventKind.PORT_DOWN, port(), NOON - 20 * SECOND))
    if down:
        scene = scene.changed(port(), {"up": 0}, 15)
    else:
        scene = scene.without(lambda s: s.subject == port())
    patient = replace(scene, settings=replace(scene.settings, port_down_seconds=patience))
    assert len(broken_ports(patient.window())) == count


def test_a_port_that_only_its_lines_show_down_is_found_after_that_time_as_well() -> None:
    patient = replace(healthy().settings, port_down_seconds=100.0)
    scene = replace(healthy(), settings=patient)
    assert broken_ports(scene.changed(port(), {"up": 0}, 90).window()) == []
    (finding,) = broken_ports(scene.changed(port(), {"up": 0}).window())
    assert finding.since == NOON - timedelta(seconds=scene.settings.port_flap_window_seconds)


def test_flapping_replaces_down_and_is_counted_in_events_or_by_the_counter() -> None:
    downs = [event(EventKind.PORT_DOWN, port(), NOON - n * 30 * SECOND) for n in (3, 2, 1)]
    scene = healthy().with_events(*downs).changed(port(), {"up": 0}, 15)
    assert [finding.fault for finding in broken_ports(scene.window())] == ["port_flapping"]
    counter = healthy().changed(port(), {"link_downed": 6}, 50)
    assert [finding.fault for finding in broken_ports(counter.window())] == ["port_flapping"]
    old = [replace(one, at=one.at - HOUR) for one in downs]
    assert broken_ports(healthy().with_events(*old).window()) == []


# --- silence --------------------------------------------------------------------------------------


def test_the_driver_is_silent_by_event_or_by_row_and_back_by_either() -> None:
    hung = {"driver_answering": 0, "driver_silent_seconds": 12.0, "gpus_answering": 0}
    by_row = healthy().changed(node(), hung, 15)
    by_event = healthy().with_events(event(EventKind.DRIVER_SILENT, node(), NOON - SECOND))
    for scene in (by_row, by_event):
        assert [finding.subject for finding in silent_drivers(scene.window())] == [node()]
        back = scene.with_events(event(EventKind.DRIVER_BACK, node(), NOON - SECOND / 2))
        assert silent_drivers(back.window()) == []
    old = healthy().with_events(event(EventKind.DRIVER_SILENT, node(), NOON - 60 * SECOND))
    assert silent_drivers(old.window()) == []


def test_one_silent_gpu_is_not_a_silent_driver_and_takes_two_ticks() -> None:
    scene = healthy()
    assert silent_gpus(scene.changed(gpu(), SILENT, 10).window()) == []
    silent = scene.changed(gpu(), SILENT, 20)
    assert silent_drivers(silent.window()) == []
    (finding,) = silent_gpus(silent.window())
    assert (finding.subject, finding.certain) == (gpu(), False)
    healed = scene.changed(gpu(), SILENT, 40).changed(
        gpu(), {"up": 1, "unmeasured_reason": None}, 10
    )
    assert silent_gpus(healed.window()) == []


def test_a_gpu_whose_silence_was_told_is_certainly_silent_with_one_line_after_it() -> None:
    def told(at: timedelta) -> Scene:
        word = event(EventKind.DRIVER_SILENT, gpu(), NOON + at)
        return healthy().with_events(word).changed(gpu(), SILENT, 10)

    assert silent_drivers(told(-12 * SECOND).window()) == []
    (finding,) = silent_gpus(told(-12 * SECOND).window())
    assert (finding.certain, finding.since) == (True, NOON - 12 * SECOND)
    assert silent_gpus(told(-2 * SECOND).window()) == []
    back = event(EventKind.DRIVER_BACK, gpu(), NOON - 11 * SECOND)
    assert silent_gpus(told(-12 * SECOND).with_events(back).window()) == []


def test_a_node_is_silent_by_when_it_was_heard_not_by_its_clock() -> None:
    scene = healthy()
    wrong_clock = scene.without(lambda sample: sample.subject.node == "node-1")
    assert silent_nodes(wrong_clock.window()) == []
    quiet = replace(scene, heard={**scene.heard, node().key: NOON - 31 * SECOND})
    assert [finding.subject for finding in silent_nodes(quiet.window())] == [node()]


def test_three_slow_ticks_are_waited_for() -> None:
    scene = healthy()
    quiet = replace(
        scene,
        heard={**scene.heard, node().key: NOON - 100 * SECOND},
        inventories=tuple(replace(i, tick_seconds=60.0) for i in scene.inventories),
    )
    assert silent_nodes(quiet.window()) == []


def test_silence_of_the_hub_itself_is_nobody_s_silence() -> None:
    scene = replace(healthy(), heard={node(1).key: NOON - HOUR})
    assert silent_nodes(replace(scene, listening_since=NOON - 20 * SECOND).window()) == []
    assert silent_nodes(replace(scene, listening_since=None).window()) == []
    found = silent_nodes(replace(scene, listening_since=NOON - 40 * SECOND).window())
    assert [finding.subject for finding in found] == [node(1), node(2)]


def test_a_simulated_node_counts_only_if_this_simulation_plays_it() -> None:
    scene = healthy(cluster="simulated")
    name = Subject(cluster="simulated", node="node-1")
    since = NOON - HOUR
    gone = replace(scene, heard={name.key: since - SECOND}, listening_since=since)
    assert silent_nodes(gone.window()) == []
    played = replace(scene, heard={name.key: since + SECOND}, listening_since=since)
    assert [finding.subject for finding in silent_nodes(played.window())] == [name]


# --- NVSwitch -------------------------------------------------------------------------------------


def sxid_event(code: int, seconds: int, count: int = 1) -> Event:
    made = event(EventKind.SXID, node(), NOON - seconds * SECOND)
    return replace(made, id=f"{code} {seconds}", sxid=code, count=count, message="Link 3 error")


def test_a_fatal_sxid_stands_until_the_node_is_booted() -> None:
    scene = healthy().with_events(sxid_event(10003, 4000), sxid_event(11004, 3900))
    (finding,) = sxid_faults(scene.window())
    assert (finding.severity, finding.subject) == (Severity.CRITICAL, node())
    assert finding.title == "SXid 10003: switch host interface error"
    booted = scene.with_events(event(EventKind.BOOT, node(), NOON - 60 * SECOND))
    assert sxid_faults(booted.window()) == []


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ((), [("SXid 10003", Severity.CRITICAL, "12028")]),
        (("10003=info",), [("SXid 12020", Severity.CRITICAL, "10003, 12028")]),
        (("10003=ignore",), [("SXid 12020", Severity.CRITICAL, "12028")]),
        (
            ("12028=critical", "10003=warning", "12020=ignore"),
            [("SXid 12028", Severity.CRITICAL, "10003")],
        ),
        (("12028=ignore", "10003=ignore", "12020=ignore"), []),
    ],
)
def test_a_site_says_what_it_makes_of_sxids_and_that_hides_none_beside_it(
    overrides: tuple[str, ...], told: list[tuple[str, Severity, str]]
) -> None:
    events = [sxid_event(code, 50 - n) for n, code in enumerate((12020, 12028, 10003))]
    scene = healthy().with_events(*events)
    scene = replace(scene, settings=replace(scene.settings, sxid_overrides=overrides))
    assert [
        (it.title.partition(":")[0], it.severity, it.evidence[-1].value.replace("12020, ", ""))
        for it in sxid_faults(scene.window())
    ] == told


def test_another_sxid_passes_and_its_burst_is_counted() -> None:
    scene = healthy().with_events(sxid_event(11004, 30), sxid_event(11004, 20, count=40))
    (finding,) = sxid_faults(scene.window())
    assert finding.severity is Severity.INFO
    assert finding.evidence[0].text == "SXid 11004: 41 times, last at 11:59:40 UTC on 31 Jan"
    later = replace(scene, now=NOON + HOUR)
    assert sxid_faults(later.window()) == []


def test_a_burst_of_one_xid_is_counted() -> None:
    burst = replace(event(EventKind.XID, gpu(), NOON - 10 * SECOND, 31), count=7)
    scene = healthy().with_events(event(EventKind.XID, gpu(), NOON - 20 * SECOND, 31), burst)
    (finding,) = xid_faults(scene.window())
    assert finding.evidence[0].text.startswith("Xid 31: 8 times")
