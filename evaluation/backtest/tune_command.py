"""`gpuvigil tune`: what other limits would have changed in the past that the hub keeps."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar

from accounting.usage.allocations import MOST_RECORDS
from gpuvigil.clock import SystemClock, to_text
from gpuvigil.config import Config
from gpuvigil.config.startup import parser, run_command
from gpuvigil.hub_client import Hub
from gpuvigil.model import Incident, Opinion, Record, RecordKind, readable
from gpuvigil.store.configured import hubs

from ..judge.claims import Claim, claims
from ..replay import Replay
from . import rule_counts
from .backtest_command import add_span, play_past, recorded, span
from .past import BLOCK
from .proposals import Proposal, limits, proposals, votes_on

_Read = TypeVar("_Read")
_LAST = "7d"
_SHOWN = 5


def main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil tune`: 0 once it was played, 1 when the hub does not answer, 2 for wrong arguments."""
    return run_command(_parser(), arguments, _run)


def _run(config: Config, chosen: argparse.Namespace) -> None:
    start, end = span(chosen, SystemClock().now(), _LAST)
    with closing(hubs(config)()) as hub:
        opinions = _all(hub, RecordKind.OPINION, Opinion.from_record)
        incidents = _all(hub, RecordKind.INCIDENT, Incident.from_record)
        quiet = not sys.stderr.isatty()
        today, found = tried(hub, config, opinions, start, end, quiet=quiet)
    told = [one for one in today if one.loud_from is not None and one.opened_at >= start]
    rules = rule_counts.counted(opinions, incidents, config.alerts.proven)
    result = {"from": to_text(start), "to": to_text(end), "told": len(told)}
    if chosen.form == "json":
        each = {"limits": list(map(said, found)), "rules": list(map(asdict, rules))}
        print(json.dumps({**result, **each}, indent=2))
    else:
        print("\n".join([*lines(found, result), *rule_counts.lines(rules)]))


def tried(
    hub: Hub,
    config: Config,
    opinions: Sequence[Opinion],
    start: datetime,
    end: datetime,
    quiet: bool = True,
) -> tuple[list[Claim], list[Proposal]]:
    """Return the incidents with the site's limits, and what each of the other limits would change."""
    settings = config.analyzer
    others = {limit: Replay(limit.applied(settings), ahead=BLOCK) for limit in limits(settings)}
    as_it_is = Replay(settings, ahead=BLOCK)
    known = play_past(hub, [as_it_is, *others.values()], start, end, "tune", quiet=quiet)
    today = claims(as_it_is.transitions)
    voted = votes_on(recorded(hub, known), today, opinions, start)
    would = {limit: claims(replay.transitions) for limit, replay in others.items()}
    return today, proposals(today, would, voted, start)


def _all(hub: Hub, kind: RecordKind, read: Callable[[Record], _Read]) -> tuple[_Read, ...]:
    return tuple(readable(hub.records(kind, limit=MOST_RECORDS), read))


def said(one: Proposal) -> dict[str, Any]:
    """Return everything about a limit in a form for programs."""
    return {
        **asdict(one.limit),
        "recommended": one.is_recommended,
        "noise": one.noise,
        "useful": one.useful,
        "fewer": [_claim(claim) for claim in one.fewer],
        "more": [_claim(claim) for claim in one.more],
    }


def _claim(claim: Claim) -> dict[str, str]:
    return {
        "opened_at": to_text(claim.opened_at),
        "severity": claim.severity.value,
        "fault": claim.fault,
        "title": claim.title,
        "subject": claim.subject.key,
    }


def lines(found: Sequence[Proposal], result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines for people."""
    start, end = (result[key][:16].replace("T", " ") for key in ("from", "to"))
    told = result["told"]
    yield f"{start} to {end} UTC: {told} {'warning or critical' if told == 1 else 'warnings and criticals'} with the limits as they are"
    changing = [one for one in found if one.fewer or one.more]
    for one in changing:
        yield ""
        yield f"{_what(one)}:{' recommended' if one.is_recommended else ''}"
        yield from _examples("not told", one.fewer)
        yield from _examples("told as well", one.more)
    kept = [one.limit.key for one in found if one not in changing]
    if kept:
        yield ""
        yield f"no other value that was tried changes anything: {', '.join(dict.fromkeys(kept))}"
    if changing:
        first = changing[0].limit
        yield ""
        yield "Nothing was changed. To see all that a limit changes, and to keep it:"
        yield f"  gpuvigil backtest --set analyzer.{first.key}={first.other:g}"
        yield f"  [analyzer] {first.key} = {first.other:g} in gpuvigil.toml"


def _what(one: Proposal) -> str:
    limit = one.limit
    counts = [
        f"{len(them)} {word}" for them, word in ((one.fewer, "fewer"), (one.more, "more")) if them
    ]
    votes = [f"{n} voted {word}" for n, word in ((one.noise, "noise"), (one.useful, "useful")) if n]
    voted = f" ({', '.join(votes)})" if votes else ""
    return f"{limit.key} = {limit.other:g} instead of {limit.now:g}: {', '.join(counts)}{voted}"


def _examples(what: str, them: Sequence[Claim]) -> Iterator[str]:
    for claim in them[:_SHOWN]:
        at = to_text(claim.opened_at)[:16].replace("T", " ")
        yield f"  {what}: {at}  {claim.severity.value}  {claim.title}  {claim.subject.key}"
    if len(them) > _SHOWN:
        yield f"  {what}: {len(them) - _SHOWN} more; -o json has all of them"


def _parser() -> argparse.ArgumentParser:
    commands = parser(
        "tune",
        "Play the past that the hub keeps with each limit at half and at twice its value, or 10 °C"
        " lower and higher, and say"
        " which warnings would not have been told, or would have been as well. Changes nothing.",
    )
    add_span(commands, _LAST)
    return commands
