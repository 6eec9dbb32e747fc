"""`gpuvigil backtest`: before a limit is changed, which incidents and pages would the change add or remove?"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import Any

from accounting.usage.allocations import MOST_RECORDS
from analyzer.correlation.all_detectors import DETECTORS, questions
from analyzer.hub_queries import span_of
from gpuvigil.clock import SystemClock, to_text
from gpuvigil.config import AnalyzerSettings, Config, load
from gpuvigil.config.startup import fail, parser
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.faults import FAULTS
from gpuvigil.hub_client import Hub
from gpuvigil.model import UNREADABLE, RecordKind, Transition
from gpuvigil.state_directory import config_of_up
from gpuvigil.store.configured import hubs
from gpuvigil.store.external import store_of
from gpuvigil.typed_times import length, moment

from ..judge.claims import Claim, claims
from ..replay import Replay
from .compare import Account, Pair, accounts, pairs, raised
from .past import BLOCK, Past, blocks, past

_LAST = "24h"
_MOST_SHOWN = 40
_SECTION = "analyzer."
_PREFIX = "GPUVIGIL_ANALYZER_"
_ITSELF = "gpuvigil"  # the cluster of gpuvigil's own transitions


def main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil backtest`: 0 once it was played, 1 when the hub does not answer, 2 for wrong arguments."""
    commands = _parser()
    chosen = commands.parse_args(arguments)
    try:
        config = _config(chosen)
        start, end = span(chosen, SystemClock().now(), _LAST)
        with closing(hubs(config)()) as hub:
            found = played(hub, config, start, end, quiet=not sys.stderr.isatty())
    except GpuvigilError as error:
        return fail(commands.prog, error)
    result = {**said(found), "set": chosen.set, "from": to_text(start), "to": to_text(end)}
    lines = [json.dumps(result, indent=2)] if chosen.form == "json" else list(_lines(found, result))
    print("\n".join(lines))
    return 0


def played(
    hub: Hub, config: Config, start: datetime, end: datetime, quiet: bool = True
) -> list[Pair]:
    """Return what was raised from `start` to `end`, paired with what the detectors would raise with these settings."""
    replay = Replay(config.analyzer, ahead=BLOCK)
    known = play_past(hub, [replay], start, end, "backtest", quiet=quiet)
    return pairs(recorded(hub, known), claims(replay.transitions), start)


def play_past(
    hub: Hub, replays: Sequence[Replay], start: datetime, end: datetime, prog: str, quiet: bool
) -> Past:
    """Feed the replays with the hub's data of the span, and of as long before it as their detectors look back."""
    settings = replays[0].settings
    before = max(_whole_steps(_longest(one.settings), settings) for one in replays)
    begin = _floor(start - before, settings)
    known = past(hub, begin, _floor(end, settings))
    _warn(known, prog)
    for block in blocks(store_of(hub), known):
        for one in replays:
            one.feed(block)
        if not quiet:
            share = (block.end - begin) / (known.end - begin)
            print(f"\rplayed {share:.0%}", end="", file=sys.stderr)
    if not quiet:
        print("\r           \r", end="", file=sys.stderr)
    return known


def said(found: Sequence[Pair]) -> dict[str, Any]:
    """Return everything in a form for programs."""
    return {
        "faults": {fault: asdict(it) for fault, it in accounts(found).items() if fault},
        "all": asdict(accounts(found).get("", Account())),
        "incidents": [
            {
                "fault": pair.either.fault,
                "subject": pair.either.subject.key,
                "was": _claim(pair.was),
                "would": _claim(pair.would),
            }
            for pair in found
        ],
    }


def _claim(claim: Claim | None) -> dict[str, Any] | None:
    if claim is None:
        return None
    return {
        "title": claim.title,
        "severity": claim.severity.value,
        "opened_at": to_text(claim.opened_at),
        "seconds": [
            None if until is None else (until - since).total_seconds()
            for since, until in claim.spans
        ],
        "pages": len(claim.pages),
    }


def _lines(found: Sequence[Pair], result: Mapping[str, Any]) -> Iterator[str]:
    start, end = (result[key][:16].replace("T", " ") for key in ("from", "to"))
    yield f"{start} to {end} UTC{', with' if result['set'] else ', the settings as they are'}"
    yield from (f"  {it}" for it in result["set"])
    of = accounts(found)
    if not of:
        yield "nothing was raised, and nothing would be"
        return
    yield ""
    yield f"{'':<34}{'was':>7}{'would':>7}{'both':>7}{'pages':>8}{'would':>7}"
    for fault, it in [*((f, a) for f, a in of.items() if f), ("", of[""])]:
        name = FAULTS[fault].title if fault in FAULTS else fault or "all"
        yield f"{name[:33]:<34}{it.was:>7}{it.would:>7}{it.both:>7}{it.pages_were:>8}{it.pages_would:>7}"
    yield from _changes("would no longer be raised", [it for it in found if it.would is None])
    yield from _changes("would be raised as well", [it for it in found if it.was is None])
    both = [it for it in found if it.was is not None and it.would is not None and it.changes]
    yield from _changes("would be raised otherwise", both)


def _changes(what: str, found: Sequence[Pair]) -> Iterator[str]:
    if not found:
        return
    yield ""
    yield f"{what}:"
    for pair in found[:_MOST_SHOWN]:
        one = pair.either
        severity = one.severity.value
        if pair.was is not None and pair.would is not None:
            severity = f"{pair.was.severity.value} -> {severity}"
        at = to_text(one.opened_at)[:16].replace("T", " ")
        yield f"  {at}  {severity:<8}  {one.title}  {one.subject.key}"
    if len(found) > _MOST_SHOWN:
        yield f"  and {len(found) - _MOST_SHOWN} more; -o json has all of them"


def recorded(hub: Hub, known: Past) -> list[Claim]:
    """Return what detectors raised in that span."""
    steps = []
    kind = RecordKind.TRANSITION
    for record in hub.records(kind, since=known.start, until=known.end, limit=MOST_RECORDS):
        with suppress(*UNREADABLE):
            steps.append(Transition.from_record(record))
    # Transitions about gpuvigil itself, and those to owners, come from no detector; the selftest's are left out.
    return raised(one for one in steps if one.subject.cluster != _ITSELF and not one.subject.marked)


def _warn(known: Past, prog: str) -> None:
    if known.unreadable:
        said = f"{known.unreadable} records were written by another version: left out"
        print(f"gpuvigil {prog}: {said}", file=sys.stderr)
    if known.cut:
        said = f"the hub has more than {MOST_RECORDS} records of a kind: ask for a shorter span"
        print(f"gpuvigil {prog}: {said}", file=sys.stderr)


def _longest(settings: AnalyzerSettings) -> timedelta:
    return max(span_of(span, settings) for _, span in questions(DETECTORS))


def _whole_steps(span: timedelta, settings: AnalyzerSettings) -> timedelta:
    step = timedelta(seconds=settings.tick_seconds)
    return -(-span // step) * step


def _floor(at: datetime, settings: AnalyzerSettings) -> datetime:
    """Return the last whole step before a time: passes happen at these."""
    step = timedelta(seconds=settings.tick_seconds)
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return day + (at - day) // step * step


def _config(chosen: argparse.Namespace) -> Config:
    """Return the hub's configuration, overridden by the given limits."""
    given = _variables(chosen.set)
    try:
        return load(config_of_up(chosen.config), {**os.environ, **given})
    except ConfigError as error:
        said = str(error)
        for variable in given:
            key = variable.removeprefix(_PREFIX).lower()
            said = said.replace(variable, f"--set {_SECTION}{key}")
        raise ConfigError(said) from None


def _variables(given: Sequence[str]) -> dict[str, str]:
    """Return `analyzer.clear_seconds=300` as the environment variable that means the same."""
    known = [setting.name for setting in fields(AnalyzerSettings)]
    found = {}
    for one in given:
        key, sign, value = one.partition("=")
        name = key.strip().removeprefix(_SECTION)
        if not sign or name not in known:
            raise ConfigError(f"--set {one}: write analyzer.KEY=VALUE; keys are {', '.join(known)}")
        found[f"{_PREFIX}{name.upper()}"] = value.strip()
    return found


def span(chosen: argparse.Namespace, now: datetime, usual: str) -> tuple[datetime, datetime]:
    """Return the span by `--last`, `--from` and `--to`; ConfigError where they make no span."""
    if chosen.last is not None and chosen.start is not None:
        raise ConfigError("name --last or --from, not both")
    end = now if chosen.end is None else min(moment(chosen.end, "--to"), now)
    if chosen.start is None:
        return end - length(chosen.last or usual, "--last"), end
    start = moment(chosen.start, "--from")
    if start >= end:
        raise ConfigError(f"--from {chosen.start} is not before the end: there is nothing to play")
    return start, end


def _parser() -> argparse.ArgumentParser:
    commands = parser(
        "backtest",
        "Play the past that the hub keeps through the detectors as they are set here, and say what"
        " would have been raised against what was.",
    )
    add_span(commands, _LAST)
    commands.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another limit, such as analyzer.port_flap_count=5; repeatable",
    )
    return commands


def add_span(commands: argparse.ArgumentParser, usual: str) -> None:
    """Add the options for the span that is played and the form of the output; see `span`."""
    commands.add_argument("--last", metavar="LENGTH", help=f"15m, 6h, 7d or 2w until --to; {usual}")
    commands.add_argument("--from", dest="start", metavar="TIME", help="2026-11-14, in UTC")
    commands.add_argument("--to", dest="end", metavar="TIME", help="the same; default: now")
    commands.add_argument(
        "-o", dest="form", choices=("table", "json"), default="table", help="default: table"
    )
