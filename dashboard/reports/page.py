"""Draw the archive of reports: each with its first lines, its recipients, and the whole as a file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import streamlit as st

from gpuvigil.clock import SystemClock, moment
from gpuvigil.config import ReportSettings
from gpuvigil.errors import HubError
from gpuvigil.hub_client import Hub
from gpuvigil.model import RecordKind, readable
from gpuvigil.model.report_run import Letter, ReportRun
from gpuvigil.web.markup import joined, tag

from ..components import style
from ..data import live
from ..layout import panels

MOST = 60
LIST = "gpuvigil report list"
_KEY, _WRONG = "reports", "report-wrong"
_ESCAPED = re.compile(r"\\(.)")  # a character escaped in Markdown
# Who writes reports looks every 20 s. One that nobody wrote for so long is not waited for.
WAITED_FOR, SOON = timedelta(minutes=10), timedelta(minutes=1)
_FRESH_SECONDS, _WAITING_SECONDS = 60.0, 2.0
_WRITE = "The next report's span up to now. It is kept here and sent to nobody."


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """The newest reports, their mails by report ID, and those that somebody asked for and nobody wrote yet."""

    runs: Sequence[ReportRun]
    letters: Mapping[str, Sequence[Letter]]
    waiting: Sequence[ReportRun]


def draw() -> None:
    """Draw the whole page, which refreshes; a report that the address names comes first."""
    style("incidents")
    st.fragment(_live, run_every=live.refresh_seconds())()


def _live() -> None:
    view = live.current().view()
    heading = tag("h1", "Reports", class_="gv-page")
    try:
        said = live.shared().questions.ask(_KEY, archive, _FRESH_SECONDS)
        if awaited(said.value.waiting, view.now):
            said = live.shared().questions.ask(_KEY, archive, _WAITING_SECONDS)
    except HubError as error:
        unknown = panels.notes([live.unanswered("What reports there are is not known", error)])
        st.html(joined(heading, panels.warnings(view), unknown))
        return
    found: Archive = said.value
    shared, late = live.shared(), live.outdated("this list is", said)
    wrong = st.session_state.get(_WRONG)
    asked = awaited(found.waiting, view.now)
    notes = [*late, *([wrong] if wrong else []), *asked]
    st.html(joined(heading, panels.warnings(view), panels.notes(notes)))
    if not found.runs:
        said_so = nothing(shared.config.reports, may_see=shared.may_answer)
        st.html(tag("p", said_so, class_="gv-empty"))
    if shared.may_change:
        _offer(shared.config.reports, disabled=bool(asked))
    for number, run in enumerate(first(found.runs, st.query_params.get("report", ""))):
        left, right = st.columns([7, 1], vertical_alignment="center")
        lines = [*lead(run), run_line(run, found.letters)]
        left.html(joined(tag("h2", f"{run.title}, {run.span}"), *(tag("p", it) for it in lines)))
        name = f"gpu-report-{run.name}-{run.due_at:%Y-%m-%d}.html"
        right.download_button(
            "Download", run.html, file_name=name, mime="text/html", key=f"report-{number}"
        )


def _offer(scheduled: Sequence[ReportSettings], *, disabled: bool) -> None:
    with st.container(key="write", horizontal=True):
        for one in scheduled:
            st.button(
                f"Write the {one.name} report now",
                key=f"write-{one.name}",
                help=_WRITE,
                disabled=disabled,
                on_click=_ask_for,
                args=(one.name,),
            )


def _ask_for(name: str) -> None:
    """Make an early report work for who writes reports."""
    questions = live.shared().questions
    run = ReportRun(name=name, due_at=SystemClock().now(), early=True)
    st.session_state[_WRONG] = ""
    try:
        questions.call(lambda hub: hub.write_records([run.to_record(1, run.due_at)]))
    except HubError as error:
        st.session_state[_WRONG] = f"Not requested: {error}. Try again."
        return
    questions.forget(_KEY)


def awaited(waiting: Sequence[ReportRun], now: datetime) -> list[str]:
    """Return a line on each report that was just asked for."""
    return [
        f"The {one.name} report was requested at {moment(one.due_at)}"
        + (
            " and is being written: it takes half a minute."
            if now - one.due_at < SOON
            else ". It is not written yet: check that gpuvigil report schedule runs."
        )
        for one in waiting
        if now - one.due_at < WAITED_FOR
    ]


def archive(hub: Hub) -> Archive:
    """Return what there is of reports, the newest first."""
    found = list(readable(hub.records(RecordKind.REPORT, limit=MOST), ReportRun.from_record))
    found.sort(key=lambda one: one.due_at, reverse=True)
    letters: dict[str, list[Letter]] = {}
    for letter in readable(hub.records(RecordKind.LETTER), Letter.from_record):
        letters.setdefault(letter.run, []).append(letter)
    return Archive(
        runs=[one for one in found if one.html],
        letters=letters,
        waiting=[one for one in found if one.early and not one.html],
    )


def nothing(scheduled: Sequence[ReportSettings], *, may_see: bool) -> str:
    """Say why there is no report and what to do; only operators see reports here, as these name people."""
    if not may_see:
        return "Reports are shown to operators. Your team's comes by mail where one is scheduled."
    if not scheduled:
        return (
            "No report is scheduled. Add one to the configuration to get it here and by mail,"
            " or write one now with gpuvigil report --last 7d --out report.html."
        )
    usual, one = ReportSettings(), scheduled[0]
    is_usual = (one.cron, one.time_zone) == (usual.cron, usual.time_zone)
    when = "on Mondays at 07:00 UTC" if is_usual else f"when it is due ({LIST} says when)"
    return f"No reports yet. The {one.name} report comes {when}."


def first(runs: Sequence[ReportRun], asked: str) -> Sequence[ReportRun]:
    """Return the reports with the requested one first."""
    return sorted(runs, key=lambda one: one.id != asked)


def lead(run: ReportRun) -> Sequence[str]:
    """Return a report's first line on each cluster, without Markdown."""
    parts = [part.splitlines() for part in run.summary.split("\n\n")]
    said = [lines[1] for lines in parts if len(lines) > 1]
    return [_ESCAPED.sub(r"\1", line.replace("**", "")) for line in said]


def run_line(run: ReportRun, letters: Mapping[str, Sequence[Letter]]) -> str:
    """Say when a report was due or asked for, and who got it."""
    states = [f"{one.to} {one.state.value}" for one in letters.get(run.id, ())]
    when = f"{'requested' if run.early else 'due'} {moment(run.due_at)}"
    return f"{run.name}, {when}. {'; '.join(states) or 'Sent to nobody'}."
