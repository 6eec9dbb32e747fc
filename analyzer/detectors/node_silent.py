"""A node that has stopped reporting to the hub."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS, found_by
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import Allocation, Evidence, Finding, Severity, Subject
from gpuvigil.model.reporting import (
    ARRIVAL,
    MIXED,
    TOGETHER,
    are_most,
    late_after,
    late_by_one_cause,
    silent_after,
)
from gpuvigil.silence_conditions import IN_ORDER, NodeSilence

from ..evidence.cluster_wide import racks, reporting_nodes
from ..evidence.planned_silence import GOES, Departure, departure, lived_until
from ..evidence.scaled_down import WITHIN, one_by_one
from ..evidence.silent_racks import of_racks
from ..evidence.taken_along import got_work, jobs, lost_jobs, was_cut_off, was_free
from ..evidence.usual_absence import why_free_node_left
from ..window.fault_kinds import SILENCES
from ..window.holdings import holder_key
from ..window.window import DEFAULT_TICK_SECONDS, Need, Span, Window
from . import Detector
from .gpu_hung import RECENT, TREND, spinning, working
from .host_disk import DROPPED

NEEDS = (
    *(Need(measurement="node", span=it, aggregates=(DROPPED,)) for it in (Span.STEADY, Span.TREND)),
    *(RECENT, TREND),
)

_FAULT = FAULTS["node_silent"]
_WITH_HOLES = 4.0
# A rank that waits for a node may wait for something else, so it takes this many recent spans in a row.
_RANK_WAIT_SPANS = 3.0
# A node that lately kept the hub waiting for some time is given half as long again.
_LONGER = 1.5
# A node that loses a share of its bodies may lose as many in a row as chance does once in this many: at a
# body every 10 s that is once in three years of a node. No more than this many ticks.
_ONCE_IN, _MOST_TICKS = 1e7, 18
# A job whose node is gone fails at the next collective, or the scheduler misses the node and ends the job:
# Slurm waits for 5 minutes (SlurmdTimeout), collectives for 10. A job that goes on for longer is alive.
_DIES_WITHIN = timedelta(minutes=10, seconds=30)
# A machine of eight GPUs is mostly back from a reboot by then (ours). For a node whose GPUs nobody held a reboot
# is the likeliest reason: whoever maintains a node drains it first, so that a reboot takes no work down. A longer
# one, as with an upgraded driver, is mostly announced: the collector reports a shutdown in order.
_REBOOT = timedelta(minutes=9)
# Neighbours that fall silent together confirm each other, after gaps that a busy scraper makes.
_OF_NEIGHBOURS = 1.0 / 3.0
# When much of a cluster is late, the hub is mostly busy or restarting.
_OF_A_HUB = 1.25
# Conditions of a silence that nothing but the silence itself speaks for.
_OF_SILENCE_ALONE = frozenset({"", NodeSilence.SCALED_DOWN, NodeSilence.AWAY})
_BY_ITS_WORD = "the node's own last word, or its scheduler's"


class Hearing(Enum):
    """Whether the hub hears a node."""

    HEARD = "a body came lately"
    SILENT = "no body came for too long"
    UNSURE = "the hub has not listened for long enough to say"
    NOT_EXPECTED = "it was retired, or is of a simulation or a selftest that is not played any more"


def hearing(window: Window, node: Subject) -> Hearing:
    """Return whether a node reports, by when its bodies reached the hub; its own clock plays no part."""
    if node.key in window.retired:
        return Hearing.NOT_EXPECTED
    heard, listening = window.last_seen.get(node.key), window.listening_since
    # Nearly all nodes were heard within the shortest possible limit.
    if heard is not None and window.now - heard < _shortest(window, node):
        return Hearing.HEARD
    limit = timedelta(seconds=_limit_seconds(window, node))
    if heard is not None and window.now - heard < limit:
        return Hearing.HEARD
    if listening is None:
        return Hearing.UNSURE
    if (node.simulated or node.marked) and (heard is None or heard < listening):
        return Hearing.NOT_EXPECTED
    silent_for = window.now - max(heard or listening, listening)
    return Hearing.SILENT if silent_for >= limit else Hearing.UNSURE


def extended_limits(window: Window) -> dict[str, float]:
    """Return the nodes that would count as silent if gaps in their reports did not extend their limit.

    Maps each node's key to the seconds that it may be silent, so that pages which show nodes wait as long.
    """
    found = {}
    # All but a few nodes were heard just now; no limit is shorter than that.
    lately = window.now - timedelta(seconds=window.settings.silent_after_seconds)
    for key in [key for key, at in window.last_seen.items() if at <= lately]:
        inventory = window.inventories.get(key)
        if inventory is None:
            continue
        plain = silent_after(window.settings.silent_after_seconds, inventory.tick_seconds)
        if window.now - window.last_seen[key] >= plain:
            node = Subject.parse(key)
            if hearing(window, node) is Hearing.HEARD:
                found[key] = _limit_seconds(window, node)
    return found


def silent_nodes(window: Window) -> list[Finding]:
    """Return findings on known nodes that sent no body for too long.

    The other nodes of its jobs show whether a node is dead or only its collector: a dead node takes its jobs
    down, a dead collector does not. The node's own records cannot show it, since its collector writes them. A
    node about which nothing else is known is only late for `silent_verdict_seconds`, which is no incident; its
    wording may change after that. A node that went down in order, by its own word or its scheduler's, is no
    incident either. What most of a rack suffers at once is reported on the rack sooner, and that covers its
    nodes.
    """
    # All but a few nodes were heard just now.
    lately = window.now - timedelta(seconds=window.settings.silent_after_seconds)
    heard = {key for key, at in window.last_seen.items() if at > lately}
    nodes = map(Subject.parse, sorted({*window.inventories, *window.last_seen} - heard))
    silent = [node for node in nodes if hearing(window, node) is Hearing.SILENT]
    if not silent:
        return []
    others = _Others(window, frozenset(silent))
    clusters = {a.subject.cluster for held in window.allocations.values() for a in held}
    went = [_went(window, node, clusters) for node in silent]
    unheard, due = _silent_with_most(window, went)
    alike = _one_by_one(went)
    alone = {one.node: one for one in went if one.node not in unheard}
    found = [_finding(window, one, others, alike.get(node, 0)) for node, one in alone.items()]

    missed = [f for f in found if is_missed(f)]
    of_rack = of_racks(window, [f for f in missed if not _is_late(window, f, _OF_NEIGHBOURS)])
    kept = _with_incident(window) | {node for rack in of_rack for node in rack.members}
    reported = [
        f
        for f in found
        if f.subject in kept
        or not (_is_quiet(f) or _is_late(window, f) or _may_reboot(window, alone[f.subject], alike))
    ]
    return [*reported, *(_unheard(window, node) for node in sorted(due)), *of_rack]


def _with_incident(window: Window) -> set[Subject]:
    """Return the nodes with an active incident about their silence, which is kept until they are heard."""
    stand = (i for i in window.recent_incidents if i.fault in SILENCES and State(i.state) in ACTIVE)
    members = {key for i in stand for key in (i.subject.key, *i.members)}
    return {Subject.parse(key).of_node() for key in members}


def _is_quiet(finding: Finding) -> bool:
    """Return whether a node went as intended without work; an absence as on other days is noted, for the next ones."""
    return finding.severity is Severity.INFO and finding.condition != NodeSilence.AWAY


def _is_late(window: Window, finding: Finding, share: float = 1.0) -> bool:
    """Return whether nothing but its silence says that a node has a fault, and not for long yet.

    `share` scales the patience for a lone node, which is longer for a node that is often silent for minutes:
    such pauses follow each other by chance. For a node that is read seldom, the wait until its next body is
    added. Nodes of a selftest are never just late.
    """
    node = finding.subject
    if finding.condition not in _OF_SILENCE_ALONE or node.marked:
        return False
    usual = _LONGER * window.usual_gap_seconds.get(node.key, 0.0)
    due = max(window.tick_seconds(node) - DEFAULT_TICK_SECONDS, 0.0)
    patience = share * (window.settings.silent_verdict_seconds + usual) + due
    return window.now - lived_until(window, node, finding.since) < timedelta(seconds=patience)


def _may_reboot(window: Window, went: "_Went", alike: Mapping[Subject, int]) -> bool:
    """Return whether nobody held the node, so that it may be back soon; a node that left as others did gets longer."""
    wait = WITHIN if went.node in alike else _REBOOT
    waited = window.now - lived_until(window, went.node, went.since)
    return went.free and not went.node.marked and waited < wait


def _silent_with_most(
    window: Window, silent: Iterable["_Went"]
) -> tuple[set[Subject], set[Subject]]:
    """Return the nodes that fell silent together with most of their cluster, and those of them to report by now.

    They are gathered once a first one is silent: waiting for the last would report some of them alone
    meanwhile. A hub that is only busy is no incident, so reporting takes a while, except where whole racks are
    gone.
    """
    found: set[Subject] = set()
    due: set[Subject] = set()
    first = {one.node: one.since for one in silent if one.gone is None and not one.node.marked}
    for cluster in sorted({node.cluster for node in first}):
        known = reporting_nodes(window, cluster)
        late = {node.key: at for node, at in first.items() if node.cluster == cluster}
        overdue = {key for key in known - late.keys() if _is_overdue(window, key)}
        if not are_most(len(late) + len(overdue), len(known | late.keys()), MIXED):
            continue
        late |= {key: window.last_seen[key] for key in overdue if not _went_in_order(window, key)}
        tick = timedelta(seconds=max(window.tick_seconds(Subject.parse(key)) for key in late))
        rack_of = racks(window, cluster)
        alike = late_by_one_cause(late, known - late.keys(), rack_of, within=tick + ARRIVAL)
        nodes = set(map(Subject.parse, alike))
        if first.keys().isdisjoint(nodes):
            continue
        begin = min(late[key] for key in alike)
        # Nodes that send seldom were last heard a little earlier or later.
        seldom = {node for node, at in first.items() if abs(at - begin) <= TOGETHER}
        found |= nodes | {node for node in seldom if node.cluster == cluster}
        hit, others = ({rack_of.get(key) for key in them} for them in (alike, known - alike))
        share = _OF_NEIGHBOURS if None not in hit and hit.isdisjoint(others) else _OF_A_HUB
        patience = timedelta(seconds=share * window.settings.silent_verdict_seconds)
        if window.now - begin >= patience:
            due |= nodes
    return found, due


def _is_overdue(window: Window, key: str) -> bool:
    """Return whether a node's next body is overdue, even if the node does not count as silent yet."""
    inventory, listening = window.inventories.get(key), window.listening_since
    if listening is None or key in window.retired:
        return False
    tick = DEFAULT_TICK_SECONDS if inventory is None else inventory.tick_seconds
    return window.now - max(window.last_seen[key], listening) > late_after(tick)


def _went_in_order(window: Window, key: str) -> bool:
    node = Subject.parse(key)
    return departure(window, node, window.last_seen[key], has_jobs=False) is not None


def _unheard(window: Window, node: Subject) -> Finding:
    """Build the finding on one node of many that fell silent together; certain, since so many agree."""
    heard = window.last_seen.get(node.key)
    since: datetime = heard or window.listening_since or window.now
    return Finding(
        fault="node_silent",
        subject=node,
        severity=_FAULT.severity,
        since=since,
        evidence=(_last_data(window, node),),
        detector="node_silent",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        certain=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Went:
    """The state of a node when it fell silent."""

    node: Subject
    since: datetime
    lost: Sequence[Allocation]  # its jobs
    gone: Departure | None
    free: bool  # nobody held any of its GPUs, and the reason why it went is unknown


def _went(window: Window, node: Subject, clusters: Collection[str]) -> _Went:
    """Return the state of a node when it fell silent.

    `clusters` are those for which somebody reports who holds GPUs.
    """
    heard = window.last_seen.get(node.key)
    since: datetime = heard or window.listening_since or window.now
    went = lived_until(window, node, since, GOES)
    lost = lost_jobs(window, node, went)
    gone = departure(window, node, since, has_jobs=bool(lost))
    holders_known = heard is not None and gone is None and node.cluster in clusters
    free = holders_known and not lost and was_free(window, node, since)
    # A node that was removed, or that reboots for a job that waits for it, is silent for no longer than that.
    free = free and not got_work(window, node, since, window.now - _REBOOT)
    return _Went(node=node, since=since, lost=lost, gone=gone, free=free)


def _one_by_one(went: Iterable[_Went]) -> dict[Subject, int]:
    """Return for each idle node that left as others of its cluster did how many such nodes there were.

    A node that announced its shutdown and took no work down counts as well: of nodes that are being removed,
    some are cut off before their announcement is sent.
    """
    idle: dict[str, dict[Subject, datetime]] = defaultdict(dict)
    busy: dict[str, dict[Subject, datetime]] = defaultdict(dict)
    for one in went:
        if one.free or (one.gone is not None and one.gone.for_good and not one.lost):
            idle[one.node.cluster][one.node] = one.since
        elif one.gone is None:
            busy[one.node.cluster][one.node] = one.since
    return {
        node: count
        for cluster, them in idle.items()
        for node, count in one_by_one(them, busy[cluster]).items()
    }


def _finding(window: Window, went: _Went, others: "_Others", alike: int) -> Finding:
    """Build a node's finding, as it is reported once the node is no longer just late."""
    node, since, gone = went.node, went.since, went.gone
    found = _missed(window, went, others, alike) if gone is None else _gone(node, since, gone)
    return replace(found, evidence=(_last_data(window, node), *found.evidence))


def _last_data(window: Window, node: Subject) -> Evidence:
    heard = window.last_seen.get(node.key)
    value = "none since the hub started" if heard is None else moment(heard)
    return Evidence(name="last data", value=value, limit=f"every {window.tick_seconds(node):g} s")


def is_missed(finding: Finding) -> bool:
    """Return whether a silent node went down neither in order nor as removed nodes do, nor as on other days."""
    return finding.condition not in {*IN_ORDER, NodeSilence.SCALED_DOWN, NodeSilence.AWAY}


def _gone(node: Subject, since: datetime, gone: Departure) -> Finding:
    return Finding(
        fault="node_silent",
        subject=node,
        severity=gone.severity,
        since=since,
        evidence=(gone.evidence,),
        detector="node_silent",
        action=gone.how.action,
        source=_BY_ITS_WORD,
        title=gone.how.heading,
        condition=gone.how.value,
    )


def _missed(window: Window, went: _Went, others: "_Others", alike: int) -> Finding:
    """Build the finding on a node that nobody took away.

    `alike` is how many idle nodes left one by one.
    """
    since, severity = went.since, _FAULT.severity
    waits = went.free and window.now - since < (WITHIN if alike else _REBOOT)
    # A node that is rebooting is not heard by its scheduler either.
    judged = others.judge(went.lost, since) or (None if waits else _by_scheduler(window, went))
    condition, evidence = judged or (None, ())
    why = why_free_node_left(window, went.node, since, alike) if went.free else None
    if why is not None:
        condition, severity, evidence = why
    return Finding(
        fault="node_silent",
        subject=went.node,
        severity=severity,
        since=since,
        evidence=evidence,
        detector="node_silent",
        action=_FAULT.action if condition is None else condition.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        title="" if condition is None else condition.heading,
        condition="" if condition is None else condition.value,
    )


Judgement = tuple[NodeSilence, tuple[Evidence, ...]]


def _by_scheduler(window: Window, went: _Went) -> Judgement | None:
    """Return that the scheduler does not hear the node either; None where that is not known.

    That a scheduler still hears a node is never reported.
    """
    if not window.away.is_unheard(went.node, went.since):
        return None
    return NodeSilence.UNHEARD, (Evidence(name="its scheduler", value="does not hear it either"),)


class _Others:
    """What the nodes that are heard say about the jobs they share with silent ones."""

    def __init__(self, window: Window, silent: frozenset[Subject]) -> None:
        self._window, self._silent = window, silent

    @cached_property
    def _their_allocations(self) -> Mapping[str, Sequence[Allocation]]:
        """Return allocations on nodes that are heard, for holders that silent nodes have too, by `holder_key`."""
        holders = {a.holder for node in self._silent for a in jobs(self._window, node)}
        theirs: dict[str, list[Allocation]] = {}
        for held in self._window.allocations.values():
            for a in held:
                if a.holder in holders and a.subject.of_node() not in self._silent:
                    theirs.setdefault(holder_key(a), []).append(a)
        return theirs

    @cached_property
    def _spinning(self) -> frozenset[Subject]:
        return spinning(self._window)

    @cached_property
    def _working(self) -> frozenset[Subject]:
        return working(self._window)

    def judge(self, lost: Iterable[Allocation], since: datetime) -> Judgement | None:
        """Return whether the node or only its collector is gone; None where no other node shows it.

        `lost` is what a scheduler had on the node when it fell silent. A job that has been restarted since,
        under its old number, counts as another one.
        """
        names = sorted({holder_key(a) for a in lost})
        elsewhere = [a for name in names for a in self._their_allocations.get(name, ())]
        theirs = [a for a in elsewhere if a.started_at <= since]
        held = [a.subject for a in theirs if a.ended_at is None]
        ended = [a for a in theirs if a.ended_at is not None and a.ended_at > since]
        last = max((a.ended_at for a in ended if a.ended_at is not None), default=since)
        return self._by_work(held, since) or _by_ends(ended, last, since, open_too=bool(held))

    def _by_work(self, gpus: Iterable[Subject], since: datetime) -> Judgement | None:
        """Judge by the GPUs of the node's jobs elsewhere: those of ranks that wait for a dead one spin.

        Ranks that do not wait for each other work on until the scheduler misses the node, so work counts only
        after that. Nor does anything count until the recent span lies within the silence.
        """
        silent_for = self._window.now - since
        if silent_for < _RANK_WAIT_SPANS * timedelta(seconds=self._window.settings.window_seconds):
            return None
        known = frozenset(gpus)
        balance = 0 if not known else len(known & self._working) - len(known & self._spinning)
        if balance < 0:
            return NodeSilence.DEAD, (Evidence(name="the rest of its jobs", value="waits for it"),)
        if balance > 0 and silent_for > _DIES_WITHIN:
            return NodeSilence.COLLECTOR, (Evidence(name="the rest of its jobs", value="works on"),)
        return None


def _by_ends(
    ended: Sequence[Allocation], last: datetime, since: datetime, *, open_too: bool
) -> Judgement | None:
    """Judge by when the node's jobs ended on other nodes, the last one at `last`.

    `open_too` says that some have not ended.
    """
    if last - since > _DIES_WITHIN:
        value = f"went on elsewhere until {moment(last)}"
        return NodeSilence.COLLECTOR, (Evidence(name="its jobs", value=value),)
    if not open_too and any(map(was_cut_off, ended)):
        value = f"ended elsewhere by {moment(last)}"
        return NodeSilence.DEAD, (Evidence(name="its jobs", value=value),)
    return None


def _shortest(window: Window, node: Subject) -> timedelta:
    """Return the shortest silence after which a node can count as silent."""
    return silent_after(window.settings.silent_after_seconds, window.tick_seconds(node))


def _limit_seconds(window: Window, node: Subject) -> float:
    """Return the seconds of silence after which a node counts as silent; more where its reports have gaps.

    A collector that has to drop bodies counts them. Losses on the way show in how many bodies of the steady
    span arrived, and bursts in how long the hub waited for the node lately. Of a node that is read seldom the
    steady span forgets what it lost before chance would let it be heard again: there the trend's counts.
    """
    tick = window.tick_seconds(node)
    limit = max(
        _shortest(window, node).total_seconds(),
        _LONGER * window.usual_gap_seconds.get(node.key, 0.0),
    )
    row = window.get("node", Span.STEADY).get(node)
    if _MOST_TICKS * tick > window.settings.steady_seconds / 2.0:
        row = window.get("node", Span.TREND).get(node)
    if row is None:
        return limit
    if (row[DROPPED.column] or 0) > 0:
        limit *= _WITH_HOLES
    due = round((row["last_at"] - row["first_at"]).total_seconds() / tick) + 1
    return max(limit, tick * _ticks_lost_by_chance(due - row["samples"], due))


def _ticks_lost_by_chance(lost: int, due: int) -> int:
    """Return how many bodies in a row chance hardly ever loses, if it lost `lost` of `due`."""
    if lost <= 0:
        return 0
    return min(math.ceil(math.log(_ONCE_IN) / math.log((due + 1) / (lost + 1))), _MOST_TICKS)


DETECTOR = Detector(
    name="node_silent",
    find=silent_nodes,
    faults=found_by("node_silent"),
    needs=NEEDS,
    sentence="A node that has stopped reporting to the hub.",
    source="three ticks without a body",
    judges_absence=True,
)
