"""What an agent's inventory says of NVLink domains and of network cards' PCIe links."""

import pytest

from gpuvigil.model import Beside, Inventory, PcieLink, Record
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until
from tests.sysfs import BusTree, PortTree

from .agent import Agent
from .receiver import Receiver

pytestmark = pytest.mark.server

GPU = "0000:1b:00.0"  # of the fake driver's first


def test_it_names_each_gpus_domain_and_each_cards_link(
    agent: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    driver.set(0, fabric_cluster="5e3b0c1d2f4a5b6c7d8e9fa0b1c2d3e4", fabric_clique=7)
    sysfs = agent.directory / "sys"
    PortTree(sysfs).infiniband("mlx5_0")
    bus = BusTree(sysfs)
    switch = ("0000:15:01.0", "0000:16:00.0")
    bus.nic("mlx5_0", *switch, "0000:17:00.0", "0000:19:00.0", link="4 16.0")
    said = {"class": "0x030200", "vendor": "0x10de"}
    bus.add(*switch, "0000:17:01.0", GPU, **said)
    agent.environment = driver.environment()
    agent.start()

    def newest() -> Inventory | None:
        told = receiver.records("inventory")
        one = Inventory.from_record(Record.from_json(told[-1])) if told else None
        return one if one is not None and len(one.gpus) == 4 and one.nics else None

    inventory = wait_until("the inventory", newest)
    domains = [gpu.nvlink_domain for gpu in inventory.gpus]
    assert domains == ["5e3b0c1d-2f4a-5b6c-7d8e-9fa0b1c2d3e4.7", None, None, None]
    (nic,) = inventory.nics
    assert (nic.devices, nic.beside, nic.gpus) == (("mlx5_0",), Beside.SWITCH, (GPU,))
    assert nic.link == PcieLink(lanes=4, gigatransfers=16.0)
    assert nic.best == PcieLink(lanes=16, gigatransfers=32.0)
