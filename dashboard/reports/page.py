"""Draw the archive of reports: each with its first lines, its recipients, and the whole as a file."""

import re
from collections.abc import Mapping, Sequence

import streamlit as st

from gpuvigil.clock import moment
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
_KEY = "reports"
_ESCAPED = re.compile(r"\\(.)")  # a character escaped in Markdown
_Archive = tuple[Sequence[ReportRun], Mapping[str, Sequence[Letter]]]


def draw() -> None:
    """Draw the whole page, which refreshes; a report that the address names comes first."""
    style("incidents")
    st.fragment(_live, run_every=live.refresh_seconds())()


def _live() -> None:
    view = live.current().view()
    heading = tag("h1", "Reports", class_="gv-page")
    try:
        said = live.shared().questions.ask(_KEY, archive, 60.0)
    except HubError as error:
        unknown = panels.notes([live.unanswered("What reports there are is not known", error)])
        st.html(joined(heading, panels.warnings(view), unknown))
        return
    runs, letters = said.value
    late = live.outdated("this list is", said)
    st.html(joined(heading, panels.warnings(view), panels.notes(late)))
    if not runs:
        shared = live.shared()
        said_so = nothing(shared.config.reports, may_see=shared.may_answer)
        st.html(tag("p", said_so, class_="gv-empty"))
    for number, run in enumerate(first(runs, st.query_params.get("report", ""))):
        left, right = st.columns([7, 1], vertical_alignment="center")
        lines = [*lead(run), told(run, letters)]
        left.html(joined(tag("h2", f"{run.title}, {run.span}"), *(tag("p", it) for it in lines)))
        name = f"gpu-report-{run.name}-{run.due_at:%Y-%m-%d}.html"
        right.download_button(
            "Download", run.html, file_name=name, mime="text/html", key=f"report-{number}"
        )


def archive(hub: Hub) -> _Archive:
    """Return the newest reports, and their mails by report ID."""
    found = readable(hub.records(RecordKind.REPORT, limit=MOST), ReportRun.from_record)
    runs = sorted((one for one in found if one.html), key=lambda one: one.due_at, reverse=True)
    letters: dict[str, list[Letter]] = {}
    for letter in readable(hub.records(RecordKind.LETTER), Letter.from_record):
        letters.setdefault(letter.run, []).append(letter)
    return runs, letters


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
    return f"No reports yet. The {one.name} report comes {when}. To make it now, run gpuvigil report send {one.name}."


def first(runs: Sequence[ReportRun], asked: str) -> Sequence[ReportRun]:
    """Return the reports with the requested one first."""
    return sorted(runs, key=lambda one: one.id != asked)


def lead(run: ReportRun) -> Sequence[str]:
    """Return a report's first line on each cluster, without Markdown."""
    parts = [part.splitlines() for part in run.summary.split("\n\n")]
    said = [lines[1] for lines in parts if len(lines) > 1]
    return [_ESCAPED.sub(r"\1", line.replace("**", "")) for line in said]


def told(run: ReportRun, letters: Mapping[str, Sequence[Letter]]) -> str:
    """Say when a report was due and who got it."""
    states = [f"{one.to} {one.state.value}" for one in letters.get(run.id, ())]
    return f"{run.name}, due {moment(run.due_at)}. {'; '.join(states) or 'Sent to nobody'}."
