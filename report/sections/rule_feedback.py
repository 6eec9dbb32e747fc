"""People's feedback on rules' messages, the noisiest rule first."""

from collections import Counter
from collections.abc import Collection

from gpuvigil.faults import FAULTS
from gpuvigil.model import Incident, Opinion

from ..model.content import RuleWorth


def worth(
    opinions: Collection[Opinion], incidents: Collection[Incident], on_trial: Collection[str]
) -> tuple[RuleWorth, ...]:
    """Return a row for each rule that has feedback, or that is on trial and had an incident.

    The incidents are the span's, with feedback or without.
    """
    useful, noise = Counter[str](), Counter[str]()
    for one in opinions:
        (useful if one.useful else noise)[one.fault] += 1
    judged = {one.incident for one in opinions}
    counted = Counter(one.fault for one in incidents)
    unjudged = Counter(one.fault for one in incidents if one.id not in judged)
    rows = [
        RuleWorth(
            rule=rule,
            title=FAULTS[rule].title if rule in FAULTS else rule,
            noise=noise[rule],
            useful=useful[rule],
            incidents=counted[rule],
            unjudged=unjudged[rule],
            on_trial=rule in on_trial,
        )
        for rule in {*useful, *noise, *counted.keys() & set(on_trial)}
    ]
    return tuple(sorted(rows, key=lambda row: (-row.noise, row.useful, row.rule)))
