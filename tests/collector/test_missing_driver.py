"""GPUs on the PCI bus that no NVIDIA driver serves, and those of other makers."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from collector.agent import saved_state
from collector.agent.missing_driver import MissingDriver, expects_gpus, unsupported
from collector.agent.pci_bus import Bus
from collector.agent.saved_state import Remembered
from collector.samples.messages import CHANGED, LOADED, NO_DRIVER, RELEASED, STARTING, Tick
from gpuvigil.config import CollectorSettings
from gpuvigil.model import BusGpu, GpuIdentity, Inventory, Subject
from tests.sysfs import PciTree

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
SLOT, OTHER = "0000:1b:00.0", "0000:43:00.0"
AMD, INTEL = "0x1002", "0x8086"


@pytest.fixture
def devices(tmp_path: Path) -> PciTree:
    return PciTree(tmp_path / "sys")


class Node:
    def __init__(self, devices: PciTree) -> None:
        self.known = Remembered()
        self.bus = Bus(devices.root)
        self._missing_driver = MissingDriver(CollectorSettings(sysfs_root=devices.root), self.known)

    def tick(self, state: str | None, minutes: float = 0.0) -> bool:
        self.bus.read()
        now = NOW + timedelta(minutes=minutes)
        tick = None if state is None else Tick(at=now, state=state)
        return self._missing_driver.update(tick, self.bus.gpus, now)


@pytest.fixture
def node(devices: PciTree) -> Node:
    return Node(devices)


@pytest.mark.parametrize(
    ("driver", "lacks"),
    [(None, True), ("nouveau", True), ("nvidia", True), ("vfio-pci", False), ("pciback", False)],
)
def test_a_gpu_without_a_driver_is_remembered_since_then(
    node: Node, devices: PciTree, driver: str | None, lacks: bool
) -> None:
    devices.add(SLOT, driver=driver)
    assert node.tick(NO_DRIVER) is lacks
    assert node.known.driverless_since == (NOW if lacks else None)
    assert node.tick(NO_DRIVER, 9.0) is False
    assert node.known.driverless_since == (NOW if lacks else None)
    # A reader that is being started says nothing of it.
    for state in (STARTING, CHANGED, None):
        assert node.tick(state, 10.0) is False
    assert node.known.driverless_since == (NOW if lacks else None)
    assert node.tick(LOADED, 11.0) is lacks
    assert node.known.driverless_since is None


def test_a_release_is_no_fault_and_ends_one(node: Node, devices: PciTree) -> None:
    devices.add(SLOT, driver=None)
    assert node.tick(RELEASED) is False
    assert node.known.driverless_since is None
    node.tick(NO_DRIVER, 1.0)
    assert node.tick(RELEASED, 2.0)
    assert node.known.driverless_since is None


def test_a_node_without_gpus_lacks_no_driver(node: Node, devices: PciTree) -> None:
    devices.add(OTHER, vendor=AMD, driver="amdgpu")
    assert node.tick(NO_DRIVER) is False
    assert node.known.driverless_since is None


def test_in_a_container_only_the_kernels_own_word_counts(
    devices: PciTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    known = Remembered()
    inside = MissingDriver(CollectorSettings(sysfs_root=Path("/sys")), known)
    tick, bus = Tick(at=NOW, state=NO_DRIVER), Bus(devices.root)
    devices.add(SLOT)
    bus.read()
    assert (
        inside.update(tick, bus.gpus, NOW) is False
    )  # the driver has it; this container lacks its library
    devices.add(OTHER, driver=None)
    bus.read()
    assert inside.update(tick, bus.gpus, NOW) is True


def test_it_outlives_the_collector_and_not_a_boot(tmp_path: Path) -> None:
    known = Remembered(driverless_since=NOW, boot_id="a")
    saved_state.save(tmp_path / "node.json", known)
    again = saved_state.load(tmp_path / "node.json")
    again.enter("a")
    assert again.driverless_since == NOW
    again.enter("b")
    assert again.driverless_since is None


def test_gpus_are_expected_where_they_were_or_slurm_names_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    known = Remembered()
    assert not expects_gpus(known, "n1")
    (tmp_path / "gres.conf").write_text("NodeName=n1 Name=gpu File=/dev/nvidia[0-3]\n")
    assert expects_gpus(known, "n1")
    assert not expects_gpus(known, "n2")
    known.gpus["GPU-0"] = GpuIdentity(uuid="GPU-0", index=0, pci_address=None, model="H100")
    assert expects_gpus(known, "n2")


@pytest.mark.parametrize(
    ("slot", "vendor", "kind", "driver", "words"),
    [
        ("0000:43:00.0", AMD, "0x038000", "amdgpu", ["AMD GPU 0000:43:00.0 (amdgpu)"]),
        ("0000:43:00.0", AMD, "0x120000", None, ["AMD GPU 0000:43:00.0"]),
        ("0000:29:00.0", INTEL, "0x038000", "xe", ["Intel GPU 0000:29:00.0 (xe)"]),
        # Graphics in the processor, a network card, the management controller's, and NVIDIA's own.
        ("0000:00:02.0", INTEL, "0x030000", "i915", []),
        ("0000:29:00.0", INTEL, "0x020000", "ice", []),
        ("0000:02:00.0", "0x1a03", "0x030000", "ast", []),
        ("0000:1b:00.0", "0x10de", "0x030200", "nvidia", []),
        ("0000:1b:00.0", "0x10de", "0x068000", "nvidia-nvswitch", []),
    ],
)
def test_gpus_of_other_makers_are_named(
    devices: PciTree, slot: str, vendor: str, kind: str, driver: str | None, words: list[str]
) -> None:
    devices.add(slot, vendor=vendor, kind=kind, driver=driver)
    bus = Bus(devices.root)
    nvidia = bus.read()
    assert unsupported(bus.gpus) == words
    assert nvidia == ((slot,) if (vendor, kind) == ("0x10de", "0x030200") else ())


def test_a_driver_that_takes_a_gpu_later_is_seen(devices: PciTree) -> None:
    devices.add(SLOT, driver=None)
    bus = Bus(devices.root)
    bus.read()
    devices.take(SLOT, "nouveau")
    for _ in range(10):
        bus.read()
    assert [gpu.driver for gpu in bus.gpus] == ["nouveau"]


def test_an_inventory_tells_it_and_one_of_an_older_collector_tells_nothing() -> None:
    inventory = Inventory(
        subject=Subject(cluster="c", node="n1"),
        at=NOW,
        boot="b",
        tick_seconds=10.0,
        version="1",
        on_bus=(BusGpu(address=SLOT), BusGpu(address=OTHER, vendor="AMD", driver="amdgpu")),
        driverless_since=NOW - timedelta(hours=1),
        expects_gpus=True,
    )
    record = inventory.to_record()
    assert Inventory.from_record(record) == inventory
    assert [gpu.vendor for gpu in inventory.unsupported] == ["AMD"]
    for key in ("on_bus", "driverless_since", "expects_gpus"):
        del record.body[key]  # type: ignore[attr-defined]
    older = Inventory.from_record(record)
    assert (older.on_bus, older.driverless_since, older.expects_gpus) == ((), None, False)
