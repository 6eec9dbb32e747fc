"""`docs/scoreboard.md` from `evaluation/results.json`: every figure with its size and interval."""

from collections.abc import Iterator, Mapping
from typing import Any

from .aims import in_short
from .alarms import false_alarms, natural
from .baselines import SETS
from .baselines.peers import PEERS
from .curves import curves
from .figures_text import OURS, added, in_order, number, rate, share
from .how_judged import reading
from .judge.score import score
from .played import before, belonging, by_part
from .results import Tallies, tallies, together
from .splits import PARTS

# What the others found on data of their own: Minder, NSDI 25.
_PUBLISHED = "Minder F1 0.893 (precision 0.904), its Mahalanobis baseline 0.777 (precision 0.788)"


def page(results: Mapping[str, Any], speed: Mapping[str, Any]) -> Iterator[str]:
    """The whole document."""
    found = tallies(results)
    yield "# Scoreboard"
    yield ""
    yield "How well faults are found on a simulated fleet whose truth is known, written from `evaluation/results.json` by `make docs`."
    yield "**Every number here is of simulated fleets**: no public set has labelled GPU faults in time series. What was found of real faults is not in here."
    yield ""
    unseen = together(results, ("kept-out kinds",))
    sections = (
        *(in_short(found), by_part(found), reading(), overall(results), false_alarms(found)),
        *(natural(found), splits(found), library(unseen), curves(found), kinds(found)),
        *(belonging(results), before(results), cost(speed)),
    )
    yield from sections[0]
    for section in sections[1:]:
        yield ""
        yield from section


def overall(results: Mapping[str, Any]) -> Iterator[str]:
    """Everybody on the report's fleets."""
    same = together(results, ("report",))
    yield "## Everybody on the same fleets"
    yield ""
    yield "The part *report*, its fleets that everybody played. A share stands with its 95 % interval (Wilson) and what it is of; F1 is per machine and quarter of an hour, its interval by drawing whole fleets (none can be said of one fleet). *One incident* is the share of faults with exactly one incident, of the right cause."
    yield ""
    yield "| detectors | found | right cause | in its first words | right action | one incident | warnings and criticals about a fault | criticals about a fault | median s | p95 s | median s to the cause | incidents per fault |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for name, own in in_order(same.get("report", {})):
        figures = score(own)
        faults, severe = figures["faults"], figures["claims"]["precision_by_severity"]
        cells = (
            *(
                share(faults[it])
                for it in ("recall", "cause", "named_at_first", "action", "exactly_one")
            ),
            share(added(severe["critical"], severe["warning"])),
            share(severe["critical"]),
            number(faults["seconds_median"]),
            number(faults["seconds_p95"]),
            number(faults["named_seconds_median"]),
            number(faults["incidents_per_found_fault"], 2),
        )
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    yield "| detectors | F1 | precision | recall | windows right of | with a fault |"
    yield "|---|---|---|---|---|---|"
    for name, own in in_order(same.get("report", {})):
        machines = score(own)["machines"]
        f1, windows = machines["f1"], machines["windows"]
        low, high = f1["interval"]
        right = windows["found"] + windows["quiet"]
        cells = (
            f"{f1['value']:.3f} ({low:.2f} to {high:.2f}, {f1['fleets']} fleets)",
            number(machines["precision"]["value"], 3),
            number(machines["recall"]["value"], 3),
            f"{right} of {sum(windows.values())}",
            str(windows["found"] + windows["missed"]),
        )
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    yield f"For orientation only, since their data differs: {_PUBLISHED}. There a job is known to be sick and its sick machine is looked for; here it is asked of every machine and quarter of an hour, most faults never touch what work looks like (a version, a row to be remapped, a port that nobody uses), and many of the jobs are smaller than the four GPUs that a comparison needs."


def splits(found: Tallies) -> Iterator[str]:
    """Kept out, noisier, with gaps: recall by part."""
    yield "## Unseen, noisier, with gaps"
    yield ""
    yield "Faults found, by part; what each part is, is said [below](#what-was-played)."
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


def library(found: Tallies) -> Iterator[str]:
    """Whether learning detectors see what nobody wrote a rule for."""
    own = found.get("kept-out kinds", {})
    ours = [score(own[OURS])] if own.get(OURS) else []
    others = {name: score(own[name]) for name in PEERS if own.get(name)}
    yield "## What a library would add"
    yield ""
    yield "scikit-learn's detectors, held against our rules where they should be at their best: on kinds of fault that neither was tuned for, on the fleets that all of them played. A warning or critical is *about a fault* when one was there."
    yield ""
    yield "| detectors | found | F1 per machine and quarter of an hour | warnings and criticals about a fault | false ones per 1,000 node-days |"
    yield "|---|---|---|---|---|"
    for name, figures in [*((OURS, it) for it in ours), *others.items()]:
        severe = figures["claims"]["precision_by_severity"]
        cells = (
            share(figures["faults"]["recall"]),
            number(figures["machines"]["f1"]["value"], 3),
            share(added(severe["critical"], severe["warning"])),
            rate(figures["natural"]["alarms"][-1]["false"]),
        )
        yield f"| {name} | {' | '.join(cells)} |"
    if not ours or not others:
        return
    yield ""
    most = max(it["faults"]["recall"]["hits"] for it in others.values())
    recall = ours[0]["faults"]["recall"]
    verdict = (
        "None beats the rules, so none decides anything, nor is shown beside an incident"
        if most <= recall["hits"]
        else "**One beats the rules**: it belongs into the analyzer"
    )
    yield f"The best of them finds {most} of the {recall['of']}, our rules {recall['hits']}. {verdict}."


def kinds(found: Tallies) -> Iterator[str]:
    """Fault by fault, ours."""
    yield f"## Fault by fault: {OURS}"
    yield ""
    yield "The parts *report* and *kept-out kinds*. *Named rightly* is of the claims that name this kind; a kind that no detector names has none."
    yield ""
    yield "| fault | found | right cause | right action | named rightly | F1 by name | median s | p95 s | incidents |"
    yield "|---|---|---|---|---|---|---|---|---|"
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
            number(it["seconds_p95"]),
            number(it["incidents_per_found_fault"], 1),
        )
        yield f"| {kind} | {' | '.join(cells)} |"


def cost(speed: Mapping[str, Any]) -> Iterator[str]:
    """What a node-day costs."""
    seconds = speed["cpu_seconds_per_node_day"]
    minutes = seconds["detectors"] * 1000.0 / 60.0 / speed["cpus"]
    yield "## How fast it goes"
    yield ""
    yield f"`{speed['command']}`: {speed['nodes']} nodes of 8 GPUs without a fault, {speed['passes']} passes, Python {speed['python']}; detectors `{speed['judged']}`, fleet `{speed['fleet']}`."
    yield f"A node-day costs {seconds['fleet']:.2f} s of CPU time for the fleet and {seconds['detectors']:.2f} s for the detectors: fleets are played beside each other, so 1,000 of them pass through the detectors in {minutes:.0f} min on {speed['cpus']} CPUs (bar: 15 min)."
