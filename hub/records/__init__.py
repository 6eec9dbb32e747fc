"""The records: small, transactional, in SQL; this package alone opens them."""

from .book import Book, LeaseLostError
from .desk import Desk

__all__ = ["Book", "Desk", "LeaseLostError"]
