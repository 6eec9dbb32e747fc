"""Migrates a database that has an older layout."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from gpuvigil.errors import StoreError

_FIRST = "1"


def follow(connection: Connection, found: str | None, place: str) -> None:
    """Migrate from the layout `found`, None for one from before they had numbers, to the newest."""
    config = config_of(connection)
    script = ScriptDirectory.from_config(config)
    if found is None:
        command.stamp(config, _FIRST)
    elif found not in {it.revision for it in script.walk_revisions()}:
        newest = script.get_current_head()
        raise StoreError(
            f"{place} were written by a newer gpuvigil (schema {found}, this one knows {newest});"
            " start that version, or choose another place"
        )
    command.upgrade(config, "head")


def config_of(connection: Connection) -> Config:
    """Return the configuration of Alembic's commands: where the layouts are, and the connection."""
    config = Config(attributes={"connection": connection})
    folder = str(Path(__file__).parent).replace("%", "%%")
    config.set_main_option("script_location", folder)
    return config
