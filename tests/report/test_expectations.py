"""What a job has to expect: how soon jobs of its size ran again is measured, and is never made up."""

from dataclasses import replace
from datetime import timedelta

from accounting.jobs.losses import Restart
from report.formats.csv_format import csv_text
from report.model.sheet import Sheet
from report.scheduled.editions import of_team
from report.sections.build import build
from tests.report.weeks import facts, incident

FAILED = facts(incidents=[incident()])


def sheet(*minutes: float) -> Sheet:
    back = tuple(Restart(nodes=1, after=timedelta(minutes=it)) for it in minutes)
    found = build(replace(FAILED, ran_again=back)).sheet("sizes")
    assert found is not None
    return found


def value(found: Sheet, key: str) -> object:
    keys = [one.key for one in found.columns]
    return found.rows[0][keys.index(key)]


def test_what_jobs_get_done_is_computed_with_how_soon_they_ran_again() -> None:
    quick, slow = sheet(3, 4, 5), sheet(200, 240, 260)
    assert (value(quick, "mttr_minutes"), value(slow, "mttr_minutes")) == (4, 240)
    assert float(str(value(quick, "ettr"))) > float(str(value(slow, "ettr")))
    assert "MTTR" not in quick.caption


def test_what_no_job_has_shown_is_not_measured_and_the_table_says_what_it_assumes() -> None:
    none, few = sheet(), sheet(30, 50)
    assert (value(none, "mttr_minutes"), value(few, "mttr_minutes")) == (None, None)
    assert "MTTR was not measured, as no job ran again; ETTR assumes 10 min" in none.caption
    assert "ETTR assumes 40 min there, the median of all 2 that did" in few.caption
    assert "sizes,1,mttr_minutes,," in csv_text([build(FAILED)])


def test_a_teams_edition_has_nobody_elses_restarts() -> None:
    back = (Restart(nodes=1, after=timedelta(minutes=4)),)
    assert of_team(replace(FAILED, ran_again=back), "vision").ran_again == ()
