"""Opens the records' database: this hub's SQLite file, or PostgreSQL for several hubs."""

import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from gpuvigil.config import HubSettings, read_secret
from gpuvigil.errors import ConfigError, StoreError

from .upgrade import upgrade

SQLITE_NAME = "records.sqlite"

_PATIENCE_SECONDS = 10.0

# A hub whose machine is gone, or that hangs, must not hold the one lock of all writers for long. By
# default the server would check a silent connection only after two hours.
_SESSION = """
SET lock_timeout = '10s';
SET statement_timeout = '60s';
SET idle_in_transaction_session_timeout = '20s';
SET tcp_keepalives_idle = 10;
SET tcp_keepalives_interval = 5;
SET tcp_keepalives_count = 3;
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off';
"""

# The same on the client's side; in milliseconds where libpq expects them.
_CONNECTION = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "application_name": "gpuvigil hub",
}


def in_postgresql(settings: HubSettings) -> bool:
    """Return whether the records are in PostgreSQL, and not in a file of this hub."""
    return bool(settings.records_url) or settings.records_url_file is not None


def open_records(settings: HubSettings) -> Engine:
    """Open the records' database in its newest layout; ConfigError or StoreError with one line."""
    key, text = "hub.records_url", settings.records_url
    if settings.records_url_file is not None:
        key, text = "hub.records_url_file", read_secret(settings.records_url_file, "records' URL")
    if not text:
        return open_sqlite(settings.data_directory / SQLITE_NAME)
    return open_postgresql(_address(text, key))


def open_sqlite(path: Path) -> Engine:
    """Open the records in a SQLite file, created when missing."""
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": _PATIENCE_SECONDS})
    event.listen(engine, "connect", _on_sqlite_connect)
    event.listen(engine, "begin", _on_sqlite_begin)
    return _upgraded(engine, f"the records in {path}")


def open_postgresql(url: URL) -> Engine:
    """Open the records in a PostgreSQL database, which must exist and may be empty."""
    try:
        engine = create_engine(
            url,
            connect_args=_CONNECTION,
            isolation_level="READ COMMITTED",
            # A server that was restarted costs a round trip, not a failed request.
            pool_pre_ping=True,
            pool_size=5,
            max_overflow=15,
            pool_timeout=10,
        )
    except ImportError:
        raise ConfigError(
            "hub.records_url: PostgreSQL needs its driver:"
            " in a checkout, pip install '.[postgresql]'"
        ) from None
    event.listen(engine, "connect", _on_postgresql_connect)
    return _upgraded(engine, f"the records in {place(engine)}")


def place(engine: Engine) -> str:
    """Describe where the database is, in words that hold no secret."""
    url = engine.url
    host = url.host or str(url.query.get("host", "the local socket"))
    return f"PostgreSQL at {host}{f':{url.port}' if url.port else ''}, database {url.database}"


def reason(error: DBAPIError) -> str:
    """Return the first line of the driver's error; others repeat it per address, or give hints."""
    return (str(error.orig).strip() or type(error.orig).__name__).splitlines()[0]


def writing(engine: Engine) -> Engine:
    """Return the same engine for transactions that write."""
    return engine.execution_options(writes=True)


def _upgraded(engine: Engine, where: str) -> Engine:
    try:
        with writing(engine).begin() as connection:
            upgrade(connection, where)
    except DBAPIError as error:
        engine.dispose()
        raise StoreError(f"{where}: {reason(error)}") from error
    except StoreError:
        engine.dispose()
        raise
    return engine


def _address(text: str, key: str) -> URL:
    # A message that quotes the URL might reveal its password.
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError(f"{key} is not a URL like {_EXAMPLE}") from None
    if url.get_backend_name() not in {"postgresql", "postgres"}:
        raise ConfigError(f"{key} must be a URL like {_EXAMPLE}; without it SQLite is used")
    return url.set(drivername="postgresql+psycopg")


_EXAMPLE = "postgresql://user:password@host:5432/database"


def _on_sqlite_connect(connection: Any, _record: object) -> None:
    # The driver would begin transactions on its own, and too late; `_on_sqlite_begin` does it.
    connection.isolation_level = None
    _to_write_ahead(connection)
    connection.execute("PRAGMA synchronous=FULL")


def _to_write_ahead(connection: Any) -> None:
    """Switch the file to write-ahead logging; retry while another first opener does the same."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            # SQLite waits for every other lock by itself (`timeout`), for this one never.
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _on_sqlite_begin(connection: Connection) -> None:
    # A transaction that reads and then writes must hold the write lock from its start.
    mode = "IMMEDIATE" if connection.get_execution_options().get("writes") else "DEFERRED"
    connection.exec_driver_sql(f"BEGIN {mode}")


def _on_postgresql_connect(connection: Any, _record: object) -> None:
    before = connection.autocommit
    # Within a transaction the settings would end with it.
    connection.autocommit = True
    connection.execute(_SESSION)
    connection.autocommit = before
