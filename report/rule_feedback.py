"""Which rules are worth being told by: what people answered to their messages, the noisiest first."""

from collections import Counter
from collections.abc import Iterable

from gpuvigil.faults import FAULTS
from gpuvigil.model import Incident, Opinion

from .content import RuleWorth


def worth(opinions: Iterable[Opinion], incidents: Iterable[Incident]) -> tuple[RuleWorth, ...]:
    """A row for each rule that somebody answered for; incidents are the span's, answered or not."""
    useful, noise = Counter[str](), Counter[str]()
    for one in opinions:
        (useful if one.useful else noise)[one.fault] += 1
    counted = Counter(one.fault for one in incidents)
    rows = [
        RuleWorth(
            rule=rule,
            title=FAULTS[rule].title if rule in FAULTS else rule,
            noise=noise[rule],
            useful=useful[rule],
            incidents=counted[rule],
        )
        for rule in {*useful, *noise}
    ]
    return tuple(sorted(rows, key=lambda row: (-row.noise, row.useful, row.rule)))
