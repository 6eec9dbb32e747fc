"""The aims, what was measured of each, and whether it holds: the first thing that the page says."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simulator.fleet.kinds import KINDS

from .figures_text import OURS, part_of, rate, share
from .judge.score import Tally, score
from .results import Tallies

_NODE_DAYS, _PRECISION, _RECALL, _F1, _ONE = 10_000.0, 0.99, 0.97, 0.95, 0.95
_OFTEN = 0.9
# Seeds like the tuning's, and kinds that no tuning fleet has.
_SEEN, _UNSEEN = "report", "kept-out kinds"


def in_short(found: Tallies) -> Iterator[str]:
    """One line for each aim and part, met or missed."""
    yield "## In short"
    yield ""
    yield "| aim | part | measured | |"
    yield "|---|---|---|---|"
    if own := found.get("quiet", {}).get(OURS):
        pages = score(own)["claims"]["false_by_severity"]["critical"]
        days = sum(one.node_days for one in own)
        met = pages["count"] == 0 and days >= _NODE_DAYS
        yield f"| no wrong critical in {_NODE_DAYS:,.0f} node-days without a fault | quiet | {pages['count']} in {days:,.0f}; per 1,000: {rate(pages)} | {_met(met)} |"
    for part in (_SEEN, _UNSEEN):
        if own := found.get(part, {}).get(OURS):
            yield from _of_faults(part, score(own), own)
    yield ""
    yield from _worst([it for part in (_SEEN, _UNSEEN) for it in found.get(part, {}).get(OURS, ())])
    yield "A sign *without a size* is there or not (an Xid, a lost GPU, a state): such kinds have no magnitude. The kinds that were kept out of tuning miss their aims: [why, kind by kind](decisions/0047-what-the-kept-out-kinds-cannot-show.md). Aims for time are [further down](#how-slow-a-gpu-must-be) and under [benchmarks](benchmarks.md)."


def _of_faults(part: str, figures: Mapping[str, Any], own: Sequence[Tally]) -> Iterator[str]:
    critical = figures["claims"]["precision_by_severity"]["critical"]
    f1 = figures["machines"]["f1"]
    low, high = f1["interval"]
    one = figures["faults"]["exactly_one"]
    shares = (
        (f"criticals that are about a fault, at least {_PRECISION}", critical, _PRECISION),
        (f"found of the faults whose sign has no size, at least {_RECALL}", plain(own), _RECALL),
        (f"told in exactly one incident, of the right cause, at least {_ONE}", one, _ONE),
    )
    for aim, value, least in shares:
        met = value["value"] is not None and value["value"] >= least
        yield f"| {aim} | {part} | {share(value)} | {_met(met)} |"
    yield f"| F1 per machine and quarter of an hour, at least {_F1} | {part} | {f1['value']:.3f} ({low:.3f} to {high:.3f}, {f1['fleets']} fleets) | {_met(f1['value'] >= _F1)} |"


def _worst(own: Sequence[Tally]) -> Iterator[str]:
    """By name the kinds that are mostly missed, or never told as they should be."""
    if not own:
        return
    kinds = score(own)["kinds"]
    missed = [
        f"{kind} ({it['recall']['hits']} of {it['recall']['of']})"
        for kind, it in kinds.items()
        if it["recall"]["value"] < _OFTEN
    ]
    never = [kind for kind, it in kinds.items() if not it["exactly_one"]["hits"]]
    yield f"Found in fewer than nine of ten: {', '.join(missed) or 'none'}. Never told in exactly one incident of the right cause: {', '.join(never) or 'none'}."


def plain(own: Sequence[Tally]) -> dict[str, Any]:
    """Faults found, of the kinds that have no magnitude."""
    faults = [it for one in own for it in one.outcomes if not KINDS[it.fault].sizes]
    return part_of(sum(it.found for it in faults), len(faults))


def _met(met: bool) -> str:
    return "holds" if met else "**missed**"
