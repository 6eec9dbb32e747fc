"""The records: small, transactional, in SQL; this package alone opens them."""

from .backup_keeper import BackupKeeper
from .backups import wrong_inside
from .book import Book, LeaseLostError
from .database import in_postgresql, open_records
from .desk import Desk
from .keyring import Keyring, Watch
from .moving import move_records
from .repair import Opened, open_kept, set_records_aside
from .revoked import Ends, ends_file, merge_ends
from .transactions import Transactions

__all__ = [
    "BackupKeeper",
    "Book",
    "Desk",
    "Ends",
    "Keyring",
    "LeaseLostError",
    "Opened",
    "Transactions",
    "Watch",
    "ends_file",
    "in_postgresql",
    "merge_ends",
    "move_records",
    "open_kept",
    "open_records",
    "set_records_aside",
    "wrong_inside",
]
