"""A person takes an incident: at once, once, and until it comes back."""

import signal
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.correlation.observation import Observation
from analyzer.incidents.acknowledgement import acknowledge, line, pending
from analyzer.incidents.book import Book, advance
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import Patience, State
from gpuvigil.model import (
    Acknowledgement,
    EventKind,
    Incident,
    Record,
    RecordKind,
    Severity,
    Transition,
)
from tests.polling import wait_until
from tests.servers import HubProcess, QuickHub

from .process import Analyzer, running
from .scene import NOON, event, gpu, inventory, node
from .test_book import PRINT, candidate, found

SECOND = timedelta(seconds=1)
PATIENCE = Patience(clear=timedelta(0))
GONE = Observation()


def ack(book: Book, name: str = "a1", by: str = "ann", note: str = "on it") -> Acknowledgement:
    return Acknowledgement(
        id=name,
        incident=book.entries[PRINT].incident.id,
        subject=gpu(),
        by=by,
        note=note,
        at=NOON,
    )


def opened() -> Book:
    return advance(Book(), found(candidate()), NOON, PATIENCE)[0]


def looked(book: Book, *observations: Observation) -> Book:
    now = NOON
    for observation in observations:
        now += 10 * SECOND
        book = advance(book, observation, now, PATIENCE)[0]
    return book


# --- the book -------------------------------------------------------------------------------------


def test_who_takes_an_open_incident_is_said_with_the_note() -> None:
    book, (step,) = acknowledge(opened(), ack(opened()), NOON + SECOND)
    entry = book.entries[PRINT]
    assert (step.from_state, step.to_state, step.number) == ("open", "acknowledged", 2)
    assert step.reason == "acknowledged by ann: on it"
    assert (entry.state, entry.incident.acknowledged_by) == (State.ACKNOWLEDGED, "ann")
    assert step.snapshot["body"]["acknowledged_by"] == "ann"
    assert step.snapshot["version"] == entry.incident.version == 2


def test_a_second_one_is_a_note_only() -> None:
    book = acknowledge(opened(), ack(opened()), NOON)[0]
    again, steps = acknowledge(book, ack(book, "a2", "ben"), NOON)
    assert steps == ()
    assert again.entries[PRINT].incident == book.entries[PRINT].incident


def test_the_same_record_a_second_time_changes_nothing_even_after_a_return() -> None:
    first = ack(opened())
    book = acknowledge(opened(), first, NOON)[0]
    back = looked(book, GONE, GONE, found(candidate()))
    assert back.entries[PRINT].state is State.OPEN
    assert acknowledge(back, first, NOON) == (back, ())
    assert acknowledge(back, ack(back, "a2"), NOON)[1] != ()


def test_what_comes_back_must_be_taken_anew() -> None:
    book = acknowledge(opened(), ack(opened()), NOON)[0]
    changed = looked(book, found(candidate(gpus=3)))
    assert changed.entries[PRINT].incident.acknowledged_by == "ann"
    over = looked(changed, GONE, GONE)
    assert over.entries[PRINT].state is State.RESOLVED
    back = looked(over, found(candidate()))
    assert (back.entries[PRINT].state, back.entries[PRINT].incident.acknowledged_by) == (
        State.OPEN,
        "",
    )


def test_a_flapping_incident_can_be_taken() -> None:
    book = opened()
    for _ in range(PATIENCE.flap_returns):
        book = looked(book, GONE, GONE, found(candidate()))
    assert book.entries[PRINT].state is State.FLAPPING
    book, (step,) = acknowledge(book, ack(book), NOON)
    assert (step.from_state, step.to_state) == ("flapping", "acknowledged")


def test_one_that_is_over_and_one_that_nobody_knows_stay_as_they_are() -> None:
    over = looked(opened(), GONE, GONE)
    book, steps = acknowledge(over, ack(over), NOON)
    assert (steps, book.entries[PRINT].state) == ((), State.RESOLVED)
    assert acknowledge(Book(), ack(opened()), NOON) == (Book(), ())


def test_a_name_and_a_note_from_outside_become_one_printable_line() -> None:
    hostile = ack(opened(), by="\x1b[31m\u202eeve\n\n", note="x\r\n" * 5000)
    (step,) = acknowledge(opened(), hostile, NOON)[1]
    assert step.reason.isprintable()
    assert len(step.reason) < 700
    assert step.reason.startswith("acknowledged by [31m eve: x x x")


@pytest.mark.medium
@given(st.text(max_size=300))
def test_a_line_is_printable_and_bounded_whatever_comes(text: str) -> None:
    cut = line(text, 40)
    assert len(cut) <= 40
    assert cut.isprintable()
    assert cut == cut.strip()


def test_nobody_named_is_somebody() -> None:
    (step,) = acknowledge(opened(), ack(opened(), by=" \n", note=""), NOON)[1]
    assert step.reason == "acknowledged by somebody"


def test_after_a_restart_only_what_was_said_since_the_last_return_counts() -> None:
    def record(name: str, sequence: int, sign: str = "") -> Record:
        kind = RecordKind.TRANSITION if sign else RecordKind.ACKNOWLEDGEMENT
        body = {"signal": sign} if sign else {"by": "ann"}
        return Record(kind=kind, id=name, at=NOON, subject="c/n", body=body, sequence=sequence)

    steps = [record("t1", 1, "confirmed"), record("t2", 5, "returned"), record("t3", 8, "changed")]
    said = [record("new", 9), record("old", 3), record("older", 7)]
    assert [one.id for one in pending(said, steps)] == ["older", "new"]
    assert pending(said, [record("t", 20, "flapped")]) == ()


# --- with a real hub and analyzer -----------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with QuickHub(tmp_path / "hub") as process:
        yield process


@pytest.fixture
def analyzer(hub: HubProcess) -> Iterator[Analyzer]:
    """One that makes a single pass: whatever it does later, a record made it."""
    yield from running(Analyzer(hub, tick_seconds=600))


def the_incident(hub: Hub) -> Incident:
    (record,) = wait_until("it opens", lambda: hub.records(RecordKind.INCIDENT))
    return Incident.from_record(record)


def told(hub: Hub, incident: Incident, name: str, by: str = "ann", note: str = "") -> None:
    taken = Acknowledgement(
        id=name,
        incident=incident.id,
        subject=incident.subject,
        by=by,
        note=note,
        at=datetime.now(timezone.utc),
    )
    hub.write_records([taken.to_record()])


def steps(hub: Hub) -> list[Transition]:
    return [Transition.from_record(record) for record in hub.records(RecordKind.TRANSITION)]


def broken(hub: Hub) -> Incident:
    at = datetime.now(timezone.utc)
    hub.write_records(
        [inventory(node()).to_record(), event(EventKind.XID, gpu(), at, 79).to_record()]
    )
    return the_incident(hub)


@pytest.mark.server
def test_an_acknowledgement_takes_the_incident_without_a_pass(
    hub: HubProcess, analyzer: Analyzer
) -> None:
    client = hub.hub()
    incident = broken(client)
    assert incident.severity is Severity.CRITICAL
    told(client, incident, "a1", "ann", "rack 4 is mine")
    told(client, incident, "a2", "ben")
    told(client, incident, "a1", "ann", "rack 4 is mine")
    wait_until("it is taken", lambda: the_incident(client).state == "acknowledged", 10.0)
    told(client, incident, "a3", "cem")
    client.write_records([event(EventKind.GPU_RESET, gpu(), incident.updated_at).to_record()])
    assert [step.reason for step in steps(client)][1] == "acknowledged by ann: rack 4 is mine"
    assert [step.signal for step in steps(client)].count("acknowledged") == 1
    assert the_incident(client).acknowledged_by == "ann"


@pytest.mark.server
def test_what_was_said_while_the_analyzer_was_away_is_heard_once(
    hub: HubProcess, analyzer: Analyzer
) -> None:
    client = hub.hub()
    incident = broken(client)
    analyzer.end(signal.SIGKILL)
    told(client, incident, "a1")
    for _ in range(2):
        analyzer.start()
        wait_until("it is taken", lambda: the_incident(client).state == "acknowledged")
        analyzer.end(signal.SIGKILL)
    assert [step.signal for step in steps(client)] == ["confirmed", "acknowledged"]


@pytest.mark.server
def test_an_unknown_incident_and_a_torn_record_are_a_line_in_the_log(
    hub: HubProcess, analyzer: Analyzer
) -> None:
    client = hub.hub()
    incident = broken(client)
    lost = Record(
        kind=RecordKind.ACKNOWLEDGEMENT,
        id="lost",
        at=NOON,
        subject="c/node-1",
        parent="nobody\nknows",
        body={"by": "eve"},
    )
    torn = Record(kind=RecordKind.ACKNOWLEDGEMENT, id="torn", at=NOON, subject="?", body={})
    client.write_records([lost, torn])
    told(client, incident, "good")
    wait_until("the good one counts", lambda: the_incident(client).state == "acknowledged")
    said = analyzer.log.read_text().splitlines()
    assert len([one for one in said if "unknown incident" in one]) == 1
    assert len([one for one in said if "cannot be read" in one]) == 1
