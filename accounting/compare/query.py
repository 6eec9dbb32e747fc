"""The data behind `gpuvigil compare`, from the hub: usage, node attributes and incidents."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median_high

import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.hub_client import Hub
from gpuvigil.model import Attribute, Incident, RecordKind, Setup, readable

from ..usage.allocations import MOST_RECORDS
from ..usage.ledger import HOUR, Ledger
from ..usage.ledger_query import Shape, cover
from ..usage.model import BUCKET, cluster_key, floor
from .comparison import Comparison, Span, rows
from .exposure import History, ReportingSpan, histories
from .faults import USUAL, failures_by_node

# A run of failures, each within an hour of the last, may begin before the span and go on in it.
_BEFORE = timedelta(days=1)
_PLACES = Shape(holders=False)


@dataclass(frozen=True, slots=True)
class _Counted:
    """The GPU-seconds of one node in one ledger: installed and heard."""

    start: datetime
    length: timedelta
    installed: float
    reporting: float


def compared(
    hub: Hub, cluster: str, attribute: Attribute, span: Span, faults: Collection[str] = USUAL
) -> Comparison:
    """Compare the values of an attribute in one cluster, up to the newest quarter of an hour counted.

    Raises HubUnavailable or HubRefused when the hub does not answer.
    """
    key, start = cluster_key(cluster), floor(span[0])
    setups = hub.records(RecordKind.SETUP, subject=key, until=span[1], limit=MOST_RECORDS)
    known = histories(readable(setups, Setup.from_record), attribute)
    ledgers = cover(hub, cluster, (start, span[1]), shape=_PLACES)
    counted = _counted(hub, ledgers, known, span[1])
    found = hub.records(
        RecordKind.INCIDENT, subject=key, since=start - _BEFORE, until=span[1], limit=MOST_RECORDS
    )
    failed = failures_by_node(readable(found, Incident.from_record), faults)
    return Comparison(
        cluster=cluster,
        rows=rows(_reporting_spans(counted), failed, known, [(it.start, it.end) for it in ledgers]),
        until=min(max((one.end for one in ledgers), default=start), span[1]),
    )


def _counted(
    hub: Hub, ledgers: Iterable[Ledger], known: Mapping[str, History], until: datetime
) -> Mapping[str, list[_Counted]]:
    """Return the pieces counted by node: days where the value stayed, else hours and quarters of an hour."""
    found: dict[str, list[_Counted]] = defaultdict(list)
    for ledger in ledgers:
        turned = _turned(known, ledger) if ledger.length > HOUR else frozenset[str]()
        for node, one in _places(ledger, turned, among=False):
            found[node].append(one)
        if turned:
            within = (ledger.start, min(ledger.end, until))
            for part in cover(hub, ledger.cluster, within, (HOUR, BUCKET), shape=_PLACES):
                for node, one in _places(part, turned, among=True):
                    found[node].append(one)
    return found


def _turned(known: Mapping[str, History], ledger: Ledger) -> frozenset[str]:
    return frozenset(
        node for node, history in known.items() if history.turns(ledger.start, ledger.end)
    )


def _places(
    ledger: Ledger, names: Collection[str], *, among: bool
) -> Iterator[tuple[str, _Counted]]:
    """Yield the amounts of nodes that are `among` the names, or of all that are not.

    A node is heard where a state is known, and also where only power is measured: whether a GPU at 0 %
    is held may not be known.
    """
    places = ledger.places
    if names:
        # Most nodes are not asked for: filter before any number becomes a Python object.
        named = pc.is_in(places["node"], pa.array(sorted(names), pa.string()))
        places = places.filter(named if among else pc.invert(named))
    sums = ("installed", "unknown", "powered")
    them = places.group_by("node", use_threads=False).aggregate([(it, "sum") for it in sums])
    columns = [pc.fill_null(them[f"{name}_sum"], 0.0).to_pylist() for name in sums]
    for node, installed, unknown, powered in zip(them["node"].to_pylist(), *columns, strict=True):
        if node and installed > 0.0:
            heard = min(max(installed - unknown, powered), installed)
            yield node, _Counted(ledger.start, ledger.length, installed, heard)


def _reporting_spans(counted: Mapping[str, list[_Counted]]) -> Iterator[ReportingSpan]:
    """Yield for how long each node was heard: its GPU-seconds over its number of GPUs.

    That number is the upper median over all pieces: in the first piece a node may appear late, and in a
    piece in which a GPU is replaced it has both.
    """
    for node, them in counted.items():
        gpus = median_high(one.installed / one.length.total_seconds() for one in them)
        for one in them:
            yield ReportingSpan(
                node=node,
                start=one.start,
                end=one.start + one.length,
                seconds=min(one.reporting / gpus, one.length.total_seconds()),
            )
