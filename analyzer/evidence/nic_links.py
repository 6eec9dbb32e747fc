"""Network cards whose PCIe link trained below what card and slot can do, and is slower than a port."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from gpuvigil.model import Inventory, Nic, PcieLink, Subject

from ..window.index import Remembered
from ..window.window import Window

# From so many cards of the same name and model on other nodes on, these alone tell the usual link;
# with fewer, the cards of its own node count, too.
_OTHER_NODES = 3
# More than this share of the peers must have a faster link: half may be in another kind of slot.
_MOST = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieLimitedPort:
    """A port that its card's PCIe link cannot keep up with."""

    port: Subject
    nic: Nic
    peers: str  # the usual link of its peers, such as `x16 Gen5`
    gpus: tuple[Subject, ...]  # that share the card's PCIe switch or NUMA node


def pcie_limited_ports(
    window: Window, speed_of: Callable[[Subject], float]
) -> Iterator[PcieLimitedPort]:
    """Yield the ports that are faster than their card's PCIe link.

    `speed_of` returns the bits per second of a port that is up, 0 for any other. A card in a slot
    that is built for less does not count: the PCIe port above it says so, or its peers have no
    more. A card without peers is not judged.
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
            yield from (PcieLimitedPort(port=it, nic=nic, peers=peers, gpus=near) for it in ports)


def _outrun(
    inventory: Inventory, nic: Nic, speed_of: Callable[[Subject], float]
) -> Sequence[Subject]:
    """Return the card's ports that are faster than its PCIe link."""
    leaves = nic.link.bits_per_second
    return [port for port in _ports(inventory, nic) if speed_of(port) > leaves]


# By cluster, model and name of a device: how many cards have it, by all of their names and by link.
_Kin = Mapping[tuple[str, str, str], Mapping[tuple[frozenset[str], PcieLink], int]]


def _by_name(inventories: Sequence[Inventory]) -> _Kin:
    """Count cards by each name that another one has, too: a name with an address has no peers."""
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
    """Return how many peers of a card have each link, without going through thousands of cards."""
    names, alike = frozenset(nic.devices), Counter[PcieLink]()
    for name in sorted(names):
        of_name = kin.get((inventory.subject.cluster, nic.model, name), {})
        for (others, link), count in of_name.items():
            if name == min(names & others):  # count a card that shares several names once
                alike[link] += count
    here = [it for it in inventory.nics if it.model == nic.model]
    alike.subtract(it.link for it in here if not names.isdisjoint(it.devices))
    of_other_nodes = +alike
    if sum(of_other_nodes.values()) < _OTHER_NODES:
        of_other_nodes.update(it.link for it in here if it is not nic)
    return of_other_nodes


def _most_of(nic: Nic, peers: Mapping[PcieLink, int]) -> str | None:
    """Return the usual link of peers that are faster than this card, None unless most are."""
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
    """Return the GPUs near a card; zeros are dropped, as PCI domains have four or eight digits."""
    near = {address.lower().lstrip("0") for address in nic.gpus}
    return tuple(
        sorted(
            replace(inventory.subject, gpu=gpu.uuid)
            for gpu in inventory.gpus
            if gpu.pci_address and gpu.pci_address.lower().lstrip("0") in near
        )
    )
