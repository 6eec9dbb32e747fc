"""The SQL tables of the records, as the newest of `migrations` leaves them."""

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table
from sqlalchemy import Text as AnyText

metadata = MetaData()

# SQLite compares bytes; PostgreSQL does with this collation, whatever the cluster's language is.
Text = AnyText().with_variant(AnyText(collation="C"), "postgresql")

# Times are RFC 3339 text with microseconds in UTC (`gpuvigil.clock.to_text`), which sorts.
record = Table(
    "record",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False, unique=True),
    Column("version", BigInteger, nullable=False),
    Column("at", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("parent", Text),
    Column("state", Text),  # can be queried: `body.state`, for an allocation an `AllocationState`
    Column("body", Text, nullable=False),
    Column("due_at", Text),
    Column("owner", Text),  # who claimed it last
    Column("lease_until", Text),  # null without a lease, or when it is finished
)
Index("record_by_kind", record.c.kind, record.c.sequence)
Index("record_by_age", record.c.kind, record.c.at)


def _where_known(name: str, column: Column[Any], *more: Column[Any]) -> None:
    """Add an index over the records with a value in a column: most have none, and cost nothing."""
    known = column.is_not(None)
    Index(name, record.c.kind, column, *more, sqlite_where=known, postgresql_where=known)


_where_known("record_by_state", record.c.state, record.c.sequence)
_where_known("record_by_parent", record.c.parent)
_where_known("record_due", record.c.due_at)

# One row. Its lock makes the order of sequences the order of commits.
counter = Table(
    "counter",
    metadata,
    # From before `migrations`: by it a hub of that time refuses the database.
    Column("schema_version", Integer, nullable=False),
    Column("sequence", BigInteger, nullable=False),
)

# The issued tokens; `sha256` is all that is kept of a token itself.
token = Table(
    "token",
    metadata,
    Column("id", Text, primary_key=True),
    Column("scope", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("ends_at", Text),
    Column("changed", BigInteger, nullable=False),  # the number of the last change to it
)
