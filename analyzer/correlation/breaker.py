"""The circuit breaker: one incident, with both suspects, when half a cluster shows a fault at once.

Hundreds of nodes that fail together have one room, feed, network or rollout in common, or a rule of
ours is wrong; they are never hundreds of broken nodes. A finding whose cause is known already, such
as a leaf or a rack's power feed, is not folded in: it keeps its own incident.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS, where
from gpuvigil.model import (
    CoveredBy,
    Ended,
    EndedBy,
    Evidence,
    Finding,
    Group,
    GroupKind,
    Impact,
    Incident,
    Severity,
    Subject,
)
from gpuvigil.model.reporting import LEAST, MIXED, SHARE
from gpuvigil.numbers_in_words import counted
from gpuvigil.silence_conditions import NodeSilence

from ..detectors.gpu_hung import working
from ..detectors.node_silent import Hearing, hearing
from ..evidence.cluster_wide import half_of, reporting_nodes
from ..evidence.raised import raised_at
from ..window.fault_kinds import SILENCES
from ..window.holdings import Holding
from ..window.window import Span, Window
from .causes import multi_node
from .impact import blocked_work, gpus_of_finding
from .observation import Candidate

_TOGETHER = timedelta(minutes=5)
# Once the incident stands, it stands until few nodes are left: telling of them one by one must be
# worth it.
_LEFT, _LEAST_LEFT = 0.25, 2
# Nodes that were not heard for longer will hardly come back as they were; a repair takes hours.
_AWAITED = timedelta(hours=6)
# Faults of how people use GPUs: many doing the same at the same hour is a habit.
_OF_USERS = where(lambda row: row.blame.is_use)
# More would make a record unreadable; then the nodes are members, and not their GPUs and ports.
_MOST_MEMBERS = 2000
_NAMED = 8
_ACTION = (
    "Look at one of these nodes by hand. If it is broken, look for what they share: power, cooling,"
    " network, storage, a rollout. If it is well, the rule is wrong: silence this fault and read"
    " what gpuvigil explain says."
)
_SOURCE = "NVSentinel's circuit breaker: half of the nodes within five minutes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """The result of folding a look's candidates; everything is by fingerprint."""

    candidates: Mapping[str, Candidate] = field(default_factory=dict)  # of whole clusters
    covered: Mapping[str, CoveredBy] = field(default_factory=dict)
    over: Mapping[str, Ended] = field(default_factory=dict)  # of whole clusters
    unknown: frozenset[str] = frozenset()


Place = tuple[str, str]  # a cluster and a fault


def is_cluster_wide(incident: Incident) -> bool:
    """Tell whether an incident is about a whole cluster."""
    return incident.group is not None and incident.group.kind is GroupKind.CLUSTER


def fold(
    window: Window,
    candidates: Mapping[str, Candidate],
    active: Mapping[str, Incident],
    believed: Collection[str],
    unseen: Collection[str],
    doubtful: Collection[str] = frozenset(),
) -> Folded:
    """Fold what half of a cluster has at once into one candidate; `active` is by fingerprint.

    As with any cause, a finding that is new and not certain counts only once it is seen again; if
    the cluster's incident stands already, it counts at once. `doubtful`: candidates that a cause
    explains which was seen for the first time.
    """
    wholes = {(i.subject.cluster, i.fault): i for i in active.values() if is_cluster_wide(i)}
    made: dict[str, Candidate] = {}
    covered: dict[str, CoveredBy] = {}
    over: dict[str, Ended] = {}
    unknown: set[str] = set()
    groups = _groups(candidates.values())
    for place in sorted({*groups, *wholes}):
        one, alike = wholes.get(place), groups.get(place, [])
        if one is None:
            sure = [c for c in alike if _counts(window, c, active, believed)]
            sure = [c for c in sure if c.finding.fingerprint not in doubtful]
            alike = _at_once(window, sure, active)
        else:
            alike = [c for c in alike if not _is_older(c, one, active)]
        verdict = _verdict(window, place, one, alike, place[1] in unseen)
        if verdict is _Verdict.WHOLE:
            candidate = _whole(window, place, one, alike, active)
            made[candidate.finding.fingerprint] = candidate
            covered |= _covered(alike, candidate.finding.fingerprint, candidate.label)
        elif one is not None and verdict is _Verdict.UNKNOWN:
            unknown.add(one.fingerprint)
            nodes = _nodes(one)
            own = [c for c in alike if c.finding.subject.of_node() in nodes]
            covered |= _covered(own, one.fingerprint, one.label)
        elif one is not None and isinstance(verdict, Ended):
            over[one.fingerprint] = verdict
    for one in [i for i in wholes.values() if i.fingerprint in unknown]:
        silent = silence_of(one.subject.cluster, [*made.values()], wholes.values())
        if silent is not None and silent.fingerprint != one.fingerprint:
            covered[one.fingerprint] = silent
            unknown.remove(one.fingerprint)
    return Folded(candidates=made, covered=covered, over=over, unknown=frozenset(unknown))


def hide(
    candidates: Mapping[str, Candidate],
    active: Mapping[str, Incident],
    wholes: Iterable[Incident],
) -> Folded:
    """Cover, at a look at one node, what an active incident of its whole cluster may include.

    An incident that stands on a node which the cluster's incident does not name is left alone: a
    pass decided that.
    """
    groups = _groups(candidates.values())
    covered: dict[str, CoveredBy] = {}
    for one in wholes:
        alike = groups.get((one.subject.cluster, one.fault), [])
        young = [c for c in alike if not _is_older(c, one, active)]
        nodes = _nodes(one) if young else set()
        told = [
            c
            for c in young
            if c.finding.fingerprint not in active or c.finding.subject.of_node() in nodes
        ]
        covered |= _covered(told, one.fingerprint, one.label)
    return Folded(covered=covered)


def _groups(candidates: Iterable[Candidate]) -> dict[Place, list[Candidate]]:
    groups: dict[Place, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        finding = candidate.finding
        if finding.fault not in _OF_USERS and not multi_node(finding):
            groups[finding.subject.cluster, finding.fault].append(candidate)
    return groups


def _covered(candidates: Iterable[Candidate], by: str, label: str) -> dict[str, CoveredBy]:
    return {c.finding.fingerprint: _by_whole(by, label) for c in candidates}


def _by_whole(fingerprint: str, label: str) -> CoveredBy:
    return CoveredBy(fingerprint=fingerprint, what=f"{label}: {_TITLE}")


def _counts(
    window: Window,
    candidate: Candidate,
    active: Mapping[str, Incident],
    believed: Collection[str],
) -> bool:
    """Tell whether a candidate is believed, and what may explain it has had time to show."""
    finding = candidate.finding
    # An event may come before the rows that show its cause: a port's, before its leaf is seen.
    settles = FAULTS[finding.fault].settles_seconds if finding.fault in FAULTS else 0.0
    known = active.get(finding.fingerprint)
    if settles and (known is None or window.now - raised_at(known) < timedelta(seconds=settles)):
        return False
    return finding.certain or finding.fingerprint in believed


def _at_once(
    window: Window, candidates: Iterable[Candidate], active: Mapping[str, Incident]
) -> list[Candidate]:
    """Return the most candidates raised within five minutes; new ones are raised now."""

    def raised(candidate: Candidate) -> datetime:
        known = active.get(candidate.finding.fingerprint)
        return window.now if known is None else raised_at(known)

    ordered = sorted(candidates, key=lambda c: (raised(c), c.finding.subject))
    times = [raised(candidate) for candidate in ordered]
    best, first = (0, 0), 0
    for last, at in enumerate(times):
        while at - times[first] > _TOGETHER:
            first += 1
        best = max(best, (last + 1 - first, first))
    return ordered[best[1] : best[1] + best[0]]


def _is_older(candidate: Candidate, one: Incident, active: Mapping[str, Incident]) -> bool:
    """Tell whether a candidate's incident was raised over five minutes before the cluster's."""
    known = active.get(candidate.finding.fingerprint)
    return known is not None and raised_at(known) < raised_at(one) - _TOGETHER


class _Verdict(Enum):
    WHOLE = auto()
    UNKNOWN = auto()


def _verdict(
    window: Window, place: Place, one: Incident | None, alike: Sequence[Candidate], blind: bool
) -> _Verdict | Ended | None:
    """Return what becomes of a cluster's incident; None if it goes on as it is, or none is due."""
    nodes = {candidate.finding.subject.of_node() for candidate in alike}
    least, share = (LEAST, SHARE) if one is None else (_LEAST_LEFT, _LEFT)
    if place[1] in SILENCES:
        share *= MIXED / SHARE  # whether half is needed is asked below
    total = len(reporting_nodes(window, place[0]) | {node.key for node in nodes}) if nodes else 0
    if len(nodes) >= max(least, share * total) and (
        one is not None
        or place[1] not in SILENCES
        or _are_late_by_one_cause(window, place[0], alike)
    ):
        return _Verdict.WHOLE
    if one is not None:
        left = _left(window, one)
        if not left:
            return Ended(by=EndedBy.GONE)
        if blind or not _is_visible(window, one, left):
            return _Verdict.UNKNOWN
    if one is None or (not nodes and one.fault not in SILENCES):
        return None
    if not nodes:
        return Ended(by=EndedBy.REPORTS_AGAIN)
    return Ended(by=EndedBy.APART, left=(len(nodes), total))


def _are_late_by_one_cause(window: Window, cluster: str, alike: Iterable[Candidate]) -> bool:
    return half_of(window, cluster, {c.finding.subject: c.finding.since for c in alike})


def silence_of(
    cluster: str, made: Iterable[Candidate], wholes: Iterable[Incident]
) -> CoveredBy | None:
    """Return the cover by a cluster's silence for what its nodes showed before, None without one."""
    told = [(c.finding.fault, c.finding.subject, c.label, c.finding.fingerprint) for c in made]
    told += [(i.fault, i.subject, i.label, i.fingerprint) for i in wholes]
    for fault, subject, label, print_ in told:
        if fault in SILENCES and subject.cluster == cluster:
            return _by_whole(print_, label)
    return None


def _nodes(one: Incident) -> set[Subject]:
    return {Subject.parse(member).of_node() for member in one.members}


def _left(window: Window, one: Incident) -> set[Subject]:
    """Return an incident's nodes that are still in the fleet; all of them if it is of silence."""
    if one.fault in SILENCES:
        return _nodes(one)
    return {node for node in _nodes(one) if not _is_gone(window, node)}


def _is_gone(window: Window, node: Subject) -> bool:
    """Tell whether a node is deleted or retired, or was last heard too long ago to be awaited."""
    if node.key in window.retired or window.away.is_gone(node):
        return True
    times = [
        at for at in (window.last_seen.get(node.key), window.listening_since) if at is not None
    ]
    return bool(times) and window.now - max(times) > _AWAITED


def _is_visible(window: Window, one: Incident, nodes: Collection[Subject]) -> bool:
    """Tell whether at least half of these nodes would show the fault if they had it."""
    heard = [hearing(window, node) for node in nodes]
    wanted = {Hearing.HEARD, Hearing.NOT_EXPECTED}
    if one.fault in SILENCES:
        wanted.add(Hearing.SILENT)
    return 2 * sum(them in wanted for them in heard) >= len(heard)


_HALF = "half_of_cluster"
# Silence of half a cluster pages after this many times the patience with one silent node.
_WAKES_AFTER = 2.0
_TITLE = "Half of the cluster or more has the same fault at once"


def _whole(
    window: Window,
    place: Place,
    one: Incident | None,
    alike: Sequence[Candidate],
    active: Mapping[str, Incident],
) -> Candidate:
    cluster, fault = place
    subject = min(c.finding.subject for c in alike) if one is None else one.subject
    known = [active[c.finding.fingerprint] for c in alike if c.finding.fingerprint in active]
    severities: list[Severity] = [c.severity for c in alike] + [i.severity for i in known]
    severity = min(severities, key=lambda severity: severity.rank)
    since = min(c.finding.since for c in alike)
    # Nobody hears of anything that happens there; but a hub that is only busy must wake nobody.
    patience = _WAKES_AFTER * timedelta(seconds=window.settings.silent_verdict_seconds)
    if fault in SILENCES and window.now - since >= patience:
        severity = Severity.CRITICAL
    nodes = {c.finding.subject.of_node() for c in alike}
    finding = Finding(
        fault=fault,
        subject=subject,
        severity=severity,
        since=since,
        evidence=tuple(_evidence(window, cluster, nodes, alike)),
        detector=alike[0].finding.detector,
        # Nodes do not fall silent together by themselves: the first suspect is ours.
        action=NodeSilence.NOT_RECEIVED.action if fault in SILENCES else _ACTION,
        source=_SOURCE,
        certain=True,
        late=all(c.finding.late for c in alike),
        title=_title(fault),
        condition=NodeSilence.NOT_RECEIVED.value if fault in SILENCES else _HALF,
        group=Group(GroupKind.CLUSTER, cluster),
    )
    members = {member for c in alike for member in c.members}
    if len(members) > _MOST_MEMBERS:
        members = {node.key for node in nodes}
    return Candidate(
        finding=finding,
        severity=severity,
        title=finding.title,
        label=Group(GroupKind.CLUSTER, cluster).label,
        impact=_impact(window, alike),
        members=tuple(sorted(members)),
        covers=tuple(sorted(f"{c.label}: {c.title}" for c in alike)),
    )


def _title(fault: str) -> str:
    if fault in SILENCES:
        return NodeSilence.NOT_RECEIVED.heading
    return f"{_TITLE}: {FAULTS[fault].title if fault in FAULTS else fault}"


def _evidence(
    window: Window, cluster: str, nodes: Collection[Subject], alike: Sequence[Candidate]
) -> Iterable[Evidence]:
    """Yield how many nodes, which, since when, and what tells a common cause from a wrong rule."""
    names = sorted(node.node for node in nodes)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    total = len(reporting_nodes(window, cluster) | {node.key for node in nodes})
    yield Evidence(
        name="nodes", value=f"{len(names)} of {total}: {', '.join(names[:_NAMED])}{more}"
    )
    times = sorted(c.finding.since for c in alike)
    yield Evidence(name="began", value=f"from {moment(times[0])} to {moment(times[-1])}")
    titles = Counter(c.title for c in alike).most_common(3)
    yield Evidence(name="what", value=", ".join(f"{count} x {title}" for title, count in titles))
    whole, partly = _racks(window, cluster, nodes)
    if whole or partly:
        yield Evidence(name="racks", value=f"{whole} wholly, {partly} in part")
    working, measured = _at_work(window, alike)
    if measured:
        yield Evidence(
            name="GPUs at work among them",
            value=f"{working} of {measured}",
            limit="few, if the nodes are broken",
        )


def _racks(window: Window, cluster: str, nodes: Collection[Subject]) -> tuple[int, int]:
    """Return how many racks are hit in all of their nodes, and how many in only some."""
    racks: dict[str, set[Subject]] = defaultdict(set)
    for inventory in window.inventories.values():
        if inventory.rack and inventory.subject.cluster == cluster:
            racks[inventory.rack].add(inventory.subject)
    hit = [them for them in racks.values() if not them.isdisjoint(nodes)]
    whole = sum(them <= set(nodes) for them in hit)
    return whole, len(hit) - whole


def _at_work(window: Window, alike: Iterable[Candidate]) -> tuple[int, int]:
    """Return how many of the affected, recently measured GPUs work, and how many there are."""
    rows = window.get("gpu", Span.RECENT)
    if not len(rows):
        return 0, 0
    gpus = {gpu for c in alike for gpu in gpus_of_finding(window, c.finding) if gpu.kind == "gpu"}
    measured = {gpu for gpu in gpus if rows.index.number(gpu) is not None}
    return len(measured & working(window)), len(measured)


def _impact(window: Window, alike: Sequence[Candidate]) -> Impact:
    gpus: set[Subject] = set()
    holdings: dict[str, Holding] = {}
    for own, theirs in (blocked_work(window, c.finding) for c in alike):
        gpus.update(own)
        holdings |= theirs
    for holding in holdings.values():
        gpus |= holding.gpus
    holders = sorted({holder for c in alike for holder in c.impact.holders})
    users = sorted({user for c in alike for user in c.impact.users})
    held = (
        f"allocated to {len(holders)} jobs or programs of {counted(len(users), 'user')}"
        if holders
        else ""
    )
    return Impact(
        gpus=len(gpus),
        holders=tuple(holders),
        users=tuple(users),
        text=f"{len(gpus)} GPUs, {held or 'not allocated'}",
        running=any(c.impact.running for c in alike),
    )
