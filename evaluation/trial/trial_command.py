"""`gpuvigil try --prometheus URL`: what a site's own Prometheus shows of its GPUs, before anything is installed.

Nothing is written to the Prometheus, and nothing is kept here unless a file is named.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from accounting.cost.money import Prices
from accounting.usage import Usage
from gpuvigil.clock import SystemClock, duration
from gpuvigil.config import AnalyzerSettings, Config, StoreSettings, load, read_secret
from gpuvigil.config.startup import fail, parser
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.model import Incident
from gpuvigil.typed_times import length
from report.inputs.facts import Facts, SpanData
from report.model.content import Report
from report.report_command import form_of, render, write
from report.sections.build import build
from report.sections.owners import owners

from ..recordings import play
from ..recordings.problems import BadRecording
from ..recordings.recording import Recording, read
from . import words, writing
from .asking import Asker, Load
from .gathering import Bounds, CollectedMetrics, collect_metrics
from .judging import incidents_of, settings_for, usage_of

_DEFAULT = "30d"
_SHORTEST = timedelta(hours=1)
_FORMS = ("text", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The results, cluster by cluster."""

    reports: tuple[Report, ...]
    incidents: tuple[Incident, ...]
    asker: Asker
    gathered: CollectedMetrics


def main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil try`: 0 once judged, 1 where the Prometheus does not answer, 2 for wrong arguments."""
    commands = _parser()
    chosen = commands.parse_args(arguments)
    try:
        _run(chosen)
    except BadRecording as error:
        print(f"{commands.prog}: {error}", file=sys.stderr)
        return 1
    except GpuvigilError as error:
        return fail(commands.prog, error)
    return 0


def _run(chosen: argparse.Namespace) -> None:
    form = None if chosen.out is None else form_of(None, chosen.out)
    span = length(chosen.last, "--last")
    if span < _SHORTEST:
        raise ConfigError(f"--last {chosen.last} is shorter than an hour")
    config = load(chosen.config)
    with _directory(chosen.keep) as directory:
        found = look(_asker(chosen), _bounds(chosen, span), config, directory, _progress())
    if form is not None:
        write(chosen.out, render(form, found.reports))
        print(f"wrote {chosen.out}", file=sys.stderr)
    lines = [json.dumps(as_json(found), indent=1)] if chosen.form == "json" else _text(found)
    if chosen.form != "json" and chosen.out is None and chosen.keep is None:
        lines.append(
            "Nothing was kept. --out report.html writes the report, --keep DIR a recording."
        )
    print("\n".join(lines))


def look(
    asker: Asker,
    bounds: Bounds,
    config: Config,
    directory: Path,
    tell: Callable[[str], None] = lambda words: None,
) -> Found:
    """Ask, write a recording into the directory, and judge it."""
    tell("asking Prometheus")
    gathered = collect_metrics(asker, bounds)
    tell(f"asked {asker.cost.queries} queries; reading what they told")
    written = writing.write(gathered, directory)
    recording = read(directory, play.CAUSES)
    step = float(gathered.fast.step)
    settings = settings_for(step, config.analyzer)
    incidents = incidents_of(recording, settings, lambda share: tell(f"judged {share:.0%}"))
    ordered = tuple(sorted(incidents, key=lambda it: (it.severity.rank, it.since, it.id)))
    unjudged = words.limits(recording.given, gathered.present_metrics, written.named, written.gpus)
    notes = (*_notes(gathered, asker, written, settings), *recording.notes)
    reports = []
    for cluster in sorted({it.subject.cluster for it in recording.inventories if it.gpus}):
        usage = usage_of(recording, cluster, step)
        facts = _facts(recording, usage, ordered, settings, Prices(settings=config.cost))
        report = build(replace(facts, notes=notes))
        sheets = (owners(usage.shares), *report.sheets)
        reports.append(replace(report, sheets=sheets, unjudged=unjudged))
    return Found(reports=tuple(reports), incidents=ordered, asker=asker, gathered=gathered)


def _facts(
    recording: Recording,
    usage: Usage,
    incidents: Sequence[Incident],
    settings: AnalyzerSettings,
    prices: Prices,
) -> Facts:
    before = usage.start - (usage.end - usage.start)
    return Facts(
        cluster=usage.cluster,
        now=SpanData(
            usage=usage,
            incidents=tuple(it for it in incidents if it.subject.cluster == usage.cluster),
        ),
        earlier=SpanData(
            usage=Usage(cluster=usage.cluster, start=before, end=usage.start, buckets=())
        ),
        inventories=tuple(
            it for it in recording.inventories if it.subject.cluster == usage.cluster
        ),
        idle_after=timedelta(seconds=settings.idle_after_seconds),
        idle_below_percent=settings.idle_below_percent,
        made_at=SystemClock().now(),
        prices=prices,
    )


def _notes(
    gathered: CollectedMetrics, asker: Asker, written: writing.Written, settings: AnalyzerSettings
) -> Iterator[str]:
    yield f"From a Prometheus, without a collector. {words.cost_in_words(asker.cost, gathered.fast.step)}"
    if settings.idle_after_seconds != AnalyzerSettings().idle_after_seconds:
        yield (
            "Values are far apart, so a held GPU is idle only after"
            f" {duration(timedelta(seconds=settings.idle_after_seconds))} at 0 %."
        )
    if written.by_memory:
        yield (
            "Where no label names a holder, a GPU with 256 MiB or more in use counts as held, by"
            " nobody knows whom; one with less is free."
        )
    yield from gathered.notes


def _text(found: Found) -> list[str]:
    lines: list[str] = []
    for report in found.reports:
        own = [it for it in found.incidents if it.subject.cluster == report.cluster]
        lines += [*words.terminal(report, own), ""]
    lines.append(words.cost_in_words(found.asker.cost, found.gathered.fast.step))
    return [*lines, *(f"Note: {one}" for one in found.gathered.notes)]


def as_json(found: Found) -> dict[str, Any]:
    """Return everything, for programs."""
    (*_, document) = (json.loads(render("json", found.reports)),)
    return {
        "asked": {**asdict(found.asker.cost), "step_seconds": found.gathered.fast.step},
        "missing": [list(one) for one in found.gathered.missing],
        "notes": found.gathered.notes,
        "incidents": [one.to_record().to_json() for one in found.incidents],
        **document,
    }


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="gpuvigil-try-") as name:
            yield Path(name)
        return
    try:
        keep.mkdir(parents=True)
    except FileExistsError:
        raise ConfigError(f"--keep {keep}: is there already; name a new directory") from None
    except OSError as error:
        raise ConfigError(f"--keep {keep}: {error.strerror}") from None
    yield keep


def _asker(chosen: argparse.Namespace) -> Asker:
    if not chosen.prometheus.startswith(("http://", "https://")):
        raise ConfigError(f"--prometheus is not like http://prometheus:9090: {chosen.prometheus!r}")
    for file, what in ((chosen.token_file, "token"), (chosen.password_file, "password")):
        if file is not None:
            read_secret(file, what)
    settings = StoreSettings(
        kind="prometheus",
        url=chosen.prometheus,
        token_file=chosen.token_file,
        user=chosen.user or "",
        password_file=chosen.password_file,
        ca_file=chosen.ca_file,
    )
    return Asker(
        settings,
        Load(
            points_per_query=chosen.points_per_query,
            seconds_per_query=chosen.timeout,
            rest=chosen.rest,
            seconds=chosen.minutes * 60.0,
        ),
    )


def _bounds(chosen: argparse.Namespace, span: timedelta) -> Bounds:
    now: datetime = SystemClock().now()
    return Bounds(
        start=(now - span).timestamp(),
        length=span,
        step=chosen.step,
        matchers=tuple(chosen.match),
        cluster=chosen.cluster,
    )


def _progress() -> Callable[[str], None]:
    if not sys.stderr.isatty():
        return lambda words: None
    return lambda words: print(f"\r{words:<70}", end="", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    commands = parser(
        "try",
        "Without an agent and without a write: what a Prometheus that scrapes dcgm-exporter or"
        " nvidia_gpu_exporter says of idle GPUs and faults. Without --prometheus: this machine.",
    )
    commands.add_argument(
        "--prometheus", required=True, metavar="URL", help="http://prometheus:9090"
    )
    commands.add_argument(
        "--last", default=_DEFAULT, metavar="LENGTH", help=f"6h, 7d or 4w until now; {_DEFAULT}"
    )
    commands.add_argument("--out", type=Path, metavar="FILE", help="write the report: report.html")
    commands.add_argument("-o", dest="form", choices=_FORMS, default="text")
    commands.add_argument("--keep", type=Path, metavar="DIR", help="keep a recording, to replay")
    commands.add_argument(
        "--match",
        action="append",
        default=[],
        metavar="MATCHER",
        help='only series with cluster="a"',
    )
    commands.add_argument(
        "--cluster", default="site", metavar="NAME", help="of series without the label; site"
    )
    commands.add_argument("--token-file", type=Path, metavar="FILE", help="bearer token")
    commands.add_argument("--user", metavar="NAME", help="for basic authentication")
    commands.add_argument("--password-file", type=Path, metavar="FILE", help="its password")
    commands.add_argument("--ca-file", type=Path, metavar="FILE", help="CA to trust, in PEM")
    load_ = commands.add_argument_group("what Prometheus may be asked")
    load_.add_argument(
        "--step",
        type=_seconds,
        metavar="LENGTH",
        help="time between two values; default: chosen by the span",
    )
    usual = Load()
    load_.add_argument(
        "--points-per-query", type=_positive, default=usual.points_per_query, metavar="N"
    )
    load_.add_argument("--timeout", type=float, default=usual.seconds_per_query, metavar="SECONDS")
    load_.add_argument(
        "--rest", type=float, default=usual.rest, metavar="TIMES", help="of what a query took"
    )
    load_.add_argument(
        "--minutes", type=float, default=usual.seconds / 60.0, metavar="N", help="for all queries"
    )
    return commands


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _seconds(text: str) -> int:
    try:
        found = int(length(text, "--step").total_seconds())
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found < 60 or 3600 % found:
        raise argparse.ArgumentTypeError(f"{text}: a minute or more, and a part of an hour")
    return found
