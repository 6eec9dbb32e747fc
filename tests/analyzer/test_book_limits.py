"""The book of incidents to the last second: what is kept, what comes back, and in whose words."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.correlation.observation import Candidate, Hindsight, Observation
from analyzer.incidents.book import Book, rebuild
from gpuvigil.lifecycle import State
from gpuvigil.model import Evidence, Severity, fingerprint
from gpuvigil.silence_conditions import NodeSilence

from .scene import NOON, gpu, incident
from .test_book import (
    BACK,
    BY_NODE,
    PATIENCE,
    PRINT,
    WINDOWS,
    Keeper,
    candidate,
    found,
    of_fault,
)

SECOND, MINUTE, MICROSECOND = timedelta(0, 1), timedelta(minutes=1), timedelta(0, 0, 1)
INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL


def said(one: Candidate, title: str = "", **finding: Any) -> Observation:
    """The same candidate with other words."""
    return found(replace(one, title=title or one.title, finding=replace(one.finding, **finding)))


def active(keeper: Keeper) -> Any:
    (one,) = keeper.book.active()
    return one


@pytest.mark.parametrize("fresh", [False, True])
def test_a_suspect_is_believed_with_the_next_fresh_look_and_never_written(fresh: bool) -> None:
    keeper = Keeper()
    keeper.look(found(candidate(certain=False)))
    assert keeper.book.believed(fresh) == (frozenset({PRINT}) if fresh else frozenset())
    assert (keeper.book.written(), keeper.book.active()) == ({}, ())
    keeper.look(found(candidate(certain=False)))
    assert keeper.book.believed(fresh) == frozenset({PRINT})
    assert [one.fingerprint for one in keeper.book.written().values()] == [PRINT]


@pytest.mark.parametrize(
    ("after", "is_same"), [(-MICROSECOND, True), (0 * SECOND, True), (MICROSECOND, False)]
)
@pytest.mark.parametrize(("fault", "window", "_"), WINDOWS)
def test_an_incident_comes_back_as_itself_for_just_its_window(
    after: timedelta, is_same: bool, fault: str, window: timedelta, _: str
) -> None:
    keeper = Keeper()
    keeper.look(found(of_fault(fault, NOON)))
    first = active(keeper).id
    keeper.look(Observation(cured={fingerprint(fault, gpu()): BACK}))
    keeper.book = keeper.restarted()
    keeper.look(found(of_fault(fault, NOON)), window + after)
    assert (active(keeper).id == first) is is_same


def test_of_what_the_hub_has_the_dismissed_is_forgotten_and_the_first_step_is_the_first() -> None:
    open_ = incident("gpu_lost", gpu())
    book = rebuild([open_], [], NOON, PATIENCE)
    assert [(e.number, e.cause, e.returned) for e in book.entries.values()] == [(0, None, ())]
    gone = replace(open_, state=State.DISMISSED.value)
    assert rebuild([gone], [], NOON, PATIENCE) == Book()


def test_no_more_than_a_hundred_covers_are_named() -> None:
    keeper = Keeper()
    names = tuple(sorted(f"node-{n}" for n in range(101)))
    keeper.look(found(candidate(covers=names)))
    assert active(keeper).covers == names[:100]


@pytest.mark.parametrize(("minutes", "since"), [(1, NOON), (-1, NOON - MINUTE)])
def test_an_incident_stands_since_the_earliest_that_anybody_said(minutes: int, since: Any) -> None:
    keeper = Keeper()
    keeper.look(found(candidate(since=NOON)))
    for value in ("2", "3"):
        keeper.look(found(candidate(since=NOON + minutes * MINUTE, value=value)), MINUTE)
    assert active(keeper).since == since


@pytest.mark.parametrize(
    ("stands", "comes", "is_said"),
    [
        # What it was called when it was graver stands; what is as grave or graver is said.
        ({"severity": WARNING}, {"severity": INFO}, False),
        ({"severity": WARNING}, {"severity": WARNING}, True),
        ({"severity": INFO}, {"severity": WARNING}, True),
        # Its own words may be less grave than what it hides: of a condition, and of its fault.
        ({"severity": CRITICAL, "condition": "corrected_growth"}, {"severity": INFO}, True),
        ({"severity": CRITICAL, "condition": "gpu_clocks"}, {"severity": WARNING}, True),
        ({"severity": CRITICAL, "condition": "gpu_clocks"}, {"severity": INFO}, False),
        ({"severity": CRITICAL, "fault": "gpu_memory"}, {"severity": WARNING}, True),
        ({"severity": CRITICAL, "fault": "gpu_memory"}, {"severity": INFO}, False),
        # An Xid has its own words.
        ({"severity": CRITICAL, "fault": "gpu_xid", "xid": 79}, {"severity": WARNING}, False),
        (
            {"severity": CRITICAL, "fault": "nvswitch_error", "sxid": 1},
            {"severity": WARNING},
            False,
        ),
        # What a word of tomorrow means nobody knows.
        ({"severity": WARNING, "condition": "of_tomorrow"}, {"severity": INFO}, False),
    ],
)
def test_words_give_way_to_those_that_are_as_grave(
    stands: Mapping[str, Any], comes: Mapping[str, Any], is_said: bool
) -> None:
    def look(title: str, severity: Severity, **finding: Any) -> str:
        one = candidate(severity=severity)
        keeper.look(said(one, title, **finding))
        return str(active(keeper).title)

    keeper = Keeper()
    assert look("first", **stands) == "first"
    same = {"fault": stands.get("fault", "gpu_lost")}
    assert look("second", **same, **comes) == ("second" if is_said else "first")
    assert active(keeper).severity is min(
        stands["severity"], comes["severity"], key=lambda it: it.rank
    )


def test_a_lesser_finding_of_a_grave_candidate_is_said_where_the_candidate_is_as_grave() -> None:
    keeper = Keeper()
    keeper.look(said(candidate(severity=CRITICAL), "first"))
    keeper.look(said(candidate(severity=CRITICAL), "second", severity=INFO))
    assert active(keeper).title == "second"


# --- a slowness that comes back -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "before", "now", "is_kept"),
    [
        ("gpu_slow", "gpu_clocks", "", True),
        ("gpu_slow", "gpu_clocks", "cooling", False),
        ("gpu_slow", "", "", False),
        ("gpu_slow", "", "cooling", False),
        ("gpu_memory", "remap_failure", "", False),
    ],
)
def test_only_a_slowness_whose_reason_was_known_comes_back_with_it(
    fault: str, before: str, now: str, is_kept: bool
) -> None:
    keeper = Keeper()
    one = candidate(severity=WARNING)
    keeper.look(said(one, "before", fault=fault, condition=before, own_limit=True))
    keeper.look(Observation(cured={fingerprint(fault, gpu()): BACK}))
    assert keeper.book.active() == ()
    keeper.look(said(one, "now", fault=fault, condition=now))
    back = active(keeper)
    assert (back.title, back.condition) == (("before", before) if is_kept else ("now", now))
    assert back.own_limit is is_kept


# --- what it turned out to be ---------------------------------------------------------------------

DOWN = Hindsight(
    condition=NodeSilence.WAS_DOWN,
    title="was down",
    action="read",
    evidence=(Evidence(name="booted", value="then"),),
    sure=True,
)
UP = replace(DOWN, condition=NodeSilence.DID_NOT_REPORT, title="was up", sure=False)


def over(told: Hindsight | None, **more: Any) -> Observation:
    afterwards = {} if told is None else {PRINT: told}
    return Observation(cured={PRINT: BACK}, afterwards=afterwards, **more)


@pytest.mark.parametrize(
    ("told", "waits", "title"),
    [(None, False, ""), (DOWN, False, "was down"), (UP, True, "was up")],
)
def test_what_is_sure_is_said_at_once_and_what_is_not_once_it_was_absent_for_long(
    told: Hindsight | None, waits: bool, title: str
) -> None:
    keeper = Keeper()
    keeper.look(found(candidate()))
    before = active(keeper).title
    made = keeper.look(over(told))
    if waits:
        assert made == ()
        assert keeper.look(over(told), PATIENCE.clear - MICROSECOND) == ()
        assert keeper.state() is State.OPEN
        made = keeper.look(over(told), MICROSECOND)
    last = keeper.book.entries[PRINT].incident
    assert (last.title, last.state) == (title or before, State.RESOLVED.value)
    assert [it.signal for it in made] == (["changed"] if title else []) + ["cleared"]
    if told is not None:
        assert (made[0].reason, last.action) == ("title changed", "read")
        assert [it.value for it in last.evidence] == ["1", "then"]
        assert last.condition == told.condition


def test_what_was_said_already_is_not_said_again_and_of_a_suspect_nothing_is() -> None:
    keeper = Keeper()
    keeper.look(said(candidate(), condition=DOWN.condition))
    assert [it.signal for it in keeper.look(over(DOWN))] == ["cleared"]
    for told in (UP, DOWN):
        keeper = Keeper()
        keeper.look(found(candidate(certain=False)))
        assert keeper.look(over(told)) == ()
        assert keeper.book.entries == {}


@pytest.mark.parametrize(("told", "title"), [(DOWN, "was down"), (UP, None)])
def test_what_is_only_not_seen_any_more_is_told_by_what_is_sure(
    told: Hindsight, title: str | None
) -> None:
    keeper = Keeper()
    keeper.look(found(candidate()))
    before = active(keeper).title
    keeper.look(Observation(afterwards={PRINT: told}))
    keeper.look(Observation(afterwards={PRINT: told}), PATIENCE.clear)
    last = keeper.book.entries[PRINT].incident
    assert (last.title, last.state) == (title or before, State.RESOLVED.value)


def test_what_its_cause_covers_is_no_longer_looked_for() -> None:
    keeper = Keeper()
    keeper.look(found(candidate()))
    keeper.look(Observation())
    assert keeper.book.entries[PRINT].absent_since == keeper.now
    for glimpse in (Observation(unknown=frozenset({PRINT})), found(candidate())):
        keeper.look(glimpse)
        assert keeper.book.entries[PRINT].absent_since is None
        keeper.look(Observation())
    (hidden,) = keeper.look(Observation(covered={PRINT: BY_NODE}))
    assert hidden.to_state == State.RESOLVED.value
    assert keeper.book.entries[PRINT].incident.covered_by == BY_NODE.fingerprint
    assert keeper.look(Observation(covered={PRINT: BY_NODE})) == ()
    keeper.look(found(candidate()))
    assert active(keeper).covered_by == ""
