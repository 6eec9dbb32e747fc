"""A process that has no room for another descriptor or thread, for as long as a test wants."""

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def shortage(of: str) -> Iterator[None]:
    """No more `descriptors` than there are, or no more `threads`."""
    files, stack = resource.getrlimit(resource.RLIMIT_NOFILE), threading.stack_size()
    try:
        if of == "descriptors":
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, files[1]))
        else:
            threading.stack_size(1 << 46)  # more than there are addresses
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
        threading.stack_size(stack)
