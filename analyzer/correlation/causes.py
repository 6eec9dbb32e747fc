"""Causes: what follows from which finding, and which findings are one problem."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import reduce
from typing import Protocol, TypeVar

from gpuvigil.faults import FAULTS, Explains, Mended, Reach
from gpuvigil.model import Evidence, Finding, Incident, Severity, Subject, fingerprint
from gpuvigil.silence_conditions import PLAIN

from ..evidence.own_steps import SM_CLOCK
from ..window.fault_kinds import (
    EXPLAINED_BY,
    LINKS_DOWN,
    LINKS_LOST,
    MODULES_BAD,
    OWN_OF_LINKS,
    SHARED,
    SILENCES,
    SLOW_JOBS,
    SWITCHES,
    SWITCHES_FULL,
    TOLD_BY_XID,
    WARM_AIR,
)
from ..window.window import Window
from .known_switches import first_port, known_switch

# Conditions that share a fault with others, but have nothing to do with them.
_APART = (
    frozenset({"power_limit", "node_power_limit", "rack_power_limit"}),
    frozenset({"uneven_stage"}),
)
# Work that seems unevenly divided, and the slow rank that it turns out to be once its GPU tells.
_CUT, _BEGUN = "uneven_stage", "slow_from_start"
_COUNTED = "uncorrected_growth"
# A node that its job waits for, for an unknown reason.
WHOLE_NODE = "whole_node"
# Heat of one GPU beyond that of its node, which is not due to the air.
_OWN_HEAT = frozenset({"heatsink", "cooling", "memory_hot"})

# How long a node under repair may be away. What began just before its silence is no reason for a
# repair, but the beginning of the node's end.
_MENDED, _BEFORE = timedelta(minutes=30), timedelta(minutes=2)


class FindingOrIncident(Protocol):
    """The attributes that findings and incidents have in common."""

    @property
    def fault(self) -> str: ...
    @property
    def subject(self) -> Subject: ...
    @property
    def condition(self) -> str: ...
    @property
    def xid(self) -> int | None: ...
    @property
    def severity(self) -> Severity: ...
    @property
    def since(self) -> datetime: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def members(self) -> Sequence[Subject] | Sequence[str]: ...
    @property
    def evidence(self) -> tuple[Evidence, ...]: ...


_FindingOrIncident = TypeVar("_FindingOrIncident", Finding, Incident)


def present_fault(what: FindingOrIncident) -> str:
    """Return the present fault: a bad link's incident may be a lost link's or its module's by now."""
    return what.condition if what.condition in LINKS_LOST | MODULES_BAD else what.fault


def hides(cause: Finding, what: FindingOrIncident) -> bool:
    """Tell whether `what` follows from `cause`.

    A critical Xid explains what its GPU shows; a lesser one does not. A finding about several
    subjects covers the same fault on each. A fault of one node explains nothing that other nodes
    share with it.
    """
    fault, subject, by = present_fault(what), what.subject, present_fault(cause)
    by_members = _hides_by_members(cause, what)
    if by_members is not None:
        return by_members
    if _gave_way(cause, what):
        return True
    same = {by, what.fault} != {cause.fault} and cause.fingerprint == what.fingerprint
    explains = FAULTS[by].explains if by in FAULTS else None
    if same or explains is None or not _is_severe_enough(cause, explains):
        return False  # `same`: it is the same incident, in other words
    if explains.xids and fault in TOLD_BY_XID:
        return _reaches(cause, explains.reach, subject) and what.xid in explains.xids
    of_one = cause.fault in SILENCES or (cause.subject.kind == "node" and not multi_node(cause))
    apart = of_one and fault in SHARED and multi_node(what)
    if apart or fault not in EXPLAINED_BY[by]:
        return False
    # If several GPUs of a node are slow at once, a fault of one of them explains it.
    whole = fault in SLOW_JOBS and subject.kind == "node" and _slows(cause)
    return (
        (whole and subject == cause.subject.of_node())
        or _reaches(cause, explains.reach, subject)
        or _is_held_back(what, cause)
    )


def _is_held_back(what: FindingOrIncident, rack: Finding) -> bool:
    """Tell whether a job waits for a GPU or node that its rack's air holds back: its clock gave way.

    One that is slow at its usual clock has a reason of its own.
    """
    return (
        rack.fault in WARM_AIR
        and multi_node(rack)
        and what.fault in SLOW_JOBS
        and what.subject.of_node() in rack.members
        and any(it.name == SM_CLOCK for it in what.evidence)
    )


def _gave_way(cause: Finding, what: FindingOrIncident) -> bool:
    """Tell whether `what` is the incident that a cause has itself, while it goes on as its sign's."""
    if not cause.goes_on or what.fingerprint == cause.fingerprint:
        return False
    return what.fingerprint == fingerprint(cause.fault, cause.subject)


def _is_severe_enough(cause: Finding, explains: Explains) -> bool:
    if explains.if_critical:
        return cause.severity is Severity.CRITICAL
    return not explains.unless_note or cause.severity is not Severity.INFO


def _reaches(cause: Finding, reach: Reach, subject: Subject) -> bool:
    """Tell whether a cause reaches a subject; it reaches a node through a member on that node."""
    if reach is Reach.MEMBERS:
        members: Iterable[Subject] = cause.members
        if subject.kind == "node":
            members = (member.of_node() for member in members)
        return subject in members
    if cause.fault in SHARED and not multi_node(cause) and subject in cause.members:
        return True
    below = reach is Reach.BELOW and cause.subject.kind == "node"
    return (subject.of_node() if below else subject) == cause.subject


def _hides_by_members(cause: Finding, what: FindingOrIncident) -> bool | None:
    """Tell whether `what` follows from a cause with members; None if the members do not decide."""
    if (cause.condition, what.condition) == (_BEGUN, _CUT):
        return _members(what) <= {cause.subject, *cause.members}
    if cause.fault in SILENCES and cause.members:
        follows = not (what.fault in SHARED and multi_node(what)) and not stood_before(cause, what)
        return what.subject.of_node() in cause.members and follows
    if cause.fault in SWITCHES and what.subject.kind == "node":
        return _went_with_switch(cause, what)
    if what.subject in cause.members and cause.fault in {what.fault, *SWITCHES}:
        own = cause.fault in SWITCHES_FULL and present_fault(what) in OWN_OF_LINKS
        return not own and not is_apart(cause, what)
    return None


def _went_with_switch(cause: Finding, what: FindingOrIncident) -> bool:
    """Tell whether a node is silent or slow, or its ports are down, because its switch failed."""
    if what.fault in SILENCES:
        return what.subject in cause.members and not multi_node(what)
    if what.condition == WHOLE_NODE and what.fault in EXPLAINED_BY[cause.fault]:
        return what.subject in {it.of_node() for it in (cause.subject, *cause.members)}
    ports = _members(what)
    return what.fault in LINKS_DOWN and bool(ports) and ports <= {cause.subject, *cause.members}


def _members(what: FindingOrIncident) -> set[Subject]:
    return {m if isinstance(m, Subject) else Subject.parse(m) for m in what.members}


def is_apart(cause: FindingOrIncident, what: FindingOrIncident) -> bool:
    """Tell whether both share a fault and still have nothing to do with each other.

    A node's power brake does not explain why one of its GPUs has another limit than its peers, a
    rack's air does not explain a GPU's heat beyond that of its node, and the division of work does
    not explain a rank that turned slow. But every hot GPU is a part of a hot node.
    """
    own_heat = what.subject.kind == "gpu" and what.condition in _OWN_HEAT
    return (own_heat and multi_node(cause)) or any(
        (cause.condition in it) != (what.condition in it) for it in _APART
    )


def is_of_gpus(what: FindingOrIncident) -> bool:
    """Tell whether it began with one GPU, and is about several of the node by now."""
    others = _members(what) - {what.subject}
    return (
        what.fault in SHARED
        and what.subject.kind == "gpu"
        and bool(others)
        and not multi_node(what)
    )


def multi_node(what: FindingOrIncident) -> bool:
    """Tell whether it is about other nodes, too."""
    node = what.subject.of_node()
    return any(member.of_node() != node for member in _members(what))


def merged(
    found: Sequence[Finding],
    active: Mapping[str, Incident],
    believed: Collection[str] = (),
    over: Collection[Incident] = (),
) -> list[Finding]:
    """Return the findings with those of one problem merged; an active incident keeps its name.

    Without one, a state counts for more than an event. The graver of two gives the words. `over`:
    ended incidents that may come back as the same ones.
    """
    by_place = {(f.fault, f.subject): f for f in found}
    gone: set[str] = set()
    changed: dict[str, Finding] = {}
    for fault, row in FAULTS.items():
        alike = [f for f in found if f.fault in TOLD_BY_XID and f.xid in row.xids_alike]
        for event in alike:
            state = by_place.get((fault, event.subject))
            if state is None:
                known = _in_known_words(event, active)
                changed[event.fingerprint] = _as_its_state(known, fault, active)
                continue
            first, second = (state, event)
            if event.fingerprint in active or (event.certain and state.fingerprint not in active):
                first, second = (event, state)
            gone.add(second.fingerprint)
            changed[first.fingerprint] = _both(first, second)
    left = [changed.get(f.fingerprint, f) for f in found if f.fingerprint not in gone]
    left = _with_switches_names(left, active, over, believed)
    left = _with_gpus_names(left, active, over)
    return _with_names(left, active, over, believed)


def _with_switches_names(
    found: Sequence[Finding],
    active: Mapping[str, Incident],
    over: Iterable[Incident],
    believed: Collection[str],
) -> list[Finding]:
    """Let a switch continue its active or recent incident, whichever ports are down now.

    If the ports of an active one are found in several groups, the largest group continues it. If
    one port had an incident before, the switch continues that one, from the second look on.
    """
    named: dict[str, Finding] = {}
    own = {one.fingerprint for one in found}
    stands = [i for i in (*active.values(), *over) if i.fault in SWITCHES and multi_node(i)]
    for one in sorted(found, key=lambda one: -len(one.members)):
        if one.fault not in SWITCHES or one.fingerprint in active:
            continue
        known = known_switch(one, stands)
        is_sure = one.certain or one.fingerprint in believed
        if is_sure and (known is None or known.resolved_at is not None):
            known = first_port(one, active.values()) or known
        if known is None or known.fingerprint in own | named.keys():
            continue
        members = ({one.subject, *one.members}) - {known.subject}
        named[known.fingerprint] = replace(
            one,
            subject=known.subject,
            members=tuple(sorted(members)),
            goes_on=known.fingerprint,
        )
        named[one.fingerprint] = named[known.fingerprint]
    return [named.get(one.fingerprint, one) for one in found]


def _with_gpus_names(
    found: Sequence[Finding], active: Mapping[str, Incident], over: Collection[Incident]
) -> list[Finding]:
    """Let a finding about several GPUs of a node continue the incident of the first such GPU.

    A failing fan warms one GPU before the others: that is one problem, and makes one incident, also
    where the first one's ended so recently that it may come back.
    """
    stands, ended = (
        sorted((i for i in them if i.subject.kind == "gpu"), key=lambda i: (i.since, i.id))
        for them in (active.values(), over)
    )
    known = {*active, *(i.fingerprint for i in over)}
    return [_as_first_of(one, stands, ended, active, known) for one in found]


def _as_first_of(
    one: Finding,
    stands: Sequence[Incident],
    ended: Sequence[Incident],
    active: Collection[str],
    known: Collection[str],
) -> Finding:
    """Return the finding under the name of the first GPU's incident; its own incident comes before an ended one."""
    first = None if one.fingerprint in active else _first_of(one, stands)
    if first is None and one.fingerprint not in known:
        first = _first_of(one, [i for i in ended if i.fault == one.fault])
    if first is None:
        return one
    others = tuple(member for member in one.members if member != first.subject)
    return replace(one, subject=first.subject, members=others)


def _first_of(one: Finding, active: Sequence[Incident]) -> Incident | None:
    """Return the oldest incident about a GPU that a finding about its node names, None without one.

    One of the same fault comes before that of a slow job.
    """
    if one.fault not in SHARED or one.subject.kind != "node" or multi_node(one):
        return None
    members = frozenset(one.members)
    alike = [i for i in active if i.subject in members and not is_apart(one, i)]
    own = [i for i in alike if i.fault == one.fault]
    slow = [i for i in alike if i.fault in SLOW_JOBS and _slows(one)]
    return next(iter([*own, *slow]), None)


def _in_known_words(event: Finding, active: Mapping[str, Incident]) -> Finding:
    """Return an Xid in the words of its critical state, if that was read before and is not now.

    A critical state explains more than the code does, and asks for more than a reset. A lesser
    state, such as a pending repair, is over when it is not read any more.
    """
    known = active.get(event.fingerprint)
    grave = event.severity is Severity.CRITICAL
    if known is None or not grave or known.severity is not Severity.CRITICAL or known.xid:
        return event
    return replace(
        event,
        title=known.title,
        condition=known.condition,
        xid=None,
        action=known.action,
        source=known.source,
        own_limit=known.own_limit,
    )


def _as_its_state(event: Finding, fault: str, active: Mapping[str, Incident]) -> Finding:
    """Return an Xid as the active incident of its state, if that was told in this Xid's words.

    The state may be over, as where errors of a link stop, and the Xid stands until a reset: that is no second matter.
    """
    state = replace(event, fault=fault)
    told = active.get(state.fingerprint)
    if told is None or event.fingerprint in active or told.xid is None or told.xid != event.xid:
        return event
    return state


def _slows(what: Finding) -> bool:
    row = FAULTS.get(what.fault)
    return row is not None and row.slows and what.severity is not Severity.INFO


def _with_names(
    found: Sequence[Finding],
    active: Mapping[str, Incident],
    over: Iterable[Incident],
    believed: Collection[str],
) -> list[Finding]:
    """Give the name of what slows a GPU down to the incident of its slowness, active or just over.

    A look of a minute shows that a job waits for a GPU, one of ten minutes why: that is the same
    problem in better words, and makes one incident. The gravest of several names is used.
    """
    slow = {i.subject: i for i in (*over, *active.values()) if i.fault in SLOW_JOBS}
    names: dict[Subject, list[Finding]] = {}
    for finding in found:
        one = slow.get(finding.subject)
        if one is not None and finding.fingerprint not in active and _names(finding, one, believed):
            names.setdefault(finding.subject, []).append(finding)
    spoken = {subject: _spoken(them, slow[subject]) for subject, them in names.items()}
    gone = {one.fingerprint for them in names.values() for one in them}
    gone |= {one.fingerprint for one in spoken.values()}
    return [*(f for f in found if f.fingerprint not in gone), *spoken.values()]


def _names(finding: Finding, slow: Incident, believed: Collection[str]) -> bool:
    """Tell whether a finding is only the reason of this slowness, if that is over the known one.

    A critical one keeps its own name: the silences, routes and actions of a slow GPU are not meant
    for it. And a rack's problem is not one of a single node.
    """
    if not _slows(finding) or finding.severity is Severity.CRITICAL or multi_node(finding):
        return False
    is_sure = slow.resolved_at is None and (finding.certain or finding.fingerprint in believed)
    return finding.severity.rank >= slow.severity.rank and (
        is_sure or _names_it_by(finding) == slow.condition
    )


def _spoken(names: Iterable[Finding], slow: Incident) -> Finding:
    """Return the slowness in the words of its gravest reason; among equals the former one stays."""
    ordered = sorted(
        names, key=lambda one: (one.severity.rank, _names_it_by(one) != slow.condition)
    )
    first = ordered[0]
    return replace(
        reduce(_both, ordered),
        fault=slow.fault,
        title=first.title or FAULTS[first.fault].title,
        condition=_names_it_by(first),
        xid=first.xid,
    )


def _names_it_by(finding: Finding) -> str:
    """Return the condition of a slowness that this finding explains."""
    return finding.condition or finding.fault


def _both(first: Finding, second: Finding) -> Finding:
    """Return the first one's incident in the words of the graver; of the state if they are equal.

    An Xid says more than a counter that has grown.
    """
    graver = min(
        first,
        second,
        key=lambda f: (f.severity.rank, f.condition == _COUNTED, f.xid is not None),
    )
    lesser = second if graver is first else first
    return replace(
        first,
        severity=graver.severity,
        title=graver.title,
        condition=graver.condition,
        xid=graver.xid,
        action=graver.action,
        source=graver.source,
        own_limit=graver.own_limit,
        evidence=(*graver.evidence, *lesser.evidence),
        since=min(first.since, second.since),
        certain=first.certain or second.certain,
        late=first.late and second.late,
        confined=first.confined and second.confined,
    )


def root_of(what: FindingOrIncident, found: Iterable[Finding]) -> Finding | None:
    """Return the root cause behind a fault, None when nothing hides it."""
    root = None
    for cause in found:
        if cause is not what and hides(cause, what) and (root is None or hides(cause, root)):
            root = cause
    return root


def by_root(
    found: Iterable[_FindingOrIncident], causes: Sequence[Finding]
) -> Mapping[int, Sequence[_FindingOrIncident]]:
    """Return what each cause is the root of, by the `id` of the cause."""
    explained: dict[int, list[_FindingOrIncident]] = {}
    for what in found:
        root = root_of(what, causes)
        if root is not None:
            explained.setdefault(id(root), []).append(what)
    return explained


def rebooted_for(window: Window, cause: Finding, active: Iterable[Incident]) -> Incident | None:
    """Return the incident for which a just silent node is being rebooted, None without one."""
    if cause.fault not in SILENCES or cause.members or window.now - cause.since > _MENDED:
        return None
    before = cause.since - _BEFORE
    stood = [i for i in active if i.since < before and i.subject.of_node() == cause.subject]
    # A silence that is no more than a note yet does not replace what stood there.
    note = cause.severity is Severity.INFO and cause.condition in PLAIN
    return next((i for i in stood if _is_mendable(i) or (note and not multi_node(i))), None)


def stood_before(silence: FindingOrIncident, what: FindingOrIncident) -> bool:
    """Tell whether it called for a repair before its node fell silent, and so does not follow."""
    return _is_mendable(what) and what.since < silence.since - _BEFORE


def _is_mendable(what: FindingOrIncident) -> bool:
    mended = FAULTS[what.fault].mended if what.fault in FAULTS else Mended.NO
    critical = what.severity is Severity.CRITICAL
    return mended is Mended.ALWAYS or (critical and mended is Mended.IF_CRITICAL)
