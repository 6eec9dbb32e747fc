"""What the kernel says of a machine that hangs, and of drives and file systems that fail.

Forms of Linux 4.18 to 6.18: kernel/watchdog.c, kernel/hung_task.c, kernel/rcu/tree_stall.h;
drivers/nvme/host, drivers/md, block/blk-core.c, fs/ext4, fs/xfs, fs/btrfs. A request that only timed
out, or was tried again, is none of them: drives go on after it.
"""

import re

from .kernel_event import Grade, KernelEvent, KernelEventKind

_LOCKUP = re.compile(
    r"(?:NMI )?(?:watchdog: )?(?:BUG: soft lockup - CPU#\d+ stuck for \d+s!"
    r"|Watchdog detected hard LOCKUP on cpu \d+)"
)
_HUNG_TASK = re.compile(r"INFO: task (?P<name>.*):(?P<pid>\d+) blocked for more than \d+ seconds")
_RCU_STALL = re.compile(r"(?:rcu: )?INFO: rcu_\w+ (?:self-)?detected (?:expedited )?stalls? on CPU")
# Of virtual media of a service processor (`sr0`) and loop devices nothing fails.
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
    """A processor or a task that makes no progress."""
    found = KernelEvent(kind=KernelEventKind.KERNEL_HANG, text=text, grade=Grade.NON_FATAL)
    if _LOCKUP.match(text) or _HUNG_TASK.match(text) or _RCU_STALL.match(text):
        return found
    return None


def storage(text: str) -> KernelEvent | None:
    """A drive that is gone or unreadable, or a file system that takes no more writes."""
    if _STORAGE.match(text) is None:
        return None
    return KernelEvent(kind=KernelEventKind.STORAGE_ERROR, text=text, grade=Grade.FATAL)
