"""The records: small, transactional, in SQL; this package alone opens them."""

from .book import Book, LeaseLostError
from .database import open_records
from .desk import Desk
from .keyring import Keyring, Watch
from .moving import move_records
from .transactions import Transactions

__all__ = [
    "Book",
    "Desk",
    "Keyring",
    "LeaseLostError",
    "Transactions",
    "Watch",
    "move_records",
    "open_records",
]
