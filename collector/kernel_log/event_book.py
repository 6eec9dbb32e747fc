"""Reports of the kernel and the driver, each recorded once: Xids of both, bursts by their count.

Two rules keep it short. An Xid that both the kernel log and NVML report is one event: each report
of one side matches at most one of the other, so that a repeated Xid is reported again. And events
that come too fast are reported at once the first time, then by a count every few seconds; a line
with another gravity, unit or link than those before it is a different event, and is reported at
once, too.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from gpuvigil.clock import Clock, from_text, to_text
from gpuvigil.faults.xid_messages import signature
from gpuvigil.log import Log
from gpuvigil.model import Event, EventKind, GpuIdentity, Record, Subject

from ..sensors.kernel_event import KernelEvent, KernelEventKind
from ..sensors.kernel_log import Batch, LogEvent, Position
from ..sensors.kernel_log_parser import pci_address
from .burst_limit import MOST_BURSTS, BurstKey, BurstLimit
from .deduplication import SAME_SECONDS, ReportMatcher

log = Log("collector")

_LOST_XID = 79
_KERNEL, _DRIVER = "kernel", "driver"


class KernelBook:
    """Makes events of the kernel's reports and of NVML's Xids; for the main loop alone."""

    def __init__(
        self,
        file: Path,
        node: Subject,
        gpus: Mapping[str, GpuIdentity],
        clock: Clock,
        most_bursts: int = MOST_BURSTS,
    ) -> None:
        """Load the saved position from `file`; `gpus` is read whenever a report names an address."""
        self._file = file
        self._node = node
        self._gpus = gpus
        self._matcher = ReportMatcher()
        self._bursts = BurstLimit(clock, most_bursts)
        self._gone: dict[str, datetime] = {}  # subjects of an Xid 79, and when
        self.position, self._untold = _load(file)

    def knows(self, batch: Batch) -> bool:
        """Return whether there is a known GPU at each address that the batch names."""
        addresses = {seen.event.pci_address for seen in batch.events} - {None}
        return all(self._subject(address) != self._node for address in addresses)

    def ingest(self, batch: Batch) -> list[Event]:
        """Return the events of a batch that are to be recorded now; `save` must follow."""
        found = []
        for seen in batch.events:
            event = self._event(seen)
            if event.xid is not None:
                found += self._xid_events(_KERNEL, event)
            elif not self._is_reported(event):
                found += self._limited(event, seen.event)
        self.position = batch.position
        return found

    def xid(self, event: Event) -> list[Event]:
        """Return the events for an Xid that NVML reported; none if the kernel has reported it."""
        return self._xid_events(_DRIVER, event)

    def due(self) -> list[Event]:
        """Return repeated events, one per key with its count, once per burst interval."""
        found = [*self._untold, *self._bursts.due()]
        self._untold = ()
        return found

    def flush(self) -> list[Event]:
        """Return all events that were counted and not yet reported, at the end."""
        return self._bursts.end()

    def calm(self, subject: Subject) -> list[Event]:
        """End a cured subject's bursts and return what they counted: later reports are news."""
        self._gone.pop(subject.key, None)
        return self._bursts.end(subject)

    def save(self) -> None:
        """Save the position in the log and the unreported events; a full disk costs a log line."""
        if self.position is None:
            return
        untold = (*self._untold, *self._bursts.untold())
        value = {
            **_plain(self.position),
            "untold": [event.to_record().to_json() for event in untold],
        }
        draft = self._file.with_suffix(".draft")
        try:
            draft.write_text(json.dumps(value), encoding="utf-8")
            os.replace(draft, self._file)
        except OSError as error:
            log.warning("kernel log's position cannot be saved", why=str(error))

    def _event(self, seen: LogEvent) -> Event:
        """Return the event of a report."""
        report = seen.event
        of_switch = report.kind is KernelEventKind.SXID
        return Event(
            kind=_KINDS[report.kind],
            subject=self._node if of_switch else self._subject(report.pci_address),
            at=seen.at,
            id=f"{self._node.key}|kernel|{seen.id}",
            xid=report.code if report.kind is KernelEventKind.XID else None,
            sxid=report.code if of_switch else None,
            message=_message(report),
        )

    def _is_reported(self, event: Event) -> bool:
        """Return whether an Xid has reported it already, or it concerns none of our GPUs."""
        if event.kind is EventKind.GPU_RESET:
            return event.subject == self._node
        gone = self._gone.get(event.subject.key)
        near = timedelta(seconds=SAME_SECONDS)
        of_lost = event.kind is EventKind.GPU_LOST
        return of_lost and gone is not None and abs(event.at - gone) <= near

    def _xid_events(self, source: str, event: Event) -> list[Event]:
        """Return the events for an Xid; none if the other source has reported all of it.

        NVML reports the code alone. When it came first, and the kernel's line says what that code
        means here, the line replaces the recorded event, or is reported itself if that was only
        counted.
        """
        assert event.xid is not None
        if event.xid == _LOST_XID:
            self._gone[event.subject.key] = event.at
        twin, key = self._matcher.answered(source, event), _xid_burst_key(event.xid, event.message)
        plain = _xid_burst_key(event.xid, "")
        if twin is None:
            found = self._bursts.limit(event, key)
            self._matcher.wait(source, event, recorded=event in found)
            return found
        if source == _DRIVER or key == plain:
            return []
        if twin.recorded:
            self._bursts.begin(event, key)
            return [replace(event, id=twin.id, version=2)]
        self._bursts.uncount(event, plain)
        return self._bursts.limit(event, key)

    def _subject(self, address: str | None) -> Subject:
        """Return the GPU at an address; the node when none is known there."""
        if address is not None:
            for uuid, gpu in self._gpus.items():
                if gpu.pci_address is not None and pci_address(gpu.pci_address) == address:
                    return replace(self._node, gpu=uuid)
        return self._node

    def _limited(self, event: Event, report: KernelEvent) -> list[Event]:
        """Return the event; if it comes too soon after one with its key, only count it."""
        if event.kind is EventKind.GPU_RESET:
            return [*self.calm(event.subject), event]
        return self._bursts.limit(event, _burst_key(report))


_KINDS: Mapping[KernelEventKind, EventKind] = {
    KernelEventKind.XID: EventKind.XID,
    KernelEventKind.SXID: EventKind.SXID,
    KernelEventKind.OFF_BUS: EventKind.GPU_LOST,
    KernelEventKind.PCI_RESET: EventKind.GPU_RESET,
    KernelEventKind.PCIE_ERROR: EventKind.PCIE_ERROR,
    KernelEventKind.OOM_KILL: EventKind.OOM_KILL,
    KernelEventKind.MACHINE_CHECK: EventKind.MACHINE_CHECK,
    KernelEventKind.KERNEL_HANG: EventKind.KERNEL_HANG,
    KernelEventKind.STORAGE_ERROR: EventKind.STORAGE_ERROR,
}
_TITLES: Mapping[KernelEventKind, str] = {
    KernelEventKind.OFF_BUS: "kernel log",
    KernelEventKind.PCI_RESET: "GPU",
    KernelEventKind.PCIE_ERROR: "PCIe error",
    KernelEventKind.OOM_KILL: "process killed",
    KernelEventKind.MACHINE_CHECK: "machine check",
    KernelEventKind.KERNEL_HANG: "kernel",
    KernelEventKind.STORAGE_ERROR: "storage",
}


def _message(report: KernelEvent) -> str:
    """Return what was reported where: `Xid 79: GPU has fallen off the bus (0000:05:00.0)`."""
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


def _xid_burst_key(code: int, message: str) -> BurstKey:
    """Return an Xid's key from its message; the GPU is in the subject, and processes come and go."""
    said = signature(code, message)
    return BurstKey(gravity=said.severity.value, rest=said)


def _burst_key(report: KernelEvent) -> BurstKey:
    """Return what else keeps reports of one code from being counted as one."""
    grade = "" if report.grade is None else report.grade.value
    return BurstKey(gravity=grade, rest=(report.pci_address, report.process, report.link))


def _plain(position: Position) -> dict[str, Any]:
    return {
        "boot_id": position.boot_id,
        "sequence": position.sequence,
        "cursor": position.cursor,
        "at": None if position.at is None else to_text(position.at),
        "drift_microseconds": position.drift_microseconds,
    }


def _load(file: Path) -> tuple[Position | None, tuple[Event, ...]]:
    """Return an earlier process's position and unreported events; nothing at a first start."""
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
