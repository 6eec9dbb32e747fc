"""The MTU of a port's interface, as the kernel shows it in sysfs."""

from datetime import datetime, timezone
from pathlib import Path

import pytest

from collector.sensors.mtu import with_mtu
from gpuvigil.model import Inventory, PortIdentity, Subject

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def identity(kind: str, device: str = "mlx5_0", mtu: int | None = None) -> PortIdentity:
    return PortIdentity(device=device, port="1", kind=kind, role="fabric", was_up=True, mtu=mtu)


def interface(root: Path, name: str, mtu: str) -> None:
    at = root / "class/net" / name
    at.mkdir(parents=True)
    (at / "mtu").write_text(mtu)


def gid_of(root: Path, name: str) -> None:
    at = root / "class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs"
    at.mkdir(parents=True)
    (at / "0").write_text(name)


def read(root: Path, kind: str, device: str = "mlx5_0") -> int | None:
    (found,) = with_mtu([identity(kind, device)], root)
    return found.mtu


def test_a_roce_port_has_that_of_the_interface_of_its_first_gid(tmp_path: Path) -> None:
    interface(tmp_path, "ens1np0", "4200\n")
    assert read(tmp_path, "roce") is None
    gid_of(tmp_path, "ens1np0\n")
    assert read(tmp_path, "roce") == 4200


def test_an_ethernet_port_is_its_interface(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", "1500\n")
    assert read(tmp_path, "ethernet", "eth0") == 1500
    assert read(tmp_path, "ethernet", "eth1") is None


@pytest.mark.parametrize("kind", ["infiniband", "efa"])
def test_of_other_ports_no_file_says_it(tmp_path: Path, kind: str) -> None:
    interface(tmp_path, "ib0", "2044\n")
    gid_of(tmp_path, "ib0\n")
    assert read(tmp_path, kind) is None


@pytest.mark.parametrize("text", ["", "0\n", "-1\n", "much\n"])
def test_what_is_no_number_of_bytes_is_not_known(tmp_path: Path, text: str) -> None:
    interface(tmp_path, "eth0", text)
    assert read(tmp_path, "ethernet", "eth0") is None


@pytest.mark.parametrize("mtu", [None, 9000])
def test_a_record_says_it_where_it_is_known(mtu: int | None) -> None:
    whole = Inventory(
        subject=Subject(cluster="c", node="n"),
        at=NOON,
        boot="b",
        tick_seconds=10.0,
        version="1",
        ports=(identity("roce", mtu=mtu),),
    )
    record = whole.to_record()
    assert ("mtu" in record.body["ports"][0]) is (mtu is not None)
    assert Inventory.from_record(record).ports == whole.ports
