"""The command `gpuvigil report`: how the GPUs were used in a span, as one file."""

import argparse
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from accounting.people.configured import with_pseudonyms
from accounting.people.typist import audit_of_command
from gpuvigil.clock import SystemClock
from gpuvigil.config import load
from gpuvigil.config.reporting import PAPERS
from gpuvigil.config.startup import fail, parser
from gpuvigil.errors import ConfigError, GpuvigilError, HubRefused
from gpuvigil.hub_client import Hub
from gpuvigil.model import AuditedAction, Record
from gpuvigil.state_directory import config_of_up
from gpuvigil.store.configured import hubs

from .inputs.facts import read
from .model.content import Report
from .scheduled.archive import earlier_numbers_since
from .sections.build import build
from .sections.revised import revised
from .span import add_options, asked

_SUFFIXES = {
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".csv": "csv",
    ".md": "md",
    ".pdf": "pdf",
}
# Verbs about scheduled reports.
VERBS = ("schedule", "send", "list")
# Verbs about one part, for its manufacturer.
PARTS = ("node", "incident")
FORMATS = ("html", "json", "csv", "md", "pdf")
_MAY_NOT = 403
# Formats for files only: a terminal cannot show them usefully.
_FILES = frozenset({"html", "pdf"})


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 0 when written, 2 for wrong arguments, 1 when the hub does not answer."""
    if arguments and arguments[0] in VERBS:
        from .schedule_command import main as by_itself  # noqa: PLC0415 - loads every channel

        return by_itself(arguments[0], arguments[1:])
    if arguments and arguments[0] in PARTS:
        from .root_cause_command import main as of_part  # noqa: PLC0415 - it imports this module

        return of_part(arguments[0], arguments[1:])
    commands = _parser()
    chosen = commands.parse_args(arguments)
    try:
        with _without_collections():
            _run(chosen)
    except GpuvigilError as error:
        return fail(commands.prog, error)
    return 0


@contextmanager
def _without_collections() -> Iterator[None]:
    """Turn off garbage collection: a report's many inputs live until it is written."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _parser() -> argparse.ArgumentParser:
    commands = parser(
        "report",
        "Write how the GPUs were used in a span, and what went wrong. With a verb (schedule, send, list):"
        " scheduled reports; with node NAME or incident ID: what failed, for a manufacturer's ticket.",
    )
    add_options(commands)
    commands.add_argument(
        "--cluster", metavar="NAME", help="every real cluster with GPUs if left out"
    )
    commands.add_argument(
        "--paper", choices=PAPERS, default=PAPERS[0], help="what HTML and PDF are printed on"
    )
    commands.add_argument("--out", type=Path, metavar="FILE", help="where to write")
    commands.add_argument(
        "-o", dest="form", choices=FORMATS, help="format; if left out, what FILE ends with"
    )
    return commands


def _run(chosen: argparse.Namespace) -> None:
    form = form_of(chosen.form, chosen.out)
    if chosen.out is not None and not chosen.out.parent.is_dir():
        raise ConfigError(f"--out {chosen.out}: there is no directory {chosen.out.parent}")
    clock = SystemClock()
    now = clock.now()
    span, calendar = asked(chosen, now)
    config = load(config_of_up(chosen.config))
    with closing(hubs(config)()) as hub:
        facts = read(
            with_pseudonyms(hub, config, clock), chosen.cluster, span, now, config, calendar
        )
        past = earlier_numbers_since(hub, span[1])
        keep_entry(hub, _entry(form, chosen, now))
    made = [(one, build(one)) for one in facts]
    reports = [replace(it, revised=revised(one, it, past)) for one, it in made]
    content = render(form, reports, chosen.paper)
    if chosen.out is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    write(chosen.out, content)
    print(f"wrote {chosen.out} ({len(content) / 1024:,.0f} KiB)", file=sys.stderr)


def keep_entry(hub: Hub, entry: Record) -> None:
    """Write to the audit log. A read-only token may not, but could read everything without this command."""
    try:
        hub.write_records([entry])
    except HubRefused as refused:
        if refused.status != _MAY_NOT:
            raise


def _entry(form: str, chosen: argparse.Namespace, now: datetime) -> Record:
    """Return an entry for the audit log, since names of people leave the system in a report."""
    span = chosen.last or chosen.week or chosen.month or chosen.quarter or "a span"
    detail, about = f"{form}, {span}", chosen.cluster or "every cluster"
    return audit_of_command(AuditedAction.REPORT, about, detail, now).to_record()


def form_of(form: str | None, out: Path | None) -> str:
    """Return the requested format; raise ConfigError when it is unclear or needs a file."""
    return format_in(form, out, FORMATS)


def format_in(form: str | None, out: Path | None, formats: Sequence[str]) -> str:
    """Return the requested format, which must be among `formats`; see `form_of`."""
    found = form or (_SUFFIXES.get(out.suffix.lower()) if out is not None else None)
    if found is None or found not in formats:
        what = f"--out {out} does not say a format" if out is not None else "no format is named"
        raise ConfigError(f"{what}: add -o {', '.join(formats)} or --out report.html")
    if out is None and found in _FILES:
        raise ConfigError(f"{found} needs a file: add --out report.{found}")
    return found


def render(form: str, reports: Sequence[Report], paper: str = PAPERS[0]) -> bytes:
    """Return the reports in a format; its libraries are loaded only when it is used."""
    if form in _TEXTS:
        return _TEXTS[form](reports)
    from .formats.html_format import html  # noqa: PLC0415 - loads the chart library

    document = html(reports, paper)
    if form == "html":
        return document.encode()
    from .formats.pdf_format import pdf  # noqa: PLC0415 - an extra

    return pdf(document)


def _json(reports: Sequence[Report]) -> bytes:
    from .formats.json_format import json_text  # noqa: PLC0415 - one format of five

    return json_text(reports).encode()


def _csv(reports: Sequence[Report]) -> bytes:
    from .formats.csv_format import csv_text  # noqa: PLC0415 - one format of five

    return csv_text(reports).encode()


def _md(reports: Sequence[Report]) -> bytes:
    from .formats.markdown_format import markdown  # noqa: PLC0415 - one format of five

    return markdown(reports).encode()


_TEXTS: dict[str, Callable[[Sequence[Report]], bytes]] = {
    "json": _json,
    "csv": _csv,
    "md": _md,
}


def write(path: Path, content: bytes) -> None:
    """Write the file atomically, by renaming a temporary one; raise ConfigError when that fails."""
    beside: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            beside = Path(file.name)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.chmod(0o644)
        beside.replace(path)
    except OSError as error:
        if beside is not None:
            beside.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None
