"""The machine's own kernel log. Writes a made-up Xid into it: not for a machine that is watched."""

import os
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from collector.sensors.kernel_log import Batch, KernelLog, LogEvent, Source
from gpuvigil.clock import SystemClock
from tests.polling import wait_until


def test_what_is_written_to_the_kernel_log_comes_back() -> None:
    """What root writes there comes back, as from the kernel."""
    device = Path("/dev/kmsg")
    if not (os.access(device, os.R_OK) and os.access(device, os.W_OK)):
        pytest.skip("/dev/kmsg is closed here")
    heard: list[Batch] = []
    source = Source(path=device, journalctl="", proc_root=Path("/proc"))
    stop = threading.Event()
    kernel_log = KernelLog(source, None, heard.append, SystemClock())
    thread = threading.Thread(target=kernel_log.run, args=(stop,))
    thread.start()
    mark = f"test {os.getpid()}"
    try:
        time.sleep(0.5)
        wrote = datetime.now(timezone.utc)

        def mine() -> LogEvent | None:
            # Not each is kept: the kernel limits how much a process may write.
            device.write_text(f"<4>NVRM: Xid (PCI:0000:05:00): 13, {mark}\nsecond line of it\n")
            time.sleep(0.1)
            found = (e for batch in heard for e in batch.events if mark in e.event.text)
            return next(found, None)

        event = wait_until("it to come back", mine)
    finally:
        stop.set()
        thread.join()
    assert abs((event.at - wrote).total_seconds()) < 5
