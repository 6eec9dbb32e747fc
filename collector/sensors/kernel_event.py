"""An event parsed from a line of the kernel log."""

from dataclasses import dataclass
from enum import Enum


class KernelEventKind(str, Enum):
    """What a line of the kernel log reports."""

    XID = "xid"
    SXID = "sxid"  # an Xid of an NVSwitch
    OFF_BUS = "off_bus"  # the driver reports it without an Xid, or in addition to one
    PCI_RESET = "pci_reset"  # of any PCI device: the caller knows which are GPUs
    PCIE_ERROR = "pcie_error"
    OOM_KILL = "oom_kill"
    MACHINE_CHECK = "machine_check"
    KERNEL_HANG = "kernel_hang"  # a processor or a task makes no progress
    STORAGE_ERROR = "storage_error"  # a drive is gone or unreadable, or a file system read-only


class Grade(str, Enum):
    """The severity in the line itself."""

    CORRECTED = "corrected"
    NON_FATAL = "non_fatal"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvent:
    """One report of the kernel.

    `text` is the line without its address and process; `pci_address` is as `pci_address()` writes
    it, `code` an Xid or SXid, `instance` a MIG GPU instance, `link` an NVLink. None: not in the
    line.
    """

    kind: KernelEventKind
    text: str
    code: int | None = None
    pci_address: str | None = None
    instance: int | None = None
    switch: str | None = None
    link: int | None = None
    pid: int | None = None
    process: str | None = None
    grade: Grade | None = None
