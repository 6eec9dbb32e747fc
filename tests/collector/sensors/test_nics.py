"""Network cards on the PCI bus, as a sysfs of our own shows them."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from collector.sensors.nics import NicSensor, nics
from gpuvigil.model import Beside, BusGpu, Nic, PcieLink, PortIdentity
from tests.sysfs import BusTree, linked

ROOT, SWITCH = "0000:15:01.0", "0000:16:00.0"
CARD, GPU, FAR = "0000:19:00.0", "0000:1b:00.0", "0000:3b:00.0"
OF_CARD = (ROOT, SWITCH, "0000:17:00.0", CARD)
OF_GPU = (ROOT, SWITCH, "0000:17:01.0", GPU)
GEN5, GEN4 = PcieLink(lanes=16, gigatransfers=32.0), PcieLink(lanes=4, gigatransfers=16.0)


def port(device: str = "mlx5_0", kind: str = "infiniband") -> PortIdentity:
    return PortIdentity(device=device, port="1", kind=kind, role="fabric", was_up=True)


@pytest.fixture
def bus(tmp_path: Path) -> BusTree:
    return BusTree(tmp_path)


def look(bus: BusTree, *ports: PortIdentity, gpus: Iterable[str] = ()) -> tuple[Nic, ...]:
    return nics(ports or (port(),), gpus, bus.root)


def test_a_link_that_trained_down_is_told_beside_what_it_could_be(bus: BusTree) -> None:
    bus.nic("mlx5_0", *OF_CARD, link="4 16.0")
    (nic,) = look(bus)
    assert nic == Nic(address=CARD, devices=("mlx5_0",), model="15b3:1021", link=GEN4, best=GEN5)
    assert nic.is_degraded
    assert (nic.link.words, nic.best.words) == ("x4 Gen4", "x16 Gen5")
    assert round(nic.link.bits_per_second / 1e9) == 63
    assert Nic.from_json(nic.to_json()) == nic


@pytest.mark.parametrize(
    ("above", "best"),
    [
        ("16 16.0", PcieLink(lanes=16, gigatransfers=16.0)),  # a slot of an older host
        ("8 64.0", PcieLink(lanes=8, gigatransfers=32.0)),
        ("16 32.0", GEN5),
    ],
)
def test_the_slot_can_do_no_more_than_the_port_above_the_card(
    bus: BusTree, above: str, best: PcieLink
) -> None:
    bus.nic("mlx5_0", *OF_CARD, link="8 16.0")
    bus.add(*OF_CARD[:-1], **linked("max", above))
    (nic,) = look(bus)
    assert nic.best == best


@pytest.mark.parametrize(
    "said",
    [
        {"current_link_speed": "Unknown"},
        {"current_link_width": "0"},
        {"current_link_width": "63"},
        {"max_link_width": "255"},
        {"max_link_speed": "Unknown speed"},
        {"vendor": ""},
    ],
)
def test_a_card_that_does_not_tell_its_link_is_absent(bus: BusTree, said: dict[str, str]) -> None:
    bus.nic("mlx5_0", *OF_CARD, link="16 32.0", **said)
    assert look(bus) == ()


def test_a_virtual_function_and_what_is_on_no_pci_bus_have_no_link(bus: BusTree) -> None:
    place = bus.nic("mlx5_0", *OF_CARD, link="16 32.0")
    (place / "physfn").mkdir()
    virtual = bus.root / "devices/virtual/net/veth0"
    virtual.mkdir(parents=True)
    bus.carries("veth0", virtual, "net")
    assert look(bus, port(), port("veth0", "ethernet"), port("gone")) == ()


def test_ports_of_one_card_share_its_link(bus: BusTree) -> None:
    place = bus.nic("mlx5_0", *OF_CARD, link="16 32.0")
    bus.carries("eth0", place, "net")
    (nic,) = look(bus, port(), port("eth0", "ethernet"))
    assert nic.devices == ("eth0", "mlx5_0")
    assert not nic.is_degraded


def test_gpus_are_near_behind_the_lowest_switch_that_they_share(bus: BusTree) -> None:
    bus.nic("mlx5_0", *OF_CARD, link="16 32.0", numa_node="0")
    bus.add(*OF_GPU, numa_node="0")
    bus.add(ROOT, SWITCH, "0000:17:02.0", "0000:1c:00.0", "0000:1d:00.0", FAR, numa_node="0")
    bus.add("0000:97:01.0", "0000:98:00.0", "0000:9b:00.0", numa_node="0")
    all_of_them = (GPU, FAR, "0000:9b:00.0")
    (nic,) = look(bus, gpus=all_of_them)
    assert (nic.beside, nic.gpus) == (Beside.SWITCH, (GPU, FAR))
    # One that is behind a lower switch with it is nearer than both.
    bus.add(*OF_CARD[:-1], "0000:19:00.1", numa_node="0")
    (nic,) = look(bus, gpus=(*all_of_them, "0000:19:00.1"))
    assert nic.gpus == ("0000:19:00.1",)


def test_without_a_switch_the_numa_node_tells(bus: BusTree) -> None:
    bus.nic("mlx5_0", *OF_CARD, link="16 32.0", numa_node="1")
    bus.add("0000:97:01.0", GPU, numa_node="1")
    bus.add("0000:b7:01.0", FAR, numa_node="0")
    (nic,) = look(bus, gpus=(GPU, FAR))
    assert (nic.beside, nic.gpus) == (Beside.NUMA_NODE, (GPU,))
    assert Nic.from_json(nic.to_json()) == nic
    (bus.root / "bus/pci/devices" / CARD / "numa_node").write_text("-1\n")
    (nic,) = look(bus, gpus=(GPU, FAR))
    assert (nic.beside, nic.gpus) == (None, ())


def test_the_bus_is_looked_at_once_a_minute(bus: BusTree) -> None:
    now = 100.0
    place = bus.nic("mlx5_0", *OF_CARD, link="16 32.0")
    sensor = NicSensor(bus.root, lambda: now)
    assert [it.link for it in sensor.read((port(),), ())] == [GEN5]
    (place / "current_link_width").write_text("8\n")
    now += 59.9
    assert [it.link for it in sensor.read((port(),), ())] == [GEN5]
    now += 0.2
    assert [it.link.lanes for it in sensor.read((port(),), ())] == [8]
    # Other ports, or other GPUs, are looked at at once.
    (place / "current_link_width").write_text("4\n")
    assert [it.link.lanes for it in sensor.read((port(),), (BusGpu(address=GPU),))] == [4]


@pytest.mark.parametrize(
    ("gigatransfers", "gigabits", "words"),
    [
        (2.5, 32.0, "x16 Gen1"),
        (5.0, 64.0, "x16 Gen2"),
        (8.0, 126.0, "x16 Gen3"),
        (64.0, 1024.0, "x16 Gen6"),
        (128.0, 2048.0, "x16 128 GT/s"),
    ],
)
def test_a_link_carries_what_its_encoding_leaves(
    gigatransfers: float, gigabits: float, words: str
) -> None:
    link = PcieLink(lanes=16, gigatransfers=gigatransfers)
    assert round(link.bits_per_second / 1e9, 0) == gigabits
    assert link.words == words
