"""Which incidents count as failures of a node, and which of them are one and the same failure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from gpuvigil.faults import EndsBy, where
from gpuvigil.lifecycle import State
from gpuvigil.model import Incident, Severity
from gpuvigil.silence_conditions import MAY_BE_DEATH

from ..hardware.repeat_offenders import HARDWARE, SAME_FAILURE

_DEATHS = where(lambda row: row.ends_job is not None and row.ends_job.by is EndsBy.NODE)
# Broken hardware, and nodes that die.
USUAL = HARDWARE | _DEATHS
# The faults that may be asked for by name: how a GPU is used says nothing about the machine.
MACHINE = where(lambda row: not row.blame.is_use)
_SUSPICION = frozenset({State.SUSPECT.value, State.DISMISSED.value})


def counts(incident: Incident, faults: Collection[str] = USUAL) -> bool:
    """Return whether an incident is a failure: no selftest, suspicion, minor or covered incident.

    A silent node counts where it may have died.
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
    """Return the failure times by node, of one cluster; what follows within an hour is the same failure.

    An incident of several nodes is one failure, of the node in its subject.
    """
    found = defaultdict(list)
    for one in incidents:
        if counts(one, faults):
            found[one.subject.node].append(one.since)
    return {node: _apart(sorted(times)) for node, times in found.items()}


def _apart(times: Sequence[datetime]) -> Sequence[datetime]:
    """Return the times that do not follow another within an hour."""
    return [at for n, at in enumerate(times) if not n or at - times[n - 1] > SAME_FAILURE]
