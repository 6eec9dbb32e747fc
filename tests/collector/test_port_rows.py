"""Ports from a sysfs tree, and what becomes of them over time."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.rows.events import EventMaker
from collector.rows.monotone_counters import MonotoneCounters
from collector.rows.port_rows import PortBook
from collector.sensors.ports import PortReading, PortSensor
from gpuvigil.metrics import PORT
from gpuvigil.model import Event, EventKind, PortIdentity, Subject
from tests.collector.network import Machine

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)


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
    return PortBook(events, {} if known is None else known, MonotoneCounters())


def reading(up: int | None, **values: int) -> PortReading:
    identity = PortIdentity(device="mlx5_0", port="1", kind="infiniband", role="fabric")
    state = {} if up is None else {"up": up}
    return PortReading(identity=identity, values={**state, **values})


def kinds(ports: PortBook, *readings: PortReading) -> list[EventKind]:
    return [event.kind for event in ports.update(readings, NOW)[0]]


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
    ports.update([reading(1)], NOW)
    ((event,), _) = ports.update([], NOW)
    assert event.kind is EventKind.PORT_DOWN
    assert event.message == "port has gone from the system"
    assert event.gone
    assert Event.from_record(event.to_record()) == event
    assert event.subject.key == "c/n1/port/mlx5_0/1"
    (row,) = ports.rows(NOW)
    assert row.fields == {"up": 0}


def test_a_port_that_was_up_is_remembered_so(machine: Machine) -> None:
    known: dict[tuple[str, str], PortIdentity] = {}
    _, changed = book(known).update([reading(1)], NOW)
    assert changed
    assert known["mlx5_0", "1"].was_up
    _, changed = book(known).update([reading(0)], NOW)
    assert not changed


def test_whom_a_port_waits_for_is_told_at_once_five_times_in_five_minutes() -> None:
    ports = book()

    def told(seconds: int, *peers: str) -> bool:
        one = replace(reading(1), identity=replace(reading(1).identity, waits_for=peers))
        return ports.update([one], NOW + timedelta(seconds=seconds))[1]

    told(0)
    assert [told(10 * n, f"10.0.0.{n}") for n in range(1, 7)] == [True] * 5 + [False]
    assert not told(309, "10.0.0.6")
    assert told(310, "10.0.0.6")
    assert not told(700, "10.0.0.6")
    assert told(701)


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
        ports.update(list(machine.read().values()), NOW)
        roles.append(known["eno1", "1"].role)
    assert roles == ["storage", "management", "management"]


def test_events_of_one_run_have_names_of_their_own() -> None:
    ports = book()
    names = []
    for up in (1, 0, 1, 0, 1):
        names += [event.id for event in ports.update([reading(up)], NOW)[0]]
    assert len(names) == 4
    assert len(set(names)) == 4


@given(counts=st.lists(st.integers(0, 255), min_size=1))
def test_a_port_s_counters_never_fall_in_its_rows(counts: list[int]) -> None:
    ports = book()
    told = []
    for count in counts:
        ports.update([reading(1, link_downed=count)], NOW)
        told += [row.fields["link_downed"] or 0 for row in ports.rows(NOW)]
        # A row told twice counts nothing twice.
        told += [row.fields["link_downed"] or 0 for row in ports.rows(NOW)]
    assert told == sorted(told)


def count(ports: PortBook, counts: PortReading, metric: str) -> float | None:
    ports.update([counts], NOW)
    (row,) = ports.rows(NOW)
    return row.fields[metric]


@given(steps=st.lists(st.none() | st.integers(0, 40)), bits=st.sampled_from([4, 8]))
def test_a_counter_that_stays_full_is_absent_until_it_is_cleared(
    steps: list[int | None], bits: int
) -> None:
    """None clears the register, a number is counted; what a full one did not take, nobody knows."""
    most, register, taken = 2**bits - 1, 0, 0
    ports = book()
    assert count(ports, _clamped(0, most), "buffer_overruns") == 0
    for step in steps:
        was_full = register == most
        after = 0 if step is None else min(register + step, most)
        taken += max(after - register, 0)
        register = after
        found = count(ports, _clamped(register, most), "buffer_overruns")
        assert found == (None if was_full and step is not None else taken)


def _clamped(register: int, most: int) -> PortReading:
    return replace(reading(1, buffer_overruns=register), stays_at={"buffer_overruns": most})


def test_a_full_counter_goes_on_when_it_was_cleared() -> None:
    ports = book()
    counts = [count(ports, _clamped(raw, 15), "buffer_overruns") for raw in (3, 15, 15, 2, 4)]
    assert counts == [3, 15, None, 17, 19]


@given(
    begun=st.lists(st.integers(2**32 - 2**28, 2**32 - 1), min_size=1, max_size=4),
    grown=st.lists(st.integers(0, 2**27), max_size=8),
)
def test_a_sum_of_counters_that_wrap_grows_by_what_each_counted(
    begun: list[int], grown: list[int]
) -> None:
    registers, ports = list(begun), book()
    first = count(ports, _wrapping(sum(registers)), "retransmits")
    assert first == sum(registers)
    for turn, amount in enumerate(grown):
        at = turn % len(registers)
        registers[at] = (registers[at] + amount) % 2**32
        count(ports, _wrapping(sum(registers)), "retransmits")
    assert count(ports, _wrapping(sum(registers)), "retransmits") == first + sum(grown)


@given(counts=st.lists(st.integers(0, 4 * 2**32), min_size=1))
def test_no_sum_that_was_reset_makes_its_counter_fall(counts: list[int]) -> None:
    ports = book()
    told = [count(ports, _wrapping(it), "retransmits") or 0 for it in counts]
    assert told == sorted(told)


def _wrapping(total: int) -> PortReading:
    return replace(reading(1, retransmits=total), wraps_at={"retransmits": 2**32})


def test_symbol_errors_of_an_ethernet_port_begin_when_they_are_first_seen() -> None:
    """Its row was made of InfiniBand's counter before, which stood at 0: that is no growth."""
    ports = book()
    assert count(ports, reading(1, symbol_errors=0), "symbol_errors") == 0
    of_ethernet = frozenset({"symbol_errors"})
    counts = [replace(reading(1, symbol_errors=it), since_seen=of_ethernet) for it in (9000, 9004)]
    assert [count(ports, it, "symbol_errors") for it in counts] == [0, 4]
