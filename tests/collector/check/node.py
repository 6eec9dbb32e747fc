"""`gpuvigil check` as a process, on a node made of a fake driver and a sysfs tree."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.nvml_fake import FakeDriver

ROOT = Path(__file__).parent.parent.parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a check said, its exit code, and how long its caller waited."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Node:
    """A node with a fake driver; every GPU of it is on the PCI bus."""

    def __init__(self, directory: Path, driver: FakeDriver, gpus: int) -> None:
        self.driver = driver
        self.sysfs = directory / "sys"
        self.spool = directory / "spool"
        self.config = directory / "check.toml"
        (self.sysfs / "bus/pci/drivers/nvidia").mkdir(parents=True)
        (self.sysfs / "bus/pci/devices").mkdir(parents=True)
        self.spool.mkdir()
        self.programs = directory / "bin"
        self.programs.mkdir()
        self.kernel_log = directory / "kmsg"
        self.kernel_log.touch()
        self.config.write_text(
            f"[collector]\ncluster = 'c'\nnode = 'n1'\nsysfs_root = '{self.sysfs}'\n"
            f"spool_directory = '{self.spool}'\nkernel_log = '{self.kernel_log}'\n"
            f"journalctl = ''\nruntime_directory = '{directory}/run'\n"
        )
        for gpu in range(gpus):
            address = f"0000:{0x20 + gpu:02x}:00.0"
            self.put_on_bus(address)
            driver.set(gpu, pci_bus_id=f"0000{address.upper()}")

    def put_on_bus(self, address: str) -> None:
        """One more GPU, held by NVIDIA's driver."""
        device = self.sysfs / "bus/pci/devices" / address
        device.mkdir()
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
        (device / "driver").symlink_to("../../drivers/nvidia")

    def drain_in_slurm(self) -> None:
        """From here on Slurm says that the node is drained already, which costs no budget."""
        scontrol = self.programs / "scontrol"
        shown = "NodeName=n1  State=IDLE+DRAIN Partitions=gpu Reason=new DIMMs, jo [root@1]"
        scontrol.write_text(f"#!/bin/sh\necho '{shown}'\n")
        scontrol.chmod(0o755)

    def log(self, text: str) -> None:
        """The kernel says this now."""
        microseconds = int(time.monotonic() * 1_000_000)
        with self.kernel_log.open("a") as log:
            log.write(f"4,{microseconds},{microseconds},-;{text}\n")

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.programs}:{os.environ['PATH']}"
        slurm = {"PATH": path, "SLURMD_NODENAME": "n1", "SLURM_CONF": "/nonexistent"}
        return {**os.environ, **self.driver.environment(), **slurm}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "gpuvigil", "check", "--config", str(self.config), *arguments]

    def check(self, *arguments: str, **variables: str) -> Told:
        """Run it and wait until nobody holds its output any more, as a scheduler does."""
        return run(self.command(*arguments), {**self.environment, **variables})

    def processes(self) -> list[int]:
        """Those that still use this driver, or died in it and were not waited for."""
        mark = f"NVML_FAKE_STATE={self.driver.environment()['NVML_FAKE_STATE']}".encode()
        found = []
        for file in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in file.read_bytes().split(b"\0"):
                    found.append(int(file.parent.name))
            except OSError:
                continue
        return found


def run(command: list[str], environment: dict[str, str]) -> Told:
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    return Told(
        code=done.returncode,
        out=done.stdout,
        err=done.stderr,
        seconds=time.monotonic() - began,
    )
