"""`gpuvigil report schedule`, `send` and `list`: scheduled reports."""

import argparse
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime

from gpuvigil.clock import Clock, SystemClock, moment
from gpuvigil.config import Config, ReportSettings
from gpuvigil.config.startup import parser, run_command, run_service
from gpuvigil.errors import ConfigError
from gpuvigil.hub_client import Hub, service_hubs
from gpuvigil.log import Log
from gpuvigil.loop import Persistence, run_steps
from gpuvigil.model import RecordKind, readable
from gpuvigil.model.report_run import Letter, LetterState, ReportRun
from gpuvigil.web.page_links import report_page

from .scheduled.archive import letters_of, runs
from .scheduled.schedule import cron_of
from .scheduled.sending import POLL_SECONDS, ReportRunner, receivers

_LOG = Log("report")
_MOST = 20


def main(verb: str, arguments: Sequence[str]) -> int:
    """Run the command; return 0 when done, 2 for a wrong configuration, 1 when delivery failed."""
    options = parser(f"report {verb}", _ABOUT[verb])
    if verb == "schedule":
        return run_service(options, arguments, run)
    if verb == "send":
        options.add_argument("name", help="the report's name under [[reports]]")

    def act(config: Config, chosen: argparse.Namespace) -> int:
        with closing(service_hubs(config.hub)()) as hub:
            return _send(config, hub, chosen) if verb == "send" else _list(config, hub)

    return run_command(options, arguments, act)


_ABOUT = {
    "schedule": "Make and send the reports under [[reports]] when they are due, until SIGTERM or SIGINT.",
    "send": "Make one of them now and send it to its receivers.",
    "list": "Show when each is due next, and what was sent.",
}


def run(config: Config, _: argparse.Namespace, stop: threading.Event) -> None:
    """Work on what is due until asked to stop."""
    for settings in config.reports:
        cron_of(settings)
    clock: Clock = SystemClock()
    with closing(service_hubs(config.hub)()) as hub:
        runner = ReportRunner(hub=hub, config=config, clock=clock, log=_LOG)

        def step() -> None:
            if not runner.step():
                clock.wait(stop, POLL_SECONDS)

        run_steps(Persistence(name="reports", clock=clock, stop=stop, log=_LOG), step)


def _send(config: Config, hub: Hub, chosen: argparse.Namespace) -> int:
    settings = next((one for one in config.reports if one.name == chosen.name), None)
    if settings is None:
        there = ", ".join(one.name for one in config.reports) or "none"
        raise ConfigError(f"there is no report {chosen.name!r} under [[reports]]; there is {there}")
    runner = ReportRunner(hub=hub, config=config, clock=SystemClock(), log=_LOG)
    made = runner.due_now(settings)
    while runner.step():
        pass
    record, letters = hub.record(RecordKind.REPORT, made.id), letters_of(hub, made)
    kept = next(iter(readable(filter(None, [record]), ReportRun.from_record)), made)
    for line in sent(config, settings, kept, letters):
        print(line)
    done = {to for to, one in letters.items() if one.state is LetterState.SENT}
    return 0 if kept.html and done >= set(receivers(settings)) else 1


def sent(
    config: Config, settings: ReportSettings, run_: ReportRun, letters: Mapping[str, Letter]
) -> Iterator[str]:
    """Yield what was made, where it is, and the delivery state for each receiver."""
    if not run_.html:
        yield f"{settings.name} is not made yet: another process works on it. gpuvigil report list shows when it is."
        return
    yield f"Made: {run_.title}, {run_.span}."
    yield f"In the archive: {config.alerts.external_url.rstrip('/')}{report_page(run_.id)}"
    for to in receivers(settings):
        letter = letters.get(to)
        state = "waiting" if letter is None else letter.state.value
        why = f": {letter.reason}" if letter is not None and letter.reason else ""
        yield f"{to}: {state}{why}"
    if not receivers(settings):
        yield f"Sent to nobody: {settings.name} under [[reports]] has neither to nor link_to."


def _list(config: Config, hub: Hub) -> int:
    for line in listed(config, hub, SystemClock().now()):
        print(line)
    return 0


def listed(config: Config, hub: Hub, now: datetime) -> Iterator[str]:
    """Yield a line for each report with its next time, then the newest runs with their letters."""
    for settings in config.reports:
        at = cron_of(settings).next(now)
        when = "never" if at is None else moment(at)
        whose = f", team {settings.team}" if settings.team else ""
        preview = settings.preview_hours if settings.team else 0.0
        before = f", a preview {preview:g} h before" if preview else ""
        to = ", ".join(receivers(settings)) or "the archive"
        yield f"{settings.name}{whose}: next {when}{before}, to {to}"
    if not config.reports:
        yield "No report comes by itself: nothing is under [[reports]]."
    for run_ in [one for one in runs(hub) if one.html][:_MOST]:
        letters = letters_of(hub, run_).values()
        said = ", ".join(f"{one.to} {one.state.value}" for one in letters) or "nobody to send it to"
        early = ", a preview" if run_.final_at or run_.early else ""
        yield f"{moment(run_.due_at)}  {run_.name}  {run_.span}{early}: {said}"
