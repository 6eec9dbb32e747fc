"""Small files of procfs and sysfs, read with as few system calls as possible.

A collector reads hundreds of them a minute: Python's own files cost three times as much each.
"""

import os

_BLOCK_BYTES = 64 * 1024  # at least a page, of the largest that processors have


def read(path: str) -> str | None:
    """Return the file's text, with invalid UTF-8 replaced; None when it cannot be read."""
    try:
        return text(path)
    except OSError:
        return None


def stripped(path: str) -> str:
    """Return the file's text without surrounding white space; empty when it cannot be read."""
    return (read(path) or "").strip()


def text(path: str) -> str:
    """Return the file's text; OSError says why it cannot be read."""
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
    """Return the text of a sysfs file, which comes whole in one read: a page at most.

    Linux kernel, Documentation/filesystems/sysfs.rst; OSError says why it cannot be read.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _BLOCK_BYTES).decode(errors="replace")
    finally:
        os.close(file)


def names(directory: str) -> list[str]:
    """Return the names in a directory, sorted; none when it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
