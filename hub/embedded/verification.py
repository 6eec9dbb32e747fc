"""Verification: every sealed file is read; damaged ones are set aside, and their loss is recorded."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from gpuvigil.clock import Clock, to_ns
from gpuvigil.log import Log

from . import damage
from .database import Database
from .open_readers import OpenReaders
from .sealed_files import Unit, strike, units, wrong_with
from .sealed_sql import undecodable

_LOG = Log("hub")


class Inspector:
    """Checks the sealed files of one store; any thread may call.

    StoreError when a file cannot be read at the moment.
    """

    def __init__(
        self,
        database: Database,
        place: tuple[Path, OpenReaders],
        clock: Clock,
        changing: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        """`place`: the folder of sealed files, and their readers; `changing` is held while units
        are struck from the manifest.
        """
        self._database = database
        self._folder, self._readers = place
        self._clock = clock
        self._changing = changing

    def verify(self, known: Iterable[Unit], *, decode: bool = False) -> int:
        """Read units and set aside those that are damaged; return how many.

        With `decode`, also those whose bytes are as written but cannot be decoded.
        """
        damaged = 0
        try:
            for unit in known:
                with self._readers.reading():
                    wrong = wrong_with(unit, self._folder)
                    if decode and not wrong:
                        with self._database.cursor() as cursor:
                            wrong = undecodable(cursor, unit, self._folder)
                # A unit that was joined or dropped meanwhile has no files any more.
                if wrong and unit in self._known():
                    self.set_aside(unit, wrong)
                    damaged += 1
        except duckdb.Error as error:
            raise self._database.failure(error) from error
        except OSError as error:
            raise self._database.refused(error) from error
        return damaged

    def left_of(self, pieces: Sequence[Unit], *, decode: bool = False) -> Sequence[Unit] | None:
        """Set aside the damaged pieces and return the others; None when all are fine."""
        if not self.verify(pieces, decode=decode):
            return None
        left = {unit.name for unit in self._known()}
        return [unit for unit in pieces if unit.name in left]

    def set_aside(self, unit: Unit, wrong: Mapping[Path, str]) -> None:
        """Remove a unit from the manifest; what people can still read of its files stays."""
        moved = damage.moved_away(unit.files(self._folder), self._clock.now())
        self._database.transaction(partial(strike, gone=[unit]), commit_under=self._changing())
        for path, reason in wrong.items():
            self.record_damage(path, reason, moved.get(path), unit.lines)

    def record_damage(self, file: Path, reason: str, to: Path | None, lines: int | None) -> None:
        """Record what was lost, and log it."""
        _LOG.error(
            "damaged file set aside", file=str(file), reason=reason, moved_to=str(to), lines=lines
        )
        row = [to_ns(self._clock.now()), str(file), reason, None if to is None else str(to), lines]
        self._database.transaction(
            lambda cursor: cursor.execute("INSERT INTO damaged VALUES (?, ?, ?, ?, ?)", row)
        )

    def _known(self) -> list[Unit]:
        found: list[Unit] = self._database.transaction(units)
        return found
