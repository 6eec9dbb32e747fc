"""What stands, and what was over lately, excuses who stopped over it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.analysis import Analysis, Reading
from analyzer.incidents.book import Book, Entry
from analyzer.incidents.recent_incidents import RecentIncidents
from gpuvigil.model import EventKind, Incident

from .scene import NOON, SETTINGS, Scene, allocation, event, gpu, healthy, incident, node

HOUR = timedelta(hours=1)
LOST = incident("gpu_lost", gpu(), -HOUR)
OVER = replace(LOST, state="resolved", resolved_at=NOON)


@pytest.mark.parametrize(("later", "known"), [(HOUR, True), (HOUR + timedelta(seconds=1), False)])
def test_what_is_over_is_known_for_the_span(later: timedelta, known: bool) -> None:
    stood = RecentIncidents(HOUR)
    stood.add([OVER, replace(LOST, id="other")])
    assert stood.beside(Book(), NOON + later) == ((OVER,) if known else ())


def test_what_stands_is_told_by_the_book() -> None:
    book = Book(entries={LOST.fingerprint: Entry(incident=LOST)})
    assert RecentIncidents(HOUR).beside(book, NOON) == (LOST,)


def under_used() -> Scene:
    return healthy().changed(gpu(), {"utilization_percent": 4})


def said(analysis: Analysis) -> set[str]:
    """What stands after two looks at a GPU of which little is used."""
    for seconds in (60.0, 70.0):
        window = under_used().shifted(timedelta(seconds=seconds)).window()
        analysis.run_pass(
            Reading(
                now=window.now,
                rows=window.rows,
                last_seen=window.last_seen,
                listening_since=window.listening_since,
            )
        )
    return {one.fault for one in analysis.book.active()}


def begun(*lately: Incident) -> Analysis:
    analysis = Analysis(SETTINGS)
    records = [one.to_record() for one in healthy().inventories]
    analysis.start([*records, allocation(gpu()).to_record()], Book(), lately)
    return analysis


@pytest.mark.medium
def test_a_fault_that_was_over_before_the_start_excuses_as_one_that_ended_since() -> None:
    assert said(begun()) == {"gpu_underused"}
    assert said(begun(OVER)) == set()
    analysis = begun()
    for kind, seconds in ((EventKind.XID, -5.0), (EventKind.GPU_RESET, 5.0)):
        at = NOON + timedelta(seconds=seconds)
        woken = event(kind, gpu(), at, 79 if kind is EventKind.XID else None)
        analysis.ingest(woken.to_record())
        analysis.check_node(node(), at + timedelta(seconds=1))
    assert said(analysis) == set()
