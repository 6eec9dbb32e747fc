"""Looks up what topology files say about one node's ports."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from ..model import Inventory
from . import stated
from .model import Imported, Placed, Wire


class Files:
    """The content of imported topology files, by node."""

    def __init__(self, said: Iterable[Imported] = ()) -> None:
        self._wires: dict[str, list[Wire]] = defaultdict(list)
        self._places: dict[str, list[Placed]] = defaultdict(list)
        for one in said:
            for wire in one.wires:
                self._wires[stated.short(wire.node)].append(wire)
            for placed in one.places:
                self._places[stated.short(placed.node)].append(placed)

    def completed(self, node: Inventory) -> Inventory:
        """Fill in the switch of ports that heard none by LLDP, where a file names it."""
        name = stated.short(node.subject.node or "")
        said = Imported(
            wires=tuple(self._wires.get(name, ())), places=tuple(self._places.get(name, ()))
        )
        if not said.wires and not said.places:
            return node
        links, _ = stated.links([node], said)
        links = stated.of_only_ports(links, stated.places([node], said))
        at = {(it.device, it.port): it for it in links if it.switch is not None}
        ports = tuple(
            replace(port, switch=link.switch.value, switch_port=link.switch_port)
            if port.switch is None
            and (link := at.get((port.device, port.port))) is not None
            and link.switch is not None
            else port
            for port in node.ports
        )
        return replace(node, ports=ports)
