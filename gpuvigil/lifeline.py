"""A child process does not outlive its parent, also when the parent is killed with -9."""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PARENT_VARIABLE = "GPUVIGIL_PARENT"

# PR_SET_PDEATHSIG, prctl(2): the kernel sends this signal when the parent's thread ends.
_SET_PARENT_DEATH_SIGNAL = 1


def environment() -> dict[str, str]:
    """The environment for a child that holds on to this process."""
    return {**os.environ, PARENT_VARIABLE: str(os.getpid())}


# Started anew as another's program, a process keeps what it asked the kernel for (execve(2)).
_BECOME = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit(f"{sys.argv[2]}: {error.strerror}")
"""


def tied(words: Sequence[str]) -> list[str]:
    """The command that runs a program which is not ours, and ends with the thread that starts it.

    One that cannot be run exits with 1 and says why in one line.
    """
    return [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *words]


def hold() -> None:
    """End with the parent that asked for it, at once; without such a parent do nothing.

    The parent must start its children from its main thread, since the kernel watches the thread.
    """
    parent = os.environ.get(PARENT_VARIABLE)
    if parent is None:
        return
    end_with_parent()
    # The parent may have died before the call above.
    if os.getppid() != int(parent):
        sys.exit(1)


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
