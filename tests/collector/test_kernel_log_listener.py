"""What the kernel says of an address waits until it is known whose that is, and not for ever."""

import queue
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from collector.agent.inbox import Work
from collector.agent.kernel_log_listener import KernelLogListener
from collector.kernel_log.event_book import KernelBook
from collector.sensors.kernel_log import Source
from gpuvigil.clock import ManualClock
from gpuvigil.model import Event, GpuIdentity, Subject

NODE = Subject(cluster="c", node="n1")
XID = "NVRM: Xid (PCI:0000:05:00): 31, pid=1, name=x, MMU Fault"


class Case:
    """An ear on a file, and the main loop that it gives work to."""

    def __init__(self, directory: Path) -> None:
        self.gpus: dict[str, GpuIdentity] = {}
        self.clock = ManualClock(datetime.now(timezone.utc))
        self.told: list[Event] = []
        self.stop = threading.Event()
        self._work: queue.SimpleQueue[Work] = queue.SimpleQueue()
        log = directory / "kmsg"
        log.write_text(f"4,1,{int(time.monotonic() * 1e6)},-;{XID}\n")
        self.file = directory / "kernel_log.json"
        book = KernelBook(self.file, NODE, self.gpus, self.clock)
        self.ear = KernelLogListener(book, self.clock, self._work.put, self.told.extend)
        source = Source(path=log, journalctl="", proc_root=Path("/proc"))
        self.ear.listen(source, self.stop)
        self._work.get(timeout=30)()

    def look(self) -> list[str | None]:
        """Whose the event is that has been told; nothing when none was."""
        self.ear.flush_due()
        return [event.subject.gpu for event in self.told]


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    case = Case(tmp_path)
    yield case
    case.stop.set()


def test_an_event_waits_for_its_gpu_and_counts_as_told_only_then(case: Case) -> None:
    assert case.look() == []
    assert not case.file.exists()
    case.gpus["GPU-5"] = GpuIdentity(
        uuid="GPU-5", index=0, pci_address="00000000:05:00.0", model="H100"
    )
    assert case.look() == ["GPU-5"]
    assert case.file.exists()


def test_an_event_of_a_gpu_that_the_driver_does_not_list_is_of_the_node(case: Case) -> None:
    case.ear.settle()
    assert case.look() == [None]


def test_nobody_waits_long_for_a_driver_that_says_nothing(case: Case) -> None:
    case.clock.advance(4.0)
    assert case.look() == []
    case.clock.advance(2.0)
    assert case.look() == [None]
