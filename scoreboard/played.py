"""Which fleets were played with which code, and what earlier code came to."""

from collections.abc import Iterator, Mapping
from typing import Any

from .splits import PARTS
from .words import OURS, rate, share


def belonging(results: Mapping[str, Any]) -> Iterator[str]:
    """Which fleets, which code."""
    runs = list(results["runs"].values())
    yield "## What was played"
    yield ""
    yield "| part | what | fleets | node-days | fleet | judged | commit | command of the first |"
    yield "|---|---|---|---|---|---|---|---|"
    for part in PARTS.values():
        own = sorted((it for it in runs if it["part"] == part.name), key=lambda it: int(it["seed"]))
        if not own:
            yield f"| {part.name} | {part.sentence} | 0 | | | | | not played yet |"
            continue
        days = sum(next(iter(it["tallies"].values()))["node_days"] for it in own)
        marks = (_all(it[key] for it in own) for key in ("fleet", "judged"))
        commits = _all(it["commit"][:9] for it in own)
        yield f"| {part.name} | {part.sentence} | {len(own)} | {days:.1f} | {' | '.join(marks)} | {commits} | `{own[0]['command']}` |"
    yield ""
    yield "*fleet* and *judged* are hashes of the fleet's sources with its parameters, and of the detectors with the judge: all fleets of a part have the same. Seeds and what is kept out of tuning: `scoreboard/splits.py`. `make scoreboard` goes on where it was; `make scoreboard-quiet` goes on adding quiet node-days until it is stopped."


def before(results: Mapping[str, Any]) -> Iterator[str]:
    """What other fleets and other detectors came to."""
    yield "## Before"
    yield ""
    yield "What parts came to with an earlier fleet, earlier detectors or an earlier judge, oldest first; a new fleet is shown beside the one before it, so that nobody can make it easier unseen."
    yield ""
    yield "<details><summary>All of them</summary>"
    yield ""
    yield "| part | fleet | judged | commit | fleets | node-days | found | right cause | F1 of the part | critical pages per 1,000 node-days | false warnings per 1,000 node-days |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for one in results["history"]:
        its = one["figures"].get(OURS)
        if its:
            cells = (
                *(f"`{one[key][:16]}`" for key in ("fleet", "judged")),
                f"`{one['commit'][:9]}`",
                str(one["fleets"]),
                f"{its['node_days']:.1f}",
                share(its["recall"]),
                share(its["cause"]),
                f"{its['f1']:.3f}",
                rate(its["false_pages"]),
                rate(its["false_warnings"]),
            )
            yield f"| {one['part']} | {' | '.join(cells)} |"
    yield ""
    yield "</details>"


def _all(values: Any) -> str:
    return ", ".join(f"`{it}`" for it in sorted(set(values)))
