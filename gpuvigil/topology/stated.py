"""Facts stated about ports: by LLDP in inventories, and by imported files."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..model import Inventory
from ..numbers_in_words import natural
from .model import Doubt, Fact, Imported, Link, Placed, Question, Source, Wire


def links(inventories: Iterable[Inventory], imported: Imported) -> tuple[list[Link], list[Doubt]]:
    """Return every port of the nodes, ordered, and where two sources name different switches for one."""
    nodes = sorted(inventories, key=lambda one: natural(one.subject.node or ""))
    real = Names(node.subject.node or "" for node in nodes)
    told: dict[tuple[str, str, str], list[Wire]] = defaultdict(list)
    for wire in (*_neighbours(nodes), *imported.wires):
        node = real.of(wire.node)
        if node is not None and wire.device is not None:
            told[node, wire.device, wire.port or "1"].append(wire)
    found: list[Link] = []
    doubts: list[Doubt] = []
    for one in nodes:
        name = one.subject.node or ""
        for port in sorted(one.ports, key=lambda it: natural(f"{it.device}/{it.port}")):
            wires = told.get((name, port.device, port.port), [])
            wires.sort(key=lambda one: one.source.rank)
            link = Link(
                node=name,
                device=port.device,
                port=port.port,
                role=port.role,
                was_up=port.was_up,
                switch=Fact(value=wires[0].switch, source=wires[0].source) if wires else None,
                switch_port=wires[0].switch_port if wires else None,
                rail=_rail(wires),
            )
            found.append(link)
            doubts += _disagree(link, wires)
    return found, doubts


def places(inventories: Iterable[Inventory], imported: Imported) -> dict[str, Fact]:
    """Return the block or lowest switch of each node for which one is stated."""
    real = Names(one.subject.node or "" for one in inventories)
    found: dict[str, Placed] = {}
    for placed in imported.places:
        node = real.of(placed.node)
        if node is not None and (node not in found or placed.source.rank < found[node].source.rank):
            found[node] = placed
    return {node: Fact(value=one.place, source=one.source) for node, one in found.items()}


def of_only_ports(links: Sequence[Link], places: Mapping[str, Fact]) -> list[Link]:
    """Place each node's only fabric port at the switch that the node is at."""
    count = Counter(link.node for link in links if link.role == "fabric")
    return [
        replace(link, switch=places[link.node])
        if link.role == "fabric"
        and link.switch is None
        and link.was_up
        and count[link.node] == 1
        and link.node in places
        else link
        for link in links
    ]


def alike(inventories: Iterable[Inventory], imported: Imported) -> Imported:
    """Return the imported facts with switches named as in LLDP, for example with their domain."""
    heard = Names({it.switch for one in inventories for it in one.ports if it.switch is not None})

    def name(said: str) -> str:
        return heard.of(said) or said

    return Imported(
        wires=tuple(replace(it, switch=name(it.switch)) for it in imported.wires),
        uplinks=tuple(
            replace(it, lower=name(it.lower), upper=name(it.upper)) for it in imported.uplinks
        ),
        places=tuple(replace(it, place=name(it.place)) for it in imported.places),
    )


class Names:
    """Finds machines by the names that others use: in any case, and with or without a domain."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self._exact: dict[str, str] = {}
        self._short: dict[str, set[str]] = defaultdict(set)
        for node in nodes:
            self._exact[node.casefold()] = node
            self._short[short(node)].add(node)

    def of(self, said: str) -> str | None:
        """Return the machine that is meant; None where there is none, or where several may be."""
        if (exact := self._exact.get(said.casefold())) is not None:
            return exact
        alike = self._short.get(short(said), set())
        return next(iter(alike)) if len(alike) == 1 else None


def short(name: str) -> str:
    """Return a name without its domain, in lower case."""
    return name.partition(".")[0].casefold()


def _neighbours(nodes: Iterable[Inventory]) -> Iterator[Wire]:
    for node in nodes:
        for port in node.ports:
            if port.switch is not None:
                yield Wire(
                    node=node.subject.node or "",
                    device=port.device,
                    port=port.port,
                    switch=port.switch,
                    switch_port=port.switch_port,
                    source=Source.LLDP,
                )


def _rail(wires: Iterable[Wire]) -> Fact | None:
    named = [wire for wire in wires if wire.rail is not None]
    return Fact(value=named[0].rail or "", source=named[0].source) if named else None


def _disagree(link: Link, wires: list[Wire]) -> Iterator[Doubt]:
    by_switch: Mapping[str, Wire] = {short(wire.switch): wire for wire in reversed(wires)}
    if len(by_switch) > 1:
        said = sorted(by_switch.values(), key=lambda one: one.source.rank)
        words = ", ".join(f"{wire.source.value} says {wire.switch}" for wire in said)
        yield Doubt(
            question=Question.SOURCES,
            text=f"{link.node} {link.name}: {words}. The first is believed.",
            ports=((link.node, link.name),),
            switches=tuple(wire.switch for wire in said),
        )
