"""The records: small, transactional, in SQL; this package alone opens them."""

from .backup_job import BackupJob
from .backups import wrong_inside
from .database import in_postgresql, open_records
from .issued_tokens import IssuedTokens, TokenRefresher
from .join_tokens import NotGivenError, Wanted
from .record_book import LeaseLostError, RecordBook
from .repair import Opened, mark_restored, open_kept, set_records_aside
from .revoked import RevocationFile, ends_file, merge_ends
from .to_postgresql import move_records
from .transactions import Transactions

__all__ = [
    "BackupJob",
    "IssuedTokens",
    "LeaseLostError",
    "NotGivenError",
    "Opened",
    "RecordBook",
    "RevocationFile",
    "TokenRefresher",
    "Transactions",
    "Wanted",
    "ends_file",
    "in_postgresql",
    "mark_restored",
    "merge_ends",
    "move_records",
    "open_kept",
    "open_records",
    "set_records_aside",
    "wrong_inside",
]
