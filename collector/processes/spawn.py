"""Starts and ends child processes whose output is read."""

import subprocess
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from gpuvigil import lifeline

Child = subprocess.Popen[bytes]


def started(
    words: Sequence[str],
    name: str,
    listen: Callable[[Child], None],
    held: Collection[int] = (),
) -> Child:
    """Start a child, and a thread `name` in which `listen` reads its output; it inherits `held`.

    Raises OSError where there is no room for a process or thread, and leaves neither. For the main
    thread, whose end the child does not outlive.
    """
    child = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=lifeline.environment(),
        pass_fds=held,
    )
    try:
        threading.Thread(target=listen, args=(child,), name=name, daemon=True).start()
    except RuntimeError as error:
        child.kill()
        child.communicate()
        raise OSError(str(error)) from None
    return child


def end(child: Child | None, seconds: float = 1.0) -> None:
    """Kill the child, and wait a moment; one that cannot be killed is left to the kernel."""
    if child is not None:
        child.kill()
        with suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
