"""The PCI bus as the kernel lists it, from a sysfs of our own."""

from pathlib import Path

import pytest

from collector.agent.pci_bus import Bus
from collector.samples.messages import LOADED, STARTING, GpuTick, Tick
from gpuvigil.clock import EPOCH
from gpuvigil.model import GpuIdentity
from tests.sysfs import PciTree

FIRST, SECOND = "0000:1b:00.0", "0000:43:00.0"


@pytest.fixture
def devices(tmp_path: Path) -> PciTree:
    return PciTree(tmp_path)


@pytest.fixture
def bus(devices: PciTree) -> Bus:
    return Bus(devices.root)


def appeared(bus: Bus, tick: Tick | None) -> bool:
    """After a look at the bus, as in every tick of the agent."""
    bus.read()
    return bus.has_appeared(tick)


def listed(*addresses: str, state: str = LOADED) -> Tick:
    gpus = [
        GpuTick(
            index=index,
            identity=GpuIdentity(
                uuid=f"GPU-{index}", index=index, pci_address=f"0000{one}".upper(), model="H100"
            ),
        )
        for index, one in enumerate(addresses)
    ]
    return Tick(at=EPOCH, state=state, gpus=tuple(gpus))


def test_only_gpus_are_told_and_come_and_go(bus: Bus, devices: PciTree) -> None:
    assert bus.read() is None
    devices.add("0000:1b:00.1", kind="0x040300")
    assert bus.read() == ()
    devices.add(FIRST)
    devices.add(SECOND, driver=None)
    assert bus.read() == (FIRST, SECOND)
    devices.remove(FIRST)
    assert bus.read() == (SECOND,)


def test_a_gpu_that_comes_is_new_once(bus: Bus, devices: PciTree) -> None:
    devices.add(FIRST)
    assert not appeared(bus, listed(FIRST))
    devices.add(SECOND)
    assert appeared(bus, listed(FIRST))
    # A driver that does not list it after all is not asked again and again.
    assert not appeared(bus, listed(FIRST))
    assert not appeared(bus, listed(FIRST, SECOND))
    devices.remove(SECOND)
    assert not appeared(bus, listed(FIRST))
    devices.add(SECOND)
    assert appeared(bus, listed(FIRST))


def test_a_gpu_that_was_never_listed_is_not_new(bus: Bus, devices: PciTree) -> None:
    devices.add(FIRST)
    devices.add(SECOND)
    assert not appeared(bus, listed(FIRST))
    assert not appeared(bus, listed(FIRST))


def test_a_gpu_is_new_when_its_driver_has_taken_it(bus: Bus, devices: PciTree) -> None:
    devices.add(FIRST)
    assert not appeared(bus, listed(FIRST))
    devices.add(SECOND, driver=None)
    assert not appeared(bus, listed(FIRST))
    devices.take(SECOND, "nvidia")
    assert appeared(bus, listed(FIRST))


def test_nothing_is_concluded_from_a_driver_that_starts_or_has_not_told_all(
    bus: Bus, devices: PciTree
) -> None:
    devices.add(FIRST)
    assert not appeared(bus, listed(FIRST))
    devices.add(SECOND)
    assert not appeared(bus, None)
    assert not appeared(bus, listed(state=STARTING))
    nameless = Tick(at=EPOCH, state=LOADED, gpus=(GpuTick(index=0),))
    assert not appeared(bus, nameless)
    assert appeared(bus, listed(FIRST))
