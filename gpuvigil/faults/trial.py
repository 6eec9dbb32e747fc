"""Whether a verdict on trial has been right often enough at this site to be a message; pure.

It follows from the votes that the hub keeps, and from nothing else: every process comes to the same.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ..model import Opinion
from .model import Proof
from .table import where

STARTS_ON_TRIAL = where(lambda row: row.proof is Proof.ON_TRIAL)
# Ours: what is wrong half of the time is right three times in a row one time in eight. More would keep
# what happens a few times a year in the digest for years.
RIGHT_TIMES = 3
# Ours: the precision of 0.9 that is asked of all warnings and criticals together.
ONE_WRONG_IN = 10
# What `alerts.proven` may say instead of faults.
ALL, NONE = "all", "none"


@dataclass(frozen=True, slots=True)
class Feedback:
    """How many incidents of a fault people called right at this site, and how many wrong."""

    right: int = 0
    wrong: int = 0

    @property
    def proves(self) -> bool:
        """Right often enough, and at most one in ten of those that were judged wrong."""
        judged = self.right + self.wrong
        return self.right >= RIGHT_TIMES and ONE_WRONG_IN * self.wrong <= judged


def feedback(opinions: Iterable[Opinion]) -> Mapping[str, Feedback]:
    """By fault. An incident counts once, and as wrong where as many called it noise as useful.

    `opinions`: one per person and incident. Of a simulated machine they prove nothing.
    """
    votes: dict[tuple[str, str], Counter[bool]] = defaultdict(Counter)
    for one in opinions:
        if one.subject.real:
            votes[one.fault, one.incident][one.useful] += 1
    counted: dict[str, Counter[bool]] = defaultdict(Counter)
    for (fault, _), said in votes.items():
        counted[fault][said[True] > said[False]] += 1
    return {fault: Feedback(it[True], it[False]) for fault, it in counted.items()}


def on_trial(fault: str, said: Feedback, proven: Collection[str]) -> bool:
    """Whether a new incident of the fault goes to the digest; `proven` is the site's `alerts.proven`."""
    if fault not in STARTS_ON_TRIAL or ALL in proven or fault in proven:
        return False
    return NONE in proven or not said.proves


def why(said: Feedback, proven: Collection[str]) -> str:
    """What makes a message of one that is on trial, for people."""
    if NONE in proven:
        return "goes to the digest, as alerts.proven says none"
    return (
        f"goes to the digest until it was right {RIGHT_TIMES} times here and wrong at most once"
        f" in {ONE_WRONG_IN} ({said.right} right, {said.wrong} wrong so far)"
    )
