"""`evaluation/plays.jsonl`: every fleet that was played, one per line, in the order of playing.

Lines are only added. A play for the page counts for the detectors that it was made with. Whoever changes the
detectors has seen the seed, so from then on the play serves only for tuning.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .fingerprint import ROOT
from .judge.tally import Tally

PLAYS = ROOT / "evaluation/plays.jsonl"
RELEASE, CROWDED, WEEK, TUNING = "release", "crowded", "week", "tuning"
# A fault is costly when a job loses at least this share of its pace.
COSTLY = 0.1
Play = Mapping[str, Any]
# What each set of detectors did on each fleet, by the set's name.
Tallies = Mapping[str, Sequence[Tally]]
# Plays must have these in common to be counted together.
_SAME = ("detectors", "fleet", "judge")


def read(path: Path = PLAYS) -> list[Play]:
    """Return all plays, the oldest first."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def append(entry: Play, path: Path = PLAYS) -> None:
    """Append one play in a single write, since several programs may play at a time."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry, sort_keys=True, separators=(",", ":")) + "\n")


def seen(plays: Iterable[Play]) -> frozenset[int]:
    """Return the seeds that somebody has seen: none of them is played for the page again."""
    return frozenset(one["seed"] for one in plays)


def newest(plays: Sequence[Play], use: str = RELEASE) -> list[Play]:
    """Return the plays of a use since the detectors last changed, with the same fleet and judge."""
    published = [one for one in plays if one["use"] == use]
    if not published:
        return []
    last = published[-1]
    return [one for one in published if all(one[it] == last[it] for it in _SAME)]


def for_tuning(plays: Sequence[Play]) -> list[Play]:
    """Return all other plays: those made to tune, or for detectors that have changed since."""
    counted = {one["seed"] for use in (RELEASE, CROWDED, WEEK) for one in newest(plays, use)}
    return [one for one in plays if one["seed"] not in counted]


def tallies(plays: Iterable[Play]) -> Tallies:
    """Return each set's tallies on all fleets it has played, in the order of the plays.

    Fleets are drawn alike, so a set that played only a tenth of them is compared with a wider interval.
    """
    found: dict[str, list[Tally]] = defaultdict(list)
    for one in plays:
        for name, values in one["tallies"].items():
            found[name].append(Tally.from_json(values))
    return found
