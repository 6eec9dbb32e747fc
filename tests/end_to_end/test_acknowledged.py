"""A person takes an incident on the page: the analyzer and alerts act on it."""

from collections.abc import Iterator

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.data import live
from dashboard.data.questions import QueryCache
from dashboard.data.snapshot import Snapshot
from gpuvigil.clock import SystemClock
from gpuvigil.config import AnalyzerSettings, Config
from gpuvigil.model import RecordKind
from tests.polling import wait_until
from tests.servers import ROOT

from .conftest import Site

pytestmark = pytest.mark.server


@pytest.fixture
def pages(site: Site) -> Iterator[Site]:
    """The site, with this process as its dashboard."""
    clock = SystemClock()
    snapshot = Snapshot(site.hub.hub, clock, AnalyzerSettings(), 0.5)
    questions = QueryCache(site.hub.hub, clock)
    live.install(live.Shared(snapshot=snapshot, questions=questions, config=Config()))
    snapshot.start()
    yield site
    snapshot.stop()
    questions.close()


def shown(page: AppTest) -> str:
    assert not page.exception
    return "\n".join(one.proto.json for one in page.get("bidi_component"))


def verdicts(site: Site, incident: str) -> list[str]:
    records = site.client().records(RecordKind.NOTICE, parent=incident)
    return [str(record.body["verdict"]) for record in records]


def test_what_is_taken_on_the_page_is_acknowledged_and_told_to_nobody_again(pages: Site) -> None:
    pages.driver.xid(2, 79)
    pages.driver.lose(2)
    pages.told("gpu_lost")
    (lost,) = wait_until("the incident", lambda: pages.incidents("open"))
    page = AppTest.from_file(str(ROOT / "dashboard" / "pages" / "incidents.py"), default_timeout=30)
    page.query_params["incident"] = lost.id
    page.run()
    page.text_input(key=f"name-{lost.id}").set_value("Ann")
    page.text_input(key=f"note-{lost.id}-0").set_value("driving there")
    (button,) = [one for one in page.button if one.key == f"send-{lost.id}"]
    button.click().run()
    assert "Taken by Ann" in shown(page)
    (taken,) = wait_until("the analyzer's word", lambda: pages.incidents("acknowledged"))
    assert taken.acknowledged_by == "Ann"
    wait_until("the decision of alerts", lambda: "taken" in verdicts(pages, lost.id))
    # A page shows what it asked a moment ago: the story, the messages and the snapshot each come
    # with a run of their own.
    wait_until("the story", lambda: "acknowledged by Ann: driving there" in shown(page.run()))
    wait_until("the reason", lambda: "not sent" in shown(page.run()))
    wait_until("the analyzer", lambda: "Reminders end" not in shown(page.run()))
    pages.driver.restore(2)
    pages.told("gpu_lost", "resolved", timeout_seconds=30)
    wait_until("the end", lambda: "It is over" in shown(page.run()))
    assert not [one for one in page.button if one.key == f"send-{lost.id}"]
