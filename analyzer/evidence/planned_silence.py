"""Planned silences of nodes, by the node's own last event or by its scheduler."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.clock import moment
from gpuvigil.model import Event, EventKind, Evidence, Severity, Subject
from gpuvigil.silence_conditions import NodeSilence

from ..window.window import Span, Window

# The time between the last event and the last body, either way: a machine that goes down ends its
# services in turn.
LAST_WORDS = timedelta(minutes=2)
# Samples that a node sends in one batch may come this much later, with nothing else for as long.
BATCH = timedelta(minutes=5)
# A machine of eight GPUs is back from a reboot within a quarter of an hour; one that is not after
# an hour hangs on its way. And a node whose collector was stopped is not watched.
_BACK_WITHIN = timedelta(hours=1)
# The events by which a node reports its own going; `_WORDS` also has its coming.
GOES = (EventKind.SHUTDOWN, EventKind.STOPPED)
_WORDS = (*GOES, EventKind.BOOT)
# The beginning of a shutdown's message if the machine is to come back.
REBOOT = "reboot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """How a node went in order, or why nobody misses it."""

    how: NodeSilence
    severity: Severity
    evidence: Evidence
    for_good: bool = False  # it reported going down, and not that it comes back


def departure(window: Window, node: Subject, since: datetime, has_jobs: bool) -> Departure | None:
    """Return how a node that was last heard at `since` went in order; None if nothing says so.

    `has_jobs`: a scheduler had jobs on it, which ended with it or go on unseen.
    """
    word = _last_word(window, node, since)
    if word is None:
        why = window.away.reason([node], raised=since, stops_jobs=has_jobs)
        if why is None:
            return None
        how = NodeSilence.TAKEN_AWAY
        return Departure(how=how, severity=Severity.INFO, evidence=_scheduler(why.reason))
    waited_for = window.now - word.at >= _BACK_WITHIN
    if word.kind is EventKind.STOPPED:
        return Departure(
            how=NodeSilence.STOPPED,
            severity=Severity.WARNING if waited_for else Severity.INFO,
            evidence=Evidence(
                name="collector",
                value=f"was stopped in order at {moment(word.at)}",
                limit=f"a warning after {_BACK_WITHIN / timedelta(minutes=1):g} min",
            ),
        )
    reboots = word.message.startswith(REBOOT)
    late = reboots and waited_for
    return Departure(
        how=NodeSilence.NOT_BACK if late else NodeSilence.SHUT_DOWN,
        # Whoever reboots a machine under a job knows it, and the machine will be back.
        severity=Severity.WARNING if late or (has_jobs and not reboots) else Severity.INFO,
        evidence=Evidence(
            name="node",
            value=f"said at {moment(word.at)} that it goes down: {word.message or 'no reason given'}",
            limit=f"a warning after {_BACK_WITHIN / timedelta(minutes=1):g} min" if reboots else "",
        ),
        for_good=not reboots,
    )


def lived_until(
    window: Window, node: Subject, since: datetime, words: Collection[EventKind] = _WORDS
) -> datetime:
    """Return when a node was last known to live: by samples at `since`, or by a later event of it."""
    return max((since, *(event.at for event in window.node_events(node, *words))))


def went_on(word: Event, last_seen: datetime) -> bool:
    """Tell whether a node was heard too long after a word that it goes.

    A collector that stops has sent everything, so no batch can come later.
    """
    later = LAST_WORDS + (BATCH if word.kind is EventKind.SHUTDOWN else timedelta(0))
    return last_seen - word.at > later


def _last_word(window: Window, node: Subject, since: datetime) -> Event | None:
    """Return the newest event of a node's going, if the node was not heard long after it."""
    words = list(window.node_events(node, *_WORDS))
    goes = [e for e in words if e.kind is not EventKind.BOOT and not went_on(e, since)]
    if not goes:
        return None
    # A machine that goes down stops its collector, too.
    last = max(goes, key=lambda e: (e.kind is EventKind.SHUTDOWN, e.at))
    if any(e.kind is EventKind.BOOT and e.at > last.at for e in words):
        return None
    numbers = _last_numbers(window, node, last)
    tick = timedelta(seconds=window.tick_seconds(node))
    return None if numbers is not None and numbers > last.at + tick else last


def _last_numbers(window: Window, node: Subject, word: Event) -> datetime | None:
    """Return the time of a node's last samples, by its own clock; None when that is too long ago.

    A silence under jobs is told when the newest line is gone. A machine that goes down may still
    send samples for a while; after a collector has stopped only another collector can.
    """
    row, steady = window.newest(node), window.get("node", Span.STEADY).get(node)
    times: list[datetime] = [] if row is None else [row["at"]]
    if steady is not None and word.kind is EventKind.STOPPED:
        times.append(steady["last_at"])
    return max(times, default=None)


def _scheduler(why: str) -> Evidence:
    return Evidence(name="its scheduler", value=f"says that it is {why}")
