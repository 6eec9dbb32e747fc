"""GIDs and partition keys as the kernel shows them in sysfs."""

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest

from collector.sensors.addressing import with_addressing
from gpuvigil.model import Inventory, PortIdentity, Subject

NO_GID, NO_KEY = "0000:0000:0000:0000:0000:0000:0000:0000", "0x0000"
LOCAL = "fe80:0000:0000:0000:0ac0:ebff:fe12:3456"
IPV4 = "0000:0000:0000:0000:0000:ffff:0a00:0102"
IPV6 = "2001:0db8:0000:0000:0000:0000:0000:0001"


def table(root: Path, name: str, entries: Sequence[str]) -> None:
    at = root / "class/infiniband/mlx5_0/ports/1" / name
    at.mkdir(parents=True)
    for number, entry in enumerate(entries):
        (at / str(number)).write_text(f"{entry}\n")


def read(root: Path, kind: str) -> tuple[str, ...] | None:
    one = PortIdentity(device="mlx5_0", port="1", kind=kind, role="fabric", was_up=True)
    (found,) = with_addressing([one], root)
    return found.addressing


def test_kinds_of_gids_are_told_without_their_addresses(tmp_path: Path) -> None:
    table(tmp_path, "gids", [LOCAL, LOCAL, IPV4, IPV4, NO_GID, IPV6])
    # As the kernel has it: the type of an empty entry cannot be read.
    table(tmp_path, "gid_attrs/types", ["IB/RoCE v1", "RoCE v2"] * 2 + ["", "RoCE v2"])
    assert read(tmp_path, "roce") == (
        *("RoCE v1 IPv4", "RoCE v1 link-local"),
        *("RoCE v2 IPv4", "RoCE v2 IPv6", "RoCE v2 link-local"),
    )


def test_partitions_of_infiniband_go_by_key_and_membership(tmp_path: Path) -> None:
    table(tmp_path, "pkeys", ["0xffff", "0x8001", "0x0002", NO_KEY])
    assert read(tmp_path, "infiniband") == (
        "partition 0x0002",
        "partition 0x8001",
        "partition 0xffff",
    )


@pytest.mark.parametrize("kind", ["infiniband", "roce", "ethernet", "efa"])
def test_without_a_table_nothing_is_known_and_an_empty_one_says_that_there_is_none(
    tmp_path: Path, kind: str
) -> None:
    assert read(tmp_path, kind) is None
    table(tmp_path, "gids", [NO_GID] * 3)
    table(tmp_path, "pkeys", [NO_KEY] * 3)
    assert read(tmp_path, kind) == (() if kind in {"infiniband", "roce"} else None)


def test_a_gid_of_unknown_type_makes_no_port_that_lacks_one(tmp_path: Path) -> None:
    table(tmp_path, "gids", [IPV4])
    assert read(tmp_path, "roce") is None


@pytest.mark.parametrize(("empty", "is_seen"), [(15, True), (16, False)])
def test_after_sixteen_empty_entries_no_more_are_read(
    tmp_path: Path, empty: int, is_seen: bool
) -> None:
    table(tmp_path, "pkeys", ["0xffff", *[NO_KEY] * empty, "0x8001"])
    assert ("partition 0x8001" in (read(tmp_path, "infiniband") or ())) is is_seen


@pytest.mark.parametrize(("before", "is_seen"), [(127, True), (128, False)])
def test_of_a_long_table_128_entries_are_read(tmp_path: Path, before: int, is_seen: bool) -> None:
    table(tmp_path, "pkeys", [*["0xffff"] * before, "0x8001"])
    assert ("partition 0x8001" in (read(tmp_path, "infiniband") or ())) is is_seen


@pytest.mark.parametrize("told", [None, (), ("RoCE v2 IPv4",)])
def test_none_and_nothing_stay_apart_in_a_record(told: tuple[str, ...] | None) -> None:
    one = PortIdentity(device="mlx5_0", port="1", kind="roce", role="fabric", addressing=told)
    whole = Inventory(
        subject=Subject(cluster="c", node="n"),
        at=datetime(2026, 1, 31, tzinfo=timezone.utc),
        boot="b",
        tick_seconds=10.0,
        version="1",
        ports=(one,),
    )
    assert Inventory.from_record(whole.to_record()).ports == (one,)
