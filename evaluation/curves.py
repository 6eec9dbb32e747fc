"""Recall as curves: over how grave a fault is, over noise, over missing samples."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from simulator.fleet.kinds import KINDS

from .baselines import SETS
from .figures_text import share
from .judge.matching import Outcome
from .judge.score import curve, score
from .results import Tallies

THIRDS = (0.0, 1.0 / 3.0, 2.0 / 3.0, 1.0)
# Parts in which one thing changes step by step; the natural one is the report.
NOISE = {0.5: "noise x0.5", 1.0: "report", 2.0: "noise x2", 4.0: "noise x4"}
MISSING = {0.0: "report", 0.1: "missing 10%", 0.2: "missing 20%", 0.3: "missing 30%"}
# The magnitude of these is what is left of a clock and of a limit.
_GRAVER_WHEN_SMALL = frozenset({"stuck clocks", "lowered power limit"})


def curves(found: Tallies) -> Iterator[str]:
    """Recall as curves."""
    yield "## The smaller, the noisier, the fewer, the harder"
    yield ""
    names = " and ".join(sorted(_GRAVER_WHEN_SMALL))
    yield f"Faults with a magnitude, by the third of their kind's range (logarithmic) that it lies in, the mildest first. The part *kept-out magnitudes* has the small numbers, which of {names} are the grave ones: the less of the clock or of the limit is left, the worse."
    yield ""
    yield "| detectors | mildest third | middle | gravest third |"
    yield "|---|---|---|---|"
    for name, bins in by_magnitude(found).items():
        yield f"| {name} | {' | '.join(share(it['recall']) for it in bins)} |"
    yield ""
    yield "![Recall over magnitude](images/scoreboard-magnitude.svg)"
    yield ""
    yield "![Recall over noise](images/scoreboard-noise.svg)"
    yield ""
    yield "![Recall over missing samples](images/scoreboard-missing.svg)"


def by_magnitude(found: Tallies) -> dict[str, list[dict[str, Any]]]:
    """For each set the recall in each third of the range of magnitudes."""
    bins = {}
    for name in SETS:
        parts = ("report", "kept-out magnitudes")
        own = [
            o for part in parts for one in found.get(part, {}).get(name, ()) for o in one.outcomes
        ]
        if own:
            bins[name] = curve([placed for o in own if (placed := _placed(o)) is not None], THIRDS)
    return bins


def over(found: Tallies, parts: Mapping[float, str]) -> dict[str, dict[float, dict[str, Any]]]:
    """For each set its recall in each of the parts, by what changes in them."""
    return {
        name: {
            step: score(own)["faults"]["recall"]
            for step, part in parts.items()
            if (own := found.get(part, {}).get(name))
        }
        for name in SETS
    }


def _placed(outcome: Outcome) -> Outcome | None:
    """With the magnitude's place in its kind's range, 0 to 1, for one that has a range."""
    kind = KINDS.get(outcome.fault)
    if kind is None or kind.discrete or not kind.sizes or outcome.magnitude is None:
        return None
    low, high = kind.sizes[0], kind.sizes[-1]
    place = math.log(outcome.magnitude / low) / math.log(high / low)
    if outcome.fault in _GRAVER_WHEN_SMALL:
        place = 1.0 - place
    return Outcome(
        fault=outcome.fault,
        magnitude=min(max(place, 0.0), 1.0),
        seconds=outcome.seconds,
    )
