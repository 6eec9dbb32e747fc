"""The records and the counter of their commits."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create both tables, and the counter's one row."""
    record = op.create_table(
        "record",
        sa.Column("kind", _TEXT, primary_key=True),
        sa.Column("id", _TEXT, primary_key=True),
        sa.Column("sequence", sa.BigInteger, nullable=False, unique=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("at", _TEXT, nullable=False),
        sa.Column("subject", _TEXT, nullable=False),
        sa.Column("parent", _TEXT),
        sa.Column("state", _TEXT),
        sa.Column("body", _TEXT, nullable=False),
        sa.Column("due_at", _TEXT),
        sa.Column("owner", _TEXT),
        sa.Column("lease_until", _TEXT),
    )
    for name, columns in (
        ("record_by_kind", ["kind", "sequence"]),
        ("record_by_state", ["kind", "state", "sequence"]),
        ("record_by_parent", ["kind", "parent"]),
        ("record_by_age", ["kind", "at"]),
        ("record_due", ["kind", "due_at"]),
    ):
        op.create_index(name, record.name, columns)
    counter = op.create_table(
        "counter",
        sa.Column("schema_version", sa.Integer, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(counter, [{"schema_version": 1, "sequence": 0}])
