"""Find the pages that a search text may mean; pure.

A text that is exactly something's name finds only that; any other finds all names that contain it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuvigil.model import (
    SWITCH_DEVICE,
    Allocation,
    GpuIdentity,
    Holder,
    Inventory,
    Subject,
    with_kind,
)
from gpuvigil.numbers_in_words import counted, natural
from gpuvigil.topology.link_names import device_name
from gpuvigil.web import page_links
from gpuvigil.web.markup import Html, joined, tag

from ..data.views import FleetView
from ..model.cluster import Cell

MOST_SHOWN = 20
Span = tuple[datetime, datetime]
# The least characters of a UUID or serial number, as shorter prefixes would match by accident.
LEAST_BEGINNING = 4
EXPLAINED = (
    "What can be searched: a node's name or a part of it, a GPU by its UUID, PCI address, serial"
    " number or as node and index (sim-003 5), a port (mlx5_0, or sim-003 mlx5_0), a switch, a job"
    " by its number, a user, a team, a rack, and incidents by their titles, places and ids."
)
# The order of the groups of hits.
_GROUPS = (*("Incidents", "Jobs", "Users", "Teams", "Nodes", "GPUs", "Ports", "Switches", "Racks"),)
# The most hits of a group, so that none hides another.
MOST_OF_GROUP = 8
# The least characters of a text, as shorter ones are part of every title.
LEAST_TEXT = 3
_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?")
_ON_NODE = re.compile(r"(?P<node>\S+?)(?:\s*[:/·]\s*|\s+)(?P<rest>\S.*)")
_JOB = re.compile(r"job \d[\d_]*")
_INDEX = re.compile(r"(?:gpu[\s-]*)?(\d{1,3})")
_INCIDENT = re.compile(r"[0-9a-f]{16}-\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A page that a search may mean."""

    title: str
    detail: str
    href: str
    group: str = "Nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpu:
    subject: Subject
    index: int | None
    cell: Cell | None
    identity: GpuIdentity | None

    @property
    def title(self) -> str:
        name = self.subject.gpu if self.index is None else f"GPU {self.index}"
        return f"{self.subject.node} · {name}"


def find(
    view: FleetView,
    inventories: Mapping[Subject, Inventory],
    text: str,
    allocations: Iterable[Allocation] = (),
    switches: Iterable[Subject] = (),
) -> tuple[Hit, ...]:
    """Return everything that `text` may mean: exact matches, or else partial ones.

    `switches` are those that are read; those that hosts hear of are found without.
    """
    asked = " ".join(text.casefold().split())
    if not asked:
        return ()
    if _INCIDENT.fullmatch(asked):
        return (_incident(view, asked),)
    nodes = _nodes(view, inventories)
    gpus = list(_gpus(view, inventories))
    held, span = tuple(allocations), view.span
    named = list(_named(held, inventories, switches))
    exact = [_node(node, span) for node in nodes if node.node.casefold() == asked]
    exact += [_hit(gpu, said, span) for gpu in gpus if (said := _exactly(gpu, asked))]
    exact += _on_node(nodes, gpus, inventories, asked, span)
    exact += _jobs(held, asked)
    exact += [hit for name, hit in named if name == asked]
    if exact:
        return tuple(dict.fromkeys(exact))
    part = [_node(node, span) for node in nodes if asked in node.node.casefold()]
    part += [_hit(gpu, said, span) for gpu in gpus if (said := _partly(gpu, asked))]
    part += [hit for name, hit in named if asked in name]
    part += _ports(inventories, asked, span)
    part += _incidents(view, asked)
    # A number without any match may be a job's.
    return tuple(dict.fromkeys(part)) or tuple(_jobs((), f"job {asked}"))


def _named(
    allocations: Iterable[Allocation],
    inventories: Mapping[Subject, Inventory],
    read: Iterable[Subject],
) -> Iterator[tuple[str, Hit]]:
    """Yield users and teams that hold GPUs now, switches and racks, each by its name in lower case."""
    users = {one.user for one in allocations if one.user}
    teams = {one.account for one in allocations if one.account}
    for name in sorted(users):
        href = page_links.user_page(name)
        yield name.casefold(), Hit(title=name, detail="user", href=href, group="Users")
    for name in sorted(teams):
        href = page_links.team_page(name)
        yield name.casefold(), Hit(title=name, detail="team", href=href, group="Teams")
    switches, racks = {(one.cluster, one.node) for one in read}, set()
    for node, inventory in inventories.items():
        switches |= {(node.cluster, port.switch) for port in inventory.ports if port.switch}
        racks |= {(node.cluster, inventory.rack)} if inventory.rack else set()
    for cluster, name in sorted(switches):
        subject = Subject(cluster=cluster, node=name, device=SWITCH_DEVICE, port="0")
        detail, href = f"switch of {with_kind('cluster', cluster)}", page_links.link_page(subject)
        yield name.casefold(), Hit(title=name, detail=detail, href=href, group="Switches")
    for cluster, name in sorted(racks):
        detail, href = (
            f"rack of {with_kind('cluster', cluster)}",
            page_links.rack_page(cluster, name),
        )
        yield name.casefold(), Hit(title=name, detail=detail, href=href, group="Racks")


def _ports(inventories: Mapping[Subject, Inventory], asked: str, span: Span) -> Iterator[Hit]:
    """Yield ports of that device on every node, in the order of nodes."""
    if len(asked) < LEAST_TEXT:
        return
    for node in sorted(inventories):
        for port in inventories[node].ports:
            if f"{port.device}/{port.port}".casefold().startswith(asked):
                yield _port(node, port.device, port.port, span)


def _incidents(view: FleetView, asked: str) -> Iterator[Hit]:
    """Yield open incidents by their titles and places."""
    for item in view.attention if len(asked) >= LEAST_TEXT else ():
        words = f"{item.title}, {item.label}"
        if asked in words.casefold():
            yield Hit(
                title=words,
                detail=f"{item.severity.value}, open",
                href=page_links.incident_page(item.id),
                group="Incidents",
            )


def _jobs(allocations: Iterable[Allocation], asked: str) -> Iterator[Hit]:
    """Yield jobs by number or name; a number also finds an ended job, whose page knows it."""
    holders = {(one.subject.cluster, one.holder) for one in allocations}
    for cluster, holder in sorted(holders):
        names = {str(holder).casefold(), holder.name.casefold()}
        href = page_links.job_page(cluster, holder)
        if asked in names and href:
            yield Hit(
                title=str(holder),
                detail=f"has GPUs of {with_kind('cluster', cluster)}",
                href=href,
                group="Jobs",
            )
    if _JOB.fullmatch(asked) and not any(asked == str(holder).casefold() for _, holder in holders):
        href = page_links.job_page(None, Holder.parse(asked))
        yield Hit(title=asked, detail="a job that has no GPU now", href=href, group="Jobs")


def _nodes(view: FleetView, inventories: Mapping[Subject, Inventory]) -> list[Subject]:
    """Return every node, also former ones."""
    shown = {
        Subject(cluster=cluster.name, node=node.name)
        for cluster in view.clusters
        for node in cluster.nodes
    }
    return sorted(
        {*shown, *inventories}, key=lambda it: (it.simulated, natural(it.node), it.cluster)
    )


def _gpus(view: FleetView, inventories: Mapping[Subject, Inventory]) -> Iterator[_Gpu]:
    cells = {cell.subject: cell for cluster in view.clusters for cell in cluster.cells}
    identities = {
        Subject(cluster=node.cluster, node=node.node, gpu=gpu.uuid): gpu
        for node, inventory in inventories.items()
        for gpu in inventory.gpus
    }
    for subject in dict.fromkeys((*cells, *identities)):
        cell, identity = cells.get(subject), identities.get(subject)
        index = cell.index if cell else identity.index if identity else None
        yield _Gpu(subject=subject, index=index, cell=cell, identity=identity)


def _exactly(gpu: _Gpu, asked: str) -> str:
    """Return which of the GPU's names is exactly that; empty for none."""
    if asked in {_bare(gpu.subject.gpu or ""), (gpu.subject.gpu or "").casefold()}:
        return "UUID"
    known = gpu.identity
    if known is None:
        return ""
    if known.serial and asked == known.serial.casefold():
        return f"serial {known.serial}"
    if known.pci_address and _same_address(asked, known.pci_address):
        return f"PCI address {known.pci_address}"
    return ""


def _partly(gpu: _Gpu, asked: str) -> str:
    """Return which of the GPU's names begins so, or its holder if that contains it; empty for none."""
    uuid, serial = _bare(gpu.subject.gpu or ""), (gpu.identity and gpu.identity.serial) or ""
    if len(_bare(asked)) >= LEAST_BEGINNING:
        if uuid.startswith(_bare(asked)):
            return f"UUID {gpu.subject.gpu}"
        if serial.casefold().startswith(asked):
            return f"serial {serial}"
    holder = gpu.cell.holder if gpu.cell else ""
    return f"allocated to {holder}" if holder and asked in holder.casefold() else ""


def _on_node(
    nodes: Iterable[Subject],
    gpus: Iterable[_Gpu],
    inventories: Mapping[Subject, Inventory],
    asked: str,
    span: Span,
) -> list[Hit]:
    """Find a node's GPU by index, UUID, serial or PCI address, or one of its ports."""
    parts = _ON_NODE.fullmatch(asked)
    if parts is None:
        return []
    name, rest = parts["node"], parts["rest"]
    here = {node for node in nodes if node.node.casefold() == name}
    index = _INDEX.fullmatch(rest)
    found = []
    for gpu in gpus:
        if gpu.subject.of_node() in here:
            meant = index is not None and gpu.index == int(index[1])
            if meant or _exactly(gpu, rest):
                found.append(_hit(gpu, gpu.subject.gpu or "", span))
    for node in here:
        inventory = inventories.get(node)
        for port in inventory.ports if inventory else ():
            if rest in {port.device.casefold(), f"{port.device}/{port.port}".casefold()}:
                found.append(_port(node, port.device, port.port, span))
    return found


def _bare(uuid: str) -> str:
    return uuid.casefold().removeprefix("gpu-")


def _same_address(asked: str, known: str) -> bool:
    """Return whether both name one PCI function; a missing domain or function matches any."""
    one, other = _PCI.fullmatch(asked), _PCI.fullmatch(known.casefold())
    if one is None or other is None:
        return asked == known.casefold()
    return all(
        mine is None or int(mine, 16) == int(theirs or "0", 16)
        for mine, theirs in zip(one.groups(), other.groups(), strict=True)
    )


def _node(node: Subject, span: Span) -> Hit:
    href = page_links.subject_page(node, *span)
    return Hit(title=node.node, detail=f"node of {with_kind('cluster', node.cluster)}", href=href)


def _hit(gpu: _Gpu, text: str, span: Span) -> Hit:
    href = page_links.subject_page(gpu.subject, *span)
    detail = f"{text}, {with_kind('cluster', gpu.subject.cluster)}"
    return Hit(title=gpu.title, detail=detail, href=href, group="GPUs")


def _port(node: Subject, device: str, port: str, span: Span) -> Hit:
    subject = Subject(cluster=node.cluster, node=node.node, device=device, port=port)
    href = page_links.subject_page(subject, *span)
    title = f"{node.node} · {device_name(device, port)}"
    return Hit(title=title, detail="network port", href=href, group="Ports")


def _incident(view: FleetView, id_: str) -> Hit:
    """Return the hit for an incident ID, also of one that is over, whose page knows it."""
    active = next((item for item in view.attention if item.id == id_), None)
    title = active.title if active else f"Incident {id_}"
    href = page_links.incident_page(id_)
    return Hit(title=title, detail="incident", href=href, group="Incidents")


def results(text: str, hits: tuple[Hit, ...]) -> Html:
    """Return the hits as links in groups; without any, what can be searched."""
    if not hits:
        said = f"Nothing matches {text[:80]!r}. {EXPLAINED}"
        return tag("section", tag("p", said), class_="gv-found", role="status")
    groups = [(name, [hit for hit in hits if hit.group == name]) for name in _GROUPS]
    found = [(name, them) for name, them in groups if them]
    most = MOST_SHOWN if len(found) == 1 else MOST_OF_GROUP
    return tag(
        "section",
        tag("p", f"{counted(len(hits), 'hit')} for {text[:80]!r}:"),
        *(_group(name, them, most) for name, them in found),
        class_="gv-found",
        role="status",
    )


def _group(name: str, hits: Sequence[Hit], most: int) -> Html:
    rows = [
        tag("li", tag("a", hit.title, href=hit.href), " ", tag("small", hit.detail))
        for hit in hits[:most]
    ]
    rest = len(hits) - len(rows)
    return joined(
        tag("h2", name, tag("small", f" {len(hits):,}")),
        tag("ul", *rows),
        tag("p", f"and {rest:,} more: type more of the name.") if rest else joined(),
    )
