"""Ports from a sysfs tree, and what becomes of them over time."""

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.rows.events import EventMaker
from collector.rows.monotone_counters import Monotone
from collector.rows.port_rows import PortBook
from collector.sensors.ports import PortReading, PortSensor
from gpuvigil.metrics import PORT
from gpuvigil.model import Event, EventKind, PortIdentity, Subject
from tests.sysfs import PortTree

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
ROUTES = """Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
{interface}\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
{interface}\t0000A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
"""


class Machine:
    """A sysfs and a procfs of one's own."""

    def __init__(self, root: Path) -> None:
        self.sys, self.proc = root / "sys", root / "proc"
        self.tree = PortTree(self.sys)

    def files(self, folder: str, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            path = self.sys / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")

    def ethernet(self, name: str, pci: str | None, **texts: str) -> None:
        """An interface; one without a PCI address is not hardware."""
        self.files(f"class/net/{name}", {"operstate": "up", "type": "1", **texts})
        if pci is not None:
            self.attach(f"class/net/{name}", pci)

    def attach(self, folder: str, pci: str) -> None:
        hardware = self.sys / "devices" / pci
        hardware.mkdir(parents=True, exist_ok=True)
        (self.sys / folder / "device").symlink_to(hardware)

    def route(self, interface: str) -> None:
        (self.proc / "net").mkdir(parents=True, exist_ok=True)
        (self.proc / "net/route").write_text(ROUTES.format(interface=interface))

    def read(self) -> dict[str, PortReading]:
        found = PortSensor(self.sys, self.proc).read()
        return {f"{r.identity.device}/{r.identity.port}": r for r in found}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_an_infiniband_port_is_read_in_bytes_and_bits(machine: Machine) -> None:
    machine.tree.infiniband("mlx5_0")
    counters = {"port_rcv_data": "100", "port_xmit_data": "200", "symbol_error": "3"}
    machine.files("class/infiniband/mlx5_0/ports/1/counters", counters)
    reading = machine.read()["mlx5_0/1"]
    assert reading.identity == PortIdentity(
        device="mlx5_0", port="1", kind="infiniband", role="fabric"
    )
    assert reading.values == {
        "up": 1,
        "enabled": 1,
        "physical_state": 5,
        "speed_bits_per_second": 400_000_000_000,
        "width_lanes": 4,
        "receive_bytes": 400,
        "transmit_bytes": 800,
        "receive_errors": 0,
        "transmit_discards": 0,
        "link_downed": 0,
        "symbol_errors": 3,
        "link_recoveries": 0,
        "local_integrity_errors": 0,
        "buffer_overruns": 0,
        "receive_remote_errors": 0,
        "transmit_wait_ticks": 0,
        "out_of_buffer": 0,
        "receiver_not_ready": 0,
        "out_of_sequence": 0,
        "retransmits": 0,
    }
    assert reading.values.keys() <= {metric.name for metric in PORT.metrics}
    machine.tree.down("mlx5_0")
    reading = machine.read()["mlx5_0/1"]
    assert (reading.up, reading.values["physical_state"]) == (False, 2)
    assert reading.values["enabled"] == 1
    machine.files("class/infiniband/mlx5_0/ports/1", {"phys_state": "3: Disabled"})
    assert machine.read()["mlx5_0/1"].values["enabled"] == 0


def test_an_ethernet_port_is_read(machine: Machine) -> None:
    texts = {"speed": "10000", "carrier_down_count": "2", "statistics/rx_bytes": "5"}
    machine.ethernet("eno1", "0000:01:00.0", **texts)
    machine.route("eno1")
    reading = machine.read()["eno1/1"]
    assert reading.identity.kind == "ethernet"
    assert reading.identity.role == "management"
    assert reading.values == {
        "up": 1,
        "enabled": 1,
        "speed_bits_per_second": 10_000_000_000,
        "link_downed": 2,
        "receive_bytes": 5,
    }


@pytest.mark.parametrize(
    ("state", "carrier", "up"),
    [("up", "1", True), ("down", "0", False), ("lowerlayerdown", "0", False), ("dormant", "1", False),
     ("unknown", "1", True), ("unknown", "0", False), ("unknown", "", None)],
)  # fmt: skip
def test_an_interface_is_up_when_it_says_so(
    machine: Machine, state: str, carrier: str, up: bool | None
) -> None:
    machine.ethernet("eno1", "0000:01:00.0", operstate=state, carrier=carrier, speed="-1")
    reading = machine.read()["eno1/1"]
    assert reading.up is up
    assert "speed_bits_per_second" not in reading.values


def test_only_hardware_of_its_own_is_a_port(machine: Machine) -> None:
    for name in ("lo", "br0", "veth3", "bond0"):
        machine.ethernet(name, None)
    machine.ethernet("eno1", "0000:01:00.0")
    # A virtual function, an InfiniBand port's IP interface, and an RDMA device's own interface.
    machine.ethernet("eno1v0", "0000:01:00.1")
    (machine.sys / "devices/0000:01:00.1/physfn").mkdir()
    machine.ethernet("ib0", "0000:02:00.0", type="32")
    machine.tree.infiniband("mlx5_1")
    machine.attach("class/infiniband/mlx5_1", "0000:03:00.0")
    machine.files("class/infiniband/mlx5_1/ports/1", {"link_layer": "Ethernet"})
    machine.ethernet("ens3", "0000:03:00.0")
    found = machine.read()
    assert sorted(found) == ["eno1/1", "mlx5_1/1"]
    assert found["mlx5_1/1"].identity.kind == "roce"


def test_roles_follow_the_default_route_down_to_hardware(machine: Machine) -> None:
    for name, pci in (("eno1", "0000:01:00.0"), ("eno2", "0000:01:00.1"), ("ens5", "0000:05:00.0")):
        machine.ethernet(name, pci)
    machine.ethernet("bond0", None)
    machine.ethernet("bond0.100", None)
    (machine.sys / "class/net/bond0.100/lower_bond0").mkdir()
    (machine.sys / "class/net/bond0/lower_eno1").mkdir()
    (machine.sys / "class/net/bond0/lower_eno2").mkdir()
    for device, pci, interface in (
        ("mlx5_0", "0000:07:00.0", "ens7"),
        ("mlx5_1", "0000:08:00.0", ""),
    ):
        machine.tree.infiniband(device)
        machine.attach(f"class/infiniband/{device}", pci)
        if interface:
            machine.ethernet(interface, pci)
    machine.route("bond0.100")
    roles = {name: reading.identity.role for name, reading in machine.read().items()}
    assert roles == {
        "eno1/1": "management",
        "eno2/1": "management",
        "ens5/1": "storage",
        "mlx5_0/1": "fabric",
        "mlx5_1/1": "fabric",
    }
    machine.route("ens7")
    assert machine.read()["mlx5_0/1"].identity.role == "management"


def test_half_missing_and_broken_files_cost_only_their_numbers(machine: Machine) -> None:
    port = "class/infiniband/mlx5_0/ports/1"
    broken = {"state": "what?", "rate": "fast", "counters/port_rcv_data": "-3"}
    machine.files(port, {**broken, "counters/link_downed": "7"})
    (machine.sys / "class/infiniband/mlx5_9").mkdir()
    (machine.sys / "class/net/bonding_masters").write_text("bond0\n")
    (reading,) = machine.read().values()
    assert reading.values == {"link_downed": 7}
    assert reading.up is None


def test_a_machine_without_sysfs_has_no_ports(tmp_path: Path) -> None:
    assert PortSensor(tmp_path / "no", tmp_path / "no").read() == ()


def book(known: dict[tuple[str, str], PortIdentity] | None = None) -> PortBook:
    events = EventMaker(node=Subject(cluster="c", node="n1"), boot="b1")
    return PortBook(events, {} if known is None else known, Monotone())


def reading(up: int | None, **values: int) -> PortReading:
    identity = PortIdentity(device="mlx5_0", port="1", kind="infiniband", role="fabric")
    state = {} if up is None else {"up": up}
    return PortReading(identity=identity, values={**state, **values})


def kinds(ports: PortBook, *readings: PortReading) -> list[EventKind]:
    return [event.kind for event in ports.take(readings, NOW)[0]]


def test_a_port_that_never_was_up_is_no_event() -> None:
    ports = book()
    assert kinds(ports, reading(0)) == []
    assert kinds(ports, reading(1)) == []
    assert kinds(ports, reading(0)) == [EventKind.PORT_DOWN]
    assert kinds(ports, reading(0)) == []
    assert kinds(ports, reading(None)) == []
    assert kinds(ports, reading(1)) == [EventKind.PORT_UP]


def test_a_port_that_was_switched_off_on_its_node_is_no_event() -> None:
    ports = book()
    assert kinds(ports, reading(1, enabled=1)) == []
    assert kinds(ports, reading(0, enabled=0)) == []
    # Switched on again it takes a while to have a link: its rows say so.
    assert kinds(ports, reading(0, enabled=1)) == []
    assert kinds(ports, reading(1, enabled=1)) == [EventKind.PORT_UP]
    assert kinds(ports, reading(0, enabled=1)) == [EventKind.PORT_DOWN]


@pytest.mark.parametrize(
    ("flags", "carrier", "enabled"),
    [("0x1003", "0", 1), ("0x1002", "0", 0), ("0x1002", None, 0), ("0x1003", None, 0), ("?", "0", None)],
)  # fmt: skip
def test_an_interface_that_nobody_wants_up_is_not_enabled(
    machine: Machine, flags: str, carrier: str | None, enabled: int | None
) -> None:
    """A carrier that cannot be read is how the kernel shows an interface that was taken down."""
    machine.ethernet("eno1", "0000:01:00.0", operstate="down", flags=flags, carrier=carrier or "")
    machine.tree.infiniband("mlx5_1")
    machine.attach("class/infiniband/mlx5_1", "0000:03:00.0")
    roce = {"link_layer": "Ethernet", "state": "1: DOWN", "phys_state": "3: Disabled"}
    machine.files("class/infiniband/mlx5_1/ports/1", roce)
    machine.ethernet("ens3", "0000:03:00.0", flags=flags, carrier=carrier or "")
    if carrier is None:
        for name in ("eno1", "ens3"):
            file = machine.sys / f"class/net/{name}/carrier"
            file.unlink()
            file.mkdir()  # what is there, and cannot be read
    found = {name: reading.values.get("enabled") for name, reading in machine.read().items()}
    assert found == {"eno1/1": enabled, "mlx5_1/1": enabled}


def test_a_device_that_goes_takes_its_port_down() -> None:
    ports = book()
    ports.take([reading(1)], NOW)
    ((event,), _) = ports.take([], NOW)
    assert event.kind is EventKind.PORT_DOWN
    assert event.message == "port has gone from the system"
    assert event.gone
    assert Event.from_record(event.to_record()) == event
    assert event.subject.key == "c/n1/port/mlx5_0/1"
    (row,) = ports.rows(NOW)
    assert row.fields == {"up": 0}


def test_a_port_that_was_up_is_remembered_so(machine: Machine) -> None:
    known: dict[tuple[str, str], PortIdentity] = {}
    _, changed = book(known).take([reading(1)], NOW)
    assert changed
    assert known["mlx5_0", "1"].was_up
    _, changed = book(known).take([reading(0)], NOW)
    assert not changed


def test_a_port_that_stays_down_goes_down_once_however_often_its_collector_starts() -> None:
    known: dict[tuple[str, str], PortIdentity] = {}
    ports = book(known)
    assert kinds(ports, reading(1)) == []
    assert kinds(ports, reading(0)) == [EventKind.PORT_DOWN]
    for _ in range(3):
        ports = book(known)
        assert kinds(ports, reading(0)) == []
        assert ports.rows(NOW)[0].fields["up"] == 0
    assert kinds(ports, reading(1)) == [EventKind.PORT_UP]
    assert kinds(ports, reading(0)) == [EventKind.PORT_DOWN]


def test_a_port_stays_management_when_its_route_goes(machine: Machine) -> None:
    known: dict[tuple[str, str], PortIdentity] = {}
    ports = book(known)
    machine.ethernet("eno1", "0000:01:00.0")
    roles = []
    # The route comes after the collector, and goes with the link.
    for interface in ("eno9", "eno1", "eno9"):
        machine.route(interface)
        ports.take(list(machine.read().values()), NOW)
        roles.append(known["eno1", "1"].role)
    assert roles == ["storage", "management", "management"]


def test_events_of_one_run_have_names_of_their_own() -> None:
    ports = book()
    names = []
    for up in (1, 0, 1, 0, 1):
        names += [event.id for event in ports.take([reading(up)], NOW)[0]]
    assert len(names) == 4
    assert len(set(names)) == 4


@given(counts=st.lists(st.integers(0, 255), min_size=1))
def test_a_port_s_counters_never_fall_in_its_rows(counts: list[int]) -> None:
    ports = book()
    told = []
    for count in counts:
        ports.take([reading(1, link_downed=count)], NOW)
        told += [row.fields["link_downed"] or 0 for row in ports.rows(NOW)]
        # A row told twice counts nothing twice.
        told += [row.fields["link_downed"] or 0 for row in ports.rows(NOW)]
    assert told == sorted(told)
