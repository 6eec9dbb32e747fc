"""Map the groups that an identity provider or a proxy names to a role and teams."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from accounting.people.roles import Person, Role, highest
from gpuvigil.config import PeopleSettings

_LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityClaims:
    """The person and groups that a provider or a proxy vouches for."""

    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMapping:
    """Role and team by group; people in none of the groups get the role `everybody`, if there is one."""

    roles: Mapping[str, Role]
    teams: Mapping[str, str]
    everybody: Role | None

    @classmethod
    def of(cls, settings: PeopleSettings) -> "GroupMapping":
        return cls(
            roles={group: Role(role) for group, role in pairs(settings.group_roles)},
            teams=dict(pairs(settings.group_teams)),
            everybody=Role(settings.default_role) if settings.default_role else None,
        )

    def claims(self, name: str, groups: Iterable[str]) -> IdentityClaims | None:
        """Return the person with only the groups that have a meaning, as a cookie is small; None without a role."""
        meant = (one for one in dict.fromkeys(groups) if one in self.roles or one in self.teams)
        found = IdentityClaims(name=name, groups=tuple(meant))
        return found if self.person(found) is not None else None

    def person(self, word: IdentityClaims) -> Person | None:
        """Return the person with role and teams; None for somebody without a role or with a bad name."""
        name, told = word.name, word.groups
        given = [self.roles[group] for group in told if group in self.roles]
        role = highest([*given, *([self.everybody] if self.everybody else [])])
        if role is None or not name or len(name) > _LONGEST or not name.isprintable():
            return None
        teams = frozenset(self.teams[group] for group in told if group in self.teams)
        return Person(name=name, role=role, users=frozenset({name}), teams=teams)


def pairs(entries: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Split entries `GROUP=WORD` at the last `=`, since group names may contain one, as in LDAP."""
    for entry in entries:
        group, _, word = entry.rpartition("=")
        yield group, word
