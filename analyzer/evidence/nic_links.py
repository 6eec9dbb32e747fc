"""Network cards whose PCIe link trained below what card and slot can do, and leaves less than a port brings."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from gpuvigil.model import Inventory, Nic, PcieLink, Subject

from ..window.index import Remembered
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


def starved(window: Window, speed_of: Callable[[Subject], float]) -> Iterator[Starved]:
    """`speed_of`: what a port that is up brings in bits per second, 0 of any other.

    A card in a slot that is made for less is none: the port above it says so, or its peers have no more. One
    without peers is not judged.
    """
    found = [
        (inventory, nic, ports)
        for inventory in window.inventories.values()
        for nic in inventory.nics
        if nic.is_degraded and (ports := _outrun(inventory, nic, speed_of))
    ]
    kin = _kin(window.inventories.values()) if found else {}
    for inventory, nic, ports in found:
        peers = _most_of(nic, _peers(inventory, nic, kin))
        if peers is not None:
            near = _near(inventory, nic)
            yield from (Starved(port=it, nic=nic, peers=peers, gpus=near) for it in ports)


def _outrun(
    inventory: Inventory, nic: Nic, speed_of: Callable[[Subject], float]
) -> Sequence[Subject]:
    """The card's ports that bring more than its link leaves."""
    leaves = nic.link.bits_per_second
    return [port for port in _ports(inventory, nic) if speed_of(port) > leaves]


# By cluster, model and name of a device: how many cards have it, by all of their names and by link.
_Kin = Mapping[tuple[str, str, str], Mapping[tuple[frozenset[str], PcieLink], int]]


def _by_name(inventories: Sequence[Inventory]) -> _Kin:
    """All cards by the names that another one has, too: a name with an address in it has no peers."""
    cards = [(it.subject.cluster, nic) for it in inventories for nic in it.nics]
    times = Counter((at, nic.model, name) for at, nic in cards for name in set(nic.devices))
    kin: dict[tuple[str, str, str], Counter[tuple[frozenset[str], PcieLink]]]
    kin = defaultdict(Counter)
    for at, nic in cards:
        names = frozenset(it for it in nic.devices if times[at, nic.model, it] > 1)
        for name in names:
            kin[at, nic.model, name][names, nic.link] += 1
    return kin


_kin = Remembered(_by_name)


def _peers(inventory: Inventory, nic: Nic, kin: _Kin) -> Mapping[PcieLink, int]:
    """The links of its peers, and how many have each. Of thousands of cards nobody looks at each again."""
    names, alike = frozenset(nic.devices), Counter[PcieLink]()
    for name in sorted(names):
        of_name = kin.get((inventory.subject.cluster, nic.model, name), {})
        for (others, link), count in of_name.items():
            if name == min(names & others):  # one that shares several names is one
                alike[link] += count
    here = [it for it in inventory.nics if it.model == nic.model]
    alike.subtract(it.link for it in here if not names.isdisjoint(it.devices))
    of_other_nodes = +alike
    if sum(of_other_nodes.values()) < _OTHER_NODES:
        of_other_nodes.update(it.link for it in here if it is not nic)
    return of_other_nodes


def _most_of(nic: Nic, peers: Mapping[PcieLink, int]) -> str | None:
    """What is usual among peers of which most have more than this card; None where they have not."""
    own = nic.link.bits_per_second
    better = sorted(
        (link for link in peers if link.bits_per_second > own),
        key=lambda link: link.bits_per_second,
    )
    many = sum(peers[link] for link in better)
    if not better or many <= _MOST * sum(peers.values()):
        return None
    up_to = accumulate(peers[link] for link in better)
    return next(link.words for link, n in zip(better, up_to, strict=True) if n > many // 2)


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
