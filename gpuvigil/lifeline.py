"""Ties a child process to its parent: it ends when the parent ends, even by SIGKILL."""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PARENT_VARIABLE = "GPUVIGIL_PARENT"

# PR_SET_PDEATHSIG, prctl(2): the kernel sends this signal when the parent's thread ends.
_SET_PARENT_DEATH_SIGNAL = 1


def environment() -> dict[str, str]:
    """Return the environment for a child that is to end with this process."""
    return {**os.environ, PARENT_VARIABLE: str(os.getpid())}


# A process that calls execve(2) keeps its parent-death signal.
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
    """Return the command that runs another program and ends it with the thread that starts it.

    If the program cannot be run, the command exits with 1 and says why in one line.
    """
    return [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *words]


def hold() -> None:
    """End this process at once when the parent that asked for it ends; without such a parent do nothing.

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
