"""Which incidents count against what a node runs on, and which of them are one failure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from gpuvigil.faults import EndsBy, where
from gpuvigil.lifecycle import State
from gpuvigil.model import Incident, Severity
from gpuvigil.silence_conditions import MAY_BE_DEATH

from ..hardware.repeat_offenders import HARDWARE, SAME_FAILURE

_DEATHS = where(lambda row: row.ends_job is not None and row.ends_job.by is EndsBy.NODE)
# What breaks, and nodes that die.
USUAL = HARDWARE | _DEATHS
# What may be asked for by name: how a GPU is used says nothing of the machine.
MACHINE = where(lambda row: not row.blame.is_use)
_SUSPICION = frozenset({State.SUSPECT.value, State.DISMISSED.value})


def counts(incident: Incident, faults: Collection[str] = USUAL) -> bool:
    """Whether it is a failure: no selftest, no suspicion, nothing minor, nothing that another explains.

    A node that is silent counts where it may have died.
    """
    if incident.fault in _DEATHS and incident.condition not in MAY_BE_DEATH:
        return False
    return (
        incident.fault in faults
        and incident.fault in MACHINE
        and incident.severity is not Severity.INFO
        and incident.state not in _SUSPICION
        and not incident.covered_by
        and not incident.marked
    )


def failures_by_node(
    incidents: Iterable[Incident], faults: Collection[str] = USUAL
) -> Mapping[str, Sequence[datetime]]:
    """When each node failed, of one cluster; what follows within an hour is the same failure.

    An incident of several nodes is one failure, of the node that it is named by.
    """
    found = defaultdict(list)
    for one in incidents:
        if counts(one, faults):
            found[one.subject.node].append(one.since)
    return {node: _apart(sorted(times)) for node, times in found.items()}


def _apart(times: Sequence[datetime]) -> Sequence[datetime]:
    """The begins of what does not follow within an hour of what was before it."""
    return [at for n, at in enumerate(times) if not n or at - times[n - 1] > SAME_FAILURE]
