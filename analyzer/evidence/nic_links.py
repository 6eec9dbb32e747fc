"""Network cards whose PCIe link trained below what card and slot can do, and leaves less than a port brings."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuvigil.model import Inventory, Nic, Subject

from ..window.window import Window

# So many cards of the same name and model on other nodes say how it is built; else its own node's say so, too.
_OTHER_NODES = 3
# More than so many of them must have more: half may be another kind of slot.
_MOST = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Starved:
    """A port that its card's PCIe link cannot keep up with."""

    port: Subject
    nic: Nic
    peers: str  # what most others of the model have: `x16 Gen5`
    gpus: tuple[Subject, ...]  # that share the card's PCIe switch or NUMA node


def starved(window: Window, speeds: Mapping[Subject, float]) -> Iterator[Starved]:
    """`speeds`: of the ports that are up, in bits per second.

    A card in a slot that is made for less is none: the port above it says so, or its peers have no more. One
    without peers is not judged.
    """
    found = [
        (inventory, nic)
        for inventory in window.inventories.values()
        for nic in inventory.nics
        if nic.is_degraded
    ]
    kin = _by_model(window) if found else {}
    for inventory, nic in found:
        peers = _most_of(nic, _peers(inventory, nic, kin))
        if peers is None:
            continue
        for port in _ports(inventory, nic):
            if speeds.get(port, 0.0) > nic.link.bits_per_second:
                yield Starved(port=port, nic=nic, peers=peers, gpus=_near(inventory, nic))


_Kin = Mapping[tuple[str, str], Sequence[tuple[Inventory, Nic]]]


def _by_model(window: Window) -> _Kin:
    """All cards, by cluster and model."""
    kin: dict[tuple[str, str], list[tuple[Inventory, Nic]]] = defaultdict(list)
    for inventory in window.inventories.values():
        for nic in inventory.nics:
            kin[inventory.subject.cluster, nic.model].append((inventory, nic))
    return kin


def _peers(inventory: Inventory, nic: Nic, kin: _Kin) -> list[Nic]:
    alike = kin[inventory.subject.cluster, nic.model]
    names = set(nic.devices)
    of_name = [
        other
        for its, other in alike
        if its.subject != inventory.subject and not names.isdisjoint(other.devices)
    ]
    if len(of_name) >= _OTHER_NODES:
        return of_name
    own = [it for its, it in alike if its.subject == inventory.subject and it is not nic]
    return [*of_name, *own]


def _most_of(nic: Nic, peers: Sequence[Nic]) -> str | None:
    """What is usual among peers of which most have more than this card; None where they have not."""
    own = nic.link.bits_per_second
    better = sorted(
        (it.link for it in peers if it.link.bits_per_second > own),
        key=lambda link: link.bits_per_second,
    )
    if not better or len(better) <= _MOST * len(peers):
        return None
    return better[len(better) // 2].words


def _ports(inventory: Inventory, nic: Nic) -> Iterator[Subject]:
    for port in inventory.ports:
        if port.device in nic.devices:
            yield replace(inventory.subject, device=port.device, port=port.port)


def _near(inventory: Inventory, nic: Nic) -> tuple[Subject, ...]:
    """Domains come in four digits or in eight."""
    near = {address.lower().lstrip("0") for address in nic.gpus}
    return tuple(
        sorted(
            replace(inventory.subject, gpu=gpu.uuid)
            for gpu in inventory.gpus
            if gpu.pci_address and gpu.pci_address.lower().lstrip("0") in near
        )
    )
