"""Processes that play fleets in parallel, and end with the command that started them."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

from gpuvigil import lifeline


def pool(workers: int) -> ProcessPoolExecutor:
    """Return a pool of so many worker processes, which do not outlive this one however it ends.

    Submit their work from the main thread: the kernel watches the thread that starts them.
    """
    return ProcessPoolExecutor(workers, initializer=_hold)


def _hold() -> None:
    lifeline.end_with_parent()
    parent = multiprocessing.parent_process()
    # The parent may have ended before the call above.
    if parent is not None and not parent.is_alive():
        os._exit(1)
