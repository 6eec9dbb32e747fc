"""A process that cannot get another descriptor or thread, for as long as a test wants."""

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def shortage(of: str) -> Iterator[None]:
    """Allow no further `descriptors`, or no further `threads`, within the block."""
    files, stack = resource.getrlimit(resource.RLIMIT_NOFILE), threading.stack_size()
    try:
        if of == "descriptors":
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, files[1]))
        else:
            threading.stack_size(1 << 46)  # more than the address space
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
        threading.stack_size(stack)
