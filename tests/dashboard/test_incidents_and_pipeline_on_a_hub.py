"""The pages of incidents and of the pipeline as Streamlit runs them, on a real hub."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import TextInput

from dashboard.data import live
from dashboard.data.questions import QueryCache
from dashboard.data.snapshot import Snapshot
from dashboard.incidents.closing import SILENCED, matchers
from dashboard.incidents.hub_queries import story
from gpuvigil.clock import SystemClock, to_ns, to_text
from gpuvigil.config import AnalyzerSettings, Config
from gpuvigil.hub_client import Hub
from gpuvigil.lineprotocol import encode
from gpuvigil.model import (
    Acknowledgement,
    Evidence,
    Group,
    GroupKind,
    Incident,
    Inventory,
    Opinion,
    Record,
    RecordKind,
    Severity,
    Silence,
)
from gpuvigil.store.hub import HubStore
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess, QuickHub

from .scene import gpu, incident, inventory, node, notice
from .servers import Feed

pytestmark = pytest.mark.server

LOST = replace(
    incident("gpu_lost", gpu(5), Severity.CRITICAL, label="sim-001 GPU 5"),
    since=SystemClock().now() - timedelta(minutes=3),
)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with QuickHub(tmp_path / "hub") as process:
        snapshot = Snapshot(process.hub, SystemClock(), AnalyzerSettings(), 0.2)
        questions = QueryCache(process.hub, SystemClock())
        live.install(live.Shared(snapshot=snapshot, questions=questions, config=Config()))
        snapshot.start()
        yield process
        snapshot.stop()
        questions.close()


def open_page(name: str, **query: str) -> AppTest:
    """The page alone, as a link opens it."""
    test = AppTest.from_file(str(ROOT / "dashboard" / "pages" / f"{name}.py"), default_timeout=30)
    for key, value in query.items():
        test.query_params[key] = value
    return test.run()


def said(test: AppTest) -> str:
    """Everything on the page."""
    assert not test.exception
    trees = [one.proto.json for one in test.get("bidi_component")]
    return "\n".join([*trees, *(one.proto.body for one in test.get("html"))])


def acknowledgements(hub: Hub) -> list[Acknowledgement]:
    records = hub.records(RecordKind.ACKNOWLEDGEMENT, parent=LOST.id)
    return [Acknowledgement.from_record(record) for record in records]


def note_field(test: AppTest) -> TextInput:
    (field,) = [
        one for one in test.text_input if one.label == "What you know or are doing about it"
    ]
    return field


def send(test: AppTest, by: str, note: str) -> AppTest:
    test.text_input(key=f"name-{LOST.id}").set_value(by)
    note_field(test).set_value(note)
    (button,) = [one for one in test.button if one.key == f"send-{LOST.id}"]
    return button.click().run()


def test_what_stands_and_what_is_over_is_listed_and_a_link_opens_one(hub: HubProcess) -> None:
    client, now = hub.hub(), SystemClock().now()
    over = replace(
        incident("port_down", node("sim-002"), Severity.WARNING, state="resolved"),
        since=now - timedelta(hours=2),
        resolved_at=now - timedelta(hours=1),
    )
    client.write_records([LOST.to_record(), over.to_record()])
    wait_until("the incident", lambda: live.current().view().attention)
    text = said(open_page("incidents"))
    assert LOST.id in text
    assert over.id in text
    opened = said(open_page("incidents", incident=over.id))
    assert "It is over: there is nothing to acknowledge." in opened
    unknown = said(open_page("incidents", incident="none"))
    assert "is not known to the hub" in unknown


def test_a_warm_rack_is_drawn_beside_the_others_and_leads_to_its_page(hub: HubProcess) -> None:
    client, now = hub.hub(), SystemClock().now()
    racks = {"sim-001": "r1", "sim-002": "r1", "sim-003": "r2", "sim-004": "r2"}
    warm = replace(
        incident("node_silent", node("sim-001"), Severity.WARNING, label="rack r1"),
        since=now - timedelta(minutes=10),
        group=Group(GroupKind.RACK, "r1"),
        members=(node("sim-001").key, node("sim-002").key),
        evidence=(Evidence(name="nodes of rack r1", value="sim-001, sim-002"),),
    )
    known = [inventory(node(name), gpus=1, rack=rack, at=now) for name, rack in racks.items()]
    client.write_records([warm.to_record(), *(one.to_record() for one in known)])
    lines = [
        line
        for one in known
        for minute in range(1, 30)
        if (line := _temperature(one, now - timedelta(minutes=minute), warm))
    ]
    HubStore(client).write("\n".join(lines).encode())
    wait_until("the incident", lambda: live.current().view().attention)

    def shown() -> str:
        text = said(open_page("incidents", incident=warm.id))
        return text if "peers" in text else ""

    text = wait_until("the peers' curve", shown, 15)
    assert "Temperature of its GPUs: 60 °C → 85 °C, peers 60 °C" in text
    assert "/hardware?cluster=simulated&rack=r1" in text
    # In the first paragraph, in the evidence, and in what it covers.
    assert text.count("/node?cluster=simulated&node=sim-002") == 3


def _temperature(of: Inventory, at: datetime, warm: Incident) -> str | None:
    tags = {"cluster": of.subject.cluster, "node": of.subject.node, "uuid": of.gpus[0].uuid}
    hot = of.rack == "r1" and at >= warm.since
    fields = {"up": 1, "temperature_celsius": 85 if hot else 60}
    return encode("gpu", {**tags, "model": "H100"}, fields, to_ns(at))


def test_a_silence_by_rack_is_found_whatever_number_of_nodes_there_is(hub: HubProcess) -> None:
    client, now = hub.hub(), SystemClock().now()
    one = Inventory(subject=node("sim-001"), at=now, boot="b", tick_seconds=1.0, version="0.1.0")
    others = [replace(one, subject=node(f"other-{number}")) for number in range(10_000)]
    silence = Silence(
        id="s",
        matchers=("rack=r1",),
        by="ann",
        reason="new cooling",
        at=now,
        starts_at=now,
        ends_at=now + timedelta(hours=1),
    )
    client.write_records(
        [LOST.to_record(), silence.to_record(), replace(one, rack="r1").to_record()]
    )
    for begin in range(0, len(others), 5_000):
        client.write_records(other.to_record() for other in others[begin : begin + 5_000])
    found = story(client, LOST.id)
    assert found is not None
    assert found.silences == (silence,)


def test_acknowledging_writes_once_and_says_at_once_who_took_it(hub: HubProcess) -> None:
    client = hub.hub()
    client.write_records([LOST.to_record()])
    wait_until("the incident", lambda: live.current().view().attention)
    test = open_page("incidents", incident=LOST.id)
    assert "Nobody has taken it." in said(test)
    assert acknowledgements(client) == []  # opening a link takes nothing
    name = "Ann <img src=x onerror=alert(1)>"
    send(test, name, "driving there")
    shown = said(test)
    assert "Reminders go on until the analyzer reads that" in shown
    assert "no analyzer has ever reported" in shown
    (kept,) = acknowledgements(client)
    assert (kept.by, kept.note) == (name, "driving there")
    assert note_field(test).value == ""
    send(test, name, "driving there")  # the same words once more
    send(test, name, "")  # the second half of a double click
    assert len(acknowledgements(client)) == 1
    assert test.text_input(key=f"name-{LOST.id}").value == name


def test_one_click_takes_it_and_silences_its_fault_at_its_place(hub: HubProcess) -> None:
    client = hub.hub()
    client.write_records([LOST.to_record()])
    wait_until("the incident", lambda: live.current().view().attention)
    test = open_page("incidents", incident=LOST.id)
    silence = f"silence-{LOST.id}"
    assert test.button(key=silence).label == "Acknowledge, silence 4 h"
    test.button(key=silence).click().run()
    assert "enter your name first" in said(test)
    assert client.records(RecordKind.SILENCE) == ()
    test.text_input(key=f"name-{LOST.id}").set_value("Ann")
    test.button(key=silence).click().run()
    test.button(key=silence).click().run()  # the second half of a double click
    assert "Silenced by Ann until" in said(test)
    (taken,) = acknowledgements(client)
    (kept,) = (Silence.from_record(one) for one in client.records(RecordKind.SILENCE))
    assert (taken.by, kept.by) == ("Ann", "Ann")
    assert list(kept.matchers) == matchers(LOST)
    assert kept.ends_at - kept.starts_at == SILENCED
    client.write_records([replace(LOST, state="acknowledged", version=2).to_record()])
    again = open_page("incidents", incident=LOST.id)
    assert again.button(key=silence).label == "Silence 4 h"


def test_whoever_reads_it_says_whether_it_was_worth_a_message(hub: HubProcess) -> None:
    client = hub.hub()
    over = replace(LOST, state="resolved", resolved_at=SystemClock().now())
    client.write_records([over.to_record()])
    test = open_page("incidents", incident=over.id)

    def answer(label: str, by: str) -> list[Opinion]:
        test.text_input(key=f"says-{over.id}").set_value(by)
        next(one for one in test.button if one.label == label).click().run()
        found = client.records(RecordKind.OPINION, parent=over.id)
        return [Opinion.from_record(record) for record in found]

    assert answer("Noise", " ") == []
    assert "enter your name first" in said(test)
    (first,) = answer("Noise", "Ann")
    assert (first.by, first.useful, first.fault) == ("Ann", False, over.fault)
    (second,) = answer("Useful", "Ann")  # a later word replaces the first
    assert second.useful
    assert f"counted as useful for the rule {over.fault}" in said(test)


def test_without_a_name_nothing_is_sent(hub: HubProcess) -> None:
    client = hub.hub()
    client.write_records([LOST.to_record()])
    wait_until("the incident", lambda: live.current().view().attention)
    test = send(open_page("incidents", incident=LOST.id), "  ", "a note")
    assert "enter your name first" in said(test)
    assert note_field(test).value == "a note"
    assert acknowledgements(client) == []


def test_what_was_typed_survives_a_hub_that_is_away_and_can_be_sent_when_it_is_back(
    hub: HubProcess,
) -> None:
    client = hub.hub()
    client.write_records([LOST.to_record()])
    wait_until("the incident", lambda: live.current().view().attention)
    test = open_page("incidents", incident=LOST.id)
    hub.stop()
    send(test, "Ann", "driving there")
    assert "Not sent: " in said(test)
    assert note_field(test).value == "driving there"
    hub.start()
    send(test, "Ann", "driving there")
    (kept,) = acknowledgements(hub.hub())
    assert kept.by == "Ann"
    assert note_field(test).value == ""


def test_on_one_that_is_taken_the_form_adds_a_note(hub: HubProcess) -> None:
    client = hub.hub()
    taken = replace(LOST, state="acknowledged", acknowledged_by="Bob")
    client.write_records([taken.to_record()])
    wait_until("the incident", lambda: live.current().view().attention)
    test = open_page("incidents", incident=LOST.id)
    assert "Taken by Bob" in said(test)
    send(test, "Ann", "")
    assert "enter a note first" in said(test)
    send(test, "Ann", "replaced the cable")
    assert "replaced the cable" in said(test)
    (kept,) = acknowledgements(client)
    assert (kept.by, kept.note) == ("Ann", "replaced the cable")


def past(number: int) -> Incident:
    ended = SystemClock().now() - timedelta(minutes=number)
    one = incident("port_down", node(f"n{number}"), Severity.WARNING, state="resolved")
    return replace(one, since=ended - timedelta(minutes=5), resolved_at=ended)


def test_more_past_incidents_than_are_read_at_first_are_all_counted(hub: HubProcess) -> None:
    client = hub.hub()
    client.write_records([past(number).to_record() for number in range(500, 0, -1)])
    text = said(open_page("incidents"))
    assert "300 more, older" in text
    assert '["b", {}, "500"]' in text


def test_the_pipeline_page_shows_a_fed_hub_and_keeps_its_last_word_when_it_goes(
    hub: HubProcess,
) -> None:
    with Feed(hub):
        wait_until("data", lambda: live.current().view().rows_at)
        text = said(open_page("pipeline"))
    assert "Collectors of simulated" in text
    assert "Collectors of local" in text
    hub.stop()
    wait_until("the trouble", lambda: "No answer from the hub" in said(open_page("pipeline")), 15)
    assert "Collectors of simulated" in said(open_page("pipeline"))


def test_the_incidents_say_once_since_when_they_are_old_once_the_hub_is_gone(
    hub: HubProcess,
) -> None:
    hub.hub().write_records([LOST.to_record(), past(1).to_record()])
    wait_until("the incident", lambda: live.current().view().attention)
    text = said(open_page("incidents", incident=LOST.id))
    assert "it was then" not in text
    hub.stop()

    def is_old() -> bool:
        return "as it was then" in said(open_page("incidents", incident=LOST.id))

    wait_until("the banner", is_old, 15)
    text = said(open_page("incidents", incident=LOST.id))
    assert text.count("No answer from the hub") == 1
    assert "1 resolved shown" in said(open_page("incidents"))
    assert LOST.action in text


def test_before_the_hub_ever_answered_the_pages_say_so(hub: HubProcess) -> None:
    hub.stop()
    assert "the state of the pipeline is not known" in said(open_page("pipeline"))
    assert "Resolved incidents are not known" in said(open_page("incidents"))


def test_a_pipeline_page_that_is_opened_too_late_does_not_say_that_the_hub_never_answered(
    hub: HubProcess,
) -> None:
    hub.hub().write_records([LOST.to_record()])
    wait_until("the incident", lambda: live.current().view().attention)
    hub.stop()
    text = said(open_page("pipeline"))
    assert "The pages may be wrong" in text
    assert "since this dashboard started" not in text


def test_a_message_that_is_held_is_on_the_page_with_its_reason(hub: HubProcess) -> None:
    client = hub.hub()
    held = notice(
        LOST,
        at=SystemClock().now(),
        state="held",
        verdict="below_minimum",
        reason="info: ops gets warning and above",
    )
    due = Record(
        kind=RecordKind.NOTICE,
        id=f"{LOST.id}:pager:1",
        at=SystemClock().now(),
        subject=LOST.subject.key,
        parent=LOST.id,
        due_at=SystemClock().now() + timedelta(hours=1),
        body={
            "channel": "pager",
            "state": "due",
            "verdict": "reminder",
            "reason": "reminder due after the repeat interval",
            "first_due_at": to_text(SystemClock().now()),
        },
    )
    client.write_records([LOST.to_record(), held, due])
    wait_until("the incident", lambda: live.current().view().attention)
    text = said(open_page("incidents", incident=LOST.id))
    assert "info: ops gets warning and above" in text
    assert "below_minimum" in text
    assert "reminder due after the repeat interval" in text
