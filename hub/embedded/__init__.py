"""The embedded time-series store: DuckDB for what is new, Parquet files for what is over."""

from .question import Latest, Question, Series, TooLarge, Window
from .statistics import Dropped, Verified, is_crowded
from .store import Embedded

__all__ = [
    "Dropped",
    "Embedded",
    "Latest",
    "Question",
    "Series",
    "TooLarge",
    "Verified",
    "Window",
    "is_crowded",
]
