"""The page of reports: what it says of each, and which one comes first."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.data import live
from dashboard.data.questions import QueryCache
from dashboard.data.snapshot import Snapshot
from dashboard.reports.page import WAITED_FOR, awaited, first, lead, nothing, run_line
from gpuvigil.clock import SystemClock
from gpuvigil.config import AnalyzerSettings, Config, ReportSettings
from gpuvigil.hub_client import Hub
from gpuvigil.model import RecordKind
from gpuvigil.model.report_run import Letter, LetterState, ReportRun
from tests.polling import wait_until
from tests.servers import ROOT, QuickHub

NOON = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)


def test_the_report_that_a_link_names_comes_first_and_the_others_stay_in_order() -> None:
    runs = [ReportRun(name="weekly", due_at=NOON - timedelta(days=7 * n)) for n in range(3)]
    assert list(first(runs, "")) == runs
    assert list(first(runs, runs[2].id)) == [runs[2], runs[0], runs[1]]


def test_it_says_whom_a_report_went_to() -> None:
    run = ReportRun(name="weekly", due_at=NOON)
    letter = Letter(run=run.id, to="vp@x.org", state=LetterState.SENT, at=NOON)
    assert run_line(run, {run.id: [letter]}).endswith("vp@x.org sent.")
    assert run_line(run, {}).endswith("Sent to nobody.")
    assert run_line(run, {}).startswith("weekly, due 12:00:00 UTC on 23 Nov")
    assert run_line(replace(run, early=True), {}).startswith(
        "weekly, requested 12:00:00 UTC on 23 Nov"
    )
    assert Letter.from_record(letter.to_record()) == letter
    whole = ReportRun(name="weekly", due_at=NOON, title="T", span="S", summary="s", html="<p>a</p>")
    for one in (whole, replace(whole, early=True)):
        assert ReportRun.from_record(one.to_record(3)) == one


def test_it_says_what_a_report_says_first_of_each_cluster() -> None:
    said = "**T**, S\n**Two** of n\\_1's GPUs idled. 9 % used.\n- a\n\n**T2**, S\nNothing was counted.\n- b"
    run = ReportRun(name="weekly", due_at=NOON, summary=said)
    assert lead(run) == ["Two of n_1's GPUs idled. 9 % used.", "Nothing was counted."]
    assert lead(ReportRun(name="weekly", due_at=NOON, summary="s")) == []


def test_where_there_is_none_it_says_when_one_comes_and_what_to_do() -> None:
    usual, other = ReportSettings(), ReportSettings(name="month", cron="0 8 1 * *")
    assert nothing([usual], may_see=True) == (
        "No reports yet. The weekly report comes on Mondays at 07:00 UTC."
    )
    assert "when it is due (gpuvigil report list says when)" in nothing([other], may_see=True)
    assert nothing([], may_see=True).startswith("No report is scheduled. Add one to the conf")
    for scheduled in ([], [usual], [other]):
        assert "[[" not in nothing(scheduled, may_see=True)
        assert nothing(scheduled, may_see=False).startswith("Reports are shown to operators.")


def test_it_says_for_a_while_that_a_report_is_being_written() -> None:
    run = ReportRun(name="weekly", due_at=NOON, early=True)
    (soon,) = awaited([run], NOON + timedelta(seconds=5))
    assert soon.startswith("The weekly report was requested at ")
    assert soon.endswith("it takes half a minute.")
    (late,) = awaited([run], NOON + timedelta(minutes=2))
    assert late.endswith("check that gpuvigil report schedule runs.")
    assert awaited([run], NOON + WAITED_FOR) == []


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


@pytest.mark.server
def test_the_page_shows_what_was_made_and_not_what_is_only_due(hub: Hub) -> None:
    made = ReportRun(
        name="weekly", due_at=NOON, title="GPU report", span="Week 47", html="<p>a</p>"
    )
    hub.write_records([made.to_record(1), ReportRun(name="due", due_at=NOON).to_record(1)])
    page = AppTest.from_file(str(ROOT / "dashboard" / "app.py"), default_timeout=60)
    page.run()
    page.switch_page("pages/reports.py").run()
    assert not page.exception
    assert "GPU report, Week 47" in shown(page)
    assert "due, due" not in shown(page)


@pytest.mark.server
def test_who_does_not_wait_for_monday_has_one_written_now(hub: Hub) -> None:
    page = AppTest.from_file(str(ROOT / "dashboard" / "app.py"), default_timeout=60)
    page.run()
    page.switch_page("pages/reports.py").run()
    assert "comes on Mondays" in shown(page)
    write = next(one for one in page.button if one.label == "Write the weekly report now")
    write.click().run()
    assert not page.exception
    (record,) = hub.records(RecordKind.REPORT)
    asked = ReportRun.from_record(record)
    assert (asked.name, asked.early, record.due_at) == ("weekly", True, asked.due_at)
    page.run()
    assert "The weekly report was requested at" in shown(page)
    assert next(one for one in page.button if one.label.startswith("Write the")).disabled
    made = replace(asked, title="Preview: GPU report", span="Week 49", html="<p>a</p>")
    hub.write_records([made.to_record(2)])
    wait_until("report", lambda: "Preview: GPU report, Week 49" in shown(page.run()))
    assert "was requested at" not in shown(page)


def shown(page: AppTest) -> str:
    return " ".join(str(one.proto) for one in page.main if "html" in one.type)
