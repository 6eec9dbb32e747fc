"""How often each rule was right at a site, by people's opinions on its incidents; pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpuvigil.faults.trial import Feedback, feedback, on_trial
from gpuvigil.lifecycle import State
from gpuvigil.model import Incident, Opinion

_NEVER_ONE = frozenset({State.SUSPECT.value, State.DISMISSED.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCount:
    """One rule: incidents judged right and wrong, and those that nobody judged."""

    rule: str
    right: int
    wrong: int
    unjudged: int
    on_trial: bool


def counted(
    opinions: Sequence[Opinion], incidents: Iterable[Incident], proven: Collection[str]
) -> list[RuleCount]:
    """Return each rule with an incident on a real machine; those on trial first, then the most often wrong.

    `proven` is the site's `alerts.proven`.
    """
    said, judged = feedback(opinions), {one.incident for one in opinions}
    unjudged = Counter(
        one.fault
        for one in incidents
        if one.subject.real and one.state not in _NEVER_ONE and one.id not in judged
    )
    rows = []
    for rule in {*said, *unjudged}:
        it = said.get(rule, Feedback())
        rows.append(
            RuleCount(
                rule=rule,
                right=it.right,
                wrong=it.wrong,
                unjudged=unjudged[rule],
                on_trial=on_trial(rule, it, proven),
            )
        )
    return sorted(rows, key=lambda row: (not row.on_trial, -row.wrong, row.rule))


def lines(rows: Sequence[RuleCount]) -> Iterator[str]:
    """Yield the lines for people."""
    if rows:
        yield ""
        yield "What people said of incidents here, by rule:"
    for one in rows:
        state = "on trial" if one.on_trial else "proven"
        yield f"  {one.rule}: {one.right} right, {one.wrong} wrong, {one.unjudged} not judged; {state}"
