"""What the kernel and the driver report, told once: Xids of both, bursts by their count.

Two rules keep it short. An Xid that the kernel log and NVML both report is one: each report of one
side answers at most one of the other, so that what comes again is told again. And what comes too
fast is told at once the first time, then by a count every few seconds.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from gpuvigil.clock import Clock, from_text, to_text
from gpuvigil.log import Log
from gpuvigil.model import Event, EventKind, GpuIdentity, Record, Subject

from .sensors.kernel_event import Grade, KernelEvent, KernelEventKind
from .sensors.kernel_log import Batch, LogEvent, Position
from .sensors.kernel_log_parser import pci_address

log = Log("collector")

SAME_SECONDS = 10.0
BURST_SECONDS = 10.0

_LOST_XID = 79
_KERNEL, _DRIVER = "kernel", "driver"
_Key = tuple[EventKind, str, int | None, str]


@dataclass(slots=True, kw_only=True)
class _Burst:
    """One sort of event that has been told: since when not again, and how often it came since."""

    until: float
    count: int = 0
    last: Event | None = None


class Twins:
    """Finds what two sources say about the same thing; a report answers one other at most."""

    def __init__(self, same_seconds: float = SAME_SECONDS) -> None:
        self._same = timedelta(seconds=same_seconds)
        self._open: dict[tuple[str, int], list[tuple[str, datetime]]] = {}

    def answers(self, source: str, subject: str, xid: int, at: datetime) -> bool:
        """Whether another source has said the same; if not, it may still say so."""
        key = (subject, xid)
        waiting = [it for it in self._open.get(key, []) if abs(at - it[1]) <= self._same]
        twin = next((it for it in waiting if it[0] != source), None)
        if twin is None:
            waiting.append((source, at))
        else:
            waiting.remove(twin)
        self._open[key] = waiting
        if not waiting:
            del self._open[key]
        return twin is not None


class KernelBook:
    """Makes events of the kernel's reports and of NVML's Xids; of the main loop alone."""

    def __init__(
        self, file: Path, node: Subject, gpus: Mapping[str, GpuIdentity], clock: Clock
    ) -> None:
        """`gpus` is looked at whenever a report names an address; `file` outlives the process."""
        self._file = file
        self._node = node
        self._gpus = gpus
        self._clock = clock
        self._twins = Twins()
        self._bursts: dict[_Key, _Burst] = {}
        self._gone: dict[str, datetime] = {}  # subjects of an Xid 79, and when
        self.position, self._untold = _load(file)

    def knows(self, batch: Batch) -> bool:
        """Whether there is a known GPU at each address that the batch names."""
        addresses = {seen.event.pci_address for seen in batch.events} - {None}
        return all(self._subject(address) != self._node for address in addresses)

    def take(self, batch: Batch) -> list[Event]:
        """The events of a batch that are to be told now; then `save`."""
        found = []
        for seen in batch.events:
            event = self._event(seen)
            if event is not None:
                found += self._tell(event, seen.event)
        self.position = batch.position
        return found

    def xid(self, event: Event) -> list[Event]:
        """An Xid that NVML reported, when the kernel has not."""
        if self._is_twin(_DRIVER, event):
            return []
        return self._tell(event, None)

    def due(self) -> list[Event]:
        """What came again since it was told, each sort with its count; once a while."""
        now, found = self._clock.monotonic(), list(self._untold)
        self._untold = ()
        for key, burst in list(self._bursts.items()):
            if now >= burst.until:
                found += self._counted(burst)
                if burst.count == 0:
                    del self._bursts[key]
                burst.until, burst.count = now + BURST_SECONDS, 0
        return found

    def flush(self) -> list[Event]:
        """All that has not been told, at the end."""
        found = [event for burst in self._bursts.values() for event in self._counted(burst)]
        self._bursts.clear()
        return found

    def calm(self, subject: Subject) -> list[Event]:
        """What is reported after a cure is news again; tells what came before it."""
        ended = [key for key in self._bursts if key[1] == subject.key]
        self._gone.pop(subject.key, None)
        return [event for key in ended for event in self._counted(self._bursts.pop(key))]

    def save(self) -> None:
        """Remember up to where the log was told, and what was not; a full disk costs a log line."""
        if self.position is None:
            return
        untold = [event for burst in self._bursts.values() for event in self._counted(burst)]
        value = {
            **_plain(self.position),
            "untold": [event.to_record().to_json() for event in (*self._untold, *untold)],
        }
        draft = self._file.with_suffix(".draft")
        try:
            draft.write_text(json.dumps(value), encoding="utf-8")
            os.replace(draft, self._file)
        except OSError as error:
            log.warning("kernel log's position cannot be saved", why=str(error))

    def _event(self, seen: LogEvent) -> Event | None:
        """The event of a report; None when it is told already, or about nothing of ours."""
        report = seen.event
        of_switch = report.kind is KernelEventKind.SXID
        subject = self._node if of_switch else self._subject(report.pci_address)
        event = Event(
            kind=_KINDS[report.kind],
            subject=subject,
            at=seen.at,
            id=f"{self._node.key}|kernel|{seen.id}",
            xid=report.code if report.kind is KernelEventKind.XID else None,
            sxid=report.code if report.kind is KernelEventKind.SXID else None,
            message=_message(report),
        )
        if report.kind is KernelEventKind.XID:
            return None if self._is_twin(_KERNEL, event) else event
        if report.kind is KernelEventKind.PCI_RESET:
            return None if subject == self._node else event
        if report.kind is KernelEventKind.OFF_BUS:
            gone = self._gone.get(subject.key)
            near = timedelta(seconds=SAME_SECONDS)
            return None if gone is not None and abs(seen.at - gone) <= near else event
        return event

    def _is_twin(self, source: str, event: Event) -> bool:
        assert event.xid is not None
        if event.xid == _LOST_XID:
            self._gone[event.subject.key] = event.at
        return self._twins.answers(source, event.subject.key, event.xid, event.at)

    def _subject(self, address: str | None) -> Subject:
        """The GPU at an address; the node when none is known to be there."""
        if address is not None:
            for uuid, gpu in self._gpus.items():
                if gpu.pci_address is not None and pci_address(gpu.pci_address) == address:
                    return replace(self._node, gpu=uuid)
        return self._node

    def _tell(self, event: Event, report: KernelEvent | None) -> list[Event]:
        """The event, unless it comes too soon after one of its sort: then it is counted."""
        if event.kind is EventKind.GPU_RESET:
            return [*self.calm(event.subject), event]
        key = (event.kind, event.subject.key, event.xid or event.sxid, _sort(report))
        burst, now = self._bursts.get(key), self._clock.monotonic()
        if burst is not None and now < burst.until:
            burst.count, burst.last = burst.count + 1, event
            return []
        before = [] if burst is None else self._counted(burst)
        self._bursts[key] = _Burst(until=now + BURST_SECONDS)
        return [*before, event]

    def _counted(self, burst: _Burst) -> list[Event]:
        return (
            []
            if burst.last is None or burst.count == 0
            else [replace(burst.last, count=burst.count)]
        )


_KINDS: Mapping[KernelEventKind, EventKind] = {
    KernelEventKind.XID: EventKind.XID,
    KernelEventKind.SXID: EventKind.SXID,
    KernelEventKind.OFF_BUS: EventKind.GPU_LOST,
    KernelEventKind.PCI_RESET: EventKind.GPU_RESET,
    KernelEventKind.PCIE_ERROR: EventKind.PCIE_ERROR,
    KernelEventKind.OOM_KILL: EventKind.OOM_KILL,
    KernelEventKind.MACHINE_CHECK: EventKind.MACHINE_CHECK,
}
_TITLES: Mapping[KernelEventKind, str] = {
    KernelEventKind.OFF_BUS: "kernel log",
    KernelEventKind.PCI_RESET: "GPU",
    KernelEventKind.PCIE_ERROR: "PCIe error",
    KernelEventKind.OOM_KILL: "process killed",
    KernelEventKind.MACHINE_CHECK: "machine check",
}
_GRAVE = frozenset({Grade.NON_FATAL, Grade.FATAL})


def _message(report: KernelEvent) -> str:
    """What was reported where, in one line: `Xid 79: GPU has fallen off the bus (0000:05:00.0)`."""
    title = _TITLES.get(report.kind)
    if title is None:
        title = f"{'Xid' if report.kind is KernelEventKind.XID else 'SXid'} {report.code}"
    grade = report.grade if report.kind is KernelEventKind.SXID else None
    what = ": ".join(filter(None, (title, grade and grade.value.replace("_", "-"), report.text)))
    process = report.process or ""
    if report.pid is not None:
        process = f"{process} (pid {report.pid})".strip()
    instance = None if report.instance is None else f"MIG instance {report.instance}"
    where = (report.switch, report.pci_address, instance, process)
    said = ", ".join(word for word in where if word)
    return f"{what} [{said}]" if said else what


def _sort(report: KernelEvent | None) -> str:
    """What else tells reports of one code apart that should not be counted as one."""
    if report is None or report.kind is KernelEventKind.XID:
        return ""
    grave = "grave" if report.grade in _GRAVE else ""
    return f"{report.pci_address} {report.process} {grave}"


def _plain(position: Position) -> dict[str, Any]:
    return {
        "boot_id": position.boot_id,
        "sequence": position.sequence,
        "cursor": position.cursor,
        "at": None if position.at is None else to_text(position.at),
        "drift_microseconds": position.drift_microseconds,
    }


def _load(file: Path) -> tuple[Position | None, tuple[Event, ...]]:
    """Where an earlier process was, and what it had not told; nothing at a first start."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
        position = Position(
            boot_id=str(value["boot_id"]),
            sequence=int(value["sequence"]),
            cursor=value["cursor"],
            at=None if value["at"] is None else from_text(value["at"]),
            drift_microseconds=int(value["drift_microseconds"]),
        )
        untold = (Event.from_record(Record.from_json(record)) for record in value["untold"])
        return position, tuple(untold)
    except FileNotFoundError:
        return None, ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("kernel log's position is lost", file=str(file), why=str(error))
        return None, ()
