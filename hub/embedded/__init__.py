"""The embedded time-series store: DuckDB for what is new, Parquet files for what is over."""

from .question import Latest, Question, Series, TooLarge, Window
from .statistics import DroppedLines, VerificationResult, is_crowded
from .store import Embedded

__all__ = [
    "DroppedLines",
    "Embedded",
    "Latest",
    "Question",
    "Series",
    "TooLarge",
    "VerificationResult",
    "Window",
    "is_crowded",
]
