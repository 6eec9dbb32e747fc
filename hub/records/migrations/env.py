"""Alembic's environment: it runs inside the connection, and the transaction, of its caller."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
