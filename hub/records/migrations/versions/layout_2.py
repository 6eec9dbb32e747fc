"""Limits three indexes to the records that have a value in their column."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Recreate the indexes; a hub from before numbered layouts refuses by `schema_version`."""
    for name, columns in (
        ("record_by_state", ["kind", "state", "sequence"]),
        ("record_by_parent", ["kind", "parent"]),
        ("record_due", ["kind", "due_at"]),
    ):
        known = sa.text(f"{columns[1]} IS NOT NULL")
        op.drop_index(name, "record")
        op.create_index(name, "record", columns, sqlite_where=known, postgresql_where=known)
    op.execute("UPDATE counter SET schema_version = 2")
