"""Problems of cables as the fabric's switches see them, for the detectors of ports.

A host's own collector reports its cables, except for errors that only the switch counts. A port
that is down to a host without a collector may mean that the host is off, unless another of its
ports is up.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from gpuvigil.clock import EPOCH, moment
from gpuvigil.model import ErrorCount, Evidence, Subject, Switch
from gpuvigil.numbers_in_words import natural, speed

from ..window.window import Window
from .fabric import DISABLED, Cable, End, answering, cables, end_of, has_collector

# The least number of links of one sort, or between two switches, and the share with one speed.
_PEERS, _BESIDE, _MOST = 5, 4, 0.8
_SPAN = timedelta(minutes=10)
# Where counters of older switches end: InfiniBand Architecture 1.2.1, table 246, PortCounters.
_FULL = {
    "symbol_errors": 0xFFFF,
    "receive_errors": 0xFFFF,
    "link_recoveries": 0xFF,
    "local_integrity_errors": 0xF,
}
_SHOWN = 3
_DROPPED = "transmit_discards"
_CONGESTION = {
    _DROPPED: "packets dropped",
    "pause_frames_received": "pause frames received",
    "pause_frames_sent": "pause frames sent",
}
NOT_OBSERVABLE = Evidence(name="beyond the port", value="not observable without switch counters")


@dataclass(frozen=True, slots=True, kw_only=True)
class CableTrouble:
    """A cable with a problem, and the evidence of it."""

    cable: Cable
    since: datetime
    evidence: tuple[Evidence, ...]

    @property
    def subject(self) -> Subject:
        """The port of a switch that the cable is named by."""
        return self.cable.near.subject

    @property
    def members(self) -> tuple[Subject, ...]:
        """The host's port, if it has a collector."""
        return () if self.cable.host is None else (self.cable.host,)


def cables_without_link(window: Window) -> Iterator[CableTrouble]:
    """Yield the cables that have lost their link, though the switches at their ends answer."""
    alive = {
        (cable.between[0], port.host[0])
        for cable in cables(window)
        if (port := cable.near.port).up and port.host is not None
    }
    every = Counter(cable.between for cable in cables(window))
    up = Counter(it.between for it in cables(window) if all(end.port.up for end in it.ends))
    there = {(it.subject.cluster, it.subject.node) for it in answering(window).values()}
    for cable in cables(window):
        ends = [end for end in cable.ends if not end.port.up and end.is_confirmed]
        if not ends or any(end.port.physical_state == DISABLED for end in cable.ends):
            continue
        cluster, host = cable.between[0], cable.near.port.host
        expected = host is not None and (cluster, host[0]) in alive
        expected = expected and not has_collector(window, cable)
        if expected or (cable.at_switches and (cluster, cable.near.port.peer) in there):
            since = min(end.port.since for end in ends)
            yield _down(cable, since, f"{up[cable.between]} of {every[cable.between]}")


def _down(cable: Cable, since: datetime, left: str) -> CableTrouble:
    evidence = [
        Evidence(name="down since", value=moment(since)),
        Evidence(name="other end", value=cable.far),
    ]
    if cable.near.port.physical_state:
        state = cable.near.port.physical_state
        evidence.append(Evidence(name="physical state", value=state, limit="LinkUp"))
    if cable.at_switches:
        evidence.append(Evidence(name="links between the two that are up", value=left))
    best = cable.near.port.best_bits_per_second
    if best:
        evidence.append(Evidence(name="speed before", value=speed(best)))
    return CableTrouble(cable=cable, since=since, evidence=tuple(evidence))


def slow_cables(window: Window) -> Iterator[CableTrouble]:
    """Yield cables up at less speed than before, or than others between the same two switches.

    If nearly all links of the sort have that speed by now, somebody wants it. An Ethernet port of a
    host that is off may run slowly to be woken: only the host's own collector tells of those.
    """
    every = cables(window)
    usual, beside = _usual(every), _beside(every)
    for cable in every:
        port, now = cable.near.port, cable.near.port.bits_per_second
        limit = max(port.best_bits_per_second or 0, beside.get(cable.between, 0))
        of_host = has_collector(window, cable) or (bool(port.name) and not port.at_switch)
        if of_host or not port.up or not now or now >= limit:
            continue
        if usual.get((cable.between[0], port.at_switch)) == now or not cable.near.is_confirmed:
            continue
        yield CableTrouble(
            cable=cable,
            since=port.since,
            evidence=(
                Evidence(name="speed", value=speed(now), limit=speed(limit)),
                *([Evidence(name="lanes", value=str(port.lanes))] if port.lanes else ()),
                Evidence(name="other end", value=cable.far),
            ),
        )


def links_lost(window: Window, gone: Sequence[Switch]) -> Iterator[Evidence]:
    """Yield how many of their links to other switches the others lost with switches that are gone."""
    names = {(it.subject.cluster, it.subject.node) for it in gone}
    every, lost = Counter[str](), Counter[str]()
    for switch in answering(window).values():
        cluster, name = switch.subject.cluster, switch.subject.node
        for port in switch.ports:
            if port.at_switch:
                every[name] += 1
                lost[name] += (cluster, port.peer) in names
    most = sorted((it for it in lost if lost[it]), key=lambda it: (-lost[it] / every[it], it))
    if most:
        shown = ", ".join(f"{it} {lost[it]} of {every[it]}" for it in most[:_SHOWN])
        more = f" and {len(most) - _SHOWN} more switches" if len(most) > _SHOWN else ""
        yield Evidence(name="links to other switches lost", value=f"{shown}{more}")


def _usual(every: Sequence[Cable]) -> Mapping[tuple[str, bool], int]:
    """Return the speed of nearly all links of a cluster, by whether they are between switches."""
    speeds: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for cable in every:
        if cable.near.port.bits_per_second:
            sort = (cable.between[0], cable.at_switches)
            speeds[sort].append(cable.near.port.bits_per_second)
    return {sort: most for sort, them in speeds.items() if (most := _nearly_all(them, _PEERS))}


def _beside(every: Sequence[Cable]) -> Mapping[tuple[str, frozenset[str]], int]:
    """Return the speed of nearly all links between the same two switches."""
    speeds: dict[tuple[str, frozenset[str]], list[int]] = defaultdict(list)
    for cable in every:
        if cable.at_switches and cable.near.port.bits_per_second:
            speeds[cable.between].append(cable.near.port.bits_per_second)
    return {two: most for two, them in speeds.items() if (most := _nearly_all(them, _BESIDE))}


def _nearly_all(speeds: Sequence[int], least: int) -> int | None:
    most, count = Counter(speeds).most_common(1)[0]
    return most if count >= max(least, _MOST * len(speeds)) else None


def cables_with_errors(window: Window, limits: Mapping[str, float]) -> Iterator[CableTrouble]:
    """Yield cables at whose ends a switch counted more errors in ten minutes than `limits` allow.

    `limits`: by field of `ErrorCount`. Errors that came as the link came up do not count.
    """
    for cable in cables(window):
        bad = _bad_ends(cable, limits)
        # An incident about the host's port has told of earlier errors already.
        if bad and cable.host is not None:
            told_until = _reported_until(window, cable.host)
            bad = _bad_ends(cable, limits, told_until) if told_until < window.now else []
        if not bad:
            continue
        # The end that counts errors is known, even if the cable's other end is a guess.
        turned = cable.guessed and bad[0][0] is not cable.near
        named = replace(cable, ends=cable.ends[::-1]) if turned else cable
        yield CableTrouble(
            cable=named,
            since=min(_first(end) for end, _ in bad),
            evidence=(
                *(
                    Evidence(
                        name=f"{name.replace('_', ' ')} at {end.name}",
                        value=_counted(end, name, count),
                        limit=f"{limits[name]:g}",
                    )
                    for end, grown in bad
                    for name, count in grown.items()
                ),
                Evidence(name="other end", value=named.far),
            ),
        )


def _bad_ends(
    cable: Cable, limits: Mapping[str, float], after: datetime = EPOCH
) -> list[tuple[End, dict[str, int]]]:
    """Return the ends that counted too many errors after `after`, with the counts by field."""
    return [(end, grown) for end in cable.ends if (grown := _grown(end, limits, after))]


def _grown(end: End, limits: Mapping[str, float], after: datetime) -> dict[str, int]:
    """Return by field how much a counter grew, if that is over its limit."""
    counts = end.port.counts
    if not end.port.up or not counts:
        return {}
    start = max(end.switch.at - _SPAN, end.port.since, after)
    growth = {name: _growth(counts, name, start) for name in limits}
    for name in limits:
        # A full counter tells nothing more: for an hour its growth until then still counts.
        if _is_full(end, name):
            grown = _growth(counts, name, end.port.since)
            growth[name] = max(grown, int(limits[name]) + 1) if grown else 0
    return {name: count for name, count in growth.items() if count > limits[name]}


def _is_full(end: End, name: str) -> bool:
    """Tell whether an InfiniBand counter is full; counters of ports with names are larger."""
    return not end.port.name and getattr(end.port.counts[-1], name) == _FULL[name]


def _counted(end: End, name: str, count: int) -> str:
    if _is_full(end, name):
        return f"{_FULL[name]}, where the counter ends"
    return f"{count} in {_SPAN.total_seconds() / 60:g} min"


def _growth(counts: Sequence[ErrorCount], name: str, start: datetime) -> int:
    """Return how much a counter grew after `start`; it may have been cleared, or not be measured.

    No growth follows a single low value between two others: the port did not answer, unnoticed.
    """
    told = [(it.at, int(value)) for it in counts if (value := getattr(it, name)) is not None]
    known = [
        told[n]
        for n in range(len(told))
        if n in {0, len(told) - 1} or told[n][1] >= min(told[n - 1][1], told[n + 1][1])
    ]
    pairs = pairwise(known)
    return sum(max(after - before, 0) for (_, before), (at, after) in pairs if at > start)


def _first(end: End) -> datetime:
    """Return when the errors of the last ten minutes began."""
    start = end.switch.at - _SPAN
    return next((count.at for count in end.port.counts[1:] if count.at > start), end.switch.at)


def _reported_until(window: Window, port: Subject) -> datetime:
    """Return when the last incident about a host's port ended; now if one stands."""
    ends = (it.resolved_at or window.now for it in window.recent_incidents if it.subject == port)
    return max(ends, default=EPOCH)


def switch_port_drops(window: Window, port: Subject) -> tuple[Evidence, ...]:
    """Return what the switch of a host's port dropped or paused in the last ten minutes.

    It names the ports with most of it, or ports of other switches if this one dropped nothing.
    Which link beyond that switch is full is not known.
    """
    end = end_of(window.whole or window, port)
    if end is None:
        return (NOT_OBSERVABLE,)
    found = tuple(
        Evidence(name=f"{what} at {end.switch.subject.node}", value=said)
        for name, what in _CONGESTION.items()
        if (said := _most_of(end.switch, name))
    )
    elsewhere = tuple(_elsewhere(window, end))
    # An InfiniBand switch reports no pauses, and drops packets only after a long wait for credit.
    if not end.port.name and not elsewhere and not _drops(end.switch):
        return (NOT_OBSERVABLE,)
    return (*found, *elsewhere) or (NOT_OBSERVABLE,)


def _elsewhere(window: Window, end: End) -> Iterator[Evidence]:
    """Yield where packets were dropped at other switches: senders here must send those again."""
    if grown_lately(end, _DROPPED) is None or _drops(end.switch):
        return
    grown = [
        (count, f"{it.name} ({cable.far if it is cable.near else cable.near.name})")
        for cable in cables(window.whole or window)
        for it in cable.ends
        if it.switch.subject.cluster == end.switch.subject.cluster
        and (count := grown_lately(it, _DROPPED))
    ]
    most = sorted(grown, key=lambda it: (-it[0], natural(it[1])))[:_SHOWN]
    if most:
        shown = ", ".join(f"{count:,} at {label}" for count, label in most)
        minutes = _SPAN.total_seconds() / 60
        yield Evidence(name="packets dropped elsewhere", value=f"{shown} in {minutes:g} min")


def _drops(switch: Switch) -> bool:
    start = switch.at - _SPAN
    return any(it.counts and _growth(it.counts, _DROPPED, start) for it in switch.ports)


def grown_lately(end: End, name: str, until: datetime | None = None) -> int | None:
    """Return how much a switch port's counter grew in the last ten minutes; None if not measured.

    `until`: later readings do not count.
    """
    counts = [it for it in end.port.counts if until is None or it.at <= until]
    if not counts or getattr(counts[-1], name) is None:
        return None
    return _growth(counts, name, end.switch.at - _SPAN)


def _most_of(switch: Switch, name: str) -> str:
    """Return a text like `12,345 at port 49, 20 at port 3 in 10 min`; empty if not measured."""
    start = switch.at - _SPAN
    measured = [it for it in switch.ports if it.counts and getattr(it.counts[-1], name) is not None]
    grown = [(_growth(it.counts, name, start), it.id) for it in measured]
    most = sorted((it for it in grown if it[0]), key=lambda it: (-it[0], natural(it[1])))
    if not most:
        return "none" if measured else ""
    shown = ", ".join(f"{count:,} at port {label}" for count, label in most[:_SHOWN])
    left = len(most) - _SHOWN
    more = f" and {left} more port{'s' if left > 1 else ''}" if left > 0 else ""
    return f"{shown}{more} in {_SPAN.total_seconds() / 60:g} min"
