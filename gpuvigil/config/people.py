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
        "", "OpenID Connect: the provider's issuer, such as https://id.example.org; empty: off"
    )
    oidc_client_id: str = _setting("", "gpuvigil's client ID at the provider")
    oidc_client_secret_file: Path | None = _setting(
        None, "file with the client secret; empty for a public client"
    )
    oidc_scope: str = _setting("openid profile", "scopes to request from the provider")
    oidc_name_claim: str = _setting(
        "preferred_username",
        "claim with the person's name, ideally their user name on the clusters",
    )
    oidc_groups_claim: str = _setting("groups", "claim with the person's groups")
    proxy_user_header: str = _setting(
        "",
        "header in which a proxy of `dashboard.trusted_proxies` passes the name of the person signed in, such as `Remote-User`; empty: off",
    )
    proxy_groups_header: str = _setting(
        "", "header in which it passes their groups, separated by commas"
    )
    group_roles: tuple[str, ...] = _setting(
        (),
        "role of a group's members, such as `gpu-admins=operator`; roles are operator, viewer, team and own; if several match, the first counts",
    )
    group_teams: tuple[str, ...] = _setting(
        (), "team of a group, such as `nlp-group=nlp`; a team is an account of the scheduler"
    )
    default_role: str = _setting(
        "", "role of people in none of these groups; empty: they are not let in"
    )
    pseudonyms_after_days: float = _setting(
        0.0,
        "after this long, pages and reports show pseudonyms instead of users; 0: never",
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
