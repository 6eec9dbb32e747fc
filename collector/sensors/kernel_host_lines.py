"""The kernel's lines about a machine that hangs, and about failing drives and file systems.

Forms of Linux 4.18 to 6.18: kernel/watchdog.c, kernel/hung_task.c, kernel/rcu/tree_stall.h;
drivers/nvme/host, drivers/md, block/blk-core.c, fs/ext4, fs/xfs, fs/btrfs. A request that only
timed out, or was tried again, is not among them: drives go on after it.
"""

import re

from .kernel_event import Grade, KernelEvent, KernelEventKind

_LOCKUP = re.compile(
    r"(?:NMI )?(?:watchdog: )?(?:BUG: soft lockup - CPU#\d+ stuck for \d+s!"
    r"|Watchdog detected hard LOCKUP on cpu \d+)"
)
_HUNG_TASK = re.compile(r"INFO: task (?P<name>.*):(?P<pid>\d+) blocked for more than \d+ seconds")
_RCU_STALL = re.compile(r"(?:rcu: )?INFO: rcu_\w+ (?:self-)?detected (?:expedited )?stalls? on CPU")
# Without a service processor's virtual media (`sr0`) and loop devices, which do not fail.
_DRIVE = r"(?:nvme\d+n\d+|sd[a-z]+|vd[a-z]+|md\d+|dm-\d+)(?:p?\d+)?"
_STORAGE = re.compile(
    rf"EXT[34]-fs \({_DRIVE}\): Remounting filesystem read-only"
    rf"|XFS \({_DRIVE}\): .*(?:Shutting down filesystem|Filesystem has been shut down)"
    r"|BTRFS.*(?:forced readonly|forced readonly\.)"
    r"|nvme nvme\d+: (?:Device not ready; aborting (?:reset|initialisation)"
    r"|Removing after probe failure|Disabling device after reset failure"
    r"|controller is down; will reset: CSTS=0xffffffff)"
    rf"|md/raid\w*:md\d+: Disk failure on {_DRIVE}"
    rf"|.*critical (?:medium|target) error, dev {_DRIVE}, sector",
    re.IGNORECASE,
)


def hang(text: str) -> KernelEvent | None:
    """Return the event of a processor or task that makes no progress; None for another line."""
    found = KernelEvent(kind=KernelEventKind.KERNEL_HANG, text=text, grade=Grade.NON_FATAL)
    if _LOCKUP.match(text) or _HUNG_TASK.match(text) or _RCU_STALL.match(text):
        return found
    return None


def storage(text: str) -> KernelEvent | None:
    """Return the event of a drive that is gone or unreadable, or a file system that is read-only.

    None for another line.
    """
    if _STORAGE.match(text) is None:
        return None
    return KernelEvent(kind=KernelEventKind.STORAGE_ERROR, text=text, grade=Grade.FATAL)
