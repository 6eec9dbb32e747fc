"""Ports as measured in the last minutes: loads, waits, errors and losses, as columns."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.model import Subject
from gpuvigil.store import Aggregate, Function

SPAN = timedelta(minutes=5)
AVERAGES = (
    f"Loads, waits and hourly rates are averages over the last {SPAN.seconds // 60} minutes:"
    " those of a newer fault are still rising."
)
_BITS, _HOUR = 8.0, 3600.0
# Over less time than this a rate means nothing.
_LEAST_SECONDS = 15.0
_PEERS = 3
# Waits of ports below this load, in percent, say nothing on how long ports usually wait [own].
_AT_WORK = 1.0
# From here on a multiple says no more than this: peers that hardly wait make it any number [own].
MOST_TIMES = 100.0

# Errors of cables, modules and ports; and packets that were dropped or sent again, which congestion
# causes, too, with sound cables.
_ERRORS = (
    *("symbol_errors", "receive_errors", "local_integrity_errors"),
    *("link_downed", "link_recoveries"),
)
_LOSSES = ("transmit_discards", "receive_discards", "retransmits")
_INCREASES = (
    *("receive_bytes", "transmit_bytes", "receive_pause_microseconds", "transmit_wait_ticks"),
    *_ERRORS,
    *_LOSSES,
)
ASKED = (
    # The load is a share of the fastest speed in the span; the link may have become slower since.
    Aggregate(function=Function.MAX, field="speed_bits_per_second"),
    Aggregate(function=Function.LAST, field="speed_bits_per_second"),
    *(Aggregate(function=Function.INCREASE, field=name) for name in _INCREASES),
)
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


Port = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Ports as columns of the same length; NaN is not measured."""

    names: Sequence[Port]  # cluster, node, device, port; tuples, since a fleet has very many
    roles: Sequence[str]
    load: Floats  # percent of the speed, in the busier direction
    wait: Floats  # percent of the time that pause frames stopped it
    ticks: Floats  # waits for credit, as a multiple of the median of ports at work of its kind
    errors: Floats  # per hour, of cables, modules and ports
    losses: Floats  # packets per hour, dropped or sent again
    gbits: Floats

    def __len__(self) -> int:
        return len(self.names)

    def subject(self, place: int) -> Subject:
        """Return the port at this place."""
        return subject_of(self.names[place])


def measured(
    rows: pa.Table, clusters: Iterable[str], nodes: Collection[str] | None = None
) -> Links:
    """Return what the ports of these clusters, or of these nodes there, did, from the store's table of the last minutes."""
    if nodes is not None:
        rows = rows.filter(pc.is_in(rows["node"], pa.array(nodes, pa.string())))
    shown = set(clusters)
    chosen = np.flatnonzero([cluster in shown for cluster in rows["cluster"].to_pylist()])
    tags = rows.select(["cluster", "node", "device", "port", "kind", "role"]).take(chosen)
    cluster, node, device, number, kind, role = (one.to_pylist() for one in tags.columns)

    def column(name: str) -> Floats:
        values = rows[name].to_numpy(zero_copy_only=False).astype(np.float64)
        found: Floats = values[chosen]
        return found

    begin, end = (
        rows[name].to_numpy().astype(np.int64)[chosen] for name in ("first_at", "last_at")
    )
    length = (end - begin) / 1e6
    length = np.where(length >= _LEAST_SECONDS, length, np.nan)
    rates = {name: column(f"{name}_increase") / length for name in _INCREASES}
    speed = column("speed_bits_per_second_max")
    busier = np.fmax(rates["receive_bytes"], rates["transmit_bytes"])
    load = 100.0 * busier * _BITS / np.where(speed > 0.0, speed, np.nan)
    return Links(
        names=list(zip(cluster, node, device, number, strict=True)),
        roles=[one or "" for one in role],
        load=load,
        wait=np.minimum(rates["receive_pause_microseconds"] / 1e4, 100.0),
        ticks=_times_usual(
            rates["transmit_wait_ticks"], load, list(zip(cluster, kind, role, strict=True))
        ),
        errors=_sum([rates[name] for name in _ERRORS]) * _HOUR,
        losses=_sum([rates[name] for name in _LOSSES]) * _HOUR,
        gbits=column("speed_bits_per_second_last") / 1e9,
    )


def times(multiple: float, digits: int = 1) -> str:
    """Return how many times as long as its peers a port waits."""
    if multiple > MOST_TIMES:
        return f"over {MOST_TIMES:.0f} ×"
    return f"{multiple:.{digits}f} ×"


def _sum(rates: Sequence[Floats]) -> Floats:
    """Return the sum of the measured rates; NaN where none was measured."""
    found: Floats = np.where(np.isnan(rates).all(axis=0), np.nan, np.nansum(rates, axis=0))
    return found


def _times_usual(ticks: Floats, load: Floats, kinds: Sequence[Hashable]) -> Floats:
    """Return waits as multiples of the median of waiting ports of the kind, as a tick's length differs by card.

    Ports that carry next to nothing do not count for the median: what they wait now and then is no measure.
    """
    found = np.full(len(ticks), np.nan)
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, kind in enumerate(kinds):
        places[kind].append(place)
    for those in places.values():
        some = ticks[those]
        waiting = some[(some > 0.0) & ~(load[those] < _AT_WORK)]
        if len(waiting) >= _PEERS:
            found[those] = some / np.median(waiting)
    return found


def subject_of(name: Port) -> Subject:
    cluster, node, device, port = name
    return Subject(cluster=cluster, node=node, device=device, port=port)
