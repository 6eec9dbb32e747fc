"""The ends of tokens, in a file of their own, so that no restored backup of the records revives
one.

A line per end that was set: the SHA-256 of the token's SHA-256, and when it ends. Lines are only
added, and are on disk before the end is acknowledged.
"""

import hashlib
import os
import threading
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from gpuvigil.clock import from_text
from gpuvigil.errors import StoreError
from gpuvigil.file_sync import sync

_NAME = "tokens.ended"
_KEY_LENGTH = 64


def ends_file(folder: Path) -> Path:
    """Return where the ends of tokens are in a data directory, or in a backup of one."""
    return folder / _NAME


class RevocationFile:
    """The ends in one file; any thread may call."""

    def __init__(self, path: Path) -> None:
        """Read the file; StoreError when it exists and cannot be read."""
        self._path = path
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}
        for key, at in _read(path):
            self._learn(key, at)

    def of(self, sha256: str) -> str | None:
        """Return when the token with a hash ends; None while nobody has set an end."""
        return self._known.get(_key(sha256))

    def add(self, ended: Iterable[tuple[str, str]]) -> None:
        """Store the ends of tokens, by their hash; StoreError when they are not on the disk."""
        with self._lock:
            new = [
                (key, at)
                for sha256, at in ended
                if (known := self._known.get(key := _key(sha256))) is None or _sooner(at, known)
            ]
            if not new:
                return
            try:
                _append(self._path, new)
            except OSError as error:
                raise StoreError(f"{self._path}: {error.strerror or error}") from error
            for key, at in new:
                self._learn(key, at)

    def _learn(self, key: str, at: str) -> None:
        known = self._known.get(key)
        self._known[key] = at if known is None or _sooner(at, known) else known


def merge_ends(source: Path, target: Path) -> None:
    """Add the ends of one file to another; StoreError when one cannot be read or written."""
    found = RevocationFile(target)
    with found._lock:
        new = [(key, at) for key, at in _read(source) if found._known.get(key) != at]
        try:
            _append(target, new)
        except OSError as error:
            raise StoreError(f"{target}: {error.strerror or error}") from error


def _key(sha256: str) -> str:
    return hashlib.sha256(sha256.encode()).hexdigest()


def _sooner(at: str, known: str) -> bool:
    return from_text(at) < from_text(known)


def _read(path: Path) -> list[tuple[str, str]]:
    found = []
    try:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, at = line.partition(" ")
            if len(key) == _KEY_LENGTH and _is_time(at):
                found.append((key, at))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    return found


def _is_time(text: str) -> bool:
    try:
        return isinstance(from_text(text), datetime)
    except ValueError:
        return False


def _append(path: Path, ends: Iterable[tuple[str, str]]) -> None:
    content = "".join(f"{key} {at}\n" for key, at in ends).encode()
    new = not path.exists()
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            content = b"\n" + content  # a line that a full disk, or a kill, has cut short
        if os.write(handle, content) != len(content):
            raise OSError(0, "the disk is full")
        os.fsync(handle)
    finally:
        os.close(handle)
    if new:
        sync(path.parent)
