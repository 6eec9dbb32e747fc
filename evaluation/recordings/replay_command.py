"""`gpuvigil replay DIRECTORY`: play a recording through the analyzer, and compare it with what was wrong."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gpuvigil.clock import duration
from gpuvigil.numbers_in_words import counted

from ..judge.claims import Claim
from ..judge.intervals import wilson
from ..judge.matching import Judged, Verdict
from . import play
from .overlay import OVERLAYS, held_against, injections
from .problems import BadRecording
from .recording import Recording, read
from .template import write
from .unjudged import lines, unjudged

_DAY = timedelta(days=1)
_MARKS = {Verdict.FALSE: "wrong"}


def main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil replay`: 0 once it was played, 1 when a truth was missed, 2 for a bad recording.

    With `--strict`, a wrong incident leads to 1 as well.
    """
    parser = _parser()
    chosen = parser.parse_args(arguments)
    try:
        if chosen.template:
            write(chosen.directory)
            _tell(f"wrote an example to {chosen.directory}: gpuvigil replay {chosen.directory}")
            return 0
        recording = read(chosen.directory, play.CAUSES, chosen.timezone)
        return _replay(recording, chosen)
    except BadRecording as error:
        for line in str(error).splitlines():
            _tell(line)
        return 2


def _replay(recording: Recording, chosen: argparse.Namespace) -> int:
    for note in recording.notes:
        _tell(note)
    as_json = chosen.form == "json"
    if not as_json:
        _print([*_head(recording), ""])
    said = play.played(recording, silence=chosen.gaps == "silence", tell=_progress())
    result = _Result.of(recording, said)
    overlays = _overlays(recording, chosen, said) if chosen.overlay is not None else []
    if as_json:
        print(json.dumps({**result.to_json(), "overlays": overlays}, indent=2))
    else:
        less = lines(unjudged(recording.given))
        _print([*result.lines(), *_overlay_lines(overlays), "", *less])
    return result.code(strict=chosen.strict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    recording: Recording
    said: Sequence[Claim]
    verdicts: play.Verdicts | None

    @classmethod
    def of(cls, recording: Recording, said: Sequence[Claim]) -> "_Result":
        truths = recording.truths
        verdicts = None if truths is None else play.judged(truths, said)
        return cls(recording=recording, said=said, verdicts=verdicts)

    @property
    def figures(self) -> dict[str, Any] | None:
        if self.verdicts is None:
            return None
        days = (self.recording.end - self.recording.start) / _DAY * len(self.recording.nodes)
        return play.figures(self.verdicts, days)

    def verdict(self, one: Claim) -> Judged | None:
        """Return an incident's verdict; None where no truth is given."""
        return None if self.verdicts is None else self.verdicts.of(one)

    def code(self, *, strict: bool) -> int:
        """Return the exit code."""
        if self.verdicts is None:
            return 0
        return int(self.verdicts.missed > 0 or (strict and bool(self.verdicts.wrong)))

    def to_json(self) -> dict[str, Any]:
        """Return everything, for programs."""
        outcomes = () if self.verdicts is None else self.verdicts.outcomes
        return {
            "recording": _described(self.recording),
            "cannot_judge": [asdict(one) for one in unjudged(self.recording.given)],
            "notes": list(self.recording.notes),
            "incidents": [play.incident(one, self.verdict(one)) for one in self.said],
            "truths": None if self.verdicts is None else [play.truth(*one) for one in outcomes],
            "figures": self.figures,
        }

    def lines(self) -> Iterator[str]:
        """Yield a line for each incident, then the figures."""
        yield from (_line(one, self.verdict(one)) for one in self.said)
        if not self.said:
            yield "no incident"
        if self.verdicts is not None:
            yield ""
            yield from _figures(self.verdicts, self.figures or {})


def _figures(verdicts: play.Verdicts, found: Mapping[str, Any]) -> Iterator[str]:
    yield f"{found['found']} of {counted(found['truths'], 'truth')} found, {found['cause_right']} of {found['causes_asked']} with the right cause; {counted(found['wrong'], 'wrong incident')}, {found['wrong_critical']} of them critical"
    if found["delay_seconds_median"] is not None:
        yield f"delay: {found['delay_seconds_median']:.0f} s median, {found['delay_seconds_max']:.0f} s at most"
    for truth, outcome in verdicts.outcomes:
        how = "missed"
        if outcome.seconds is not None:
            how = f"found after {outcome.seconds:.0f} s"
            if truth.fault:
                how += ", right cause" if outcome.cause else ", another cause"
        yield f"  {_time(truth.start)}  {how:<32}  {truth.subject.key}: {truth.cause}"


def _line(one: Claim, verdict: Judged | None) -> str:
    since, until = one.spans[0][0], one.spans[-1][1]
    lasted = "to the end" if until is None else f"for {duration(until - since)}"
    lasted += f", {len(one.spans)} times" if len(one.spans) > 1 else ""
    mark = "" if verdict is None else f"  [{_MARKS.get(verdict.verdict, verdict.verdict.value)}]"
    return (
        f"{_time(since)}  {one.severity.value:<8}  {one.title}  {one.subject.key}  {lasted}{mark}"
    )


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%SZ}"


def _described(recording: Recording) -> dict[str, Any]:
    return {
        "from": recording.start.isoformat(),
        "to": recording.end.isoformat(),
        "tick_seconds": recording.tick_seconds,
        "rows": {name: len(table) for name, table in sorted(recording.tables.items())},
        "nodes": [node.key for node in recording.nodes],
        "gpus": [gpu.key for gpu in recording.gpus],
        "events": len(recording.events),
        "kernel_lines": recording.kernel_lines,
        "jobs": len({one.holder for one in recording.allocations}),
        "gaps": [[start.isoformat(), end.isoformat()] for start, end in recording.gaps],
    }


def _head(recording: Recording) -> Iterator[str]:
    rows = sum(len(table) for name, table in recording.tables.items() if name in recording.given)
    hours = (recording.end - recording.start).total_seconds() / 3600.0
    yield f"{counted(rows, 'row')} of {counted(len(recording.nodes), 'node')} and {counted(len(recording.gpus), 'GPU')}, one every {recording.tick_seconds:g} s; {_time(recording.start)} and {hours:.1f} h on"
    told = [
        counted(recording.kernel_lines, "kernel line"),
        counted(len(recording.events), "event"),
        counted(len({one.holder for one in recording.allocations}), "job"),
    ]
    yield f"  {', '.join(told)}; {'no truth' if recording.truths is None else counted(len(recording.truths), 'truth')}"
    if recording.gaps:
        longest = max(end - start for start, end in recording.gaps)
        yield f"  {counted(len(recording.gaps), 'gap')} without a row of any node, {duration(longest)} the longest: nobody recorded then (--gaps silence: the nodes were silent)"


def _overlays(
    recording: Recording, chosen: argparse.Namespace, said: Sequence[Claim]
) -> list[dict[str, Any]]:
    """Lay each kind of fault over the recording by itself, and return the outcomes."""
    kinds = chosen.overlay or tuple(OVERLAYS)
    return [
        asdict(held_against(recording, one, said))
        for one in injections(recording, kinds, chosen.seed)
    ]


def _overlay_lines(overlays: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not overlays:
        return
    hits = sum(one["seconds"] is not None for one in overlays)
    low, high = wilson(hits, len(overlays))
    yield ""
    yield f"{hits} of {counted(len(overlays), 'overlay')} found ({low:.2f} to {high:.2f})"
    for one in overlays:
        seconds = one["seconds"]
        how = "not found" if seconds is None else f"found after {seconds:.0f} s"
        right = [word for word in ("cause", "place", "action") if one[word]]
        yield f"  {one['fault']}: {how}{', right ' + ', '.join(right) if right else ''}"


def _progress() -> Callable[[float], None]:
    """Return a function that shows the share done, or one that does nothing without a terminal."""
    if not sys.stderr.isatty():
        return lambda share: None

    def tell(share: float) -> None:
        end = "\r           \r" if share >= 1.0 else ""
        print(f"\rplayed {share:.0%}{end}", end="", file=sys.stderr, flush=True)

    return tell


def _print(said: Sequence[str]) -> None:
    print("\n".join(said))


def _tell(words: str) -> None:
    print(f"gpuvigil replay: {words}", file=sys.stderr)


def _zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time zone: write UTC or Europe/Berlin"
        ) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuvigil replay",
        description="Play a recording through the detectors: which incidents they raise, and"
        " whether these are right. docs/recordings.md has the layout.",
    )
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="gpu.csv and others")
    parser.add_argument(
        "--template", action="store_true", help="write an example of every file to DIRECTORY"
    )
    parser.add_argument(
        "--timezone",
        type=_zone,
        metavar="ZONE",
        help="time zone of times without one, such as Europe/Berlin",
    )
    parser.add_argument(
        "--gaps",
        choices=("recorder", "silence"),
        default="recorder",
        help="what a time without rows of any node is: a gap of the recorder, or silence of the nodes",
    )
    parser.add_argument(
        "--strict", action="store_true", help="also exit with 1 for a wrong incident"
    )
    parser.add_argument(
        "--overlay",
        nargs="*",
        choices=list(OVERLAYS),
        metavar="KIND",
        help=f"lay faults over the recording, each on its own: {', '.join(OVERLAYS)}; all by default",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the overlays' places and sizes"
    )
    parser.add_argument(
        "-o", dest="form", choices=("table", "json"), default="table", help="default: table"
    )
    return parser
