"""Small files of procfs and sysfs, read with as few system calls as that takes.

A collector reads hundreds of them a minute: Python's own files cost three times as much each.
"""

import os

_BLOCK_BYTES = 64 * 1024  # also a page, of the largest that processors have


def read(path: str) -> str | None:
    """The file's text, with what is no UTF-8 replaced; None when it cannot be read."""
    try:
        return text(path)
    except OSError:
        return None


def stripped(path: str) -> str:
    """The same without white space around it; empty when it cannot be read."""
    return (read(path) or "").strip()


def text(path: str) -> str:
    """The file's text; OSError says why it cannot be read."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(file, _BLOCK_BYTES)
        block = content
        # procfs gives some files a page at a time.
        while block and (block := os.read(file, _BLOCK_BYTES)):
            content += block
    finally:
        os.close(file)
    return content.decode(errors="replace")


def attribute(path: str) -> str:
    """A file of sysfs, which is given whole at one read: a page at most.

    Linux kernel, Documentation/filesystems/sysfs.rst; OSError says why it cannot be read.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _BLOCK_BYTES).decode(errors="replace")
    finally:
        os.close(file)


def names(directory: str) -> list[str]:
    """What lies in a directory, sorted; nothing when it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
