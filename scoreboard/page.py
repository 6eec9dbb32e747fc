"""`docs/scoreboard.md` from `scoreboard/results.json`: every figure with its size and interval."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from collector.simulator.fleet.kinds import KINDS
from gpuvigil.model import Severity

from .baselines import SETS
from .judge.matching import Outcome
from .judge.score import Tally, curve, score
from .splits import PARTS

OURS = "gpuvigil"
# What the others found on data of their own: Minder, NSDI 25.
_PUBLISHED = "Minder F1 0.893 (precision 0.904), its Mahalanobis baseline 0.777"
_THIRDS = (0.0, 1.0 / 3.0, 2.0 / 3.0, 1.0)

Tallies = Mapping[str, Mapping[str, Sequence[Tally]]]


def tallies(results: Mapping[str, Any]) -> Tallies:
    """By part and set of detectors."""
    found: dict[str, dict[str, list[Tally]]] = defaultdict(lambda: defaultdict(list))
    for _, entry in sorted(results["runs"].items()):
        for name, one in entry["tallies"].items():
            found[entry["part"]][name].append(Tally.from_json(one))
    return found


def page(results: Mapping[str, Any], speed: Mapping[str, Any]) -> Iterator[str]:
    """The whole document."""
    found = tallies(results)
    yield "# Scoreboard"
    yield ""
    yield "How well faults are found on a simulated fleet whose truth is known, written from `scoreboard/results.json` by `make docs`."
    yield "**Every number here is of simulated fleets**: no public set has labelled GPU faults in time series. What was found of real faults is not in here."
    yield ""
    yield from belonging(results)
    for section in (overall, false_alarms, splits, magnitudes, kinds):
        yield ""
        yield from section(found)
    yield ""
    yield from cost(speed)
    yield ""
    yield from reading()


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
    yield "*fleet* and *judged* are hashes of the fleet's sources with its parameters, and of the detectors with the judge. Seeds and what is kept out of tuning: `scoreboard/splits.py`."


def overall(found: Tallies) -> Iterator[str]:
    """Everybody on the report's fleets."""
    yield "## Everybody on the same fleets"
    yield ""
    yield "The part *report*. A share stands with its 95 % interval (Wilson) and what it is of; F1 is per machine and quarter of an hour, over the part *quiet* as well where that was played, so that most machines are healthy; its interval by drawing whole fleets (none can be said of one fleet)."
    yield ""
    yield "| detectors | found | right cause | right action | claims that are about a fault | F1 | windows right of | median s | p95 s | incidents per fault |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name in SETS:
        own = found.get("report", {}).get(name)
        if not own:
            continue
        figures = score(own)
        faults = figures["faults"]
        machines = score([*own, *found.get("quiet", {}).get(name, ())])["machines"]
        f1, windows = machines["f1"], machines["windows"]
        cells = (
            share(faults["recall"]),
            share(faults["cause"]),
            share(faults["action"]),
            share(figures["claims"]["precision"]),
            f"{f1['value']:.3f} ({f1['interval'][0]:.2f} to {f1['interval'][1]:.2f}, {f1['fleets']} fleets)",
            f"{windows['found'] + windows['quiet']} of {sum(windows.values())}, {windows['found'] + windows['missed']} with a fault",
            number(faults["seconds_median"]),
            number(faults["seconds_p95"]),
            number(faults["incidents_per_found_fault"], 2),
        )
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    yield f"For orientation only, since their data differs: {_PUBLISHED}."


def false_alarms(found: Tallies) -> Iterator[str]:
    """What is said where nothing is wrong, and what that makes of a page's worth."""
    yield "## Where nothing is wrong"
    yield ""
    yield "The part *quiet*, with every look-alike of life in it: per 1,000 node-days, with the exact Poisson interval."
    yield ""
    yield "| detectors | node-days | critical pages | critical | warning | info |"
    yield "|---|---|---|---|---|---|"
    for name in SETS:
        own = found.get("quiet", {}).get(name)
        if own:
            claims = score(own)["claims"]
            severities = [rate(claims["false_by_severity"][it.value]) for it in Severity]
            pages = rate(claims["false_pages_per_1000_node_days"])
            days = claims["false_per_1000_node_days"]["node_days"]
            yield f"| {name} | {days:.1f} | {pages} | {' | '.join(severities)} |"
    own = [*found.get("report", {}).get(OURS, ()), *found.get("quiet", {}).get(OURS, ())]
    if own:
        yield ""
        yield f"At the natural rate of faults, so many of {OURS}'s claims of any severity would be about one (recall of *report*, false claims of both parts):"
        yield ""
        yield "| faults per 1,000 node-days | precision | from the worse to the better ends of both intervals |"
        yield "|---|---|---|"
        for it in score(own)["natural"]:
            low, high = it["interval"]
            yield f"| {it['faults_per_1000_node_days']:g} | {it['precision']:.4f} | {low:.4f} to {high:.4f} |"


def splits(found: Tallies) -> Iterator[str]:
    """Kept out, noisier, with gaps: recall by part."""
    yield "## Unseen, noisier, with gaps"
    yield ""
    yield "Faults found, by part; what each part is, is in the first table."
    yield ""
    yield f"| part | {' | '.join(SETS)} |"
    yield "|---|" + "---|" * len(SETS)
    for part in PARTS:
        if part == "quiet" or part not in found:
            continue
        cells = [
            share(score(own)["faults"]["recall"]) if (own := found[part].get(name)) else ""
            for name in SETS
        ]
        yield f"| {part} | {' | '.join(cells)} |"


def magnitudes(found: Tallies) -> Iterator[str]:
    """Recall as a curve."""
    yield "## The smaller, the harder"
    yield ""
    yield "Faults with a magnitude, by the third of their kind's range (logarithmic) that it lies in; the lowest third is kept out of tuning."
    yield ""
    yield "| detectors | lowest third | middle | highest third |"
    yield "|---|---|---|---|"
    for name, bins in by_magnitude(found).items():
        yield f"| {name} | {' | '.join(share(it['recall']) for it in bins)} |"
    yield ""
    yield "![Recall over magnitude](images/scoreboard-magnitude.svg)"


def by_magnitude(found: Tallies) -> dict[str, list[dict[str, Any]]]:
    """For each set the recall in each third of the range of magnitudes."""
    bins = {}
    for name in SETS:
        parts = ("report", "kept-out magnitudes")
        own = [
            o for part in parts for one in found.get(part, {}).get(name, ()) for o in one.outcomes
        ]
        if own:
            bins[name] = curve([placed for o in own if (placed := _placed(o)) is not None], _THIRDS)
    return bins


def kinds(found: Tallies) -> Iterator[str]:
    """Fault by fault, ours."""
    yield f"## Fault by fault: {OURS}"
    yield ""
    yield "The parts *report* and *kept-out kinds*. *Named rightly* is of the claims that name this kind; a kind that no detector names has none."
    yield ""
    yield "| fault | found | right cause | right action | named rightly | F1 by name | median s | incidents |"
    yield "|---|---|---|---|---|---|---|---|"
    own = [
        one for part in ("report", "kept-out kinds") for one in found.get(part, {}).get(OURS, ())
    ]
    if not own:
        return
    for kind, it in score(own)["kinds"].items():
        cells = (
            share(it["recall"]),
            share(it["cause"]),
            share(it["action"]),
            share(it["precision"]),
            f"{it['f1_by_name']:.2f}",
            number(it["seconds_median"]),
            number(it["incidents_per_found_fault"], 1),
        )
        yield f"| {kind} | {' | '.join(cells)} |"


def cost(speed: Mapping[str, Any]) -> Iterator[str]:
    """What a node-day costs."""
    seconds = speed["cpu_seconds_per_node_day"]
    minutes = sum(seconds.values()) * 1000.0 / 60.0 / speed["cpus"]
    yield "## How fast it goes"
    yield ""
    yield f"`{speed['command']}`: {speed['nodes']} nodes of 8 GPUs without a fault, {speed['passes']} passes, Python {speed['python']}, on a machine that did other things as well."
    yield f"A node-day costs {seconds['fleet']:.2f} s of CPU time for the fleet and {seconds['detectors']:.2f} s for the detectors: 1,000 of them, on {speed['cpus']} CPUs, {minutes:.0f} min (bar: 15 min for the detectors)."


def reading() -> Iterator[str]:
    """How the judge thinks, in short."""
    yield "## How it is judged"
    yield ""
    yield "- A fault is *found* when an incident on its machine, of any cause but more than a note (info) unless it names it, begins after its first sign and before its end; what begins within half an hour after it is its echo, neither found nor false."
    yield "- The *cause* is right when the incident names the fault itself (`scoreboard/names.py`): that a node is silent is true of a dead node and of a dead collector, and names neither."
    yield "- The *action* is right when its first step is the right one, and the node is drained exactly where it should be."
    yield "- Idle GPUs are no claims about faults and are not judged here."
    yield "- Peers' rules run in the analyzer's own passes and its life of an incident; each has its source in `scoreboard/baselines/rules.py`. What they give as advice is not in their rules, so their action is never right."
    yield "- The limits of the library's detectors were not tuned: they may do better than shown."
    yield "- Faults are held short (two hours) so that every kind fits into one fleet: what grows for days has little time to show here."


def share(value: Mapping[str, Any]) -> str:
    """`0.75 (0.41 to 0.93, 6 of 8)`."""
    if value["value"] is None:
        return "-"
    low, high = value["interval"]
    return f"{value['value']:.2f} ({low:.2f} to {high:.2f}, {value['hits']} of {value['of']})"


def rate(value: Mapping[str, Any]) -> str:
    """`62.5 (12.9 to 182.7, 3)`."""
    if value["value"] is None:
        return "-"
    low, high = value["interval"]
    return f"{value['value']:.1f} ({low:.1f} to {high:.1f}, {value['count']})"


def number(value: float | None, digits: int = 0) -> str:
    """A number, or that there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def _all(values: Any) -> str:
    return ", ".join(f"`{it}`" for it in sorted(set(values)))


def _placed(outcome: Outcome) -> Outcome | None:
    """With the magnitude's place in its kind's range, 0 to 1, for one that has a range."""
    kind = KINDS.get(outcome.fault)
    if kind is None or kind.discrete or not kind.sizes or outcome.magnitude is None:
        return None
    low, high = kind.sizes[0], kind.sizes[-1]
    place = math.log(outcome.magnitude / low) / math.log(high / low)
    return Outcome(
        fault=outcome.fault,
        magnitude=min(max(place, 0.0), 1.0),
        seconds=outcome.seconds,
    )
