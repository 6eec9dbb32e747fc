"""The layouts of the records, one after the other, by Alembic; `hub.records.upgrade` asks for them."""
