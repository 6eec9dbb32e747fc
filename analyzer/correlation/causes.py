"""What follows from what: which finding is the cause of another, and which are one matter."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import reduce
from typing import Protocol, TypeVar

from gpuvigil.faults import FAULTS, Explains, Halts, Mended, Reach
from gpuvigil.model import Finding, Incident, Severity, Subject
from gpuvigil.silence_conditions import PLAIN

from ..window.fault_kinds import (
    EXPLAINED_BY,
    LINKS_DOWN,
    LINKS_LOST,
    MODULES_BAD,
    OF_RACKS,
    OWN_OF_LINKS,
    SHARED,
    SILENCES,
    SLOW_JOBS,
    SWITCHES,
    SWITCHES_FULL,
    TOLD_BY_XID,
)
from ..window.holdings import holder_key
from ..window.window import Window
from .known_switches import first_port, standing_switch

# Told under one fault, and nothing to do with what else is.
_APART = (
    frozenset({"power_limit", "node_power_limit", "rack_power_limit"}),
    frozenset({"uneven_stage"}),
)
# Work that seems cut unevenly, and the rank that is slow in its place, once its GPU tells the two apart.
_CUT, _BEGUN = "uneven_stage", "slow_from_start"
_COUNTED = "uncorrected_growth"
# A node that its job waits for, for no reason that anybody knows.
WHOLE_NODE = "whole_node"
# What one GPU has beyond its node is none of its air's doing.
_OWN_HEAT = frozenset({"heatsink", "cooling", "memory_hot"})

# A node that is being mended may be away for so long. What began only just before is no reason to
# mend it, but the beginning of the node's end.
_MENDED, _BEFORE = timedelta(minutes=30), timedelta(minutes=2)


class Told(Protocol):
    """What a finding and an incident have in common."""

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


_Told = TypeVar("_Told", Finding, Incident)


def kind_of(what: Told) -> str:
    """The fault that it is by now: a bad link's incident may have become that of a lost one, or of its module."""
    return what.condition if what.condition in LINKS_LOST | MODULES_BAD else what.fault


def hides(cause: Finding, what: Told) -> bool:
    """Whether `what` follows from `cause`.

    A critical Xid explains what is seen of its GPU; a lesser one does not. What is about several
    subjects at once says what there is to say of each. What is wrong with one node explains nothing
    that others share with it.
    """
    fault, subject, by = kind_of(what), what.subject, kind_of(cause)
    by_members = _hides_by_members(cause, what)
    if by_members is not None:
        return by_members
    if {by, what.fault} != {cause.fault} and cause.fingerprint == what.fingerprint:
        return False  # it is the same incident, in other words
    explains = FAULTS[by].explains if by in FAULTS else None
    if explains is None or not _is_grave_enough(cause, explains):
        return False
    if explains.xids and fault in TOLD_BY_XID:
        return _reaches(cause, explains.reach, subject) and what.xid in explains.xids
    of_one = cause.fault in SILENCES or (cause.subject.kind == "node" and not spreads(cause))
    apart = of_one and fault in SHARED and spreads(what)
    if apart or fault not in EXPLAINED_BY[by]:
        return False
    # Where several GPUs of a node are slow at once, what is wrong with one of them says why.
    whole = fault in SLOW_JOBS and subject.kind == "node" and _slows(cause)
    return (whole and subject == cause.subject.of_node()) or _reaches(
        cause, explains.reach, subject
    )


def _is_grave_enough(cause: Finding, explains: Explains) -> bool:
    if explains.if_critical:
        return cause.severity is Severity.CRITICAL
    return not explains.unless_note or cause.severity is not Severity.INFO


def _reaches(cause: Finding, reach: Reach, subject: Subject) -> bool:
    """Whether a place is one of those where a cause is seen; a node's, where one of its GPUs is."""
    if reach is Reach.MEMBERS:
        members: Iterable[Subject] = cause.members
        if subject.kind == "node":
            members = (member.of_node() for member in members)
        return subject in members
    if cause.fault in SHARED and not spreads(cause) and subject in cause.members:
        return True
    below = reach is Reach.BELOW and cause.subject.kind == "node"
    return (subject.of_node() if below else subject) == cause.subject


def _hides_by_members(cause: Finding, what: Told) -> bool | None:
    """Whether it follows from what is about several; None where its members do not say."""
    if (cause.condition, what.condition) == (_BEGUN, _CUT):
        return _members(what) <= {cause.subject, *cause.members}
    if cause.fault in SILENCES and cause.members:
        follows = not (what.fault in SHARED and spreads(what)) and not stood_before(cause, what)
        return what.subject.of_node() in cause.members and follows
    if cause.fault in SWITCHES and what.subject.kind == "node":
        return _went_with_switch(cause, what)
    if what.subject in cause.members and cause.fault in {what.fault, *SWITCHES}:
        own = cause.fault in SWITCHES_FULL and kind_of(what) in OWN_OF_LINKS
        return not own and not is_apart(cause, what)
    return None


def _went_with_switch(cause: Finding, what: Told) -> bool:
    """A node that is silent since its switch is gone, whose ports that switch took, or that is slow without them."""
    if what.fault in SILENCES:
        return what.subject in cause.members and not spreads(what)
    if what.condition == WHOLE_NODE and what.fault in EXPLAINED_BY[cause.fault]:
        return what.subject in {it.of_node() for it in (cause.subject, *cause.members)}
    ports = _members(what)
    return what.fault in LINKS_DOWN and bool(ports) and ports <= {cause.subject, *cause.members}


def _members(what: Told) -> set[Subject]:
    return {m if isinstance(m, Subject) else Subject.parse(m) for m in what.members}


def is_apart(cause: Told, what: Told) -> bool:
    """Whether both are told under one fault and still have nothing to do with each other.

    That a node is braked is no reason why one of its GPUs has another limit than its peers, nor is a
    rack's air one for what a GPU has beyond its node, nor how work was cut one for a rank that turned
    slow. Of a hot node every hot GPU is a part.
    """
    own_heat = what.subject.kind == "gpu" and what.condition in _OWN_HEAT
    return (own_heat and spreads(cause)) or any(
        (cause.condition in it) != (what.condition in it) for it in _APART
    )


def is_of_gpus(what: Told) -> bool:
    """Whether it began as one GPU's, and is about several of the node by now."""
    others = _members(what) - {what.subject}
    return (
        what.fault in SHARED and what.subject.kind == "gpu" and bool(others) and not spreads(what)
    )


def spreads(what: Told) -> bool:
    """Whether it is about other nodes, too."""
    node = what.subject.of_node()
    return any(member.of_node() != node for member in _members(what))


def merged(
    found: Sequence[Finding],
    standing: Mapping[str, Incident],
    believed: Collection[str] = (),
    over: Iterable[Incident] = (),
) -> list[Finding]:
    """Findings of which those that are one matter are one: what stands already keeps its name.

    `over`: what may come back as the same incident.

    Else the state counts for more than the event, and of two the graver one speaks.
    """
    by_place = {(f.fault, f.subject): f for f in found}
    gone: set[str] = set()
    changed: dict[str, Finding] = {}
    for fault, row in FAULTS.items():
        alike = [f for f in found if f.fault in TOLD_BY_XID and f.xid in row.xids_alike]
        for event in alike:
            state = by_place.get((fault, event.subject))
            if state is None:
                changed[event.fingerprint] = _in_known_words(event, standing)
                continue
            first, second = (state, event)
            if event.fingerprint in standing or (
                event.certain and state.fingerprint not in standing
            ):
                first, second = (event, state)
            gone.add(second.fingerprint)
            changed[first.fingerprint] = _both(first, second)
    left = [changed.get(f.fingerprint, f) for f in found if f.fingerprint not in gone]
    left = _with_gpus_names(_with_switches_names(left, standing, over, believed), standing)
    return [_of_its_rack(one, standing) for one in _with_names(left, standing, believed)]


def _with_switches_names(
    found: Sequence[Finding],
    standing: Mapping[str, Incident],
    over: Iterable[Incident],
    believed: Collection[str],
) -> list[Finding]:
    """Switches go on, or come back, under the name by which they stand, whichever of their ports are down now.

    Where the ports of one that stands are found in several groups, the largest goes on as it. One of
    which a port was told before goes on as that port's incident, from the second look on.
    """
    named: dict[str, Finding] = {}
    own = {one.fingerprint for one in found}
    stands = [i for i in (*standing.values(), *over) if i.fault in SWITCHES and spreads(i)]
    for one in sorted(found, key=lambda one: -len(one.members)):
        if one.fault not in SWITCHES or one.fingerprint in standing:
            continue
        known = standing_switch(one, stands)
        is_sure = one.certain or one.fingerprint in believed
        if is_sure and (known is None or known.resolved_at is not None):
            known = first_port(one, standing.values()) or known
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


def _with_gpus_names(found: Sequence[Finding], standing: Mapping[str, Incident]) -> list[Finding]:
    """What several GPUs of a node show goes on as the incident of the one that showed it first.

    A fan that fails warms one GPU before the others: that is one matter, and nobody is told of two.
    """
    stands = sorted(
        (i for i in standing.values() if i.subject.kind == "gpu"), key=lambda i: (i.since, i.id)
    )
    return [
        one
        if one.fingerprint in standing or (first := _first_of(one, stands)) is None
        else replace(
            one,
            subject=first.subject,
            members=tuple(member for member in one.members if member != first.subject),
        )
        for one in found
    ]


def _first_of(one: Finding, stands: Sequence[Incident]) -> Incident | None:
    """The oldest incident about one of the GPUs that a finding about their node names."""
    if one.fault not in SHARED or one.subject.kind != "node" or spreads(one):
        return None
    members = frozenset(one.members)
    alike = [i for i in stands if i.subject in members and not is_apart(one, i)]
    own = [i for i in alike if i.fault == one.fault]
    slow = [i for i in alike if i.fault in SLOW_JOBS and _slows(one)]
    return next(iter([*own, *slow]), None)


def _in_known_words(event: Finding, standing: Mapping[str, Incident]) -> Finding:
    """An Xid whose state was read once and is not read now, in the words of that state.

    What was critical then explains more than the code does, and asks for more than a reset. A lesser
    state, a repair that waits, is over when it is not read any more.
    """
    known = standing.get(event.fingerprint)
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


def _of_its_rack(finding: Finding, standing: Mapping[str, Incident]) -> Finding:
    """A finding about the node that its rack is called by, in the words of the rack that stand.

    What is left of a rack's air or feed on one node is no other matter, unless it is graver.
    """
    rack = standing.get(finding.fingerprint)
    if (
        rack is None
        or finding.fault not in OF_RACKS
        or not spreads(rack)
        or spreads(finding)
        or finding.severity.rank < rack.severity.rank
    ):
        return finding
    return replace(
        finding,
        title=rack.title,
        condition=rack.condition,
        action=rack.action,
        source=rack.source,
        own_limit=rack.own_limit,
        evidence=rack.evidence,
    )


def _slows(what: Finding) -> bool:
    row = FAULTS.get(what.fault)
    return row is not None and row.slows and what.severity is not Severity.INFO


def _with_names(
    found: Sequence[Finding], standing: Mapping[str, Incident], believed: Collection[str]
) -> list[Finding]:
    """Findings of which the name of what slows a GPU down goes to the incident of its slowness.

    A look of a minute shows that a job waits for a GPU, one of ten minutes why: that is the same
    matter in better words, and nobody is told of two. Of several names the gravest speaks.
    """
    slow = {i.subject: i for i in standing.values() if i.fault in SLOW_JOBS}
    names: dict[Subject, list[Finding]] = {}
    for finding in found:
        one = slow.get(finding.subject)
        if (
            one is not None
            and finding.fingerprint not in standing
            and _names(finding, one, believed)
        ):
            names.setdefault(finding.subject, []).append(finding)
    spoken = {subject: _spoken(them, slow[subject]) for subject, them in names.items()}
    gone = {one.fingerprint for them in names.values() for one in them}
    gone |= {one.fingerprint for one in spoken.values()}
    return [*(f for f in found if f.fingerprint not in gone), *spoken.values()]


def _names(finding: Finding, slow: Incident, believed: Collection[str]) -> bool:
    """Whether a finding is no more than the reason of this slowness.

    What is graver is told by its own name: silences, routes and actions of a slow GPU are not meant
    for it. And what a rack suffers is no matter of one node.
    """
    if not _slows(finding) or finding.severity is Severity.CRITICAL or spreads(finding):
        return False
    is_sure = finding.certain or finding.fingerprint in believed
    return finding.severity.rank >= slow.severity.rank and (
        is_sure or _names_it_by(finding) == slow.condition
    )


def _spoken(names: Iterable[Finding], slow: Incident) -> Finding:
    """The slowness in the words of what slows down; of equals, what named it before goes on."""
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
    """The condition of a slowness that this finding explains."""
    return finding.condition or finding.fault


def _both(first: Finding, second: Finding) -> Finding:
    """The first one's incident in the words of the graver; of the state where they are equal.

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


def root_of(what: Told, found: Iterable[Finding]) -> Finding | None:
    """The last cause behind a fault, None when nothing hides it."""
    root = None
    for cause in found:
        if cause is not what and hides(cause, what) and (root is None or hides(cause, root)):
            root = cause
    return root


def by_root(told: Iterable[_Told], causes: Sequence[Finding]) -> Mapping[int, Sequence[_Told]]:
    """What each of the causes explains in the end, by the identity of the cause."""
    explained: dict[int, list[_Told]] = {}
    for what in told:
        root = root_of(what, causes)
        if root is not None:
            explained.setdefault(id(root), []).append(what)
    return explained


def mended(window: Window, cause: Finding, standing: Iterable[Incident]) -> Incident | None:
    """The standing incident for which somebody reboots a node that has just fallen silent."""
    if cause.fault not in SILENCES or cause.members or window.now - cause.since > _MENDED:
        return None
    before = cause.since - _BEFORE
    stood = [i for i in standing if i.since < before and i.subject.of_node() == cause.subject]
    # That nobody misses a node yet is no more than a note: what stood there goes on.
    note = cause.severity is Severity.INFO and cause.condition in PLAIN
    return next((i for i in stood if _is_mendable(i) or (note and not spreads(i))), None)


def stood_before(silence: Told, what: Told) -> bool:
    """Whether somebody was woken for it before its node went: it is none of the silence's doing."""
    return _is_mendable(what) and what.since < silence.since - _BEFORE


def _is_mendable(what: Told) -> bool:
    mended = FAULTS[what.fault].mended if what.fault in FAULTS else Mended.NO
    critical = what.severity is Severity.CRITICAL
    return mended is Mended.ALWAYS or (critical and mended is Mended.IF_CRITICAL)


def halting(what: Told) -> bool:
    """Whether a job that has this in one of its GPUs, or on its node, waits everywhere."""
    fault = kind_of(what)
    halts = FAULTS[fault].halts if fault in FAULTS else Halts.NO
    if halts is Halts.UNLESS_NOTE:
        return what.severity is not Severity.INFO
    return halts is not Halts.NO


def stalled_by(
    window: Window, hung: Finding, halted: Mapping[Subject, Finding | Incident]
) -> Finding | Incident | None:
    """What halts the job of GPUs that spin; `halted` is by GPU or node. A dead rank hides its peers.

    A job on one node needs no network: a port that is down there halts another one.
    """
    gpus = {hung.subject, *hung.members}
    holders = {holder_key(a) for gpu in gpus if gpu.kind == "gpu" for a in window.held(gpu)}
    of_job = {gpu for key in holders if key in window.holdings for gpu in window.holdings[key].gpus}
    is_alone = len({gpu.of_node() for gpu in of_job}) == 1
    for gpu in sorted(of_job | {gpu for gpu in gpus if gpu.kind == "gpu"}):
        cause = halted.get(gpu) or halted.get(gpu.of_node())
        if cause is not None and not (is_alone and FAULTS[kind_of(cause)].halts is Halts.SPREAD):
            return cause
    return None
