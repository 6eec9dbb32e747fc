"""Whether a fault on trial has been right often enough at this site to be sent as a message; pure.

This depends only on the votes that the hub keeps, so every process comes to the same result.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ..model import Opinion
from .model import Proof
from .table import where

STARTS_ON_TRIAL = where(lambda row: row.proof is Proof.ON_TRIAL)
# Ours: a rule that is wrong half of the time is right three times in a row one time in eight. A larger
# number would keep faults that happen a few times a year in the digest for years.
RIGHT_TIMES = 3
# Ours: the precision of 0.9 that is required of all warnings and criticals together.
ONE_WRONG_IN = 10
# What `alerts.proven` may contain instead of faults.
ALL, NONE = "all", "none"


@dataclass(frozen=True, slots=True)
class Feedback:
    """People's feedback on a fault at this site: how many incidents were right, and how many wrong."""

    right: int = 0
    wrong: int = 0

    @property
    def proves(self) -> bool:
        """Whether it was right often enough, and at most one in ten of those judged was wrong."""
        judged = self.right + self.wrong
        return self.right >= RIGHT_TIMES and ONE_WRONG_IN * self.wrong <= judged


def feedback(opinions: Iterable[Opinion]) -> Mapping[str, Feedback]:
    """Count the votes by fault; an incident counts once, as wrong unless most called it useful.

    `opinions`: one per person and incident. Votes on simulated machines are ignored.
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
    """Return whether a new incident of the fault goes to the digest; `proven` is the site's `alerts.proven`."""
    if fault not in STARTS_ON_TRIAL or ALL in proven or fault in proven:
        return False
    return NONE in proven or not said.proves


def why(said: Feedback, proven: Collection[str]) -> str:
    """Return for people why a fault on trial goes to the digest, and what would change that."""
    if NONE in proven:
        return "goes to the digest, as alerts.proven says none"
    return (
        f"goes to the digest until it was right {RIGHT_TIMES} times here and wrong at most once"
        f" in {ONE_WRONG_IN} ({said.right} right, {said.wrong} wrong so far)"
    )
