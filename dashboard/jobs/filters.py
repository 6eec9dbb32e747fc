"""What an address asks the list of jobs to show."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from urllib.parse import urlencode

from gpuvigil.web.page_links import JOBS

LONGEST_TEXT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Empty is as usual; values come from an address and may be anything."""

    sort: str = ""  # a column's key
    order: str = ""  # "up": the least first
    q: str = ""  # text, in whatever is known of a job

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Filters":
        known = {field.name for field in fields(cls)}
        return cls(**{name: query[name][:LONGEST_TEXT] for name in known & query.keys()})

    def by(self, column: str) -> "Filters":
        """Sorted by a column: the most first, and the other way round where it is so already."""
        up = "up" if self.sort == column and self.order != "up" else ""
        return replace(self, sort=column, order=up)

    @property
    def given(self) -> dict[str, str]:
        return {field.name: it for field in fields(self) if (it := getattr(self, field.name))}

    @property
    def href(self) -> str:
        query = urlencode(self.given)
        return f"{JOBS}?{query}" if query else JOBS
