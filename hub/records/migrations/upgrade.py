"""From whatever layout a database has to the newest, in the transaction of whoever opens it."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, inspect, select

from gpuvigil.errors import StoreError

# Any number, as long as everybody who changes the layout takes the same.
LOCK = 0x6770_7576

_FIRST = "1"


def upgrade(connection: Connection, place: str) -> None:
    """Make the newest layout of the database at `place`; StoreError when a newer hub made it.

    On PostgreSQL one hub does it while the others wait; on SQLite the transaction must hold the
    write lock already.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        connection.execute(select(func.pg_advisory_xact_lock(LOCK)))
    config = _config(connection)
    script = ScriptDirectory.from_config(config)
    found = MigrationContext.configure(connection).get_current_revision()
    if found is None and inspect(connection).has_table("counter"):
        # Made before the layouts had numbers.
        command.stamp(config, _FIRST)
    newest = script.get_current_head()
    if found == newest:
        return
    if found is not None and found not in {it.revision for it in script.walk_revisions()}:
        raise StoreError(
            f"{place} were written by a newer gpuvigil (schema {found}, this one knows {newest});"
            " start that version, or choose another place"
        )
    command.upgrade(config, "head")


def _config(connection: Connection) -> Config:
    config = Config(attributes={"connection": connection})
    folder = str(Path(__file__).parent).replace("%", "%%")
    config.set_main_option("script_location", folder)
    return config
