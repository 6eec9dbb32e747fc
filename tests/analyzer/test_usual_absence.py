"""A node that is switched off every night without a word: from when on that is no news, and for how long."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from analyzer.analysis import Analysis, Reading
from analyzer.correlation.all_detectors import DETECTORS
from analyzer.detectors.node_silent import DETECTOR, silent_nodes
from analyzer.evidence.usual_absence import same_time_of_day
from analyzer.incidents.book import Book
from analyzer.window.absences import Absence, Absences
from gpuvigil.model import (
    Allocation,
    EventKind,
    Finding,
    Impact,
    Incident,
    Record,
    RecordKind,
    Severity,
    Transition,
)
from gpuvigil.silence_conditions import NodeSilence

from .scene import NOON, SETTINGS, allocation, event, gpu, healthy, incident, node, told

DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
PAIR = healthy(nodes=2, seconds=60.0)
ELSEWHERE = allocation(gpu(2), "job 8", started_at=NOON - 30 * DAY)
AWAY, STAYS_AWAY = NodeSilence.AWAY, NodeSilence.STAYS_AWAY


def away(days: float, hours: float = 10.0, later: timedelta = timedelta(0)) -> Absence:
    """It was away so many days before `NOON`, for so long."""
    begin = NOON - days * DAY + later
    return Absence(begin=begin, end=begin + hours * HOUR)


NIGHTS = (away(1), away(2), away(3))


def found(
    silent_for: timedelta, past: Sequence[Absence], *held: Allocation, since: datetime = NOON
) -> list[Finding]:
    """What is told of a node that fell silent at `since`, which it did before as in `past`."""
    scene = PAIR.shifted(since + silent_for - NOON)
    scene = replace(scene, heard={**scene.heard, node().key: since}, allocations=(*held, ELSEWHERE))
    window = replace(scene.window((DETECTOR,)), absences={node().key: tuple(past)})
    return [it for it in silent_nodes(window) if it.subject == node()]


def said(them: Sequence[Finding]) -> list[tuple[str, Severity]]:
    return [(it.condition, it.severity) for it in them]


PLAIN = [("", Severity.WARNING)]
USUAL = [(AWAY, Severity.INFO)]


def test_a_node_that_is_away_as_on_three_other_days_is_a_note() -> None:
    (it,) = found(HOUR, NIGHTS)
    assert said([it]) == USUAL
    assert told(it) == (
        "info; last data: 12:00:00 UTC on 31 Jan (limit every 10 s); away at this hour before: "
        "on 3 days of the last 7, mostly for 10 h (limit a warning at 23:00:00 UTC on 31 Jan)"
    )
    assert (it.title, it.action) == (AWAY.heading, AWAY.action)


@pytest.mark.parametrize(
    ("past", "what"),
    [
        (NIGHTS, USUAL),
        (NIGHTS[:2], PLAIN),
        ((), PLAIN),
        # Three times on two days.
        ((away(1), away(1, later=HOUR), away(2)), PLAIN),
        ((away(1), away(2), away(7)), USUAL),
        ((away(1), away(2), away(8)), PLAIN),
        # About the same time of day, before and after.
        ((away(1), away(2), away(3, later=HOUR)), USUAL),
        ((away(1), away(2), away(3, later=HOUR + MINUTE)), PLAIN),
        ((away(1), away(2), away(3, later=-HOUR)), USUAL),
        ((away(1), away(2), away(3, later=-HOUR - MINUTE)), PLAIN),
    ],
)
def test_so_many_days_at_about_the_same_time_are_a_habit(
    past: Sequence[Absence], what: list[tuple[str, Severity]]
) -> None:
    assert said(found(HOUR, past)) == what


def test_a_node_that_dies_at_another_hour_is_told_as_any_other() -> None:
    for hours in (-6, -2, 2, 6, 12):
        assert said(found(HOUR, NIGHTS, since=NOON + hours * HOUR)) == PLAIN


def test_the_habit_begins_when_a_lone_free_node_would_be_told() -> None:
    assert found(9 * MINUTE - timedelta(seconds=1), NIGHTS) == []
    assert found(9 * MINUTE - timedelta(seconds=1), NIGHTS) == []
    assert said(found(9 * MINUTE, NIGHTS)) == USUAL


@pytest.mark.parametrize(
    ("hours", "late"),
    [
        ((10, 10, 10), 11),
        # The middle one counts: a night that lasted longer once is not usual.
        ((9, 10, 60), 11),
        ((9, 9, 10), 10),
    ],
)
def test_a_node_that_stays_away_longer_than_it_usually_does_is_told(
    hours: Sequence[float], late: float
) -> None:
    past = [away(number + 1, length) for number, length in enumerate(hours)]
    assert said(found(late * HOUR - timedelta(seconds=1), past)) == USUAL
    (it,) = found(late * HOUR, past)
    assert said([it]) == [(STAYS_AWAY, Severity.WARNING)]
    assert it.title == STAYS_AWAY.heading


def test_a_node_with_work_is_told_whatever_it_did_before() -> None:
    for work in (allocation(gpu(), "job 9"), allocation(gpu(), "pid 7")):
        assert said(found(HOUR, NIGHTS, work)) == PLAIN


def test_the_longest_absence_of_a_day_counts() -> None:
    assert same_time_of_day((away(1, 2.0), away(1, 5.0, MINUTE), away(1, 3.0)), NOON) == [5 * HOUR]


# --- which absences are remembered ----------------------------------------------------------------


def silence(**more: object) -> Incident:
    values: dict[str, object] = {
        "condition": NodeSilence.WAS_REBOOTED,
        "resolved_at": NOON,
        **more,
    }
    return incident("node_silent", node(), since=-10 * HOUR, **values)


@pytest.mark.parametrize(
    ("one", "count"),
    [
        (silence(), 1),
        (silence(condition=NodeSilence.WAS_DOWN), 1),
        # Its machine was up, or nobody knows.
        (silence(condition=NodeSilence.DID_NOT_REPORT), 0),
        (silence(condition=NodeSilence.CUT_OFF), 0),
        (silence(condition=AWAY), 0),
        (silence(condition=NodeSilence.RACK_WAS_DOWN), 0),
        # It took somebody's work along, or there was another fault.
        (silence(impact=Impact(holders=("job 9",))), 0),
        (silence(covers=("node-1 GPU 0: GPU fell off the bus",)), 0),
        (silence(covered_by="0123456789abcdef"), 0),
        (silence(resolved_at=None), 0),
        (incident("gpu_lost", gpu(), condition=NodeSilence.WAS_DOWN, resolved_at=NOON), 0),
    ],
)
def test_a_silence_without_a_fault_is_an_absence(one: Incident, count: int) -> None:
    known = Absences()
    known.add([one])
    absences = known.by_node(NOON).get(node().key, ())
    assert absences == (Absence(begin=NOON - 10 * HOUR, end=NOON),) * count
    # One that came back as the same incident is not over.
    known.add([replace(one, resolved_at=None)])
    assert known.by_node(NOON) == {}


def test_absences_are_remembered_for_two_weeks() -> None:
    known = Absences()
    known.add([silence()])
    assert known.by_node(NOON + 14 * DAY) != {}
    assert known.by_node(NOON + 14 * DAY + MINUTE) == {}
    assert known.by_node(NOON) == {}


# --- night after night ----------------------------------------------------------------------------


class Nights:
    """Node 1 is switched off every day at about noon, without a word; every so often the fleet is looked at."""

    def __init__(self) -> None:
        self.analysis = self.begun()
        self.steps: list[Transition] = []
        self.incidents: dict[str, Incident] = {}

    def begun(self, lately: Sequence[Incident] = ()) -> Analysis:
        analysis = Analysis(SETTINGS, [d for d in DETECTORS if d.name == "node_silent"])
        records = [*(it.to_record() for it in PAIR.inventories), ELSEWHERE.to_record()]
        analysis.start(records, Book(), lately)
        return analysis

    def starts_anew(self) -> None:
        self.analysis = self.begun(list(self.incidents.values()))

    def away(self, day: int, minutes: int, hours: float = 10.0) -> None:
        """It goes so many minutes after noon of that day."""
        begin = NOON + day * DAY + minutes * MINUTE
        end = begin + hours * HOUR
        for after in (5.0, 25.0, 30.0, 60.0 * hours - 10.0, 60.0 * hours - 5.0):
            self._looks(begin + after * MINUTE, begin)
        booted = event(EventKind.BOOT, node(), end - MINUTE)
        self.analysis.ingest(booted.to_record())
        for after in (10, 40, 70, 100, 130):
            self._looks(end + timedelta(seconds=after), end + timedelta(seconds=after - 5))

    def _looks(self, now: datetime, heard: datetime) -> None:
        scene = PAIR.shifted(now - NOON).without(
            lambda it: it.subject.of_node() == node() and it.at > heard
        )
        window = scene.window()
        self.analysis.run_pass(
            Reading(
                now=now,
                rows=window.rows,
                last_seen={node().key: heard, node(2).key: now},
                listening_since=NOON - DAY,
            )
        )
        for record in (record for unit in self.analysis.to_write() for record in unit):
            if record.kind is RecordKind.TRANSITION:
                self.steps.append(Transition.from_record(record))
                self._keeps(Record.from_json(self.steps[-1].snapshot))

    def _keeps(self, record: Record) -> None:
        one = Incident.from_record(record)
        self.incidents[one.id] = one

    def gravest(self) -> list[Severity]:
        """Of each incident, in the order of time."""
        return [it.severity for it in sorted(self.incidents.values(), key=lambda it: it.since)]


@pytest.mark.medium
@pytest.mark.parametrize("restart", [False, True])
def test_from_the_fourth_night_on_nobody_is_told(restart: bool) -> None:
    nights = Nights()
    for day, minutes in enumerate((0, 40, 20, 55, 5)):
        nights.away(day, minutes)
        if restart:
            nights.starts_anew()
    assert nights.gravest() == [Severity.WARNING] * 3 + [Severity.INFO] * 2
    last = max(nights.incidents.values(), key=lambda it: it.since)
    assert (last.condition, last.title) == (
        NodeSilence.WAS_REBOOTED,
        NodeSilence.WAS_REBOOTED.heading,
    )
    # Then it dies at another hour, and another night it does not come back in the morning.
    nights.away(5, 300, hours=1.0)
    nights.away(6, 10, hours=12.0)
    assert nights.gravest()[5:] == [Severity.WARNING] * 2
    titles = [Incident.from_record(Record.from_json(it.snapshot)).title for it in nights.steps]
    assert STAYS_AWAY.heading in titles
