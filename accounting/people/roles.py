"""A signed-in person, and what each role may see and do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum


class Role(str, Enum):
    """The roles, from most rights to least."""

    OPERATOR = "operator"  # sees everything, and alone acknowledges, silences and answers
    VIEWER = "viewer"  # sees the whole fleet, without the names of people outside their own teams
    TEAM = "team"  # sees the jobs of their own teams
    OWN = "own"  # sees their own jobs

    @property
    def sees_rows_of_others(self) -> bool:
        """Whether jobs of others are shown, without names if need be."""
        return self in {Role.OPERATOR, Role.VIEWER}


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """The person who asks: the name they signed in with, and their user names and teams on clusters."""

    name: str  # empty: came by a link or the access token, and enters a name
    role: Role
    users: frozenset[str] = frozenset()  # their user names on the clusters
    teams: frozenset[str] = frozenset()  # the scheduler accounts whose names they see
    way: str = field(default="link", compare=False)  # how they signed in

    @property
    def is_operator(self) -> bool:
        return self.role is Role.OPERATOR

    def is_own(self, user: str | None, account: str | None) -> bool:
        """Return whether this is their own or, where their role covers teams, one of their team's."""
        if user is not None and user in self.users:
            return True
        return self.role is not Role.OWN and account is not None and account in self.teams

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "role": self.role.value,
            "users": sorted(self.users),
            "teams": sorted(self.teams),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> "Person":
        """Read what `to_json` wrote; ValueError, KeyError or TypeError for anything else."""
        return cls(
            name=str(value["name"]),
            role=Role(value["role"]),
            users=_texts(value.get("users")),
            teams=_texts(value.get("teams")),
        )


# Anyone who opened a one-time link or typed the access token can read the dashboard's secrets.
HOLDER_OF_THE_LINK = Person(name="", role=Role.OPERATOR)


def highest(roles: Iterable[Role]) -> Role | None:
    """Return the role with most rights; None without any."""
    given = set(roles)
    return next((role for role in Role if role in given), None)


def _texts(value: object) -> frozenset[str]:
    if not isinstance(value, list | tuple | None):
        raise TypeError("not a list of names")
    return frozenset(str(one) for one in value or ())
