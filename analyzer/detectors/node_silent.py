"""A node that reported before and of which the hub hears nothing any more."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS
from gpuvigil.model import Allocation, Evidence, Finding, Subject

from ..holdings import holder_key
from ..window import Need, Span, Window
from .gpu_hung import RECENT, spinning, working
from .host_disk import DROPPED

NEEDS = (Need(measurement="node", span=Span.STEADY, aggregates=(DROPPED,)), RECENT)

_FAULT = FAULTS["node_silent"]
_TICKS = 3
_WITH_HOLES = 4.0
# A job whose node is gone fails at the next collective, or the scheduler misses the node and ends
# it: Slurm waits for 5 minutes (SlurmdTimeout), collectives for 10. What goes on for longer lives.
_DIES_WITHIN = timedelta(minutes=10, seconds=30)
# A scheduler starts nothing on a node that it misses; what runs there for so long has begun.
_BEGUN = timedelta(minutes=3)
_DEAD = (
    "Node is dead: its jobs end with it",
    "Look at the node's console; power-cycle it when nothing answers.",
)
_COLLECTOR = (
    "Collector does not report: the node's jobs go on",
    "Look at the collector's log and start it; check the node's way to the hub.",
)


class Hearing(Enum):
    """What the hub has of a node."""

    HEARD = "a body came lately"
    SILENT = "no body came for too long"
    UNSURE = "the hub has not listened for long enough to say"
    NOT_PLAYED = "a simulated node that this simulation does not have"


def hearing(window: Window, node: Subject) -> Hearing:
    """Whether a node reports, by when its bodies reached the hub: its own clock plays no part."""
    heard, listening = window.heard.get(node.key), window.listening_since
    limit = timedelta(seconds=_limit_seconds(window, node))
    if heard is not None and window.now - heard < limit:
        return Hearing.HEARD
    if listening is None:
        return Hearing.UNSURE
    if node.simulated and (heard is None or heard < listening):
        return Hearing.NOT_PLAYED
    silent_for = window.now - max(heard or listening, listening)
    return Hearing.SILENT if silent_for >= limit else Hearing.UNSURE


def silent_nodes(window: Window) -> list[Finding]:
    """Nodes that are known and sent no body for too long.

    Where a scheduler has jobs on the node they tell more: a node that dies takes its jobs along, a
    collector that dies does not. So such a node is told a little later, and its words may change.
    """
    # All but a few were heard just now.
    lately = window.now - timedelta(seconds=window.settings.silent_after_seconds)
    heard = {key for key, at in window.heard.items() if at > lately}
    nodes = map(Subject.parse, sorted({*window.inventories, *window.heard} - heard))
    silent = [node for node in nodes if hearing(window, node) is Hearing.SILENT]
    rest = _Rest(window, frozenset(silent))
    found = (_finding(window, node, rest) for node in silent)
    return [finding for finding in found if finding is not None]


def _finding(window: Window, node: Subject, rest: "_Rest") -> Finding | None:
    heard = window.heard.get(node.key)
    since: datetime = heard or window.listening_since or window.now
    jobs = _jobs(window, node)
    lost = [a for a in jobs if a.started_at <= since and (a.ended_at or window.now) > since]
    begun = [a for a in jobs if a.started_at > since]
    verdict = _verdict(window, lost, begun, since) or rest.verdict(lost, since)
    patience = timedelta(seconds=window.settings.silent_verdict_seconds)
    if verdict is None and lost and window.now - since < patience:
        return None
    (title, action), evidence = verdict or (("", _FAULT.action), ())
    last_data = "none since the hub started" if heard is None else moment(heard)
    return Finding(
        fault="node_silent",
        subject=node,
        severity=_FAULT.severity,
        since=since,
        evidence=(
            Evidence(
                name="last data",
                value=last_data,
                limit=f"every {window.tick_seconds(node):g} s",
            ),
            *evidence,
        ),
        detector="node_silent",
        action=action,
        source=_FAULT.source,
        title=title,
    )


Verdict = tuple[tuple[str, str], tuple[Evidence, ...]]


def _verdict(
    window: Window, lost: Sequence[Allocation], begun: Iterable[Allocation], since: datetime
) -> Verdict | None:
    """Whether the node or only its collector is gone, by the scheduler; None while it cannot tell.

    `lost`: what it had on the node when that fell silent; `begun`: what it started there since.
    """
    if any((a.ended_at or window.now) - a.started_at >= _BEGUN for a in begun):
        return _COLLECTOR, (Evidence(name="its jobs", value="begin, as the scheduler says"),)
    if any((a.ended_at or window.now) - since > _DIES_WITHIN for a in lost):
        return _COLLECTOR, (Evidence(name="its jobs", value="go on, as the scheduler says"),)
    ended = [a.ended_at for a in lost if a.ended_at is not None]
    if ended and len(ended) == len(lost):
        return _DEAD, (Evidence(name="its jobs", value=f"ended by {moment(max(ended))}"),)
    return None


class _Rest:
    """What the GPUs of jobs do that are on nodes which are heard: without a node of theirs they spin."""

    def __init__(self, window: Window, silent: frozenset[Subject]) -> None:
        self._window, self._silent = window, silent
        self._known: dict[str, int] = {}

    @cached_property
    def _spinning(self) -> frozenset[Subject]:
        return spinning(self._window)

    @cached_property
    def _working(self) -> frozenset[Subject]:
        return working(self._window)

    def balance(self, job: str) -> int:
        """How many more GPUs of a job work than spin."""
        if job not in self._known:
            holding = self._window.holdings.get(job)
            held = () if holding is None else holding.gpus
            gpus = {gpu for gpu in held if gpu.of_node() not in self._silent}
            self._known[job] = len(gpus & self._working) - len(gpus & self._spinning)
        return self._known[job]

    def verdict(self, lost: Iterable[Allocation], since: datetime) -> Verdict | None:
        """None until nothing in the recent span is older than the silence."""
        if self._window.now - since < timedelta(seconds=self._window.settings.window_seconds):
            return None
        jobs = {holder_key(a) for a in lost if a.ended_at is None}
        balance = sum(map(self.balance, sorted(jobs)))
        if balance > 0:
            return _COLLECTOR, (Evidence(name="the rest of its jobs", value="works on"),)
        if balance < 0:
            return _DEAD, (Evidence(name="the rest of its jobs", value="waits for it"),)
        return None


def _jobs(window: Window, node: Subject) -> list[Allocation]:
    """What a scheduler has or lately had on the node."""
    inventory = window.inventories.get(node.key)
    gpus = () if inventory is None else inventory.gpus
    keys = (Subject(cluster=node.cluster, node=node.node, gpu=g.uuid).key for g in gpus)
    found = (a for key in keys for a in window.allocations.get(key, ()))
    return [a for a in found if a.holder.startswith("job ")]


def _limit_seconds(window: Window, node: Subject) -> float:
    """A collector that has to drop bodies is heard with holes: it must be silent for longer."""
    limit = max(window.settings.silent_after_seconds, _TICKS * window.tick_seconds(node))
    row = window.get("node", Span.STEADY).get(node)
    drops = row is not None and (row[DROPPED.column] or 0) > 0
    return limit * _WITH_HOLES if drops else limit
