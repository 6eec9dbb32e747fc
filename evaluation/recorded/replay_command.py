"""`gpuvigil replay FILE...`: real backgrounds, known faults, the same judge."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..baselines import SETS
from ..baselines.peers import PEERS
from ..judge.intervals import wilson
from .columns import PRESETS, Columns, parse
from .overlay import OVERLAYS
from .play import Recording, held_against, said
from .read import recording

_SETS = [name for name in SETS if name not in PEERS]


def main(arguments: Sequence[str]) -> int:
    """`gpuvigil replay`: 0 once everything was played, 2 when something cannot be read."""
    chosen = _parser().parse_args(arguments)
    try:
        found = Recording.of(recording(chosen.files, _columns(chosen), _tell))
    except ValueError as error:
        _tell(str(error))
        return 2
    result = played(found, chosen.sets, chosen.seed, chosen.faults or tuple(OVERLAYS))
    print(json.dumps(result, indent=2) if chosen.json else "\n".join(_lines(result)))
    return 0


def played(
    found: Recording, sets: Sequence[str], seed: int, kinds: Sequence[str]
) -> dict[str, Any]:
    """Each kind of fault laid over the recording on its own, for each set of detectors."""
    injections = found.injections(seed, kinds)
    result: dict[str, Any] = {
        "rows": len(found.table),
        "gpus": len(found.gpus),
        "hours": (found.end - found.start).total_seconds() / 3600.0,
        "tick_seconds": found.tick_seconds,
        "seed": seed,
        "sets": {},
    }
    for name in sets:
        before = said(found, name)
        outcomes = [held_against(it, before, said(found, name, it)) for it in injections]
        hits = sum(outcome.found for outcome in outcomes)
        result["sets"][name] = {
            "said_without_a_fault": [
                f"{c.opened_at.isoformat()} {c.subject.key}: {c.title}" for c in before
            ],
            "recall": {"hits": hits, "of": len(outcomes), "interval": wilson(hits, len(outcomes))},
            "outcomes": [asdict(outcome) for outcome in outcomes],
        }
    return result


def _lines(result: dict[str, Any]) -> list[str]:
    lines = [
        f"{result['rows']} rows of {result['gpus']} GPUs over {result['hours']:.1f} h, one every {result['tick_seconds']:g} s"
    ]
    for name, it in result["sets"].items():
        low, high = it["recall"]["interval"]
        lines += [
            "",
            f"{name}: {it['recall']['hits']} of {it['recall']['of']} injected faults found ({low:.2f} to {high:.2f}); without a fault it says {len(it['said_without_a_fault'])} things",
        ]
        for outcome in it["outcomes"]:
            seconds = outcome["seconds"]
            how = "not found" if seconds is None else f"found after {seconds:.0f} s"
            right = [word for word in ("cause", "place", "action") if outcome[word]]
            words = f", right {', '.join(right)}" if right else ""
            lines.append(f"  {outcome['fault']}: {how}{words}")
        lines += [f"  without a fault: {text}" for text in it["said_without_a_fault"][:10]]
    return lines


def _columns(chosen: argparse.Namespace) -> Columns:
    if chosen.columns is None:
        return PRESETS[chosen.preset]
    path: Path = chosen.columns
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _tell(words: str) -> None:
    print(f"gpuvigil replay: {words}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuvigil replay",
        description="Play recorded telemetry with faults laid over it, and say which are found.",
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help=".csv, .parquet, or .json of /api/v1/query_range",
    )
    parser.add_argument(
        "--preset", choices=sorted(PRESETS), default="nvidia-smi", help="whose columns they are"
    )
    parser.add_argument(
        "--columns", type=Path, help="a file of `column = field * factor` lines instead"
    )
    parser.add_argument(
        "--faults", nargs="*", choices=list(OVERLAYS), help="kinds to lay; all by default"
    )
    parser.add_argument(
        "--sets", nargs="*", choices=_SETS, default=["gpuvigil"], help="whose detectors"
    )
    parser.add_argument("--seed", type=int, default=1, help="where and how strong the faults are")
    parser.add_argument("--json", action="store_true", help="everything, as JSON")
    return parser
