"""The book of incidents: nothing is lost, nothing doubled, whatever happens in between."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.correlation.observation import Candidate, Observation
from analyzer.incidents.book import Book, advance, rebuild
from gpuvigil.faults import FAULTS
from gpuvigil.lifecycle import ACTIVE, Patience, Signal, State, step
from gpuvigil.model import (
    CoveredBy,
    Ended,
    EndedBy,
    EventKind,
    Evidence,
    Finding,
    Impact,
    Incident,
    Record,
    Severity,
    Transition,
    fingerprint,
)

from .scene import NOON, gpu

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
PATIENCE = Patience()
PRINT = fingerprint("gpu_lost", gpu())
BACK = Ended(by=EndedBy.EVENT, event=EventKind.GPU_BACK, at=NOON)
BY_NODE = CoveredBy(
    fingerprint=fingerprint("gpu_lost", gpu(1, 2)), what="node-1: Node stopped reporting"
)


def candidate(
    number: int = 0,
    since: datetime = NOON,
    *,
    certain: bool = True,
    late: bool = False,
    severity: Severity = Severity.CRITICAL,
    gpus: int = 1,
    value: str = "1",
    covers: tuple[str, ...] = (),
) -> Candidate:
    finding = Finding(
        fault="gpu_lost",
        subject=gpu(1, number),
        severity=severity,
        since=since,
        evidence=(Evidence(name="n", value=value),),
        detector="gpu_lost",
        action="do",
        source="s",
        certain=certain,
        late=late,
    )
    return Candidate(
        finding=finding,
        severity=severity,
        title=FAULTS["gpu_lost"].title,
        label=f"node-1 GPU {number}",
        impact=Impact(gpus=gpus),
        members=(finding.subject.key,),
        covers=covers,
    )


def of_fault(fault: str, since: datetime) -> Candidate:
    one = candidate(since=since)
    return replace(one, title=FAULTS[fault].title, finding=replace(one.finding, fault=fault))


# What somebody boots a node for may come back for longer.
WINDOWS = (
    ("gpu_lost", PATIENCE.repair_window, "2 h"),
    ("gpu_xid", PATIENCE.repair_window, "2 h"),
    ("gpu_hot", PATIENCE.flap_window, "30 min"),
)


def found(*candidates: Candidate, fresh: bool = True) -> Observation:
    return Observation(candidates={c.finding.fingerprint: c for c in candidates}, new_rows=fresh)


@dataclass
class Keeper:
    """What a hub would hold after every look, and the book that wrote it."""

    now: datetime = NOON
    book: Book = field(default_factory=Book)
    incidents: dict[str, Record] = field(default_factory=dict)
    transitions: dict[str, Record] = field(default_factory=dict)

    def look(
        self, observation: Observation, after: timedelta = 10 * SECOND
    ) -> tuple[Transition, ...]:
        self.now += after
        before = self.book.written()
        self.book, made = advance(self.book, observation, self.now, PATIENCE)
        for transition in made:
            assert transition.id not in self.transitions
            self.transitions[transition.id] = transition.to_record()
        for identifier, incident in self.book.written().items():
            old = before.get(identifier)
            if old is None or old.version != incident.version:
                known = self.incidents.get(identifier)
                assert known is None or known.version < incident.version
                self.incidents[identifier] = incident.to_record()
        return made

    def restarted(self) -> Book:
        """The book as a new process reads it from the hub."""
        incidents = [Incident.from_record(through_json(r)) for r in self.incidents.values()]
        steps = [Transition.from_record(through_json(r)) for r in self.transitions.values()]
        return rebuild(incidents, steps, self.now, PATIENCE)

    def signals(self) -> list[str]:
        return [str(record.body["signal"]) for record in self.transitions.values()]

    def state(self) -> State:
        return self.book.entries[PRINT].state


def through_json(record: Record) -> Record:
    return Record.from_json(record.to_json())


# --- one life, step by step -----------------------------------------------------------------------


def test_a_certain_finding_opens_at_first_sight() -> None:
    keeper = Keeper()
    (transition,) = keeper.look(found(candidate(), fresh=False))
    assert (transition.from_state, transition.to_state, transition.number) == ("suspect", "open", 1)
    assert transition.reason == "certain at once"
    (incident,) = keeper.book.active()
    assert incident.id == f"{PRINT}-20260131T120010000000Z"
    assert incident.version == 1
    assert transition.snapshot == incident.to_record().to_json()
    assert incident.since == NOON


def test_an_uncertain_finding_is_told_only_when_it_is_seen_again_in_new_rows() -> None:
    keeper = Keeper()
    unsure = candidate(certain=False)
    assert keeper.look(found(unsure)) == ()
    assert keeper.incidents == {}
    assert keeper.look(found(unsure, fresh=False)) == ()
    (transition,) = keeper.look(found(unsure))
    assert transition.reason == "seen a second time"
    assert keeper.state() is State.OPEN


def test_a_suspect_that_is_not_seen_again_leaves_no_trace() -> None:
    keeper = Keeper()
    keeper.look(found(candidate(certain=False)))
    assert keeper.look(Observation()) == ()
    assert keeper.book.entries == {}
    keeper.look(found(candidate(certain=False)))
    assert keeper.look(Observation(unknown=frozenset({PRINT}))) == ()
    assert keeper.state() is State.SUSPECT


def test_it_clears_after_the_clear_time_and_not_before() -> None:
    keeper = Keeper()
    keeper.look(found(candidate()))
    assert keeper.look(Observation()) == ()
    assert keeper.look(Observation(), 29 * SECOND) == ()
    (transition,) = keeper.look(Observation(), SECOND)
    assert transition.signal == "cleared"
    assert transition.reason == "not seen for 30 s"
    assert keeper.book.entries[PRINT].incident.resolved_at == keeper.now


def test_of_a_node_that_is_read_seldom_one_late_reading_resolves_nothing() -> None:
    keeper, seldom = Keeper(), Observation(seldom={PRINT: 180 * SECOND})
    keeper.look(found(candidate()))
    assert keeper.look(seldom) == ()
    assert keeper.look(seldom, 179 * SECOND) == ()
    (transition,) = keeper.look(seldom, SECOND)
    assert transition.reason == "not seen for 180 s"


def test_a_glimpse_starts_the_clear_time_anew() -> None:
    keeper = Keeper()
    keeper.look(found(candidate()))
    keeper.look(Observation(), 20 * SECOND)
    keeper.look(found(candidate()))
    keeper.look(Observation(), 20 * SECOND)
    assert keeper.look(Observation(), 20 * SECOND) == ()


def test_a_cure_resolves_at_once() -> None:
    keeper = Keeper()
    keeper.look(found(candidate()))
    (transition,) = keeper.look(Observation(cured={PRINT: BACK}), SECOND)
    assert (transition.to_state, transition.cause, transition.reason) == (
        "resolved",
        BACK,
        "cured: gpu back at 12:00:00 UTC on 31 Jan",
    )


def test_absence_of_data_clears_nothing() -> None:
    keeper = Keeper()
    keeper.look(found(candidate()))
    keeper.look(Observation())
    for _ in range(100):
        assert keeper.look(Observation(unknown=frozenset({PRINT})), MINUTE) == ()
    assert keeper.look(Observation()) == ()
    assert keeper.state() is State.OPEN


def test_a_cause_that_covers_it_resolves_it_and_gives_it_back_without_counting_as_flapping() -> (
    None
):
    keeper = Keeper()
    keeper.look(found(candidate()))
    for _ in range(5):
        (hidden,) = keeper.look(Observation(covered={PRINT: BY_NODE}))
        assert hidden.reason == "covered by node-1: Node stopped reporting"
        (back,) = keeper.look(found(candidate()))
        assert (back.signal, back.reason) == ("returned", "no longer covered")
    assert keeper.state() is State.OPEN


def test_what_returns_within_the_flap_window_is_the_same_incident_and_then_flaps() -> None:
    keeper = Keeper()
    keeper.look(found(candidate()))
    identifiers = set()
    for _ in range(3):
        keeper.look(Observation(cured={PRINT: BACK}))
        keeper.look(found(candidate(since=keeper.now)))
        identifiers.add(keeper.book.entries[PRINT].incident.id)
    assert len(identifiers) == 1
    assert keeper.signals()[-3:] == ["returned", "cleared", "flapped"]
    assert keeper.state() is State.FLAPPING
    assert keeper.look(Observation(cured={PRINT: BACK})) == ()
    assert keeper.look(Observation(), 29 * MINUTE) == ()
    (over,) = keeper.look(Observation(), 2 * MINUTE)
    assert over.to_state == "resolved"


@pytest.mark.parametrize(("more", "flaps"), [(timedelta(), True), (SECOND, False)])
@pytest.mark.parametrize(("fault", "window", "said"), WINDOWS)
def test_returns_count_for_as_long_as_it_may_come_back(
    more: timedelta, flaps: bool, fault: str, window: timedelta, said: str
) -> None:
    keeper, print_ = Keeper(), fingerprint(fault, gpu())
    keeper.look(found(of_fault(fault, NOON)))
    for wait in (MINUTE, window / 2, window / 2 + more):
        keeper.look(Observation(cured={print_: BACK}))
        (back,) = keeper.look(found(of_fault(fault, keeper.now)), wait - 10 * SECOND)
    assert back.signal == ("flapped" if flaps else "returned")
    assert back.reason == (f"came back 3 times in {said}" if flaps else "came back")


@pytest.mark.parametrize("severity", [Severity.CRITICAL, Severity.WARNING])
def test_an_xid_that_nobody_resets_for_is_another_one_after_half_an_hour(
    severity: Severity,
) -> None:
    def again() -> Candidate:
        one = of_fault("gpu_xid", keeper.now)
        return replace(one, severity=severity, finding=replace(one.finding, severity=severity))

    keeper = Keeper()
    keeper.look(found(again()))
    keeper.look(Observation(cured={fingerprint("gpu_xid", gpu()): BACK}))
    (back,) = keeper.look(found(again()), PATIENCE.flap_window + MINUTE)
    is_the_same = severity is Severity.CRITICAL
    assert back.signal == ("returned" if is_the_same else "confirmed")
    assert len(keeper.incidents) == (1 if is_the_same else 2)


def test_what_a_repair_did_not_hold_keeps_when_it_was_there_before() -> None:
    keeper = Keeper()
    keeper.look(found(candidate()))
    for _ in range(2):
        keeper.look(Observation(cured={PRINT: BACK}))
        keeper.look(found(candidate(since=keeper.now)), 90 * MINUTE)
    (incident,) = keeper.restarted().active()
    assert incident.earlier == (NOON, NOON + 20 * SECOND)
    assert incident.since == NOON + 30 * SECOND + 90 * MINUTE
    # Of what nobody boots a node for nothing is kept, nor of what only could not be seen.
    other = fingerprint("gpu_hot", gpu())
    keeper.look(found(of_fault("gpu_hot", NOON)))
    keeper.look(Observation(cured={other: BACK}))
    keeper.look(found(of_fault("gpu_hot", keeper.now)), MINUTE)
    assert keeper.book.entries[other].incident.earlier == ()
    hidden = Keeper()
    hidden.look(found(candidate()))
    hidden.look(Observation(covered={PRINT: BY_NODE}))
    hidden.look(found(candidate()))
    assert hidden.book.entries[PRINT].incident.earlier == ()


def test_no_more_than_twenty_times_are_kept() -> None:
    keeper = Keeper()
    keeper.look(found(candidate()))
    for _ in range(21):
        keeper.look(Observation(cured={PRINT: BACK}))
        keeper.look(Observation(), 31 * MINUTE)
        keeper.look(Observation(), 31 * MINUTE)
        keeper.look(found(candidate(since=keeper.now)))
    assert len(keeper.book.entries[PRINT].incident.earlier) == 20


def test_what_returns_later_is_a_new_incident() -> None:
    keeper = Keeper()
    keeper.look(found(candidate()))
    keeper.look(Observation(cured={PRINT: BACK}))
    first = keeper.book.entries[PRINT].incident.id
    (transition,) = keeper.look(found(candidate()), 121 * MINUTE)
    assert transition.number == 1
    assert transition.incident != first
    assert transition.incident.startswith(PRINT)


def test_only_what_people_must_hear_of_is_a_change() -> None:
    keeper = Keeper()
    keeper.look(found(candidate(gpus=1)))
    assert keeper.look(found(candidate(gpus=1, value="2"))) == ()
    (transition,) = keeper.look(found(candidate(gpus=8, value="3")))
    assert (transition.signal, transition.reason) == ("changed", "impact changed")
    assert transition.to_state == "open"
    (transition,) = keeper.look(found(candidate(gpus=8, covers=("x",))))
    assert transition.reason == "covers changed"


def test_numbers_are_brought_up_to_date_once_a_minute_without_a_word() -> None:
    keeper = Keeper()
    keeper.look(found(candidate(value="1")))
    keeper.look(found(candidate(value="2")), 59 * SECOND)
    assert keeper.book.active()[0].evidence[0].value == "1"
    assert keeper.look(found(candidate(value="3")), SECOND) == ()
    (incident,) = keeper.book.active()
    assert (incident.evidence[0].value, incident.version) == ("3", 2)


def test_severity_only_rises_and_covers_only_grow_while_it_stands() -> None:
    keeper = Keeper()
    keeper.look(found(candidate(severity=Severity.WARNING, covers=("a",))))
    keeper.look(found(candidate(severity=Severity.CRITICAL, covers=("b",))))
    assert keeper.look(found(candidate(severity=Severity.WARNING))) == ()
    (incident,) = keeper.book.active()
    assert (incident.severity, incident.covers) == (Severity.CRITICAL, ("a", "b"))


def test_the_earliest_start_is_kept() -> None:
    keeper = Keeper()
    keeper.look(found(candidate(since=NOON)))
    keeper.look(found(candidate(since=NOON + MINUTE)))
    assert keeper.book.active()[0].since == NOON


def test_late_ends_with_the_first_data_that_is_in_time() -> None:
    keeper = Keeper()
    keeper.look(found(candidate(late=True)))
    assert keeper.book.active()[0].late
    (transition,) = keeper.look(found(candidate(late=False)))
    assert transition.reason == "lateness changed"
    assert keeper.look(found(candidate(late=True))) == ()
    assert not keeper.book.active()[0].late


def test_a_look_at_one_node_says_nothing_about_the_others() -> None:
    keeper = Keeper()
    keeper.look(found(candidate()))
    elsewhere = gpu(2).of_node()
    for observation in (
        Observation(only=elsewhere),
        Observation(without=frozenset({gpu().of_node()})),
    ):
        for _ in range(10):
            assert keeper.look(observation, MINUTE) == ()
    assert keeper.state() is State.OPEN
    stale = replace(found(candidate(gpus=99)), without=frozenset({gpu().of_node()}))
    assert keeper.look(stale) == ()


def test_words_follow_the_finding_where_only_what_it_hides_made_it_graver() -> None:
    keeper = Keeper()
    silent = FAULTS["node_silent"]
    alone = replace(
        candidate(severity=silent.severity), title=silent.title, severity=silent.severity
    )
    alone = replace(alone, finding=replace(alone.finding, fault="node_silent"))
    keeper.look(found(replace(alone, severity=Severity.CRITICAL)))
    dead = replace(alone.finding, condition="dead")
    keeper.look(found(replace(alone, title="Node is dead", finding=dead)))
    (incident,) = keeper.book.active()
    assert (incident.severity, incident.title) == (Severity.CRITICAL, "Node is dead")


def test_a_verdict_changes_only_to_another_one_and_when_it_was_seen_twice() -> None:
    keeper = Keeper()
    silent = FAULTS["node_silent"]
    node = gpu().of_node()
    dead, collector = "Node is dead", "Collector does not report"

    def said(title: str) -> Observation:
        base = candidate(severity=silent.severity)
        condition = {silent.title: "", dead: "dead"}.get(title, "collector")
        finding = replace(base.finding, fault="node_silent", subject=node, action=f"do: {title}")
        finding = replace(finding, condition=condition)
        return found(replace(base, title=title, finding=finding, severity=silent.severity))

    def look(title: str) -> tuple[str, str]:
        keeper.look(said(title))
        (incident,) = keeper.book.active()
        return incident.title, incident.action

    assert look(silent.title) == (silent.title, f"do: {silent.title}")
    assert look(dead) == (dead, f"do: {dead}")
    assert look(silent.title) == look(collector) == (dead, f"do: {dead}")
    assert look(silent.title) == look(collector) == (dead, f"do: {dead}")
    assert look(collector) == (collector, f"do: {collector}")
    assert look(silent.title) == (collector, f"do: {collector}")


def test_what_was_said_when_it_was_graver_stands() -> None:
    keeper = Keeper()
    storm = candidate(severity=Severity.WARNING)
    finding = replace(storm.finding, condition="corrected_storm", action="x")
    keeper.look(found(replace(storm, title="a storm", finding=finding)))
    few = candidate(severity=Severity.INFO)
    few = replace(few, finding=replace(few.finding, condition="corrected_growth"))
    keeper.look(found(replace(few, title="a few")))
    (incident,) = keeper.book.active()
    assert (incident.title, incident.action) == ("a storm", "x")
    keeper.look(found(replace(candidate(severity=Severity.WARNING), title="another storm")))
    assert [i.title for i in keeper.book.active()] == ["another storm"]


def test_what_is_covered_for_long_comes_back_as_the_same_incident() -> None:
    def other() -> Candidate:
        return candidate(2)

    def gone(*there: Candidate) -> Observation:
        observation = found(*there)
        return replace(observation, covered={PRINT: BY_NODE})

    keeper = Keeper()
    keeper.look(found(candidate()))
    (first,) = keeper.book.active()
    keeper.look(gone(candidate(2), other()))
    for _ in range(3):
        keeper.look(found(other()), after=timedelta(minutes=25))
        keeper.book = keeper.restarted()
    keeper.look(found(candidate(), other()))
    assert first.id in {incident.id for incident in keeper.book.active()}
    # Hours after its cause is over it would be another one.
    keeper.look(gone(other()))
    keeper.look(Observation())
    keeper.look(Observation(), after=timedelta(minutes=1))
    for _ in range(6):
        keeper.look(Observation(), after=timedelta(minutes=25))
    keeper.look(found(candidate()))
    assert first.id not in {incident.id for incident in keeper.book.active()}


# --- whatever happens -----------------------------------------------------------------------------

NUMBERS = (0, 1)
PRINTS = [fingerprint("gpu_lost", gpu(1, number)) for number in NUMBERS]

conditions = st.sampled_from(["sure", "unsure", "bigger", "absent", "unknown", "cured", "covered"])
looks = st.tuples(
    st.sampled_from([1, 10, 29, 40, 600, 2000]),
    st.tuples(*[conditions for _ in NUMBERS]),
    st.booleans(),  # fresh rows
    st.booleans(),  # the analyzer starts again before
)


def observation_of(given_: Mapping[int, str], fresh: bool) -> Observation:
    made: Mapping[str, Callable[[int], Candidate]] = {
        "sure": candidate,
        "unsure": lambda n: candidate(n, certain=False),
        "bigger": lambda n: candidate(n, gpus=8),
    }
    return Observation(
        candidates={PRINTS[n]: made[kind](n) for n, kind in given_.items() if kind in made},
        covered={PRINTS[n]: BY_NODE for n, kind in given_.items() if kind == "covered"},
        cured={PRINTS[n]: BACK for n, kind in given_.items() if kind == "cured"},
        unknown=frozenset(PRINTS[n] for n, kind in given_.items() if kind == "unknown"),
        new_rows=fresh,
    )


@given(st.lists(looks, max_size=25))
def test_no_order_gap_or_restart_loses_or_doubles_an_incident(
    story: list[tuple[int, tuple[str, ...], bool, bool]],
) -> None:
    keeper = Keeper()
    for seconds, kinds, fresh, restart in story:
        if restart:
            keeper.book = keeper.restarted()
        keeper.look(observation_of(dict(enumerate(kinds)), fresh), seconds * SECOND)
        for number, kind in enumerate(kinds):
            if kind in {"sure", "bigger"}:
                assert keeper.book.entries[PRINTS[number]].state in ACTIVE
        remembered = {key: entry for key, entry in keeper.book.entries.items() if entry.number > 0}
        assert {
            key: replace(entry, absent_since=None) for key, entry in remembered.items()
        } == dict(keeper.restarted().entries)
    assert_every_life_is_whole(keeper)
    for _ in range(3):
        keeper.look(Observation(), timedelta(hours=2))
    assert keeper.book.active() == ()
    states = {str(record.body["state"]) for record in keeper.incidents.values()}
    assert states <= {"resolved"}
    assert_every_life_is_whole(keeper)


def assert_every_life_is_whole(keeper: Keeper) -> None:
    lives: dict[str, list[Transition]] = {}
    for record in keeper.transitions.values():
        transition = Transition.from_record(through_json(record))
        lives.setdefault(transition.incident, []).append(transition)
    assert set(lives) == set(keeper.incidents)
    active: dict[str, list[str]] = {}
    for identifier, life in lives.items():
        assert [t.number for t in life] == list(range(1, len(life) + 1))
        assert life[0].from_state == "suspect"
        for before, after in itertools.pairwise(life):
            assert after.from_state == before.to_state
            assert after.at >= before.at
        for transition in life:
            after_state = step(State(transition.from_state), Signal(transition.signal))
            assert after_state.value == transition.to_state
        record = keeper.incidents[identifier]
        assert record.body["state"] == life[-1].to_state
        if State(life[-1].to_state) in ACTIVE:
            active.setdefault(str(record.body["fingerprint"]), []).append(identifier)
    assert all(len(them) == 1 for them in active.values())


@given(st.lists(looks, max_size=15))
def test_the_order_in_which_findings_come_makes_no_difference(
    story: list[tuple[int, tuple[str, ...], bool, bool]],
) -> None:
    one, other = Keeper(), Keeper()
    for seconds, kinds, fresh, _ in story:
        forward = dict(enumerate(kinds))
        one.look(observation_of(forward, fresh), seconds * SECOND)
        other.look(observation_of(dict(reversed(forward.items())), fresh), seconds * SECOND)
    assert one.book == other.book
    assert one.transitions == other.transitions


def test_a_slowness_that_comes_back_keeps_the_reason_that_was_known() -> None:
    plain, stuck = FAULTS["gpu_slow"].title, FAULTS["gpu_clocks"].title
    keeper = Keeper()

    def look(title: str) -> tuple[str, str]:
        base = candidate(severity=Severity.WARNING)
        condition = {plain: "", stuck: "gpu_clocks"}.get(title, "cooling")
        finding = replace(base.finding, fault="gpu_slow", action=f"do: {title}")
        finding = replace(finding, condition=condition)
        keeper.look(found(replace(base, title=title, finding=finding, severity=Severity.WARNING)))
        (one,) = keeper.book.active()
        return one.title, one.action

    assert look(plain) == (plain, f"do: {plain}")
    for _ in range(2):
        named = look(stuck)
    assert named == (stuck, f"do: {stuck}")
    keeper.look(Observation(), MINUTE)
    keeper.look(Observation(), MINUTE)
    assert keeper.book.active() == ()
    assert look(plain) == named
    # Another reason is said once it is seen twice.
    assert [look("GPU is too hot")[0] for _ in range(2)] == [stuck, "GPU is too hot"]
