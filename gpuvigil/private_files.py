"""Files that only their owner may read, whatever the umask is."""

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import ConfigError
from .file_sync import sync

UMASK = 0o077


def refuse_root_for(folder: Path, program: str) -> None:
    """Raise ConfigError if root would write to another user's folder: that user could not read the files."""
    owner = folder.stat().st_uid if folder.exists() else 0
    if os.geteuid() != 0 or owner == 0:
        return
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"#{owner}"
    raise ConfigError(
        f"{folder} is {name}'s, who could not read what root writes there; run it as"
        f" 'runuser -u {name} -- {program} ...'"
    )


@contextmanager
def owned_as(folder: Path) -> Iterator[None]:
    """Give what root makes in another user's folder to that user, however the block ends.

    A file with a second name is left alone: that user may have linked one of root's there.
    """
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists()).stat()
    try:
        yield
    finally:
        if os.geteuid() == 0 and there.st_uid != 0:
            for made in (folder, *folder.rglob("*")):
                with suppress(FileNotFoundError):
                    found = made.lstat()
                    if found.st_uid == 0 and (found.st_nlink == 1 or stat.S_ISDIR(found.st_mode)):
                        os.chown(made, there.st_uid, there.st_gid, follow_symlinks=False)


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
