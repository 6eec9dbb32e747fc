"""Parses the kernel's lines about hardware: one line of its log into one event, or none.

Pure functions; nothing here reads a log. The forms are those of the NVIDIA driver (`nv_printf` in
the open kernel modules), of the PCI core (drivers/pci/pcie/aer.c, dpc.c, pci.c), of the memory
manager (mm/oom_kill.c, mm/memory-failure.c) and of the machine-check code (arch/x86/kernel/cpu/mce,
drivers/edac, drivers/acpi/apei), of Linux 4.18 to 6.18; `kernel_host_lines.py` has those of hangs
and drives.
"""

import re
from collections.abc import Callable
from dataclasses import replace

from . import kernel_host_lines
from .kernel_event import Grade, KernelEvent, KernelEventKind

_BDF = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_DEVICE = rf"(?P<driver>\S+) (?P<address>{_BDF}): "
_ADDRESS = re.compile(
    r"(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<bus>[0-9a-f]{1,2}):(?P<device>[0-9a-f]{1,2})"
    r"(?:\.(?P<function>[0-7]))?",
    re.IGNORECASE,
)


def pci_address(text: str) -> str | None:
    """Return `0000:9b:00.0` for every spelling of an address: NVML's, the driver's, the kernel's.

    None when the text is no address.
    """
    found = _ADDRESS.fullmatch(text.strip())
    if found is None:
        return None
    domain, bus, device = (int(found[part] or "0", 16) for part in ("domain", "bus", "device"))
    return f"{domain:04x}:{bus:02x}:{device:02x}.{found['function'] or 0}"


# What `dmesg` and syslog put before the text; the record itself does not have it.
_PREFIX = re.compile(r"(?:<\d+>)?(?:kernel: )?(?:\[[^\]]*\] ?)?(?:kernel: )?")


def parse(line: str) -> KernelEvent | None:
    """Return the event that a line of the kernel log reports, or None. Never raises.

    The follow-up lines of an SXid (`Severity ...`, `Data {...}`) belong to the previous line and
    yield None, as does every line that only announces or details another.
    """
    prefix = _PREFIX.match(line)
    text = line[prefix.end() :] if prefix else line
    for mark, read in _READERS:
        if mark in text:
            event = read(text.strip())
            if event is not None:
                return event
    return None


_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<address>[0-9a-fA-F:.]+)(?: GPU-I:(?P<instance>\d+))?[^)]*\): "
    r"(?P<code>\d+)(?:,\s*(?P<rest>.*))?",
    re.DOTALL,
)
# `pid=7194`, `pid='<unknown>'`, `pid=<unknown>`; and the same for the process's name.
_PID = re.compile(r"\bpid=(?:(?P<pid>\d+)|'?<[^>]*>'?|\.*)(?:,\s*|$)")
_NAME = re.compile(r"\bname=(?:'?<[^>]*>'?|(?P<name>[^,]*))(?:,\s*|$)")
_LINK = re.compile(r"\bLink (?P<link>-?\d+)\b")


def _xid(text: str) -> KernelEvent | None:
    found = _XID.match(text)
    if found is None:
        return None
    rest = found["rest"] or ""
    pid = name = None
    if (said := _PID.match(rest)) is not None:
        pid, rest = said["pid"], rest[said.end() :]
    if (said := _NAME.match(rest)) is not None:
        name, rest = said["name"], rest[said.end() :]
    return KernelEvent(
        kind=KernelEventKind.XID,
        text=_plain(rest),
        code=int(found["code"]),
        pci_address=pci_address(found["address"]),
        instance=None if found["instance"] is None else int(found["instance"]),
        link=_link(rest),
        pid=None if pid is None else int(pid),
        process=name.strip(" .'") or None if name is not None else None,
    )


_SXID = re.compile(
    r"nvidia-(?P<switch>nvswitch\d+): SXid \(PCI:(?P<address>[0-9a-fA-F:.]+)\): (?P<code>\d+)"
    r"(?:,\s*(?P<rest>.*))?",
    re.DOTALL,
)
_SXID_DETAIL = re.compile(r"Severity -?\d+ |Data \{")
_SXID_GRADES = {"Fatal": Grade.FATAL, "Non-fatal": Grade.NON_FATAL}


def _sxid(text: str) -> KernelEvent | None:
    found = _SXID.match(text)
    if found is None:
        return None
    rest = found["rest"] or ""
    if _SXID_DETAIL.match(rest):
        return None
    word, _, after = rest.partition(",")
    grade = _SXID_GRADES.get(word.strip())
    return KernelEvent(
        kind=KernelEventKind.SXID,
        text=_plain(after if grade else rest),
        code=int(found["code"]),
        pci_address=pci_address(found["address"]),
        switch=found["switch"],
        link=_link(rest),
        grade=grade,
    )


def _link(text: str) -> int | None:
    """Return the link that a message names; the driver writes -1 where it knows none."""
    found = _LINK.search(text)
    return int(found["link"]) if found and int(found["link"]) >= 0 else None


# The driver writes a line each, or one report of several lines.
_OFF_BUS = re.compile(
    rf"NVRM: (?!Xid).*?(?P<address>{_BDF}).*\bfallen off the bus", re.DOTALL | re.IGNORECASE
)


def _off_bus(text: str) -> KernelEvent | None:
    found = _OFF_BUS.match(text)
    return found and KernelEvent(
        kind=KernelEventKind.OFF_BUS,
        text="GPU has fallen off the bus",
        pci_address=pci_address(found["address"]),
        grade=Grade.FATAL,
    )


_RESET = re.compile(_DEVICE + "reset done$")


def _reset(text: str) -> KernelEvent | None:
    found = _RESET.match(text)
    return found and KernelEvent(
        kind=KernelEventKind.PCI_RESET,
        text="reset done",
        pci_address=pci_address(found["address"]),
    )


_BUS_ERROR = re.compile(
    _DEVICE + r"(?:AER: )?PCIe Bus Error: severity=(?P<severity>[^,]+), (?P<rest>.*)"
)
_CONTAINED = re.compile(_DEVICE + r"DPC: (?P<rest>containment event.*)")
# The kernel's line for an error that the firmware saw first, without its severity.
_FIRMWARE_SAW = re.compile(_DEVICE + r"(?:AER: )?(?P<rest>aer_status: .*)")


def _bus_error(text: str) -> KernelEvent | None:
    found = _BUS_ERROR.match(text)
    if found is None:
        return None
    severity = found["severity"]
    grade = Grade.FATAL if "(Fatal)" in severity else Grade.NON_FATAL
    return KernelEvent(
        kind=KernelEventKind.PCIE_ERROR,
        text=f"{severity.strip()}, {_plain(found['rest'])}",
        pci_address=pci_address(found["address"]),
        grade=Grade.CORRECTED if severity.startswith("Correct") else grade,
    )


def _contained(text: str) -> KernelEvent | None:
    """Return the event of downstream port containment: the port has cut its link."""
    return _on_device(_CONTAINED, text, Grade.FATAL)


def _firmware_saw(text: str) -> KernelEvent | None:
    return _on_device(_FIRMWARE_SAW, text, None)


def _on_device(form: re.Pattern[str], text: str, grade: Grade | None) -> KernelEvent | None:
    found = form.match(text)
    return found and KernelEvent(
        kind=KernelEventKind.PCIE_ERROR,
        text=_plain(found["rest"]),
        pci_address=pci_address(found["address"]),
        grade=grade,
    )


# Older kernels write `Killed process 12, UID 5, (name)`, and `Kill process 12 ...` ahead of it.
_OOM = re.compile(
    r"(?P<where>[^:]*out of memory[^:]*: )?Killed process (?P<pid>\d+)(?:, UID \d+,)? "
    r"\((?P<name>.*?)\)(?= total-vm|, |$)",
    re.IGNORECASE,
)


def _oom(text: str) -> KernelEvent | None:
    found = _OOM.match(text)
    if found is None:
        return None
    group = "cgroup" in (found["where"] or "")
    return KernelEvent(
        kind=KernelEventKind.OOM_KILL,
        text="memory of its control group ran out" if group else "memory ran out",
        pid=int(found["pid"]),
        process=_plain(found["name"]) or None,
    )


_MCE_BANK = re.compile(
    r"(?:mce: )?\[Hardware Error\]: (?P<rest>CPU \d+: Machine Check(?: Exception)?: "
    r"[0-9a-f]+ Bank \d+: (?P<status>[0-9a-f]{1,16})\b)"
)
_MCE_LOGGED = re.compile(r"(?:mce: )?\[Hardware Error\]: (?P<rest>Machine check events logged)")
_FIRMWARE = re.compile(r"(?:\{\d+\})?\[Hardware Error\]: event severity: (?P<severity>\w+)")
_EDAC = re.compile(r"EDAC (?:\S+ )?MC\d+: (?P<rest>(?:\d+ )?(?P<sort>[CU]E) .*)")
_POISON = re.compile(
    r"Memory failure: (?P<page>0x[0-9a-f]+): Killing (?P<name>.*):(?P<pid>\d+) due to"
)
# IA32_MCi_STATUS (Intel SDM volume 3B, section 16.3.2.2): uncorrected; processor context corrupt.
_UNCORRECTED = 1 << 61
_CONTEXT_CORRUPT = 1 << 57
# drivers/firmware/efi/cper.c
_FIRMWARE_GRADES = {
    "corrected": Grade.CORRECTED,
    "recoverable": Grade.NON_FATAL,
    "fatal": Grade.FATAL,
}


def _machine_check(text: str) -> KernelEvent | None:
    check = KernelEvent(kind=KernelEventKind.MACHINE_CHECK, text="")
    if (found := _MCE_BANK.match(text)) is not None:
        status = int(found["status"], 16)
        bad = Grade.FATAL if status & _CONTEXT_CORRUPT else Grade.NON_FATAL
        grade = bad if status & _UNCORRECTED else Grade.CORRECTED
        return replace(check, text=_plain(found["rest"]), grade=grade)
    if (found := _MCE_LOGGED.match(text)) is not None:
        return replace(check, text=_plain(found["rest"]))
    if (found := _FIRMWARE.match(text)) is not None and found["severity"] != "info":
        grade_of = _FIRMWARE_GRADES.get(found["severity"])
        return replace(check, text=f"the firmware reports: {found['severity']}", grade=grade_of)
    return None


def _memory_error(text: str) -> KernelEvent | None:
    found = _EDAC.match(text)
    return found and KernelEvent(
        kind=KernelEventKind.MACHINE_CHECK,
        text=_plain(found["rest"]),
        grade=Grade.CORRECTED if found["sort"] == "CE" else Grade.NON_FATAL,
    )


def _poison(text: str) -> KernelEvent | None:
    found = _POISON.match(text)
    return found and KernelEvent(
        kind=KernelEventKind.MACHINE_CHECK,
        text=f"memory failure at page {found['page']}, process killed",
        pid=int(found["pid"]),
        process=_plain(found["name"]) or None,
        grade=Grade.NON_FATAL,
    )


def _hang(text: str) -> KernelEvent | None:
    return _in_plain(kernel_host_lines.hang(text))


def _storage(text: str) -> KernelEvent | None:
    return _in_plain(kernel_host_lines.storage(text))


def _in_plain(found: KernelEvent | None) -> KernelEvent | None:
    return found and replace(found, text=_plain(found.text))


_MOST_TEXT = 400


def _plain(text: str) -> str:
    """Return the text on one line, of limited length, without non-printable characters."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return words if len(words) <= _MOST_TEXT else words[: _MOST_TEXT - 1] + "…"


# By a word that the line must have, searched first since nearly all lines are about other things.
_READERS: tuple[tuple[str, Callable[[str], KernelEvent | None]], ...] = (
    (" Xid (", _xid),
    (" SXid (", _sxid),
    ("fallen off the bus", _off_bus),
    (": reset done", _reset),
    ("PCIe Bus Error: severity=", _bus_error),
    ("DPC: containment event", _contained),
    ("aer_status: ", _firmware_saw),
    ("Killed process ", _oom),
    ("[Hardware Error]: ", _machine_check),
    ("EDAC ", _memory_error),
    ("Memory failure: ", _poison),
    ("soft lockup", _hang),
    ("hard LOCKUP", _hang),
    ("blocked for more than ", _hang),
    ("INFO: rcu_", _hang),
    ("-fs (", _storage),
    ("XFS (", _storage),
    ("BTRFS", _storage),
    ("nvme", _storage),
    ("Disk failure on ", _storage),
    ("critical ", _storage),
)
