"""The parameters of the page of users and teams, as an address names them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from urllib.parse import urlencode

from gpuvigil.web.page_links import PEOPLE

LONGEST = 200
SPANS = {"24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
SPAN_NAMES = {"24h": "24 hours", "7d": "7 days", "30d": "30 days"}
USUAL = "7d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The parameters; empty is everything. Values come from an address and may be anything."""

    last: str = USUAL
    cluster: str = ""
    user: str = ""
    team: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Asked":
        """Return the parameters of an address; an unknown span becomes the default, a user overrides a team."""
        given = {name: query.get(name, "")[:LONGEST] for name in cls.__dataclass_fields__}
        if given["last"] not in SPANS:
            given["last"] = USUAL
        if given["user"]:
            given["team"] = ""
        return cls(**given)

    @property
    def one(self) -> bool:
        """Whether a single user or team is asked for."""
        return bool(self.user or self.team)

    @property
    def title(self) -> str:
        """The title of the page."""
        if self.user:
            return f"User {self.user}"
        return f"Team {self.team}" if self.team else "Users and teams"

    @property
    def span(self) -> timedelta:
        return SPANS[self.last]

    @property
    def everybody(self) -> str:
        return replace(self, user="", team="").href

    def with_span(self, last: str) -> str:
        return replace(self, last=last).href

    @property
    def href(self) -> str:
        """The address of the page with these parameters."""
        fields = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        given = {
            name: value for name, value in fields if value and (name, value) != ("last", USUAL)
        }
        return f"{PEOPLE}?{urlencode(given)}" if given else PEOPLE
