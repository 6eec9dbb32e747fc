"""Which fleets were played with which code, and what earlier code came to."""

from collections.abc import Iterator, Mapping
from typing import Any

from .figures_text import OURS, added, commit, number, rate, share
from .fingerprint import judged_hash
from .judge.score import score
from .results import Tallies
from .splits import PARTS


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
        marks = [_all(f"`{it[key]}`" for it in own) for key in ("fleet", "judged")]
        if own[0]["judged"] != judged_hash():
            marks[1] += " (**earlier detectors**)"
        commits = _all(commit(it["commit"]) for it in own)
        yield f"| {part.name} | {part.sentence} | {len(own)} | {days:.1f} | {' | '.join(marks)} | {commits} | `{own[0]['command']}` |"
    yield ""
    yield "*fleet* and *judged* are hashes of the fleet's sources with its parameters, and of the detectors with the judge: all fleets of a part have the same, and it is they that bind a figure to code; *changed* stands where files were changed that the commit does not hold; *commit not kept*, where history was rewritten since. Seeds and what is kept out of tuning: `evaluation/splits.py`. A row's command with `--again` behind it plays its first fleet once more, writes nothing, and says whether the same numbers come out (exit code 1 when not). `make scoreboard` goes on where it was; `make scoreboard-quiet` goes on adding quiet node-days until it is stopped."


def by_part(found: Tallies) -> Iterator[str]:
    """All of our own figures, part by part."""
    yield f"## {OURS}, part by part"
    yield ""
    yield "Every fleet of each part; what each is, is said [below](#what-was-played). *One incident* is the share of faults with exactly one incident, of the right cause; *about a fault* is of warnings and criticals; false ones are per 1,000 node-days."
    yield ""
    yield "| part | found | right cause | in its first words | right action | one incident | median s | p95 s | F1 | about a fault | false warnings |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for part in PARTS:
        if part == "quiet" or not (own := found.get(part, {}).get(OURS)):
            continue
        figures = score(own)
        faults, severe = figures["faults"], figures["claims"]["precision_by_severity"]
        f1 = figures["machines"]["f1"]
        low, high = f1["interval"]
        shares = ("recall", "cause", "named_at_first", "action", "exactly_one")
        cells = (
            *(share(faults[it]) for it in shares),
            number(faults["seconds_median"]),
            number(faults["seconds_p95"]),
            f"{f1['value']:.3f} ({low:.2f} to {high:.2f})",
            share(added(severe["critical"], severe["warning"])),
            rate(figures["claims"]["false_by_severity"]["warning"]),
        )
        yield f"| {part} | {' | '.join(cells)} |"


def before(results: Mapping[str, Any]) -> Iterator[str]:
    """What other fleets and other detectors came to."""
    yield "## Before"
    yield ""
    yield "What parts came to with an earlier fleet, earlier detectors or an earlier judge, oldest first, without the slice; a new fleet is shown beside the one before it, so that nobody can make it easier unseen."
    yield ""
    yield "<details><summary>All of them</summary>"
    yield ""
    yield "| part | fleet | judged | commit | fleets | node-days | found | right cause | F1 of the part | critical pages per 1,000 node-days | false warnings per 1,000 node-days |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for one in results["history"]:
        its = one["figures"].get(OURS)
        # The slice is played again at every change, to compare and not to tell.
        if its and one["part"] != "slice":
            cells = (
                *(f"`{one[key][:16]}`" for key in ("fleet", "judged")),
                commit(one["commit"]),
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
    return ", ".join(sorted(set(values)))
