"""Brings a database of any layout to the newest, in the transaction that opens it."""

from sqlalchemy import Column, Connection, MetaData, String, Table, func, insert, inspect, select

from .tables import counter, metadata

# The newest of `migrations`.
NEWEST = "3"

# The advisory lock: any number, as long as everybody who changes the layout takes the same.
LOCK = 0x6770_7576

# The value of `schema_version`: by it a hub from before numbered layouts refuses the database.
_SCHEMA_VERSION = 2

# Alembic's own table: one row, the number of the layout.
_numbers = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))


def upgrade(connection: Connection, place: str) -> None:
    """Upgrade the database at `place` to the newest layout; StoreError when a newer hub made it.

    On PostgreSQL one hub does it while the others wait; on SQLite the transaction must hold the
    write lock already.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        connection.execute(select(func.pg_advisory_xact_lock(LOCK)))
    there = set(inspect(connection).get_table_names())
    found = None
    if _numbers.name in there:
        found = connection.execute(select(_numbers.c.version_num)).scalar()
    if found == NEWEST:
        return
    if found is None and counter.name not in there:
        _make(connection)
        return
    from .migrations.by_alembic import follow  # noqa: PLC0415 - 90 modules that most starts do not need

    follow(connection, found, place)


def _make(connection: Connection) -> None:
    """Create the newest layout in an empty database."""
    # A table of somebody else's with such a name is an error, as it is to Alembic.
    metadata.create_all(connection, checkfirst=False)
    connection.execute(insert(counter).values(schema_version=_SCHEMA_VERSION, sequence=0))
    _numbers.create(connection, checkfirst=True)
    connection.execute(insert(_numbers).values(version_num=NEWEST))
