"""Turning findings into candidates for incidents: one per cause, with its impact."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from gpuvigil.faults import FAULTS
from gpuvigil.lifecycle import Patience
from gpuvigil.model import (
    CoveredBy,
    Ended,
    EndedBy,
    Finding,
    Impact,
    Incident,
    Severity,
    Subject,
)

from ..detectors.node_silent import Hearing, hearing, is_missed
from ..evidence.cures import last_cure, with_failed_cures
from ..evidence.switches import other_end
from ..window.fault_kinds import LINKS_DOWN, OF_PORTS, SHARED, SILENCES, STALLED_JOBS
from ..window.subject_names import gpus, label
from ..window.window import Window
from .breaker import fold, hide, is_cluster_wide, silence_of
from .causes import (
    FindingOrIncident,
    by_root,
    is_apart,
    is_of_gpus,
    merged,
    multi_node,
    rebooted_for,
    root_of,
    stood_before,
)
from .full_leaves import slowed_by_leaves
from .grown_links import grown
from .halted_jobs import halts_job, stalled_by
from .hindsight import hindsights, nodes_of, silent_nodes_of
from .impact import gpus_of_finding, impact, with_max_loss
from .late_causes import with_late_causes
from .observation import Candidate, Observation, by_incident
from .rack_incidents import as_of_racks
from .several_nodes import display_name, hit_rack, is_of_rack, is_of_several, rack_of, shared_name
from .unseen_causes import by_unseen
from .vendor_report import case
from .visibility import is_visible, lapsed

# So many readings of a node must show nothing before its incident is over, as many as the default
# `clear_seconds` has at the default interval: one late reading resolves nothing.
_READINGS = 3.0
# Faults that a switch or a node without links has named with its ports: links down, and silence.
_SAME_LOSS = LINKS_DOWN | SILENCES


def observe(
    window: Window,
    findings: Iterable[Finding],
    active: Iterable[Incident],
    believed: Collection[str] = frozenset(),
    unseen: Collection[str] = frozenset(),
    only: Subject | None = None,
) -> Observation:
    """Return what this window says about the fleet and about the incidents that are not over.

    `unseen`: faults that no detector could look for, so that their absence says nothing.

    `believed`: fingerprints for which one look is enough. A cause that is seen for the first time
    and is not certain hides nothing yet.

    `only`: the one node that was looked at; then `active` are that node's incidents, and those
    about whole clusters and about several nodes with this one.
    """
    all_active = list(active)
    stands = {i.fingerprint: i for i in all_active}
    wholes = [i for i in all_active if is_cluster_wide(i)]
    incidents: dict[Subject, list[Incident]] = defaultdict(list)
    for incident in all_active:
        if not is_cluster_wide(incident):
            incidents[incident.subject.of_node()].append(incident)
    silent = {one.subject.cluster for one in wholes if one.fault in SILENCES}
    found = [f for f in _distinct(findings) if not (rack_of(f) and f.subject.cluster in silent)]
    found = _as_they_go_on(found, stands, believed, _may_return(window))
    candidates, covered = _explained(window, found, incidents, believed)
    if only is None:
        doubtful = _doubtful(found, believed, candidates)
        folded = fold(window, candidates, stands, believed, unseen, doubtful)
    else:
        folded = hide(candidates, stands, wholes)
    left = {print_: one for print_, one in candidates.items() if print_ not in folded.covered}
    candidates = {**left, **folded.candidates}
    covered |= folded.covered
    covered |= _in_silence(candidates, folded.candidates, stands, wholes)
    racks = [i for i in all_active if is_of_rack(i)]
    dark = _dark(window, found, [i for i in racks if i.fingerprint not in {*candidates, *covered}])
    in_dark = _in_the_dark(candidates, dark.values())
    covered |= in_dark
    candidates = {print_: one for print_, one in candidates.items() if print_ not in in_dark}
    missing = [
        incident
        for incidents_of_node in incidents.values()
        for incident in incidents_of_node
        if incident.fingerprint not in candidates and incident.fingerprint not in covered
    ]
    blind = [i for i in missing if i.fingerprint not in dark]
    unknown = {i.fingerprint for i in blind if i.fault in unseen or not is_visible(window, i)}
    # A rack's silence, a domain or a switch is about more than the node that it is named by.
    of_several = {i.fingerprint for i in all_active if is_of_several(i)}
    of_several |= {print_ for print_, one in candidates.items() if is_of_several(one.finding)}
    return Observation(
        candidates=candidates,
        covered=_by_last_causes(covered),
        cured={**_cures(window, [i for i in blind if i.fault not in unseen]), **folded.over},
        afterwards=hindsights(window, [i for i in blind if not is_cluster_wide(i)]),
        unknown=frozenset({*unknown, *dark, *folded.unknown}),
        seldom=_seldom(window, blind),
        only=only,
        whole=frozenset({*folded.candidates, *(i.fingerprint for i in wholes), *of_several}),
        away=window.away,
    )


def _as_they_go_on(
    found: Sequence[Finding],
    stands: Mapping[str, Incident],
    believed: Collection[str],
    over: Sequence[Incident],
) -> list[Finding]:
    """Findings that are one matter as one, each under the name of what is open of it already."""
    named = as_of_racks(merged(found, stands, believed, over), stands, over, believed)
    return with_late_causes(grown(named, stands), stands, over)


def _seldom(window: Window, missing: Iterable[Incident]) -> dict[str, timedelta]:
    """Return how long each of these must be absent at least, by how often its node is read."""
    every = {i.fingerprint: window.tick_seconds(i.subject.of_node()) for i in missing}
    return {print_: timedelta(seconds=_READINGS * tick) for print_, tick in every.items()}


def _may_return(window: Window) -> list[Incident]:
    """Return the incidents that ended so recently that they may come back."""
    span, now, recent = Patience().flap_window, window.now, window.recent_incidents
    return [i for i in recent if i.resolved_at and now - i.resolved_at <= span]


def _explained(
    window: Window,
    findings: Sequence[Finding],
    incidents: Mapping[Subject, list[Incident]],
    believed: Collection[str],
) -> tuple[dict[str, Candidate], dict[str, CoveredBy]]:
    """Return a candidate for each root cause, and what another one covers, by fingerprint."""
    active = [i for them in incidents.values() for i in them]
    halted, shared = _halted(findings, active), _shared(active)
    nodes = _by_node(findings, believed)
    candidates: dict[str, Candidate] = {}
    covered = slowed_by_leaves(window, findings, active)
    for node in sorted(nodes):
        found, causes = nodes[node]
        here = incidents.get(node, [])
        covered |= _hidden(window, found, causes, here)
        covered |= _stalled(window, found, halted)
        covered |= _of_others(found, shared)
        left = [it for it in found if it.fingerprint not in covered]
        covered |= by_unseen(window, left, here, partial(is_visible, window))
        left = [cause for cause in found if cause.fingerprint not in covered]
        hidden = by_root(found if left else (), causes)
        followers = by_root(here if left else (), causes)
        for cause in left:
            own, theirs = hidden.get(id(cause), ()), followers.get(id(cause), ())
            made = _candidate(window, cause, own, theirs, impact(window, with_max_loss(cause, own)))
            gravest = _worst_severity(made.severity, cause, nodes, incidents)
            candidates[cause.fingerprint] = replace(made, severity=gravest)
    return candidates, covered


def _doubtful(
    findings: Iterable[Finding], believed: Collection[str], candidates: Mapping[str, Candidate]
) -> set[str]:
    """Return the fingerprints of what follows from a cause that is not believed yet."""
    causes: dict[Subject, list[Finding]] = defaultdict(list)
    for finding in findings:
        if not (finding.certain or finding.fingerprint in believed):
            for node in {s.of_node() for s in (finding.subject, *finding.members)}:
                causes[node].append(finding)
    return {
        print_
        for print_, candidate in candidates.items()
        if root_of(candidate.finding, causes.get(candidate.finding.subject.of_node(), ()))
    }


def _in_silence(
    candidates: Mapping[str, Candidate],
    made: Mapping[str, Candidate],
    active: Mapping[str, Incident],
    wholes: Collection[Incident],
) -> dict[str, CoveredBy]:
    """Return the covers of silent racks that half of their cluster's silence now includes."""
    racks = [i for i in active.values() if is_of_rack(i) and i.fingerprint not in candidates]
    covers = {i.fingerprint: silence_of(i.subject.cluster, made.values(), wholes) for i in racks}
    return {print_: cover for print_, cover in covers.items() if cover is not None}


def _dark(
    window: Window, found: Iterable[Finding], racks: Iterable[Incident]
) -> dict[str, Incident]:
    """Return racks that stay silent while nodes of theirs are taken away, by fingerprint.

    As with a single node, a drain does not explain the silence that led to it.
    """
    gone = {f.subject for f in found if f.fault in SILENCES and not is_missed(f)}
    return {
        rack.fingerprint: rack
        for rack in racks
        if not gone.isdisjoint(nodes := silent_nodes_of(rack))
        and all(hearing(window, node) is Hearing.SILENT for node in nodes)
    }


def _in_the_dark(
    candidates: Mapping[str, Candidate], dark: Iterable[Incident]
) -> dict[str, CoveredBy]:
    """Return the covers of what the nodes of such racks show: the rack's own incident goes on."""
    racks = {node: rack for rack in dark for node in silent_nodes_of(rack)}
    return {
        print_: by_incident(racks[node])
        for print_, one in candidates.items()
        if (node := one.finding.subject.of_node()) in racks
        and not (one.finding.fault in SHARED and multi_node(one.finding))
        and not stood_before(racks[node], one.finding)
    }


def _by_last_causes(covered: Mapping[str, CoveredBy]) -> dict[str, CoveredBy]:
    """Return the covers, each pointing at the last cause of its chain."""
    causes = {}
    for print_, cover in covered.items():
        last, seen = cover.fingerprint, {print_}
        while last in covered and last not in seen:
            seen.add(last)
            last = covered[last].fingerprint
        causes[print_] = replace(cover, fingerprint=last)
    return causes


def _by_node(
    findings: Iterable[Finding], believed: Collection[str]
) -> dict[Subject, tuple[list[Finding], list[Finding]]]:
    """Return by node its findings and the believed causes, some of them a rack's or a switch's."""
    nodes: dict[Subject, tuple[list[Finding], list[Finding]]] = defaultdict(lambda: ([], []))
    for finding in findings:
        here = finding.subject.of_node()
        nodes[here][0].append(finding)
        if finding.certain or finding.fingerprint in believed:
            for node in {here, *(member.of_node() for member in finding.members)}:
                nodes[node][1].append(finding)
    return nodes


def _worst_severity(
    own: Severity,
    cause: Finding,
    nodes: Mapping[Subject, tuple[list[Finding], list[Finding]]],
    incidents: Mapping[Subject, list[Incident]],
) -> Severity:
    """Return the worst of its own severity and those of incidents it explains on other nodes."""
    elsewhere = {member.of_node() for member in cause.members} - {cause.subject.of_node()}
    theirs = [
        incident.severity
        for node in elsewhere & nodes.keys() & incidents.keys()
        for incident in incidents[node]
        if root_of(incident, nodes[node][1]) is cause
    ]
    return min([own, *theirs], key=lambda severity: severity.rank)


def _hidden(
    window: Window,
    found: Sequence[Finding],
    causes: Sequence[Finding],
    active: Iterable[Incident],
) -> dict[str, CoveredBy]:
    """Return the covers of what follows from another cause, by fingerprint.

    An incident for which a node is being repaired stands meanwhile: the silence hides nothing.
    """
    active = list(active)
    repairs = [(finding, rebooted_for(window, finding, active)) for finding in found]
    covered = {f.fingerprint: by_incident(repair) for f, repair in repairs if repair is not None}
    causes = [cause for cause in causes if cause.fingerprint not in covered]
    told: list[FindingOrIncident] = [*active, *found]
    for what in told:
        root = root_of(what, causes)
        if root is not None:
            covered.setdefault(what.fingerprint, _covered_by(window, root))
    return covered


def _shared(active: Iterable[Incident]) -> dict[tuple[str, str], Incident]:
    """Return the incidents about several subjects: those of a rack or a switch by fault and each
    member, those of several GPUs of a node by fault and the node.
    """
    found: dict[tuple[str, str], Incident] = {}
    for incident in active:
        named = {*incident.members} - {incident.subject.key}
        of_several = named if incident.subject.kind == "gpu" else incident.members
        if incident.fault in SHARED and of_several and not is_of_rack(incident):
            places = named if multi_node(incident) else {incident.subject.of_node().key}
            found |= {(incident.fault, place): incident for place in places}
    return found


def _of_others(
    found: Iterable[Finding], shared: Mapping[tuple[str, str], Incident]
) -> dict[str, CoveredBy]:
    """Return the covers of what one member or GPU shows while the incident of all stands.

    While a rack's air cools down, or one of its nodes is not measured, the rest is no fan's fault.
    A graver finding gets an incident of its own.
    """
    return {
        finding.fingerprint: by_incident(one)
        for finding in found
        for place in (finding.subject.of_node(), finding.subject)
        if (one := shared.get((finding.fault, place.key))) is not None
        and one.fingerprint != finding.fingerprint
        and one.severity.rank <= finding.severity.rank
        and not is_apart(one, finding)
    }


def _halted(
    found: Iterable[Finding], active: Iterable[Incident]
) -> dict[Subject, Finding | Incident]:
    """Return what halts jobs, by the GPU or node that it is on."""
    told: list[Finding | Incident] = [*active, *found]
    return {
        what.subject.of_node() if what.subject.kind == "port" else what.subject: what
        for what in told
        if halts_job(what)
    }


def _stalled(
    window: Window, found: Iterable[Finding], halted: Mapping[Subject, Finding | Incident]
) -> dict[str, CoveredBy]:
    """Return the covers of jobs that spin because something else halts them, by fingerprint."""
    covered = {}
    for finding in found:
        if finding.fault in STALLED_JOBS and halted:
            cause = stalled_by(window, finding, halted)
            if cause is not None:
                name = FAULTS[cause.fault].title if not cause.title else cause.title
                covered[finding.fingerprint] = CoveredBy(
                    fingerprint=cause.fingerprint, what=f"{label(window, cause.subject)}: {name}"
                )
    return covered


def _distinct(findings: Iterable[Finding]) -> list[Finding]:
    """Return the most severe finding of each fingerprint, in an order independent of the input's."""
    best: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda f: (f.severity.rank, not f.certain, f.detector)):
        best.setdefault(finding.fingerprint, finding)
    return sorted(best.values(), key=lambda finding: (finding.subject.key, finding.fault))


def _candidate(
    window: Window,
    cause: Finding,
    hidden: Sequence[Finding],
    followers: Sequence[Incident],
    who: Impact,
) -> Candidate:
    severities = [cause.severity, *(f.severity for f in hidden), *(i.severity for i in followers)]
    of_ports = cause.fault in OF_PORTS  # its ports belong to it from the beginning
    if of_ports and cause.members:  # it names those ports and what their nodes lost already
        hidden = [f for f in hidden if f.fault not in _SAME_LOSS]
        followers = [i for i in followers if i.fault not in _SAME_LOSS]
    own = cause.members  # the cause itself speaks of each of them
    covers = {f"{label(window, f.subject)}: {title(f)}" for f in hidden if f.subject not in own}
    covers |= {f"{i.label}: {i.title}" for i in followers if i.subject not in own}
    covers.discard(f"{label(window, cause.subject)}: {title(cause)}")  # a note that gave way
    members = {cause.subject, *(f.subject for f in hidden), *(i.subject for i in followers)}
    by_gpus = cause.subject.kind == "node" or is_of_gpus(cause)
    about = gpus_of_finding(window, cause) if by_gpus and not of_ports else ()
    # GPUs among a port's members tell where its jobs run, and are no part of the incident.
    named = cause.members if of_ports or cause.fault in SILENCES else ()
    members |= {*about, *(member for member in named if not of_ports or member.kind != "gpu")}
    # A hidden fault keeps its urgency.
    severity = min(severities, key=lambda severity: severity.rank)
    cause = with_failed_cures(window, cause)
    more = case(window, cause if severity is cause.severity else replace(cause, severity=severity))
    more = (*more, *other_end(window, cause))
    return Candidate(
        finding=replace(cause, evidence=(*cause.evidence, *more)) if more else cause,
        severity=severity,
        title=title(cause),
        label=display_name(window, cause),
        gpus=gpus(window, about),
        impact=who,
        members=tuple(sorted(subject.key for subject in members)),
        covers=tuple(sorted(covers)),
    )


def title(finding: Finding) -> str:
    """Return the fault in a few words; an Xid is named by its code."""
    return finding.title or FAULTS[finding.fault].title


def _covered_by(window: Window, root: Finding) -> CoveredBy:
    # Silent nodes of a rack are covered by the node that their rack is named by.
    is_named = is_of_several(root) and not rack_of(root)
    place = shared_name(window, root) if is_named else hit_rack(window, root)
    place = place or label(window, root.subject)
    return CoveredBy(fingerprint=root.fingerprint, what=f"{place}: {title(root)}")


def _cures(window: Window, missing: Iterable[Incident]) -> dict[str, Ended]:
    cured: dict[str, Ended] = {}
    for incident in missing:
        if not multi_node(incident) and (why := window.retired.get(incident.subject.of_node().key)):
            cured[incident.fingerprint] = why
            continue
        if incident.fault in SILENCES:
            cured |= _reporting_again(window, incident)
            continue
        cure = last_cure(window, incident.fault, incident.subject)
        if cure is not None and cure.at >= incident.since:
            cured[incident.fingerprint] = Ended(by=EndedBy.EVENT, event=cure.kind, at=cure.at)
        elif (last := lapsed(window, incident)) is not None:
            cured[incident.fingerprint] = Ended(by=EndedBy.NOT_SHOWN, at=last)
    return cured


def _reporting_again(window: Window, silent: Incident) -> dict[str, Ended]:
    """Return that a silence is over or no longer the whole rack's; empty if neither."""
    nodes = nodes_of(silent) if is_of_rack(silent) else {silent.subject}
    if all(hearing(window, node) is Hearing.HEARD for node in nodes):
        at = max(window.last_seen[node.key] for node in nodes)
        return {silent.fingerprint: Ended(by=EndedBy.REPORTS_AGAIN, at=at)}
    if is_of_rack(silent) and is_visible(window, silent):
        return {silent.fingerprint: Ended(by=EndedBy.APART)}
    return {}
