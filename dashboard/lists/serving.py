"""Who serves inference now, how that is known, and what is not known."""

from collections.abc import Iterator, Mapping, Set

from accounting.efficiency.on_call import serves

from . import holders
from .fleet_now import FleetNow
from .holders import HolderKey
from .table import Grid

# The most certain sign of a server, more than its name or command.
ANSWERS = "its server answers"


def grid(moment: FleetNow, answering: Set[str]) -> Grid:
    """Return a row per holder; `answering` are the keys of GPUs whose servers were scraped."""
    known = _known_by(moment, answering)
    return holders.serving(moment, known, tuple(_unknowns(known)))


def _known_by(moment: FleetNow, answering: Set[str]) -> Mapping[HolderKey, str]:
    found: dict[HolderKey, str] = {}
    for cluster in moment.clusters:
        for held in (one for cell in cluster.cells for one in moment.of(cell.subject)):
            by = serves(held)
            if held.subject.key in answering:
                found[holders.key_of(held)] = ANSWERS
            elif by is not None:
                found.setdefault(holders.key_of(held), by.value)
    return found


def _unknowns(known: Mapping[HolderKey, str]) -> Iterator[str]:
    silent = sum(by != ANSWERS for by in known.values())
    if silent:
        yield (
            f"Requests, queues and cache are unknown for {silent:,} of {len(known):,}: their servers are"
            " not scraped. Add the servers' /metrics addresses to collector.inference_urls on their nodes."
        )
    yield "A server with another name is found once it is scraped."
