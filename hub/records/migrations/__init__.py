"""The layouts of the records, one after the other, by Alembic; `upgrade` leads to the newest."""

from .upgrade import upgrade

__all__ = ["upgrade"]
