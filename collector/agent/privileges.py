"""What a collector without privileges cannot measure, and which privilege it lacks."""

import os
from dataclasses import dataclass
from pathlib import Path

from gpuvigil.config import CollectorSettings
from gpuvigil.log import Log

log = Log("collector")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What this process may do; None where the device or log is not on this machine."""

    root: bool
    driver: bool | None  # the driver's control device
    kernel_log: bool | None
    journal: bool
    others: bool  # processes of other users


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """A measurement that is missing for want of a privilege."""

    what: str
    gives: str


def read_access(
    settings: CollectorSettings, dev: Path = Path("/dev"), journals: Path = Path("/")
) -> Access:
    """Return what this process may do.

    Only permissions are read: a call to the driver might not return.
    """
    control = dev / "nvidiactl"
    stores = [journals / "var/log/journal", journals / "run/log/journal"]
    return Access(
        root=os.geteuid() == 0,
        driver=os.access(control, os.R_OK | os.W_OK) if control.exists() else None,
        kernel_log=_opens(settings.kernel_log),
        journal=bool(settings.journalctl) and any(_holds_readable(store) for store in stores),
        others=os.access(settings.proc_root / "1/stat", os.R_OK),
    )


def lacks(access: Access) -> tuple[Lack, ...]:
    """Return what is missing, most important first; nothing for root, who may do everything."""
    found = []
    if access.driver is False:
        found.append(Lack(what="GPUs", gives="read and write on /dev/nvidia*, by its group"))
    if not access.kernel_log and not access.journal:
        gives = "CAP_SYSLOG, or the group systemd-journal"
        found.append(
            Lack(what="the kernel log: Xids that NVML does not tell, OOM kills", gives=gives)
        )
    if not access.others:
        gives = "the group of the gid= option that hidepid of /proc was set with"
        found.append(Lack(what="who holds a GPU", gives=gives))
    if not access.root and access.driver is not None:
        found.append(Lack(what="the SRAM error threshold of ECC", gives="root"))
    return tuple(found)


def log_lacks(settings: CollectorSettings) -> None:
    """Log one line for each missing privilege."""
    for lack in lacks(read_access(settings)):
        log.warning("cannot be measured as this user", what=lack.what, needs=lack.gives)


def _opens(device: Path) -> bool | None:
    """Return whether the device can be opened; None when it does not exist.

    Permissions of /dev/kmsg are not enough: the kernel checks CAP_SYSLOG when it is opened.
    """
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except FileNotFoundError:
        return None
    except OSError:
        return False
    return True


def _holds_readable(store: Path) -> bool:
    """Return whether the store holds a system journal that this user may read.

    A journal lies in a folder per machine, which everybody may list and its group may read.
    """
    try:
        files = [file for machine in store.iterdir() for file in machine.iterdir()]
    except OSError:
        return False
    return any(os.access(file, os.R_OK) for file in files if file.name.startswith("system"))
