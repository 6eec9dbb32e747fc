"""What the kernel itself begins a line with is no host and no facility, whatever stands before it."""

from datetime import datetime, timezone

import pytest

from collector.sensors.kernel_log_parser import parse
from evaluation.recordings.kernel_lines import Forms, split

FORMS = Forms(zone=timezone.utc, near=datetime(2026, 4, 14, tzinfo=timezone.utc))
BEFORE = (
    "",
    "2026-04-14T10:10:00Z gpu01 kernel: ",
    "Apr 14 10:10:00 gpu01 kernel: [   12.5] ",
    "Apr 14 10:10:00 nvme-01 ",
    "[Tue Apr 14 10:10:00 2026] ",
    "kern  :err   : [Tue Apr 14 10:10:00 2026] ",
    "<3>[   12.5] ",
)
LINES = (
    "watchdog: BUG: soft lockup - CPU#17 stuck for 22s! [python3:28841]",
    "INFO: task python3:123 blocked for more than 122 seconds.",
    "rcu: INFO: rcu_sched self-detected stall on CPU",
    "nvme nvme2: Device not ready; aborting reset, CSTS=0x1",
    "EXT4-fs (nvme2n1): Remounting filesystem read-only",
    "XFS (dm-3): log I/O error; Shutting down filesystem",
    "md/raid1:md0: Disk failure on nvme0n1, disabling device.",
    "blk_update_request: critical medium error, dev sda, sector 1",
    "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
    "Out of memory: Killed process 4711 (python3) total-vm:91234567kB",
    "EDAC MC0: 1 CE memory read error on CPU_SrcID#0 (channel:0 slot:0 page:0x1 offset:0x0 grain:32)",
    "nvidia 0000:43:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("before", BEFORE)
def test_a_line_is_read_as_the_kernel_wrote_it(before: str, line: str) -> None:
    _, text = split(before + line, FORMS)
    assert text == line
    assert parse(text) is not None
