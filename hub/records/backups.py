"""Backups of the records in SQLite that the hub makes by itself, and how one is restored.

A backup and the journal segment that was begun just before it have the same number: with the
segments from there on it gives the latest records. The copy is taken from one snapshot in small
steps, so that commits go on, and on a slow disk are not held up by the copy's bytes.
"""

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from gpuvigil.file_sync import sync

from .journal import SUFFIX, number_of

FOLDER = "records.backups"
KEPT = 4
# A step of 256 KiB, a rest, and every 4 MiB a wait for the disk: about 40 MB a second at most.
_PAGES = 64
_REST_SECONDS = 0.005
_SYNC_STEPS = 16
# SQLite's error codes for a damaged file: https://www.sqlite.org/rescode.html
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_CHECKS = ("quick_check", "integrity_check")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """The file of a backup, and when it was made."""

    number: int
    path: Path
    at: datetime


def backups(folder: Path) -> list[Backup]:
    """Return all backups in a folder, oldest first."""
    found = []
    for path in folder.glob("records-*.sqlite"):
        with suppress(ValueError, FileNotFoundError):
            at = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)
            found.append(Backup(number=number_of(path), path=path, at=at))
    return sorted(found, key=lambda one: one.number)


def backup_file(folder: Path, number: int) -> Path:
    """Return the path of the backup with a number."""
    return folder / f"records-{number:08}.sqlite"


def back_up(source: Path, folder: Path, number: int, rest: Callable[[float], object]) -> str | None:
    """Copy and check the records; return what is wrong with the copy, None when it is kept.

    `rest` waits between two steps. sqlite3.Error and OSError when the copy cannot be made.
    """
    target = backup_file(folder, number)
    draft = target.with_suffix(".draft")
    try:
        _copy(source, draft, rest)
        wrong = wrong_inside(draft, thorough=True)
        if wrong is None:
            sync(draft)
            draft.replace(target)
            sync(folder)
        return wrong
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def _copy(source: Path, draft: Path, rest: Callable[[float], object]) -> None:
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT, 0o600))
    steps = 0

    def stepped(_status: int, _remaining: int, _total: int) -> None:
        nonlocal steps
        steps += 1
        if steps % _SYNC_STEPS == 0:
            sync(draft)
        rest(_REST_SECONDS)

    with closing(sqlite3.connect(source)) as here, closing(sqlite3.connect(draft)) as there:
        here.isolation_level = None
        # Held to the end: otherwise each commit would make the copy start again.
        here.execute("BEGIN")
        here.execute("SELECT * FROM counter").fetchall()
        there.execute("PRAGMA synchronous=OFF")
        here.backup(there, pages=_PAGES, progress=stepped)
        there.execute("PRAGMA journal_mode=DELETE")


def prune(folder: Path, kept: int = KEPT) -> None:
    """Remove all but the newest backups, and the journal segments that none of these needs."""
    found = backups(folder)
    for one in found[:-kept]:
        one.path.unlink()
    for path in folder.glob("*.draft*"):
        path.unlink()
    oldest = found[-kept:][0].number if found else 0
    for path in folder.glob(f"records-*{SUFFIX}"):
        with suppress(ValueError):
            if number_of(path) < oldest:
                path.unlink()


def put_back(folder: Path, target: Path) -> Backup | None:
    """Copy the newest undamaged backup to `target` and return it; None when there is none."""
    for one in reversed(backups(folder)):
        draft = target.with_name(target.name + ".draft")
        draft.unlink(missing_ok=True)
        shutil.copyfile(one.path, draft)
        draft.chmod(0o600)
        wrong = wrong_inside(draft, thorough=True)
        if wrong is None:
            sync(draft)
            draft.replace(target)
            sync(target.parent)
            return one
        draft.unlink()
        # Renamed, so that it is not used again, and no segments are kept for it.
        one.path.rename(one.path.with_name(f"{one.path.name}.damaged-{int(time.time())}"))
    return None


def wrong_inside(path: Path, *, thorough: bool) -> str | None:
    """Return what is wrong with a database; None for nothing, or when that cannot be found out.

    `thorough` also compares every index with its table, which takes about three times as long.
    """
    try:
        with closing(sqlite3.connect(path)) as connection:
            (said,) = connection.execute(f"PRAGMA {_CHECKS[thorough]}(1)").fetchone()
            if said != "ok":
                return " ".join(str(said).split())
            query = "SELECT count(*) FROM record WHERE NOT json_valid(body)"
            (count,) = connection.execute(query).fetchone()
            return f"{count} records are garbled" if count else None
    except sqlite3.OperationalError as error:
        # No such table, or busy: what opens it next says so.
        return str(error) if is_damage(error) else None
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return str(error)


def is_damage(error: BaseException | None) -> bool:
    """Return whether SQLite says that the file itself is damaged."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGED
