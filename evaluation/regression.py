"""`python -m evaluation.regression`: compare the detectors now with earlier ones, on the same faults.

A dense fleet has each kind of fault five times, no two at the same time. `evaluation/dense.json` keeps which faults
the earlier detectors found and named, and on which nodes they were wrong. Losses and gains are pairs, so that few of
them are enough to tell (McNemar): a significant loss fails. With `--keep`, the present answers become those that the
next change is compared with; a loss is not kept.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.fleet import build

from .baselines import OURS
from .fingerprint import ROOT, commit_of_detectors
from .fleets import DENSE_SEED, EveryKind, dense
from .judge.intervals import mcnemar
from .judge.matching import Verdict
from .judge.tally import Tally
from .run import play

KEPT = ROOT / "evaluation/dense.json"
SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What detectors did with each fault, and where they were wrong."""

    faults: frozenset[str]
    found: frozenset[str]
    named: frozenset[str]  # with the right cause, in exactly one incident
    wrong: frozenset[str]  # subjects of messages about no fault

    @classmethod
    def of(cls, tally: Tally) -> "Answers":
        return cls(
            faults=frozenset(it.id for it in tally.outcomes),
            found=frozenset(it.id for it in tally.outcomes if it.found),
            named=frozenset(it.id for it in tally.outcomes if it.cause and it.exactly_one),
            wrong=frozenset(
                it.subject for it in tally.messages if it.verdict == Verdict.FALSE.value
            ),
        )

    def to_json(self) -> dict[str, list[str]]:
        return {
            "faults": sorted(self.faults),
            "found": sorted(self.found),
            "named": sorted(self.named),
            "wrong": sorted(self.wrong),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Answers":
        names = ("faults", "found", "named", "wrong")
        return cls(**{name: frozenset(values[name]) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One measure in both answers: what only the old ones had right, and what only the new ones have."""

    what: str
    lost: frozenset[str]
    gained: frozenset[str]

    @property
    def is_loss(self) -> bool:
        return mcnemar(len(self.lost), len(self.gained)) < SIGNIFICANT

    def __str__(self) -> str:
        said = f"{self.what}: {len(self.lost)} lost, {len(self.gained)} gained"
        names = ", ".join(sorted(self.lost)[:10])
        return f"{said}; p = {mcnemar(len(self.lost), len(self.gained)):.3f}; lost: {names or '-'}"


def compare(old: Answers, new: Answers) -> list[Change]:
    """Compare two answers; only faults that both were given count, since the fleet may have changed."""
    both = old.faults & new.faults
    return [
        Change(
            what="found",
            lost=(old.found - new.found) & both,
            gained=(new.found - old.found) & both,
        ),
        Change(
            what="named rightly in one incident",
            lost=(old.named - new.named) & both,
            gained=(new.named - old.named) & both,
        ),
        Change(
            what="subjects without a wrong message",
            lost=new.wrong - old.wrong,
            gained=old.wrong - new.wrong,
        ),
    ]


def answers(of: EveryKind = dense, without: Iterable[str] = ()) -> Answers:
    """Return the answers of this tree's detectors on the dense fleet, or on `of`, without the named detectors."""
    fleet = build(of(DENSE_SEED))
    return Answers.of(play(fleet, (OURS,), frozenset(without))[OURS])


def read(path: Path = KEPT) -> Answers:
    return Answers.from_json(json.loads(path.read_text(encoding="utf-8")))


def comparable(old: Answers, new: Answers) -> bool:
    """Return whether the fleet is, apart from a few faults, the one that the kept answers are for."""
    return len(old.faults & new.faults) >= 0.9 * len(new.faults)


def told(old: Answers, new: Answers) -> Iterator[str]:
    yield f"{len(new.faults)} faults, {len(new.found)} found, {len(new.named)} named rightly in one incident, {len(new.wrong)} subjects with a wrong message"
    yield from map(str, compare(old, new))


def main(arguments: Sequence[str]) -> int:
    """Run the comparison: 1 when the detectors have become worse, or the kept answers are of another fleet."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.regression", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="hold the next change against this")
    chosen = parser.parse_args(arguments)
    new = answers()
    old = read() if KEPT.exists() else new
    print("\n".join(told(old, new)))
    if comparable(old, new) and any(it.is_loss for it in compare(old, new)):
        print("worse than before")
        return 1
    if chosen.keep:
        kept = {"commit": commit_of_detectors(), **new.to_json()}
        KEPT.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    elif not comparable(old, new):
        print("the fleet has changed: python -m evaluation.regression --keep")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
