"""Adds the issued tokens, which were in a file of each hub before."""

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create a table that hubs of earlier layouts do not use."""
    op.create_table(
        "token",
        sa.Column("id", _TEXT, primary_key=True),
        sa.Column("scope", _TEXT, nullable=False),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("cluster", _TEXT, nullable=False),
        sa.Column("node", _TEXT, nullable=False),
        sa.Column("sha256", _TEXT, nullable=False),
        sa.Column("created_at", _TEXT, nullable=False),
        sa.Column("ends_at", _TEXT),
        sa.Column("changed", sa.BigInteger, nullable=False),
    )
