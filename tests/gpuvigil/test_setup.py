"""What a node runs on, from its inventories: what counts as a change, and what does not."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.model import (
    Attribute,
    GpuIdentity,
    Inventory,
    PortIdentity,
    Record,
    RecordKind,
    Setup,
    Subject,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NODE = Subject(cluster="c", node="n/1")


def gpu(number: int, vbios: str | None) -> GpuIdentity:
    return GpuIdentity(
        uuid=f"GPU-{number}", index=number, pci_address=None, model="H100", vbios=vbios
    )


def port(device: str, role: str, firmware: str | None) -> PortIdentity:
    return PortIdentity(device=device, port="1", kind="roce", role=role, firmware=firmware)


WHOLE = Inventory(
    subject=NODE,
    at=NOON,
    boot="b",
    tick_seconds=10.0,
    version="1",
    gpus=(gpu(0, "96.1"), gpu(1, "96.1")),
    ports=(port("mlx5_0", "fabric", "28.43"), port("mlx5_1", "management", "26.40")),
    driver="580.1",
    kernel="6.8",
    rack="r1",
)


def test_an_inventory_says_all_six() -> None:
    assert Setup.of(WHOLE).values == {
        Attribute.DRIVER: "580.1",
        Attribute.VBIOS: "96.1",
        Attribute.KERNEL: "6.8",
        Attribute.NIC_FIRMWARE: "28.43",
        Attribute.MODEL: "H100",
        Attribute.RACK: "r1",
    }


def test_without_a_fabric_all_ports_count_and_a_mixed_node_is_like_no_other() -> None:
    ports = (
        port("eno1", "management", "9"),
        port("eno2", "storage", "8.5"),
        port("e3", "storage", None),
    )
    mixed = replace(WHOLE, ports=ports, gpus=(gpu(0, "97"), gpu(1, "96"), gpu(2, None)))
    said = Setup.of(mixed).values
    assert said[Attribute.NIC_FIRMWARE] == "8.5, 9"
    assert said[Attribute.VBIOS] == "96, 97"


def test_what_an_inventory_leaves_open_is_as_it_was_before() -> None:
    before = Setup.of(WHOLE)
    nothing = replace(WHOLE, driver=None, kernel=None, rack=None, gpus=(), ports=())
    assert Setup.of(nothing, before).values == before.values
    assert Setup.of(nothing).values == {}
    assert Setup.of(replace(nothing, driver="581"), before).values == {
        **before.values,
        Attribute.DRIVER: "581",
    }


@given(st.dictionaries(st.sampled_from(Attribute), st.text(min_size=1)), st.integers(0, 10**6))
def test_it_comes_back_as_it_was(values: dict[Attribute, str], microseconds: int) -> None:
    at = NOON + timedelta(microseconds=microseconds)
    one = Setup(node=NODE, at=at, values=values)
    record = one.to_record()
    assert (record.kind, record.id.startswith(f"{NODE.key}|")) == (RecordKind.SETUP, True)
    assert Setup.from_record(Record.from_json(record.to_json())) == one


def test_what_a_newer_version_tells_beside_is_left_out() -> None:
    value = Setup.of(WHOLE).to_record().to_json()
    value["body"]["colour"] = "green"
    assert Setup.from_record(Record.from_json(value)) == Setup.of(WHOLE)
