"""GPUs on several nodes of one NVLink domain have NVLink faults at once, so what they share is suspect.

A domain is what NVML calls a clique of a fabric's cluster, such as the GPUs of an NVL72. Its switches are in
trays of their own that no node reports; their faults show in the GPUs that they connect.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import (
    Evidence,
    Finding,
    Group,
    GroupKind,
    Incident,
    Inventory,
    Severity,
    Subject,
)
from gpuvigil.numbers_in_words import natural

from ..evidence.raised import raised_at
from ..window.holdings import name
from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector
from .fabric_down import NEEDS as OF_FABRICS
from .fabric_down import fabrics_down
from .gpu_nvlink import NEEDS as OF_LINKS
from .gpu_nvlink import OF_PAST, broken_links, fallen_links
from .gpu_xid import NEEDS as OF_XIDS
from .gpu_xid import xid_faults

_LACKING = Need(
    measurement="gpu", span=Span.NOW, fields=("nvlink_links_up", "nvlink_links_expected")
)
NEEDS = (*OF_LINKS, *OF_PAST, *OF_FABRICS, *OF_XIDS, _LACKING)

_FAULT = FAULTS["nvlink_domain"]
_XIDS = frozenset() if _FAULT.explains is None else _FAULT.explains.xids
# It takes this many nodes, raised within this long of each other: two that fail apart have nothing in common.
_NODES, _TOGETHER = 2, timedelta(minutes=5)
_SHOWN = 8

Domain = tuple[str, str]  # one of our clusters, not a fabric's, and the domain's name in it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hit:
    """One finding about GPUs of a domain, those GPUs, and when it was raised."""

    finding: Finding
    gpus: tuple[Subject, ...]
    raised: datetime

    @property
    def node(self) -> Subject:
        return self.finding.subject.of_node()


def broken_domains(window: Window) -> list[Finding]:
    """Return one finding per domain in which GPUs on several nodes began to fail within five minutes.

    The finding is about the domain's first node, hit or not, so that it stays the same while others come and
    go. While it stands, any other fault in the domain's NVLinks is part of it, except those that were reported
    before.
    """
    if not any(gpu.fabric_cluster for one in window.inventories.values() for gpu in one.gpus):
        return []
    active = {i.fingerprint: i for i in window.recent_incidents if State(i.state) in ACTIVE}
    told = {
        (i.subject.cluster, i.group.name): i
        for i in active.values()
        if i.fault == _FAULT.key and i.group is not None
    }
    at_once = {
        domain: _at_once(hits, told.get(domain))
        for domain, hits in sorted(_hits(window, active).items())
    }
    together = {
        domain: hits
        for domain, hits in at_once.items()
        if len({hit.node for hit in hits}) >= _NODES
    }
    domains = _gpus_of(window, together) if together else {}
    found = []
    for domain, alike in together.items():
        gpus, one = domains[domain], told.get(domain)
        subject = min(gpu.of_node() for gpu in gpus) if one is None else one.subject
        found.append(_finding(window, domain, gpus, alike, subject))
    return found


def _gpus_of(window: Window, domains: Collection[Domain]) -> Mapping[Domain, Collection[Subject]]:
    """Return all GPUs of these domains, by their nodes' inventories."""
    found: dict[Domain, list[Subject]] = defaultdict(list)
    for inventory in window.inventories.values():
        for uuid, name_ in _named(inventory).items():
            domain = inventory.subject.cluster, name_
            if domain in domains:
                found[domain].append(replace(inventory.subject, gpu=uuid))
    return found


def _named(inventory: Inventory) -> Mapping[str, str]:
    """Return the domain of each of a node's GPUs, by UUID.

    A GPU that has not joined a fabric belongs to the domain that all the others share.
    """
    told = {gpu.uuid: gpu.nvlink_domain for gpu in inventory.gpus}
    known = {domain for domain in told.values() if domain is not None}
    common = next(iter(known)) if len(known) == 1 else None
    return {uuid: name for uuid, domain in told.items() if (name := domain or common) is not None}


def _hits(window: Window, active: Mapping[str, Incident]) -> Mapping[Domain, Sequence[_Hit]]:
    hits: dict[Domain, list[_Hit]] = defaultdict(list)
    for finding in _signs(window):
        node = finding.subject.of_node()
        inventory = window.inventories.get(node.key)
        known = {} if inventory is None else _named(inventory)
        before = active.get(finding.fingerprint)
        raised = window.now if before is None else raised_at(before)
        places: dict[Domain, list[Subject]] = defaultdict(list)
        for gpu in finding.members or (finding.subject,):
            name_ = known.get(gpu.gpu or "")
            if name_ is not None:
                places[node.cluster, name_].append(gpu)
        for domain, gpus in places.items():
            hits[domain].append(_Hit(finding=finding, gpus=tuple(gpus), raised=raised))
    return hits


def _signs(window: Window) -> Iterator[Finding]:
    """Yield findings that a GPU's NVLinks or its fabric fail, without notes, which keep nobody from working."""
    found = [*broken_links(window), *fabrics_down(window)]
    found += [one for one in xid_faults(window) if one.xid in _XIDS]
    told = {one.fingerprint for one in found}
    found += [one for one in fallen_links(window) if one.fingerprint not in told]
    return (one for one in found if one.severity is not Severity.INFO)


def _at_once(hits: Sequence[_Hit], one: Incident | None) -> Sequence[_Hit]:
    """Return the findings raised within five minutes on the most nodes; a new finding counts as raised now."""
    if one is not None:
        since = raised_at(one) - _TOGETHER
        return [hit for hit in hits if hit.raised >= since]
    ordered = sorted(hits, key=lambda hit: (hit.raised, hit.finding.subject))
    most, best, end = 0, slice(0), 0
    nodes: Counter[Subject] = Counter()  # of the hits from `first` to `end`
    for first, hit in enumerate(ordered):
        while end < len(ordered) and ordered[end].raised - hit.raised <= _TOGETHER:
            nodes[ordered[end].node] += 1
            end += 1
        if len(nodes) > most:
            most, best = len(nodes), slice(first, end)
        nodes[hit.node] -= 1
        if not nodes[hit.node]:
            del nodes[hit.node]
    return ordered[best]


def _finding(
    window: Window,
    domain: Domain,
    gpus: Collection[Subject],
    hits: Sequence[_Hit],
    subject: Subject,
) -> Finding:
    severities = [_FAULT.severity, *(hit.finding.severity for hit in hits)]
    return Finding(
        fault="nvlink_domain",
        subject=subject,
        severity=min(severities, key=lambda severity: severity.rank),
        since=min(hit.finding.since for hit in hits),
        evidence=tuple(_evidence(window, gpus, hits)),
        detector="nvlink_domain",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        certain=len({hit.node for hit in hits if hit.finding.certain}) >= _NODES,
        late=all(hit.finding.late for hit in hits),
        members=tuple(sorted({gpu for hit in hits for gpu in hit.gpus})),
        group=Group(GroupKind.NVLINK_DOMAIN, domain[1]),
    )


def _evidence(
    window: Window, gpus: Collection[Subject], hits: Sequence[_Hit]
) -> Iterator[Evidence]:
    """Yield how many nodes of the domain are hit, what they show, and whose jobs are inside."""
    hit = sorted({one.node.node for one in hits}, key=natural)
    nodes = {gpu.of_node() for gpu in gpus}
    yield Evidence(name="nodes", value=f"{len(hit)} of the domain's {len(nodes)}: {_listed(hit)}")
    titles = Counter(one.finding.title or FAULTS[one.finding.fault].title for one in hits)
    told = [f"{count} x {title}" for title, count in sorted(titles.items())]
    yield Evidence(name="what", value=", ".join(told))
    racks = {window.inventories[node.key].rack or "" for node in nodes}
    if "" not in racks:
        yield Evidence(name="racks", value=_listed(sorted(racks, key=natural)))
    jobs = sorted({name(held) for gpu in gpus for held in window.held(gpu)}, key=natural)
    yield Evidence(name="jobs in the domain", value=_listed(jobs) or "none")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def would_show(window: Window, incident: Incident) -> bool:
    """Return whether the incident is over if nothing is found: not while GPUs on several of its nodes lack links.

    A lost link shows only for as long as the trend span remembers it; a lacking link shows for ever.
    """
    rows = window.get("gpu", Span.NOW)
    lacking = {
        gpu.of_node()
        for gpu in map(Subject.parse, incident.members)
        if gpu.kind == "gpu" and (row := rows.get(gpu)) is not None and _lacks(row)
    }
    return len(lacking) < _NODES


def _lacks(row: Row) -> bool:
    up, expected = row.get("nvlink_links_up"), row.get("nvlink_links_expected")
    return up is not None and expected is not None and up < expected


DETECTOR = Detector(
    name="nvlink_domain",
    find=broken_domains,
    faults=found_by("nvlink_domain"),
    needs=NEEDS,
    sentence="GPUs on several nodes of one NVLink domain that show NVLink faults at once.",
    source="clusterUuid and cliqueId of nvmlDeviceGetGpuFabricInfoV; the findings of each node",
    would_show=would_show,
)
