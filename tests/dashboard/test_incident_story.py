"""What the page of one incident tells beside the incident itself: pure."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from accounting.hardware.node_changes import LOOKED_BACK, changed
from accounting.hardware.similar_incidents import (
    IncidentRecords,
    earlier_incident,
    outcome,
    similar_incidents,
    summary,
    what_helped,
)
from dashboard.device.grid import Grid
from dashboard.device.hub_queries import OFFSETS, Numbers
from dashboard.incidents import evidence_chart
from dashboard.incidents.closing import MUTED, false_alarm, handed_over, matchers, silence_link
from dashboard.incidents.covers import covered
from dashboard.incidents.export import as_json, as_markdown
from dashboard.incidents.hub_queries import Similar, Story
from dashboard.incidents.story import AssignmentState, assignment, on_trial, timeline
from dashboard.incidents.story_drawing import place
from dashboard.model.incident_place import members
from gpuvigil.matching.matchers import covered as silenced
from gpuvigil.matching.matchers import labels_of
from gpuvigil.model import (
    Acknowledgement,
    Attribute,
    Ended,
    EndedBy,
    EventKind,
    Evidence,
    Group,
    GroupKind,
    Impact,
    Incident,
    Record,
    RecordKind,
    Rma,
    RmaState,
    Setup,
    Severity,
    Silence,
    Subject,
    Transition,
)
from gpuvigil.numbers_in_words import ranges

from .scene import NOON, gpu, incident, node, pulses

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
LOST = incident("gpu_lost", gpu(5), Severity.CRITICAL, label="sim-001 GPU 5")


def story_of(one: Incident, *said: Acknowledgement, **values: Any) -> Story:
    given: dict[str, Any] = {"transitions": (), "notices": (), "others": (), **values}
    return Story(incident=one, acknowledgements=said, pulses=pulses(), **given)


def setup(at_days: float, **values: str) -> Setup:
    told = {Attribute(name): value for name, value in values.items()}
    return Setup(node=node(), at=NOON - at_days * DAY, values=told)


def over(days_ago: float, subject: Subject = LOST.subject, **values: Any) -> Incident:
    since = NOON - days_ago * DAY
    given: dict[str, Any] = {"id": f"{subject.key}-{days_ago}", "state": "resolved", **values}
    one = incident("gpu_lost", subject, Severity.CRITICAL)
    return replace(one, since=since, resolved_at=since + timedelta(hours=1), **given)


def ended(cause: Ended) -> Transition:
    return Transition(
        incident="i",
        number=2,
        from_state="open",
        to_state="resolved",
        signal="cleared",
        at=NOON,
        reason=cause.text,
        subject=LOST.subject,
        snapshot={},
        cause=cause,
    )


def note(text: str) -> Acknowledgement:
    return Acknowledgement(
        id=text, incident="i", subject=LOST.subject, by="Ann", note=text, at=NOON
    )


def test_what_it_covers_is_told_node_by_node_in_ranges() -> None:
    port = Subject(cluster="simulated", node="sim-010", device="mlx5_0", port="1")
    every = [*(gpu(n).key for n in (0, 1, 2, 3, 6)), port.key, node("sim-2").key, "bogus"]
    one = replace(LOST, members=tuple(every))
    places = covered(members(one), lambda it: int((it.gpu or "-9")[-1]))
    assert [(it.node.node, it.parts) for it in places] == [
        ("sim-001", "GPU 0-3, 5-6"),
        ("sim-2", ""),
        ("sim-010", "port mlx5_0"),
    ]
    # What is one part leads to its page.
    assert [it.only for it in places] == [None, None, port]
    (unknown,) = covered([gpu(0), gpu(1)], lambda it: None)
    assert unknown.parts == "2 GPUs"
    assert ranges([]) == ""


def test_what_changed_is_old_and_new_and_not_older_than_is_looked_back() -> None:
    days = LOOKED_BACK.days
    told = [
        setup(days + 2, driver="550"),
        setup(days, driver="555"),  # just too old
        setup(days - 0.01, driver="560", kernel="6.1"),  # the kernel is said first: no change
        setup(1, driver="560", kernel="6.8"),
        setup(-1, driver="570", kernel="6.8"),  # after it
    ]
    assert [(it.what, it.old, it.new) for it in changed(told, NOON)] == [
        ("Kernel", "6.1", "6.8"),
        ("Driver", "555", "560"),
    ]


def test_similar_ones_are_of_the_same_fault_and_this_place_comes_first() -> None:
    here, there = over(20), over(2, gpu(1))
    other = replace(over(1), fault="port_down")
    old, explained = over(91), replace(over(3), covered_by="f", id="e")
    past = [there, here, other, old, explained, over(4, gpu(0, node("n", "lab")))]
    found = similar_incidents(LOST, past, NOON)
    assert [it.id for it in found] == [here.id, there.id]
    shown = [earlier_incident(LOST, it, IncidentRecords(), past) for it in found]
    assert summary(shown, 7) == "7 in 90 days, 1 of them here"
    assert outcome(shown[0], NOON).startswith("came back after 16 d")
    assert outcome(shown[1], NOON).startswith("not back for 1 d 23 h")


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (IncidentRecords(), ""),
        (IncidentRecords(notes=[note(""), note("reseated it")]), "reseated it"),
        (
            IncidentRecords(transitions=[ended(Ended(by=EndedBy.EVENT, event=EventKind.BOOT))]),
            "reboot",
        ),
        (
            IncidentRecords(transitions=[ended(Ended(by=EndedBy.NOT_SEEN, seconds=30))]),
            "went away by itself",
        ),
        (
            IncidentRecords(
                notes=[note("new riser")],
                transitions=[ended(Ended(by=EndedBy.EVENT, event=EventKind.GPU_RESET))],
            ),
            "new riser (GPU reset)",
        ),
        (
            IncidentRecords(
                notes=[note("new riser")],
                rma=[
                    Rma(
                        incident="i",
                        subject=LOST.subject,
                        state=RmaState.REPLACED,
                        by="Ann",
                        at=NOON,
                    )
                ],
            ),
            "part replaced",
        ),
    ],
)
def test_what_helped_is_the_strongest_word_there_is(said: IncidentRecords, text: str) -> None:
    assert what_helped(said) == text


GRID = Grid(start=NOON - 10 * MINUTE, step=MINUTE, count=20)


def numbers(**fields: tuple[Mapping[str, float], Mapping[str, float]]) -> Numbers:
    """Per GPU: what its fields were before noon and from then on."""
    gpus = {}
    for name, (was, now) in fields.items():
        halves = {key: np.array([was[key]] * 11 + [now[key]] * 9) for key in was}
        gpus[name] = {**halves, OFFSETS: np.full(20, 30.0)}
    return Numbers(grid=GRID, gpus=gpus)


SUBJECT = Subject(cluster="lab", node="n1", gpu="A")


def test_the_curve_that_moved_most_against_its_peers_comes_first() -> None:
    idle = {"utilization_percent": 90.0, "power_watts": 600.0, "sm_clock_hertz": 1.9e9}
    hot = {**idle, "sm_clock_hertz": 0.9e9}
    found = evidence_chart.charts(numbers(A=(idle, hot), B=(idle, idle)), SUBJECT, NOON)
    assert [chart.key for chart in found] == ["clock"]
    (line,) = evidence_chart.summary_lines(found, GRID, NOON)
    assert line == "SM clock: 1,900 MHz → 900 MHz, peers 1,900 MHz"


def test_what_all_do_alike_is_no_evidence_and_what_falls_silent_is() -> None:
    busy, idle = {"utilization_percent": 90.0}, {"utilization_percent": 0.0}
    alike_ = evidence_chart.charts(numbers(A=(busy, idle), B=(busy, idle)), SUBJECT, NOON)
    assert [chart.key for chart in alike_] == ["utilization"]  # nothing moved: what there is
    gone = {"utilization_percent": float("nan")}
    found = evidence_chart.charts(numbers(A=(busy, gone), B=(busy, busy)), SUBJECT, NOON)
    assert evidence_chart.summary_lines(found, GRID, NOON) == [
        "Utilisation: 90 % → not measured, peers 90 %"
    ]
    assert evidence_chart.charts(numbers(), SUBJECT, NOON) == ()


def test_a_rank_that_turned_slow_is_shown_by_its_own_work_in_a_step() -> None:
    was = {"utilization_percent": 97.0, "step_own_seconds": 3.5}
    slow, other_job = {**was, "step_own_seconds": 4.7}, {**was, "step_own_seconds": 0.1}
    found = evidence_chart.charts(numbers(A=(was, slow), B=(other_job, other_job)), SUBJECT, NOON)
    assert evidence_chart.summary_lines(found, GRID, NOON) == [
        "Own work in a step: 3.50 s → 4.70 s"
    ]


def test_errors_of_a_port_are_shown_first_and_a_switch_says_why_it_has_no_curve() -> None:
    steps = np.arange(20.0)
    fields = {"symbol_errors": np.maximum(steps - 10, 0) * 60, "receive_bytes": steps * 6e9}
    port = ("mlx5_0", "1")
    own = {port: {**fields, OFFSETS: np.full(20, 30.0)}}
    subject = Subject(cluster="lab", node="n1", device="mlx5_0", port="1")
    given = Numbers(grid=GRID, ports=own, kinds={port: ("infiniband", "fabric")})
    found = evidence_chart.charts(given, subject, NOON)
    assert found[0].key == "errors"
    assert evidence_chart.unseen(subject) == ""
    assert "states and totals" in evidence_chart.unseen(replace(subject, device="switch"))


def test_what_a_node_says_of_itself_is_in_units_that_people_read() -> None:
    low = np.array([2.0**40] * 11 + [2.0**34] * 9)
    given = Numbers(
        grid=GRID,
        node={
            "memory_available_bytes": low,
            "load_average": np.array([26.0] * 11 + [1.5] * 9),
        },
    )
    found = evidence_chart.charts(given, node(), NOON)
    assert evidence_chart.summary_lines(found, GRID, NOON) == [
        "Memory available: 1,024.0 GiB → 16.0 GiB",
        "Load average: 26.0 tasks → 1.5 tasks",
    ]
    answering = Numbers(grid=GRID, node={"gpus_answering": np.array([8.0] * 11 + [1.0] * 9)})
    found = evidence_chart.charts(answering, node(), NOON)
    (line,) = evidence_chart.summary_lines(found, GRID, NOON)
    assert line.endswith(": 8 → 1")


@pytest.mark.parametrize("of_collector", [False, True])
def test_how_the_collector_does_is_evidence_only_of_what_loses_data(of_collector: bool) -> None:
    fields = {"spool_oldest_seconds": np.array([0.0] * 11 + [900.0] * 9)}
    given = Numbers(grid=GRID, node=fields)
    found = evidence_chart.charts(given, node(), NOON, of_collector=of_collector)
    assert [chart.key for chart in found] == ["spool_oldest_seconds"] * of_collector
    assert not evidence_chart.loses_data(LOST)


@pytest.mark.parametrize(
    ("after", "minutes"), [(timedelta(minutes=5), 35), (timedelta(hours=9), 90)]
)
def test_the_window_of_the_curves_is_around_the_onset(after: timedelta, minutes: int) -> None:
    one = replace(LOST, since=NOON)
    shown = evidence_chart.window(one, NOON + after)
    assert (shown.start, shown.span) == (NOON - 30 * MINUTE, minutes * MINUTE)


def test_a_silence_from_an_incident_speaks_of_all_of_it_and_of_nothing_else() -> None:
    one = replace(LOST, members=(gpu(5).key, gpu(6).key))
    assert silenced(matchers(one), labels_of(one))
    other = incident("gpu_lost", gpu(7), Severity.CRITICAL)
    assert not silenced(matchers(one), labels_of(other))
    wide = replace(one, members=tuple(node(f"n{n}").key for n in range(9)))
    assert matchers(wide) == [f'incident="{LOST.id}"']
    query = parse_qs(urlsplit(silence_link(one)).query)
    assert query["matchers"] == ["\n".join(matchers(one))]


def test_closing_as_false_counts_mutes_and_says_so_once() -> None:
    records = false_alarm(LOST, "Ann", "bench test", NOON)
    assert [it.kind for it in records] == [
        RecordKind.OPINION,
        RecordKind.ACKNOWLEDGEMENT,
        RecordKind.SILENCE,
    ]
    silence = Silence.from_record(records[-1])
    assert silence.ends_at - silence.starts_at == MUTED
    assert silence.holds(NOON + MUTED - MINUTE)
    assert not silence.holds(NOON + MUTED)
    again = false_alarm(LOST, "Ann", "bench test", NOON + MINUTE)
    assert [it.id for it in again] == [it.id for it in records]


def decision(number: int, channel: str, verdict: str, reason: str) -> Record:
    body = {"number": number, "channel": channel, "verdict": verdict, "reason": reason}
    return Record(
        kind=RecordKind.NOTICE,
        id=f"{LOST.id}:{channel}:{number}",
        at=NOON,
        subject=LOST.subject.key,
        body=body,
    )


def test_what_is_on_trial_is_marked_with_what_it_waits_for() -> None:
    tried = ("on_trial", "on trial here: goes to the digest until it was right 3 times")
    first = tuple(decision(1, name, *tried) for name in ("chat", "pager"))
    found = story_of(LOST, notices=(decision(1, "mail", "below_minimum", "info"), *first))
    assert on_trial(found) == [
        "On trial here: goes to the digest until it was right 3 times.",
    ]
    later = (*first, decision(2, "chat", "first", "first message"))
    assert on_trial(story_of(LOST, notices=later)) == []
    assert on_trial(story_of(LOST, notices=())) == []


def test_who_was_handed_it_has_it() -> None:
    given = handed_over(LOST, "Ann", "Ben", "my shift ends", NOON)
    kept = Acknowledgement.from_record(given.to_record())
    assert kept == given
    held = assignment(story_of(LOST, kept), NOON + 3 * MINUTE)
    assert (held.state, held.by) == (AssignmentState.TAKEN, "Ben")
    assert held.text == "Handed to Ben by Ann, 3 min ago."
    assert timeline(story_of(LOST, kept))[-1].title == "Ann handed it to Ben"


def test_a_rack_names_what_is_about_a_rack() -> None:
    silent = incident("node_silent", node(), Severity.CRITICAL, label="")
    grouped = replace(silent, group=Group(GroupKind.RACK, "r1"))
    assert place(grouped) == "rack r1"
    assert place(silent) == node().key


def test_an_export_holds_all_records_and_no_line_becomes_a_heading() -> None:
    hostile = replace(LOST, evidence=(Evidence(name="message", value="x\n# y"),))
    story = story_of(hostile, note("reseated"), transitions=(ended(Ended(by=EndedBy.GONE)),))
    kinds = [one["kind"] for one in json.loads(as_json(story))]
    assert kinds == ["incident", "transition", "acknowledgement"]
    past = Similar(shown=(earlier_incident(LOST, over(2), IncidentRecords(), ()),), amount=1)
    told = [setup(3, driver="550"), setup(2, driver="555")]
    text = as_markdown(story, timeline(story), changed(told, NOON), past, NOON)
    assert "Driver: 550 → 555" in text
    assert "not noted, came back after" in text
    assert "- message: x \\# y" in text
    assert "\n# y" not in text


def test_an_export_takes_nothing_for_markup_and_says_what_is_not_known() -> None:
    bad = "[x](http://a.example) **b** <i> @all"
    one = replace(LOST, title=bad, label=bad, action=bad, covers=(bad,), impact=Impact(text=bad))
    text = as_markdown(story_of(one), (), (), Similar(unknown=True), NOON)
    assert text.count("\\[x\\](http:\u200b//a.example) \\*\\*b\\*\\* \\<i\\> @\u200ball") == 5
    assert "[x]" not in text
    assert "## Similar before\n\n- not known: the hub does not answer" in text
    assert "Similar before" not in as_markdown(story_of(one), (), (), Similar(), NOON)
