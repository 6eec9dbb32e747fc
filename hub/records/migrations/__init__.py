"""The layouts of the records, migrated in turn by Alembic; `hub.records.upgrade` calls it."""
