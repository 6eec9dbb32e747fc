"""The filters of the list of incidents, as an address names them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from urllib.parse import urlencode

from gpuvigil.web.page_links import INCIDENTS

LONGEST_TEXT = 200
SPANS = {"24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
SPAN_NAMES = {"24h": "24 hours", "7d": "7 days", "30d": "30 days"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The filters; empty is everything. Values come from an address and may be anything."""

    show: str = ""  # active, open, acknowledged, flapping, past
    last: str = "7d"  # how far back ended incidents are shown
    severity: str = ""
    fault: str = ""
    cluster: str = ""
    node: str = ""
    q: str = ""  # text to search for in an incident
    incident: str = ""  # ID of the opened incident

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Filters":
        """Return the filters of an address; an unknown span becomes the default."""
        known = {field.name for field in fields(cls)}
        given = {name: query[name][:LONGEST_TEXT] for name in known & query.keys()}
        if given.get("last") not in SPANS:
            given.pop("last", None)
        if given.get("show") == "standing":  # in links of messages sent before it was renamed
            given["show"] = "active"
        return cls(**given)

    @property
    def span(self) -> timedelta:
        """How far back ended incidents are shown."""
        return SPANS[self.last]

    def set(self, **changes: str) -> "Filters":
        """Return the filters with `changes`."""
        return replace(self, **changes)

    def given(self) -> dict[str, str]:
        """Return the filters that differ from their defaults."""
        return {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    @property
    def href(self) -> str:
        """The address of the list with these filters."""
        query = urlencode(self.given())
        return f"{INCIDENTS}?{query}" if query else INCIDENTS
