"""The store over HTTP, for `gpuvigil store` with a running hub; only a service's token may use it."""

import errno
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gpuvigil.clock import from_ns, to_text
from gpuvigil.config import HubSettings
from gpuvigil.errors import StoreError

from ..embedded import Embedded
from ..http.responses import MemoryBudget, Refused, in_thread, question_of
from ..records import ends_file, in_postgresql, merge_ends

RECORDS = "records.sqlite"
TOKENS = "tokens.json"  # of a backup that an older gpuvigil made
_LARGEST_BYTES = 10_000
_NOT_ALLOWED = {errno.EROFS, errno.EACCES, errno.EPERM}
_MOST_ASKING_BYTES = 1024 * 1024


class StoreEndpoint:
    """Backs up, verifies and describes the store that is open here."""

    def __init__(self, store: Embedded, settings: HubSettings) -> None:
        self._store = store
        self._settings = settings
        self._asking = MemoryBudget(_MOST_ASKING_BYTES)

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/store", self.stats, methods=["GET"]),
            Route("/api/v1/store/verify", self.verify, methods=["POST"]),
            Route("/api/v1/store/backup", self.backup, methods=["POST"]),
        ]

    async def stats(self, _request: Request) -> Response:
        return JSONResponse(await in_thread(partial(stats, self._store)))

    async def verify(self, _request: Request) -> Response:
        return JSONResponse(await in_thread(partial(verify, self._store)))

    async def backup(self, request: Request) -> Response:
        with self._asking.of(request.state.bearer) as held:
            asked = await question_of(request, _LARGEST_BYTES, held)
        directory = asked.get("directory")
        if not isinstance(directory, str) or not Path(directory).is_absolute():
            raise Refused(400, "directory must be an absolute path on the hub's machine")
        return JSONResponse(
            await in_thread(partial(backup, self._store, self._settings, Path(directory)))
        )


def stats(store: Embedded) -> dict[str, Any]:
    """Return the store's size, each measurement's lines, files and bytes, and the damaged files."""
    tables, size = store.sizes()
    found: dict[str, dict[str, Any]] = {
        name: {"lines": lines, "sealed_lines": 0, "files": 0, "sealed_bytes": 0, "rolled_bytes": 0}
        for name, lines in tables.items()
    }
    for unit in store.units():
        told = found[unit.measurement]
        told["files"] += 1 if unit.lines_bytes is None else 2
        told["rolled_bytes"] += unit.rolled_bytes
        if unit.lines_bytes is not None:
            told["sealed_lines"] += unit.lines
            told["sealed_bytes"] += unit.lines_bytes
    damaged = [{**row, "at": to_text(from_ns(row.pop("at_ns")))} for row in store.damaged()]
    return {"bytes": size, "measurements": found, "damaged": damaged}


def verify(store: Embedded) -> dict[str, Any]:
    """Read every byte of the store, set damaged files aside, and return the counts."""
    found = store.verify()
    return {"units": found.units, "lines": found.lines, "damaged": found.damaged}


def backup(store: Embedded, settings: HubSettings, to: Path) -> dict[str, Any]:
    """Copy telemetry, and records and tokens in SQLite, into a new or empty directory.

    StoreError when it is not empty or cannot be written.
    """
    try:
        to.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(to.iterdir()):
            raise StoreError(f"{to} is not empty; name another directory")
        size = store.backup(to)
        records = settings.data_directory / RECORDS
        in_sqlite = not in_postgresql(settings)
        if in_sqlite and records.exists():
            size += _copy_records(records, to / RECORDS)
        ended = ends_file(settings.data_directory)
        if ended.exists():
            merge_ends(ended, ends_file(to))
    except OSError as error:
        why = f"cannot write to {to}: {error.strerror or error}"
        if error.errno in _NOT_ALLOWED:
            why += "; a hub under systemd writes where its unit and its user may (docs/stores.md)"
        raise StoreError(why) from error
    return {"directory": str(to), "bytes": size, "records": in_sqlite}


def _copy_records(source: Path, to: Path) -> int:
    """Copy the records as they are now with SQLite's own backup; return the copy's bytes."""
    try:
        with closing(sqlite3.connect(source)) as here, closing(sqlite3.connect(to)) as there:
            here.backup(there)
    except sqlite3.Error as error:
        raise StoreError(f"the records in {source}: {error}") from error
    return to.stat().st_size
