"""The records: small, transactional, in SQL; this package alone opens them."""

from .book import Book, LeaseLostError
from .database import open_records
from .desk import Desk
from .moving import move_records

__all__ = ["Book", "Desk", "LeaseLostError", "move_records", "open_records"]
