"""Settings of the ways to sign in to the dashboard, beside the one-time link and local accounts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .setting import setting as _setting

_ROLES = ("operator", "viewer", "team", "own")
# Unencrypted traffic must stay on the machine.
_ISSUER = re.compile(r"https://.|http://(127\.0\.0\.1|localhost)[:/]")
_HEADER = re.compile(r"[A-Za-z0-9-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleSettings:
    """People's identities and roles, according to an OIDC provider or a reverse proxy."""

    oidc_issuer: str = _setting(
        "", "OpenID Connect: the provider's issuer, as https://id.example.org; empty: off"
    )
    oidc_client_id: str = _setting("", "the name under which the provider knows gpuvigil")
    oidc_client_secret_file: Path | None = _setting(
        None, "file with the secret that goes with it; none for a public client"
    )
    oidc_scope: str = _setting("openid profile", "what the provider is asked for")
    oidc_name_claim: str = _setting(
        "preferred_username", "claim that names the person, best as the clusters do"
    )
    oidc_groups_claim: str = _setting("groups", "claim that lists the person's groups")
    proxy_user_header: str = _setting(
        "",
        "header in which a proxy of `dashboard.trusted_proxies` names who has signed in to it, as"
        " `Remote-User`; empty: off",
    )
    proxy_groups_header: str = _setting(
        "", "header in which it lists their groups, separated by commas"
    )
    group_roles: tuple[str, ...] = _setting(
        (),
        "what members of a group may, as `gpu-admins=operator`; roles are operator, viewer, team and own,"
        " and of several the first counts",
    )
    group_teams: tuple[str, ...] = _setting(
        (), "of which team a group is, as `nlp-group=nlp`: an account of the scheduler's"
    )
    default_role: str = _setting(
        "", "role of who is in none of these groups; empty: they are not let in"
    )
    pseudonyms_after_days: float = _setting(
        0.0,
        "what is over for so long names no user any more, on pages and in reports: a pseudonym stands"
        " for each; 0: never",
    )

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield each mistake in these settings: the key, and why."""
        for entry in self.group_roles:
            group, _, role = entry.rpartition("=")
            if not group or role not in _ROLES:
                yield "group_roles", f"{entry!r} is not like gpu-admins=operator"
        for entry in self.group_teams:
            if not all(entry.rpartition("=")):
                yield "group_teams", f"{entry!r} is not like nlp-group=nlp"
        if self.default_role not in {"", *_ROLES}:
            yield "default_role", f"{self.default_role!r} is none of {', '.join(_ROLES)}"
        yield from self._wrong_outside()

    def _wrong_outside(self) -> Iterator[tuple[str, str]]:
        for key in ("proxy_user_header", "proxy_groups_header"):
            if _HEADER.fullmatch(getattr(self, key)) is None:
                yield key, f"{getattr(self, key)!r} is no header's name"
        if self.oidc_issuer and not self.oidc_client_id:
            yield "oidc_client_id", "is needed beside oidc_issuer"
        if self.oidc_issuer and _ISSUER.match(self.oidc_issuer) is None:
            yield "oidc_issuer", f"{self.oidc_issuer!r} is not an https address"
