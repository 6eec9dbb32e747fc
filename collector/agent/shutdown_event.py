"""The event before an orderly end: the collector is stopped, or the machine goes down."""

import subprocess
from contextlib import suppress

from gpuvigil.model import EventKind

_ASK_SECONDS = 1.5
_ENDS = {
    "reboot.target": "reboot",
    "kexec.target": "reboot into another kernel",
    "soft-reboot.target": "reboot of user space",
    "poweroff.target": "power off",
    "halt.target": "halt",
}


def last_word(systemctl: str = "systemctl") -> tuple[EventKind, str]:
    """Return the kind of event and its message.

    Without systemd it cannot be known what becomes of the machine.
    """
    jobs = _jobs(systemctl)
    for target, words in _ENDS.items():
        if f"{target} start" in jobs:
            return EventKind.SHUTDOWN, words
    if "shutdown.target start" in jobs:
        return EventKind.SHUTDOWN, "shut down"
    return EventKind.STOPPED, "the collector was stopped"


def _jobs(systemctl: str) -> frozenset[str]:
    """Return the units that systemd is about to start, as `reboot.target start`; none when unknown."""
    with suppress(OSError, subprocess.TimeoutExpired):
        asked = subprocess.run(
            [systemctl, "list-jobs", "--no-legend", "--no-pager", "--plain", "--full"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_SECONDS,
            check=False,
        )
        rows = [line.split() for line in asked.stdout.decode(errors="replace").splitlines()]
        # Columns: job, unit, type, state.
        return frozenset(f"{row[1]} {row[2]}" for row in rows if len(row) > 2)
    return frozenset()
