"""Names of nodes, GPUs, ports, switches, racks and jobs in an incident's sentences, as links; pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from gpuvigil.model import SWITCH_DEVICE, Holder, Incident, Inventory, Subject, with_kind
from gpuvigil.topology.link_names import ITSELF
from gpuvigil.web import page_links

from ..layout.job_links import parts
from ..layout.tree import Node, el
from ..model.incident_place import Inventories, members, place_page, rack_of

# The most nodes of an incident whose switches count as known; ours.
_MOST_NODES = 64
_NAME = re.compile(r"\w[\w.-]*")
_JOB = re.compile(r"job \d[\d_]*(?![\w-])")
_GPU = re.compile(r" GPU (\d+)(?![\w-])")
_PORT = re.compile(r" (?:port )?(\w[\w.-]*)(?:/(\d+))?")
_SWITCH_PORT = re.compile(r" port (\d+)")
_Link = tuple[int, str]  # where the name ends in its text, and the page that it links to


@dataclass(frozen=True, kw_only=True)
class NamedPlaces:
    """What the incident's sentences may name; links show the time up to `until`."""

    incident: Incident
    until: datetime
    inventories: Inventories

    @property
    def page(self) -> str:
        """The page of what the incident is about."""
        return place_page(self.incident, self.until, self.inventories)

    def linked(self, text: str) -> list[Node]:
        """Return the sentence with each known name in it as a link."""
        one = self.incident
        found = parts(text, one.subject.cluster, one.impact.holders, one.impact.users)
        return [
            node
            for piece, href in found
            for node in ([el("a", piece, href=href)] if href else self._named(piece))
        ]

    def _named(self, text: str) -> Iterator[Node]:
        done = 0
        for it in _NAME.finditer(text):
            found = self._link(text, it) if it.start() >= done else None
            if found is None:
                continue
            end, href = found
            if it.start() > done:
                yield text[done : it.start()]
            yield el("a", text[it.start() : end], href=href)
            done = end
        if text[done:]:
            yield text[done:]

    def _link(self, text: str, it: re.Match[str]) -> _Link | None:
        """Return the link of the name that begins here; None if nothing is known by it."""
        name, cluster = it[0].rstrip(".-"), self.incident.subject.cluster
        end = it.start() + len(name)
        inventory = self.inventories.get(Subject(cluster=cluster, node=name))
        if inventory is not None:
            subject, end = _part(inventory, text, end)
            return end, page_links.around(subject, self.incident.since, self.until)
        if name in self._switches:
            port = _SWITCH_PORT.match(text, end)
            number = ITSELF if port is None else port[1]
            subject = Subject(cluster=cluster, node=name, device=SWITCH_DEVICE, port=number)
            return end if port is None else port.end(), page_links.link_page(subject)
        if job := _JOB.match(text, it.start()):
            return job.end(), page_links.job_page(cluster, Holder.parse(job[0]))
        if name == self._rack and text[:end].endswith(with_kind("rack", name)):
            return end, page_links.rack_page(cluster, name)
        return None

    @cached_property
    def _rack(self) -> str:
        return rack_of(self.incident, self.inventories)

    @cached_property
    def _switches(self) -> frozenset[str]:
        """The switches that it covers, and those at its nodes' ports."""
        every = members(self.incident)
        nodes = sorted({one.of_node() for one in every})[:_MOST_NODES]
        known = [found for node in nodes if (found := self.inventories.get(node))]
        at_ports = {port.switch for one in known for port in one.ports if port.switch}
        return frozenset(one.node for one in every if one.device == SWITCH_DEVICE) | at_ports


def _part(inventory: Inventory, text: str, end: int) -> tuple[Subject, int]:
    """Return the GPU or port that the text names right after a node, or the node, and where its name ends."""
    node = inventory.subject
    if gpu := _GPU.match(text, end):
        uuid = next((it.uuid for it in inventory.gpus if it.index == int(gpu[1])), None)
        if uuid is not None:
            return Subject(cluster=node.cluster, node=node.node, gpu=uuid), gpu.end()
    if port := _PORT.match(text, end):
        device, number = port[1], port[2] or "1"
        if any((it.device, it.port) == (device, number) for it in inventory.ports):
            subject = Subject(cluster=node.cluster, node=node.node, device=device, port=number)
            return subject, port.end()
    return node, end
