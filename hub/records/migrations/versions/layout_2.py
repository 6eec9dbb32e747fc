"""Three indexes hold only the records that have a value there."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Make them anew; a hub from before the layouts had numbers refuses by `schema_version`."""
    for name, columns in (
        ("record_by_state", ["kind", "state", "sequence"]),
        ("record_by_parent", ["kind", "parent"]),
        ("record_due", ["kind", "due_at"]),
    ):
        known = sa.text(f"{columns[1]} IS NOT NULL")
        op.drop_index(name, "record")
        op.create_index(name, "record", columns, sqlite_where=known, postgresql_where=known)
    op.execute("UPDATE counter SET schema_version = 2")
