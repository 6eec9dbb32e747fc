"""The page of incidents: the list, its filters, and the story of one; pure."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dashboard.data.attention import attention
from dashboard.data.freshness import outdated
from dashboard.data.questions import CachedAnswer
from dashboard.incidents import drawing, story_drawing
from dashboard.incidents.acknowledgement import LONGEST_NOTE, acknowledgement
from dashboard.incidents.covers import covered
from dashboard.incidents.filters import Filters
from dashboard.incidents.hub_queries import PastIncidents, Similar, Story
from dashboard.incidents.listing import (
    LONGEST_CHIP,
    MOST_SHOWN,
    Entry,
    Listing,
    entry,
    listing,
    open_entry,
)
from dashboard.incidents.messages import channels, configured
from dashboard.incidents.named_places import NamedPlaces
from dashboard.incidents.story import AssignmentState, assignment, timeline
from dashboard.layout.tree import Node
from dashboard.layout.typed_text import LONGEST_NAME
from dashboard.model.incident_place import members
from gpuvigil.clock import to_text
from gpuvigil.lifecycle import Signal, State
from gpuvigil.model import (
    Acknowledgement,
    Act,
    CoveredBy,
    Evidence,
    Impact,
    Incident,
    NodeAction,
    OutOfService,
    Record,
    RecordKind,
    Severity,
    Subject,
    Transition,
)

from .scene import NOON, gpu, incident, node, notice, pulses

REAL = node("n1", "lab")
HOUR = timedelta(hours=1)


def over(fault: str, subject: Subject, ago: timedelta, **values: Any) -> Entry:
    ended = NOON - ago
    one = incident(fault, subject, Severity.WARNING, state="resolved", since=ended - HOUR, **values)
    return entry(replace(one, id=f"{fault}-{subject.node}-{ago}", resolved_at=ended))


def active(*incidents: Incident) -> list[Entry]:
    return [open_entry(item) for item in attention(incidents, (), NOON)]


def count(found: Listing, name: str, value: str) -> int:
    return next(one.count for one in found.choices[name] if one.value == value)


def texts(node: Node | None) -> str:
    """All that a tree says."""
    if node is None or isinstance(node, str):
        return node or ""
    return " ".join(" ".join(texts(child) for child in node[2:]).split())


def test_what_stands_comes_in_its_order_and_what_is_over_newest_end_first() -> None:
    lost = incident("gpu_lost", gpu(0, REAL), Severity.CRITICAL)
    down = incident("port_down", node("n2", "lab"), Severity.WARNING)
    pretended = incident("gpu_lost", gpu(0), Severity.CRITICAL)
    past = [over("a", REAL, 3 * HOUR), over("b", node(), HOUR), over("c", REAL, 2 * HOUR)]
    found = listing(active(pretended, down, lost), past, Filters())
    assert [one.id for one in found.open_rows] == [lost.id, down.id, pretended.id]
    assert [one.fault for one in found.past] == ["c", "a", "b"]  # simulated last


def test_an_incident_that_is_read_twice_is_shown_once_as_it_stands() -> None:
    lost = incident("gpu_lost", gpu(0), Severity.CRITICAL)
    old = entry(replace(lost, state="resolved", resolved_at=NOON))
    found = listing(active(lost), [old], Filters())
    assert (len(found.open_rows), len(found.past)) == (1, 0)


def test_every_filter_counts_what_the_others_let_through() -> None:
    taken = incident("gpu_lost", gpu(0, REAL), Severity.CRITICAL, state="acknowledged")
    flaps = incident("port_flapping", node(), Severity.WARNING, state="flapping")
    past = [over("gpu_lost", gpu(1, REAL), HOUR), over("port_down", REAL, HOUR)]
    everything = active(taken, flaps)
    found = listing(everything, past, Filters())
    shows = {one.value: one.count for one in found.choices["show"]}
    assert shows == {"": 4, "active": 2, "open": 1, "acknowledged": 1, "flapping": 1, "past": 2}
    assert count(found, "fault", "gpu_lost") == 2
    only = listing(everything, past, Filters(show="past", fault="gpu_lost"))
    assert [one.fault for one in only.past] == ["gpu_lost"]
    assert not only.open_rows
    assert count(only, "fault", "port_down") == 1
    assert count(only, "show", "acknowledged") == 1
    assert count(only, "show", "flapping") == 0


def test_a_filter_is_called_as_its_incidents_are() -> None:
    slow, lost = (incident(one, gpu(0, REAL), Severity.WARNING) for one in ("gpu_slow", "gpu_lost"))
    slow = replace(slow, title="A rank of the job has become slow: its own work takes longer")

    def names(*stand: Incident) -> list[str]:
        return [one.name for one in listing(active(lost, *stand), (), Filters()).choices["fault"]]

    assert slow.title in names(slow)
    other = replace(slow, id="other", title="GPU slows its job down")
    assert "GPU slows its job down" in names(slow, other)
    longest = "r" * LONGEST_CHIP
    assert longest in names(replace(slow, title=longest))
    assert "GPU slows its job down" in names(replace(slow, title=f"{longest}r"))


@pytest.mark.parametrize(
    ("asked", "faults"),
    [
        (Filters(q="JOB-7"), ["gpu_lost"]),
        (Filters(q="ann lost"), ["gpu_lost"]),
        (Filters(q="nobody has this"), []),
        (Filters(node="n1"), ["gpu_lost"]),
        (Filters(cluster="simulated"), ["port_down"]),
        (Filters(severity="critical"), ["gpu_lost"]),
        (Filters(show="nonsense"), ["gpu_lost", "port_down"]),
    ],
)
def test_a_filter_shows_what_fits_it(asked: Filters, faults: list[str]) -> None:
    lost = incident("gpu_lost", gpu(0, REAL), Severity.CRITICAL)
    lost = replace(lost, impact=replace(lost.impact, holders=("job-7",), users=("ann",)))
    found = listing(active(lost, incident("port_down", node(), Severity.WARNING)), (), asked)
    assert [one.fault for one in found.open_rows] == faults


@pytest.mark.medium
def test_ten_thousand_past_incidents_show_the_newest_and_say_how_many_more() -> None:
    past = [over("gpu_lost", REAL, timedelta(minutes=n)) for n in range(10_000)]
    found = listing(active(incident("gpu_lost", gpu(0), Severity.INFO)), past, Filters())
    assert (len(found.open_rows), len(found.past)) == (1, MOST_SHOWN)
    assert found.more == 10_000 - MOST_SHOWN
    assert found.past[0].ended_at == NOON
    assert "and 9,800 more, older" in texts(["div", {}, *drawing.entries(found, NOON, cut=False)])
    assert "at least 9,800 more" in texts(["div", {}, *drawing.entries(found, NOON, cut=True)])


def test_all_that_stand_are_counted_simulated_ones_apart_however_few_are_shown() -> None:
    real = [incident("gpu_lost", gpu(n, REAL), Severity.INFO) for n in range(MOST_SHOWN + 50)]
    played = [incident("gpu_lost", gpu(n), Severity.INFO) for n in range(50)]
    found = listing(active(*real, *played), [over("gpu_lost", REAL, timedelta())], Filters())
    assert drawing.amounts(found) == (
        f"{MOST_SHOWN + 50} open · 50 simulated open · 1 resolved shown"
    )
    assert (len(found.open_rows), len(found.past)) == (MOST_SHOWN, 1)
    assert "and 50 and 50 simulated more open" in texts(
        ["div", {}, *drawing.entries(found, NOON, cut=False)]
    )


@given(
    some.dictionaries(
        some.sampled_from([*Filters.__dataclass_fields__, "token", "last"]), some.text(max_size=300)
    )
)
def test_an_address_that_is_made_of_filters_gives_the_same_filters(query: dict[str, str]) -> None:
    asked = Filters.of(query)
    address = parse_qs(urlsplit(asked.href).query, keep_blank_values=True)
    assert Filters.of({name: values[0] for name, values in address.items()}) == asked


def test_choosing_what_is_chosen_takes_it_back() -> None:
    down = incident("port_down", node(), Severity.WARNING)
    found = listing(active(down), (), Filters(severity="warning", q="port"))
    (chosen,) = found.choices["severity"]
    assert chosen.chosen
    assert chosen.href == "/incidents?q=port"


@pytest.mark.parametrize(
    ("ends", "cut", "hours", "reaches"),
    [
        ((1, 5), True, 4, True),
        ((1, 5), True, 6, False),
        ((1, 5), False, 6, True),
        ((), True, 1, False),
    ],
)
def test_whether_all_of_a_span_was_read_is_known(
    ends: tuple[int, ...], cut: bool, hours: int, reaches: bool
) -> None:
    past = PastIncidents(entries=tuple(over("a", REAL, n * HOUR) for n in ends), cut=cut)
    assert past.reaches(NOON - hours * HOUR) is reaches


def step(of: Incident, number: int, to: State, signal: Signal, **values: Any) -> Transition:
    given: dict[str, Any] = {"at": NOON, "reason": "seen again", "from_state": "open", **values}
    return Transition(
        incident=of.id,
        number=number,
        to_state=to.value,
        signal=signal.value,
        subject=of.subject,
        snapshot=of.to_record().to_json(),
        **given,
    )


def taken_by(of: Incident, by: str, note: str = "", at: datetime = NOON) -> Acknowledgement:
    return Acknowledgement(
        id=f"{by}-{to_text(at)}", incident=of.id, subject=of.subject, by=by, note=note, at=at
    )


def told(of: Incident, *said: Acknowledgement, **values: Any) -> Story:
    opened = step(of, 1, State.OPEN, Signal.CONFIRMED, at=NOON - HOUR)
    given: dict[str, Any] = {
        "transitions": (opened,),
        "notices": (),
        "others": (),
        "pulses": pulses(),
        **values,
    }
    return Story(incident=of, acknowledgements=said, **given)


LOST = incident("gpu_lost", gpu(5), Severity.CRITICAL)


def test_nobody_has_taken_it_until_somebody_has() -> None:
    assert assignment(told(LOST), NOON).state is AssignmentState.BY_NOBODY
    held = assignment(told(LOST, taken_by(LOST, "Ann"), taken_by(LOST, "Bob")), NOON)
    assert held.state is AssignmentState.WAITS
    assert held.text == "Taken by Ann. Reminders end within seconds."
    known = replace(LOST, state="acknowledged", acknowledged_by="Ann")
    held = assignment(told(known, taken_by(LOST, "Ann")), NOON + timedelta(minutes=3))
    assert held.state is AssignmentState.TAKEN
    assert held.text == "Taken by Ann, 3 min ago."


def test_what_was_taken_before_it_was_over_counts_no_more_when_it_comes_back() -> None:
    ended = step(LOST, 2, State.RESOLVED, Signal.CLEARED, at=NOON)
    back = step(LOST, 3, State.OPEN, Signal.RETURNED, at=NOON + HOUR)
    early = taken_by(LOST, "Ann", at=NOON - timedelta(minutes=1))
    held = assignment(told(LOST, early, transitions=(ended, back)), NOON + HOUR)
    assert held.state is AssignmentState.BY_NOBODY
    late = taken_by(LOST, "Bob", at=NOON + HOUR)
    assert assignment(told(LOST, early, late, transitions=(ended, back)), NOON + HOUR).by == "Bob"


def test_an_analyzer_that_is_silent_is_named_where_its_word_is_awaited() -> None:
    story = told(LOST, taken_by(LOST, "Ann"), pulses=pulses(NOON - timedelta(minutes=5)))
    assert "it has been silent for 5 min" in (said := assignment(story, NOON).text)
    assert "`" not in said
    nothing = told(LOST, taken_by(LOST, "Ann"), pulses=())
    assert "no analyzer has ever reported" in assignment(nothing, NOON).text


@pytest.mark.parametrize("state", ["resolved", "dismissed"])
def test_what_is_over_cannot_be_taken(state: str) -> None:
    ended = replace(LOST, state=state, resolved_at=NOON)
    assert assignment(told(ended, taken_by(LOST, "Ann")), NOON).state is AssignmentState.OVER


def test_the_timeline_has_steps_and_notes_in_the_order_of_time() -> None:
    note = taken_by(LOST, "Ann", "cable pulled", at=NOON - timedelta(minutes=30))
    ended = step(LOST, 2, State.RESOLVED, Signal.CLEARED, reason="not seen for 30 s")
    cause = CoveredBy(fingerprint="f1", what="n1: driver hangs")
    covered = replace(step(LOST, 3, State.RESOLVED, Signal.CLEARED), cause=cause)
    first = told(LOST).transitions
    moments = timeline(told(LOST, note, transitions=(*first, ended, covered)))
    assert [one.title for one in moments] == [
        "Began",
        "Opened",
        "Ann wrote",
        "Resolved",
        "Covered by another incident",
    ]


def test_a_step_that_changed_the_severity_says_from_what_to_what() -> None:
    first = told(LOST).transitions
    mild = replace(LOST, severity=Severity.INFO)
    milder = step(mild, 2, State.OPEN, Signal.CHANGED, reason="severity changed")
    other = step(mild, 3, State.OPEN, Signal.CHANGED, reason="members changed")
    worse = step(LOST, 4, State.OPEN, Signal.RETURNED, reason="came back")
    moments = timeline(told(mild, transitions=(*first, milder, other, worse)))
    assert [one.text for one in moments[-3:]] == [
        f"severity: {LOST.severity.value} → info",
        "members changed",  # of which nothing is known
        f"came back; severity: info → {LOST.severity.value}",
    ]


def test_a_change_says_the_old_and_the_new_value() -> None:
    one = replace(LOST, impact=Impact(gpus=1, text="job 7 waits"), members=(LOST.subject.key,))
    whole = replace(
        one,
        title="Driver hangs",
        impact=Impact(gpus=8, text="job 7 and job 8 wait"),
        members=tuple(gpu(n).key for n in range(8)),
        covers=("n1: GPU is lost",),
        late=True,
    )
    out = replace(whole, out_of_service=OutOfService(state="DRAIN", reason="drained: fan"))
    bare = replace(one, impact=Impact(gpus=2))
    every = [whole, out, whole, one, bare]
    later = [
        step(it, number, State.OPEN, Signal.CHANGED, reason="impact changed")
        for number, it in enumerate(every, 2)
    ]
    first = step(one, 1, State.OPEN, Signal.CONFIRMED, at=NOON - HOUR)
    texts_ = [it.text for it in timeline(told(one, transitions=(first, *later)))][2:]
    assert texts_[0] == (
        f"title: {LOST.title} → Driver hangs; impact: job 7 waits → job 7 and job 8 wait;"
        " places: 1 → 8; findings explained: 0 → 1; data: in time → late"
    )
    assert texts_[1:3] == ["out of service: drained: fan", "in service again"]
    assert texts_[4] == "impact: job 7 waits → 2 GPUs blocked"
    lean = replace(later[0], snapshot={"body": {"severity": "info"}})
    assert timeline(told(one, transitions=(first, lean)))[-1].text == (
        f"severity: {one.severity.value} → info"
    )


def test_the_same_words_from_the_same_form_are_one_acknowledgement() -> None:
    first = acknowledgement(LOST, "Ann", "on it", "form-1", NOON)
    again = acknowledgement(LOST, " Ann ", "on it", "form-1", NOON + HOUR)
    assert first.id == again.id
    assert first.id != acknowledgement(LOST, "Ann", "on it", "form-2", NOON).id
    assert first.id != acknowledgement(LOST, "Ann", "off it", "form-1", NOON).id
    assert first.id != acknowledgement(replace(LOST, id="other"), "Ann", "on it", "form-1", NOON).id


def test_an_answer_that_is_old_says_since_when_and_why_in_a_line_and_a_new_one_nothing() -> None:
    old = CachedAnswer(value=None, age_seconds=200.0, error="hub: connection refused")
    assert outdated("this incident is", old, None) == [
        "This incident is as it was 3 min ago: hub: connection refused."
    ]
    assert outdated("this incident is", CachedAnswer(value=None, age_seconds=4.0), None) == []
    assert outdated("this incident is", old, 140.0) == []
    assert outdated("this incident is", old, 139.9)


@given(some.text(max_size=400), some.text(max_size=2500))
def test_names_and_notes_are_bounded_and_hold_nothing_that_steers(by: str, note: str) -> None:
    kept = acknowledgement(LOST, by, note, "form", NOON)
    assert len(kept.by) <= LONGEST_NAME
    assert len(kept.note) <= LONGEST_NOTE
    assert all(ch.isprintable() or ch == "\n" for ch in kept.by + kept.note)
    assert Acknowledgement.from_record(kept.to_record()) == kept


@pytest.mark.parametrize(
    ("body", "word", "details"),
    [
        ({"state": "sent", "attempts": 1}, "sent", ("1 attempt",)),
        ({"state": "held", "reason": "a person has taken it"}, "not sent", ()),
        ({"state": "superseded"}, "replaced", ()),
        ({"state": "due", "in_flight": True, "attempts": 2}, "on its way", ("2 attempts",)),
        (
            {"state": "due", "attempts": 3, "last_error": "503", "due": 60},
            "pending",
            ("3 attempts", "last error: 503", "due 12:01:00 UTC on 31 Jan, in 60 s"),
        ),
        (
            {"state": "dead", "last_error": "404", "attempts": 9},
            "given up",
            ("9 attempts", "last error: 404"),
        ),
    ],
)
def test_every_decision_is_told_with_its_reason(
    body: dict[str, Any], word: str, details: tuple[str, ...]
) -> None:
    due = body.pop("due", None)
    record = notice(LOST, **{"reason": "because", "verdict": "first", **body})
    if due is not None:
        record = replace(record, due_at=NOON + timedelta(seconds=due))
    (channel,) = channels([record], NOON, over=False)
    (message,) = channel.messages
    assert (channel.name, message.word, message.verdict) == ("ops", word, "first")
    assert message.reason == body.get("reason", "because")
    assert message.details == details


def test_the_newest_decision_of_a_channel_comes_first_and_what_was_known_then_is_kept() -> None:
    known = replace(
        LOST,
        evidence=(Evidence(name="Xid", value="79"),),
        action="Drain the node.",
        label="n1 GPU 5",
    )
    first = notice(LOST, number=1, snapshot=known.to_record().to_json())
    second = notice(LOST, at=NOON + HOUR, number=2, state="held", snapshot={"broken": True})
    nobody = notice(LOST, channel=None, state="held", number=1)
    found = channels([first, second, nobody], NOON + HOUR, over=False)
    assert [one.name for one in found] == ["ops", "not sent"]
    newest, oldest = found[0].messages
    assert (newest.number, newest.lines) == (2, ())
    assert oldest.lines == ("critical: gpu_lost", "n1 GPU 5", "Xid: 79", "Do now: Drain the node.")


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ((), "no channel is configured"),
        (None, "no channel was configured at 12:00:00 UTC on 31 Jan"),
        (("ops",), "no channel was configured at 12:00:00 UTC on 31 Jan; now: ops"),
    ],
)
def test_that_there_was_no_channel_is_of_then_unless_there_is_none_now(
    there: tuple[str, ...] | None, said: str
) -> None:
    nobody = notice(
        LOST,
        channel=None,
        state="held",
        number=1,
        reason="no channel is configured",
        verdict="no_channel",
    )
    (channel,) = channels([nobody], NOON + HOUR, over=False, there=there)
    assert (channel.name, channel.summary) == ("not sent", said)


def test_which_channels_there_are_is_what_alerts_said_last() -> None:
    _, alerts = pulses()
    earlier = replace(alerts, body={"channels": []})
    later = replace(alerts, at=NOON + HOUR, body={"channels": [{"name": "ops"}]})
    assert configured([later, earlier]) == ("ops",)
    assert configured([earlier]) == ()
    assert configured(pulses()) is None


def test_a_record_that_makes_no_sense_breaks_no_story() -> None:
    bodies: list[dict[str, Any]] = [{}, {"number": "x", "state": 7, "snapshot": [], "sent_at": 3}]
    records = [
        Record(kind=RecordKind.NOTICE, id=f"{n}", at=NOON, subject="a/b", body=body)
        for n, body in enumerate(bodies)
    ]
    (channel,) = channels(records[:1], NOON, over=True)
    assert channel.messages[0].reason == "no reason was recorded"


def test_a_story_names_its_evidence_what_it_hides_and_leads_to_its_place_at_that_time() -> None:
    one = replace(
        LOST,
        evidence=(Evidence(name="rate", value="3 Gbit/s", limit="80", peers="91 Gbit/s"),),
        covers=("n2: port is down",),
        members=(LOST.subject.key, node("n9").key),
        label="sim-001 GPU 5",
    )
    other = incident("port_down", node(), Severity.WARNING, state="resolved", resolved_at=NOON)
    story = told(one, others=(other,))
    at = NamedPlaces(incident=one, until=NOON, inventories={})
    asked = Filters(incident=one.id)
    head = story_drawing.head(story, assignment(story, NOON), asked, at, NOON)
    link = next(child for child in _all(head) if child[0] == "a" and "sim-001" in texts(child))
    assert link[1]["href"].startswith("/gpu?")
    assert "from=2026-01-31T11%3A29%3A00Z" in link[1]["href"]
    places = covered(members(one), lambda gpu: 5)
    beside = story_drawing.beside(story, places, Similar(), (), Filters(), NOON)
    said = texts(["div", {}, *story_drawing.facts(story, timeline(story), (), at), *beside])
    for part in (
        "3 Gbit/s",
        "80",
        "91 Gbit/s",
        "n2: port is down",
        "n9",
        "GPU 5",
        "port_down",
        one.id,
    ):
        assert part in said


@pytest.mark.parametrize(
    ("past", "said"),
    [
        (Similar(), "none in 90 days"),
        (Similar(unknown=True), "not known: the hub does not answer"),
    ],
)
def test_what_the_hub_did_not_tell_is_not_none(past: Similar, said: str) -> None:
    drawn = story_drawing.beside(told(LOST), (), past, (), Filters(), NOON)
    assert said in texts(["div", {}, *drawn])


def test_a_story_says_why_nobody_is_told_of_what_is_out_of_service() -> None:
    def said(one: Incident) -> str:
        story = told(one)
        at = NamedPlaces(incident=one, until=NOON, inventories={})
        return texts(story_drawing.head(story, assignment(story, NOON), Filters(), at, NOON))

    why = OutOfService("DRAIN", "drained: fan [ada@2026-01-31T11:00:00]")
    out = replace(LOST, out_of_service=why)
    assert "No alerts while it is out of service: drained: fan [ada" in said(out)
    assert "out of service" not in said(replace(out, state="resolved", resolved_at=NOON))
    assert "out of service" not in said(LOST)
    for one in (out, LOST):
        found = listing(active(one), (), Filters())
        shown = texts(["div", {}, *drawing.entries(found, NOON, cut=False)])
        assert ("out of service" in shown) is (one is out)


def _all(tree: Node) -> list[list[Any]]:
    if isinstance(tree, str):
        return []
    return [tree, *(found for child in tree[2:] for found in _all(child))]


def test_what_is_still_to_be_told_is_said_before_what_was_held_back_after_it() -> None:
    waiting = notice(LOST, number=1, state="due", reason="the receiver failed 3 times in a row")
    held = notice(LOST, at=NOON + HOUR, number=2, state="held", reason="a person has taken it")
    (channel,) = channels([waiting, held], NOON + HOUR, over=False)
    assert channel.summary == "not sent yet: the receiver failed 3 times in a row"


def test_an_acknowledgement_that_the_analyzer_tells_of_is_told_once() -> None:
    said = taken_by(LOST, "Ann", "on it")
    taken = step(
        LOST, 2, State.ACKNOWLEDGED, Signal.ACKNOWLEDGED, reason="acknowledged by Ann: on it"
    )
    later = taken_by(LOST, "Bob", "cable ordered", at=NOON + HOUR)
    moments = timeline(told(LOST, said, later, transitions=(taken,)))
    assert [one.title for one in moments] == ["Began", "Acknowledged", "Bob wrote"]


def test_what_was_done_to_the_node_stands_among_the_steps_with_what_undoes_it() -> None:
    undo = "scontrol update nodename=n1 state=resume"
    done = NodeAction(incident=LOST.id, node=REAL, act=Act.DRAIN, at=NOON + HOUR, undo=undo)
    kept = NodeAction.from_record(done.to_record())
    last = timeline(replace(told(LOST), actions=(kept,)))[-1]
    assert last.title == "gpuvigil took the node out of service"
    assert last.text == f"undo: {undo}"
