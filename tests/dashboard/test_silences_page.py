"""The page of silences, on a real hub: made, shown with who, why and until when, and ended."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.data import live
from dashboard.data.questions import QueryCache
from dashboard.data.snapshot import Snapshot
from dashboard.silences.page import begins, row, sorted_out
from gpuvigil.clock import SystemClock
from gpuvigil.config import AnalyzerSettings, Config
from gpuvigil.errors import ConfigError
from gpuvigil.hub_client import Hub
from gpuvigil.matching.silences import made
from gpuvigil.model import RecordKind, Silence, readable
from tests.servers import ROOT, QuickHub

NOON = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


def a_silence(name: str, starts: float, ends: float) -> Silence:
    return Silence(
        id=name,
        matchers=('node="n1"',),
        by="ada",
        reason="new <b>cable</b>",
        at=NOON,
        starts_at=NOON + starts * HOUR,
        ends_at=NOON + ends * HOUR,
    )


def test_what_ends_next_is_first_and_what_is_over_is_apart() -> None:
    found = [a_silence("later", 2, 9), a_silence("over", -2, -1), a_silence("now", -1, 1)]
    active, over = sorted_out(found, NOON)
    assert [one.id for one in active] == ["now", "later"]
    assert [one.id for one in over] == ["over"]
    said = [str(row(one, NOON)) for one in (*active, *over)]
    assert "until 13:00:00 UTC on 20 Nov, for 1 h more" in said[0]
    assert "from 14:00:00 UTC on 20 Nov to 21:00:00 UTC on 20 Nov" in said[1]
    assert "expired 11:00:00 UTC on 20 Nov" in said[2]
    assert all("ada: new <b>cable</b>" in text for text in said)  # text, never markup


def test_planned_maintenance_that_was_called_off_is_over() -> None:
    off = a_silence("planned", 2, 9).ended(NOON)
    assert sorted_out([off], NOON) == ([], [off])
    assert "cancelled before it began" in str(row(off, NOON))


@pytest.mark.parametrize("text", ["tomorrow", "2026-11-20T11:59:59Z"])
def test_maintenance_begins_at_a_time_that_is_to_come(text: str) -> None:
    assert begins(" ", NOON) == NOON
    assert begins("2026-11-20T13:00:00Z", NOON) == NOON + HOUR
    with pytest.raises(ConfigError):
        begins(text, NOON)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with QuickHub(tmp_path / "hub") as process:
        snapshot = Snapshot(process.hub, SystemClock(), AnalyzerSettings(), 0.2)
        questions = QueryCache(process.hub, SystemClock())
        live.install(live.Shared(snapshot=snapshot, questions=questions, config=Config()))
        snapshot.start()
        yield process.hub()
        snapshot.stop()
        questions.close()


def kept(hub: Hub) -> list[Silence]:
    return list(readable(hub.records(RecordKind.SILENCE), Silence.from_record))


@pytest.mark.server
def test_a_silence_that_was_kept_without_an_answer_is_corrected_by_the_next(hub: Hub) -> None:
    for matcher, after in (('node="n1"', 0), ('node="n2"', 1)):
        at = NOON + timedelta(microseconds=after)
        silence = made([matcher], "ada", "new cable", NOON, HOUR, at, id_="s-form")
        hub.write_records([silence.to_record()])
    (one,) = kept(hub)
    assert one.matchers == ('node="n2"',)
    hub.write_records([one.ended(NOON).to_record()])
    (one,) = kept(hub)
    assert one.ends_at == NOON


@pytest.mark.server
def test_a_silence_is_made_on_the_page_and_ended_there(hub: Hub) -> None:
    page = AppTest.from_file(str(ROOT / "dashboard" / "app.py"), default_timeout=60)
    page.run()
    page.switch_page("pages/silences.py").run()
    assert not page.exception
    page.text_area[0].set_value("colour=red")
    page.text_input[0].set_value("ada")
    page.text_input[1].set_value("new cable")
    send = next(one for one in page.button if one.label == "Silence")
    send.click().run()
    assert kept(hub) == []
    page.text_area[0].set_value('node="n1"\nfault=~"port_.*"')
    next(one for one in page.button if one.label == "Silence").click().run()
    assert not page.exception
    (one,) = kept(hub)
    assert (one.by, one.reason) == ("ada", "new cable")
    assert one.matchers == ('node="n1"', 'fault=~"port_.*"')
    assert one.ends_at - one.starts_at == timedelta(hours=4)
    page.run()
    next(button for button in page.button if button.label == "End").click().run()
    assert not page.exception
    (ended,) = kept(hub)
    assert ended.ends_at <= datetime.now(timezone.utc)
