"""How many messages and pages alerts sends in a play, and what they are about."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from alerts.routing.notice import Notice
from gpuvigil.model import Transition
from simulator.fleet import Truth

from ..judge.claims import claims
from ..judge.fault_names import is_of_use
from ..judge.matching import judge, with_hidden
from .sending import CHAT, PAGER, sent

# What a message is about.
FAULT, USE, NOTHING = "fault", "use", "nothing"


def account(
    truths: Sequence[Truth], transitions: Sequence[Transition], end: datetime
) -> dict[str, Any]:
    """Return how many messages and pages were sent before `end`, and what they were about."""
    seen, hidden = ([it for it in truths if it.hidden is there] for there in (False, True))
    said = claims(transitions)
    judged = with_hidden(judge(seen, said)[1], hidden)
    faults = {one.claim.id: one.truth for one in judged if one.truth is not None}
    of_use = {it.id for it in said if is_of_use(it.fault, it.text)}
    found = sent(transitions, end)
    messages = {CHAT: found[CHAT].messages, PAGER: found[PAGER].pages}
    return {
        "faults": len(seen),
        "digests": found[CHAT].digests,
        **{name: _counted(them, faults, of_use) for name, them in messages.items()},
    }


def _counted(
    messages: Iterable[Notice], faults: Mapping[str, str], of_use: Iterable[str]
) -> dict[str, Any]:
    incidents = [one.incident for one in messages]
    about = {FAULT: faults.keys(), USE: set(of_use) - faults.keys()}
    counts = {name: sum(it in known for it in incidents) for name, known in about.items()}
    return {
        **counts,
        NOTHING: len(incidents) - sum(counts.values()),
        "incidents": len(set(incidents)),
        "per_fault": sorted(Counter(faults[it] for it in incidents if it in faults).values()),
    }
