"""Files that only their owner may read, whatever the umask is."""

import codecs
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import ConfigError
from .file_sync import sync

UMASK = 0o077


@contextmanager
def as_owner_of(folder: Path) -> Iterator[None]:
    """Let root read and write in another user's folder as that user with all groups, who can then read all of it.

    What that user may have linked there from elsewhere is as safe from the block as from that user.
    """
    there = _place(folder)
    if os.geteuid() != 0 or there.st_uid == 0:
        yield
        return
    # What secrets are read with, before the block: Python may lie where that user may not look.
    codecs.lookup("utf-8-sig")
    groups, group = os.getgroups(), os.getegid()
    try:
        os.setgroups(_groups(there))
        os.setegid(there.st_gid)
        os.seteuid(there.st_uid)
    except PermissionError:  # as in a container without these capabilities
        raise ConfigError(
            f"{folder} is another user's, and root may not become another user here: run this as"
            f" user {there.st_uid}"
        ) from None
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


@contextmanager
def owned_as(folder: Path) -> Iterator[None]:
    """Give what root makes in another user's folder to that user, however the block ends.

    A file with a second name is left alone: that user may have linked one of root's there.
    """
    there = _place(folder)
    try:
        yield
    finally:
        if os.geteuid() == 0 and there.st_uid != 0:
            for made in (folder, *folder.rglob("*")):
                with suppress(FileNotFoundError):
                    found = made.lstat()
                    if found.st_uid == 0 and (found.st_nlink == 1 or stat.S_ISDIR(found.st_mode)):
                        os.chown(made, there.st_uid, there.st_gid, follow_symlinks=False)


def _groups(there: os.stat_result) -> list[int]:
    """Return the groups that systemd gives to a process of that user."""
    try:
        name = pwd.getpwuid(there.st_uid).pw_name
    except KeyError:  # as in a container
        return []
    return os.getgrouplist(name, there.st_gid)


def _place(folder: Path) -> os.stat_result:
    """Return the status of a folder, or of the one that it would be made in."""
    return next(one for one in (folder, *folder.absolute().parents) if one.exists()).stat()


def write_private(path: Path, text: str) -> None:
    """Replace a file's text atomically, also over a power loss; only its owner may read it."""
    write_private_bytes(path, text.encode())


def write_private_bytes(path: Path, content: bytes) -> None:
    """Replace a file's bytes as `write_private` does; raise ConfigError when it cannot be written."""
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
        sync(path.parent)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
