"""Transactions on the records' database, and the error when one cannot be done."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from gpuvigil.errors import StoreError
from gpuvigil.log import Log

from .backups import is_damage
from .database import place, reason, writing
from .journal import Changes, Journal
from .repair import suspect
from .tables import counter

_LOG = Log("hub")

# Longer than the database itself waits for the lock of another hub.
_TURN_SECONDS = 30.0


class Transactions:
    """Transactions on one engine; StoreError has a line for anybody, the log has the details."""

    def __init__(self, engine: Engine, journal: Journal | None = None) -> None:
        """`journal` gets each commit: it is that of the hub which keeps this SQLite file."""
        self.engine = engine
        self.journal = journal
        self.damaged: str | None = None  # what SQLite says is wrong with the file
        self.changes = Changes()  # of the transaction that writes now, which fills them in
        self.shared = engine.dialect.name == "postgresql"
        # SQLite lets a second writer sleep and try again; a lock of ours wakes it at once.
        self._turn = threading.Lock()
        self._away = False

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that only reads."""
        with self._store_errors(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that reads and writes; over all hubs, one follows the other."""
        if not self._turn.acquire(timeout=_TURN_SECONDS):
            raise StoreError("the records: too much waits to be written")
        try:
            changes = self.changes = Changes()
            with self._store_errors(), writing(self.engine).begin() as connection:
                # Where the database lets several write at once, this row's lock puts them in order.
                connection.execute(update(counter).values(sequence=counter.c.sequence))
                if self.journal is not None:
                    changes.before = sequence_of(connection)
                yield connection
                if self.journal is not None:
                    changes.after = sequence_of(connection)
            if self.journal is not None:
                self.journal.append(changes)
        finally:
            self._turn.release()
        if self.journal is not None and changes.at_once:
            self.journal.sync()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the writers' turn, so that nobody writes; StoreError when getting it takes too long."""
        if not self._turn.acquire(timeout=_TURN_SECONDS):
            raise StoreError("the records: too much waits to be written")
        try:
            yield
        finally:
            self._turn.release()

    def close(self) -> None:
        """Close the database and the journal."""
        self.engine.dispose()
        if self.journal is not None:
            self.journal.close()

    def found_damaged(self, why: str) -> None:
        """Note that SQLite cannot read its file: only the next start helps, which restores it."""
        if self.damaged is None and self.journal is not None:
            self.damaged = why
            suspect(Path(str(self.engine.url.database)), why)

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        try:
            yield
        except PoolTimeoutError as error:
            raise StoreError("the records: every connection to the database is taken") from error
        except (OperationalError, InterfaceError) as error:
            if not self.shared:
                raise StoreError(f"the records: {reason(error)}") from error
            self._lost(reason(error))
            raise StoreError("the records: PostgreSQL cannot do it; see the hub's log") from error
        except DBAPIError as error:
            if is_damage(error.orig):
                self.found_damaged(reason(error))
            raise StoreError(f"the records: {reason(error)}") from error
        if self._away:
            self._away = False
            _LOG.info("records back", where=place(self.engine))

    def _lost(self, why: str) -> None:
        if not self._away:
            self._away = True
            _LOG.error("records away", where=place(self.engine), error=why)


def sequence_of(connection: Connection) -> int:
    """Return the sequence of the newest commit."""
    return int(connection.execute(select(counter.c.sequence)).scalar_one())
