"""The firmware of ports: from sysfs, and as a driver tells it of the same hardware."""

from pathlib import Path

import pytest

from collector.sensors.firmware import DriverInfo, driver_info, with_firmware
from gpuvigil.model import PortIdentity

PLACE = "0000:9b:00.0"


def port(device: str, kind: str) -> PortIdentity:
    return PortIdentity(device=device, port="1", kind=kind, role="fabric", was_up=True)


def told(root: Path, one: PortIdentity, said: DriverInfo | None = None) -> str | None:
    (found,) = with_firmware([one], root, lambda _: said)
    assert (found.device, found.was_up) == (one.device, True)
    return found.firmware


@pytest.mark.parametrize("kind", ["infiniband", "roce", "efa"])
def test_an_rdma_device_says_it_in_sysfs(tmp_path: Path, kind: str) -> None:
    device = tmp_path / "class/infiniband/mlx5_0"
    device.mkdir(parents=True)
    one = port("mlx5_0", kind)
    assert told(tmp_path, one) is None
    (device / "fw_ver").write_text("\n")
    assert told(tmp_path, one) is None
    (device / "fw_ver").write_text("28.43.2566\n")
    assert told(tmp_path, one) == "28.43.2566"
    assert told(tmp_path, port("mlx5_1", kind)) is None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (DriverInfo("8.50 0x8000bbd3", PLACE), "8.50 0x8000bbd3"),
        (DriverInfo("", PLACE), None),
        (DriverInfo("N/A", PLACE), None),
        # One of this container's own, by the name of one of the host's.
        (DriverInfo("8.50", "0000:9c:00.0"), None),
        (None, None),
    ],
)
def test_an_ethernet_driver_is_heard_of_the_hardware_that_is_meant(
    tmp_path: Path, said: DriverInfo | None, expected: str | None
) -> None:
    hardware = tmp_path / "devices" / PLACE
    hardware.mkdir(parents=True)
    interface = tmp_path / "class/net/eno1"
    interface.mkdir(parents=True)
    (interface / "device").symlink_to(hardware)
    assert told(tmp_path, port("eno1", "ethernet"), said) == expected


def test_the_kernel_is_asked_and_what_is_not_there_says_nothing() -> None:
    assert driver_info("gpuvigil-no-such") is None
    assert driver_info("a-name-that-is-too-long") is None
    # Every real interface of the machine gives an answer or none, and never an error.
    for interface in sorted(Path("/sys/class/net").iterdir()):
        found = driver_info(interface.name)
        assert found is None or "\0" not in found.firmware + found.place
