"""What the kernel and the driver report, told once: Xids of both, bursts by their count.

Two rules keep it short. An Xid that the kernel log and NVML both report is one: each report of one
side answers at most one of the other, so that what comes again is told again. And what comes too
fast is told at once the first time, then by a count every few seconds; a line that says another
gravity, unit or link than those before it is not the same, and told at once, too.
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
from .burst_limit import MOST_SORTS, Bursts, Sort
from .deduplication import SAME_SECONDS, Twins

log = Log("collector")

_LOST_XID = 79
_KERNEL, _DRIVER = "kernel", "driver"


class KernelBook:
    """Makes events of the kernel's reports and of NVML's Xids; of the main loop alone."""

    def __init__(
        self,
        file: Path,
        node: Subject,
        gpus: Mapping[str, GpuIdentity],
        clock: Clock,
        most_sorts: int = MOST_SORTS,
    ) -> None:
        """`gpus` is looked at whenever a report names an address; `file` outlives the process."""
        self._file = file
        self._node = node
        self._gpus = gpus
        self._twins = Twins()
        self._bursts = Bursts(clock, most_sorts)
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
            if event.xid is not None:
                found += self._tell_xid(_KERNEL, event)
            elif not self._is_told(event):
                found += self._tell(event, seen.event)
        self.position = batch.position
        return found

    def xid(self, event: Event) -> list[Event]:
        """An Xid that NVML reported, when the kernel has not."""
        return self._tell_xid(_DRIVER, event)

    def due(self) -> list[Event]:
        """What came again since it was told, each sort with its count; once a while."""
        found = [*self._untold, *self._bursts.due()]
        self._untold = ()
        return found

    def flush(self) -> list[Event]:
        """All that has not been told, at the end."""
        return self._bursts.end()

    def calm(self, subject: Subject) -> list[Event]:
        """What is reported after a cure is news again; tells what came before it."""
        self._gone.pop(subject.key, None)
        return self._bursts.end(subject)

    def save(self) -> None:
        """Remember up to where the log was told, and what was not; a full disk costs a log line."""
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
        """The event of a report."""
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

    def _is_told(self, event: Event) -> bool:
        """Whether an Xid has said it already, or it is about nothing of ours."""
        if event.kind is EventKind.GPU_RESET:
            return event.subject == self._node
        gone = self._gone.get(event.subject.key)
        near = timedelta(seconds=SAME_SECONDS)
        of_lost = event.kind is EventKind.GPU_LOST
        return of_lost and gone is not None and abs(event.at - gone) <= near

    def _tell_xid(self, source: str, event: Event) -> list[Event]:
        """An Xid, unless the other source has said all of it.

        NVML says the code alone. Where it came first, and the kernel's line says what that code
        means here, the line replaces what was told, or is told for itself where that was counted.
        """
        assert event.xid is not None
        if event.xid == _LOST_XID:
            self._gone[event.subject.key] = event.at
        twin, sort = self._twins.answered(source, event), _sort_of_xid(event.xid, event.message)
        plain = _sort_of_xid(event.xid, "")
        if twin is None:
            found = self._bursts.tell(event, sort)
            self._twins.wait(source, event, told=event in found)
            return found
        if source == _DRIVER or sort == plain:
            return []
        if twin.told:
            self._bursts.begin(event, sort)
            return [replace(event, id=twin.id, version=2)]
        self._bursts.take_back(event, plain)
        return self._bursts.tell(event, sort)

    def _subject(self, address: str | None) -> Subject:
        """The GPU at an address; the node when none is known to be there."""
        if address is not None:
            for uuid, gpu in self._gpus.items():
                if gpu.pci_address is not None and pci_address(gpu.pci_address) == address:
                    return replace(self._node, gpu=uuid)
        return self._node

    def _tell(self, event: Event, report: KernelEvent) -> list[Event]:
        """The event, unless it comes too soon after one of its sort: then it is counted."""
        if event.kind is EventKind.GPU_RESET:
            return [*self.calm(event.subject), event]
        return self._bursts.tell(event, _sort(report))


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


def _sort_of_xid(code: int, message: str) -> Sort:
    """By what the message says: the GPU's address is in its subject, processes come and go."""
    said = signature(code, message)
    return Sort(gravity=said.severity.value, rest=said)


def _sort(report: KernelEvent) -> Sort:
    """What else tells reports of one code apart that should not be counted as one."""
    grade = "" if report.grade is None else report.grade.value
    return Sort(gravity=grade, rest=(report.pci_address, report.process, report.link))


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
