"""The page of reports: what it says of each, and which one comes first."""

from datetime import datetime, timedelta, timezone

from dashboard.reports.page import first, told
from gpuvigil.model import Letter, LetterState, ReportRun

NOON = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)


def test_the_report_that_a_link_names_comes_first_and_the_others_stay_in_order() -> None:
    runs = [ReportRun(name="weekly", due_at=NOON - timedelta(days=7 * n)) for n in range(3)]
    assert list(first(runs, "")) == runs
    assert list(first(runs, runs[2].id)) == [runs[2], runs[0], runs[1]]


def test_it_says_whom_a_report_went_to() -> None:
    run = ReportRun(name="weekly", due_at=NOON)
    letter = Letter(run=run.id, to="vp@x.org", state=LetterState.SENT, at=NOON)
    assert told(run, {run.id: [letter]}).endswith("vp@x.org sent.")
    assert told(run, {}).endswith("Sent to nobody.")
    assert Letter.from_record(letter.to_record()) == letter
    whole = ReportRun(name="weekly", due_at=NOON, title="T", span="S", summary="s", html="<p>a</p>")
    assert ReportRun.from_record(whole.to_record(3)) == whole
