"""The sorting and search of the list of jobs, as an address names them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from urllib.parse import urlencode

from gpuvigil.web.page_links import JOBS

LONGEST_TEXT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Sorting and search; empty is the default. Values come from an address and may be anything."""

    sort: str = ""  # key of a column
    order: str = ""  # "up": smallest first
    q: str = ""  # text to search for in a job

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Filters":
        known = {field.name for field in fields(cls)}
        return cls(**{name: query[name][:LONGEST_TEXT] for name in known & query.keys()})

    def by(self, column: str) -> "Filters":
        """Return the filters sorted by a column, largest first, or reversed if it is sorted so already."""
        up = "up" if self.sort == column and self.order != "up" else ""
        return replace(self, sort=column, order=up)

    @property
    def given(self) -> dict[str, str]:
        return {field.name: it for field in fields(self) if (it := getattr(self, field.name))}

    @property
    def href(self) -> str:
        query = urlencode(self.given)
        return f"{JOBS}?{query}" if query else JOBS
