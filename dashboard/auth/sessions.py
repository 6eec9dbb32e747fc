"""Sessions: which person a cookie belongs to.

A cookie is signed and says who signed in, how, when, and until when it is valid. The role is read from the
accounts on every request, so that a changed role or a removed person counts at once. For people from a
provider (OIDC) or a proxy the cookie carries name and groups, and the current `group_roles` give the role.
A cookie that was signed out is remembered until it would have expired.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from accounting.people.roles import HOLDER_OF_THE_LINK, Person
from gpuvigil.errors import ConfigError

from .accounts import Account, Accounts
from .groups import GroupMapping, IdentityClaims
from .keys import Keys

# The header by which a page learns who asks; the door removes it from outside requests.
SESSION_HEADER = "x-gpuvigil-session"
PASSWORD, PROVIDER, PROXY = "password", "provider", "proxy"
# A proxy names the person on every request; only an open page's connection relies on this cookie.
PROXY_LIFE = timedelta(hours=12)


class Sessions:
    """Starts, checks and ends sessions."""

    def __init__(
        self,
        keys: Keys,
        accounts: Accounts | None,
        groups: Mapping[str, GroupMapping] | None = None,
    ) -> None:
        """`groups` maps groups to roles and teams, by sign-in way: `PROVIDER` and `PROXY`, if enabled."""
        self._keys = keys
        self._accounts = accounts
        self._groups = groups or {}

    @property
    def have_names(self) -> bool:
        """Whether people sign in by name here: by accounts, a provider or a proxy."""
        try:
            return bool(self._groups) or bool(self._accounts and self._accounts.all())
        except ConfigError:  # a damaged file lets nobody in, and must not open anything
            return True

    def of_link(self, now: datetime) -> str:
        """Return a cookie for somebody who opened a one-time link or gave the access token."""
        return self._keys.new_cookie(now, {"named": self.have_names})

    def of_account(self, account: Account, now: datetime) -> str:
        said = {"name": account.person.name, "version": account.version, "at": now.timestamp()}
        return self._keys.new_cookie(now, {**said, "way": PASSWORD})

    def of_claims(self, way: str, word: IdentityClaims, now: datetime) -> str:
        """Return a cookie for somebody whom a provider or a proxy named."""
        said = {"name": word.name, "groups": word.groups, "at": now.timestamp(), "way": way}
        life = min(PROXY_LIFE, timedelta(seconds=self.seconds)) if way == PROXY else None
        return self._keys.new_cookie(now, said, life)

    def person(self, value: str, now: datetime) -> Person | None:
        """Return a cookie's person; None if it is invalid or over, or its account is gone or has a new password."""
        said = self._keys.payload(value, now)
        if said is None:
            return None
        if not said or "named" in said:
            # This session began by a link before there were accounts: now a name is needed.
            counts = said.get("named") or not self.have_names
            return HOLDER_OF_THE_LINK if counts else None
        try:
            person = self._named(said)
            over = person is None or self._keys.is_over(person.name, said["at"])
            return None if person is None or over else replace(person, way=said["way"])
        except (ValueError, KeyError, TypeError):  # a cookie of another version
            return None

    def _named(self, claims: Mapping[str, Any]) -> Person | None:
        if claims["way"] != PASSWORD:  # a way that was switched off has no groups: KeyError
            word = IdentityClaims(
                name=str(claims["name"]), groups=tuple(map(str, claims["groups"]))
            )
            return self._groups[claims["way"]].person(word)
        try:
            account = None if self._accounts is None else self._accounts.of(str(claims["name"]))
        except ConfigError:  # a damaged file lets nobody in
            return None
        current = account is not None and account.version == claims["version"]
        return account.person if account is not None and current else None

    def is_proxys(self, value: str, now: datetime) -> bool:
        """Return whether this session comes from a proxy, which renews it with the next request."""
        said = self._keys.payload(value, now)
        return said is not None and said.get("way") == PROXY

    def end(self, value: str, now: datetime) -> None:
        """Sign a session out, so that its cookie is no longer valid."""
        self._keys.end(value, now)

    @property
    def cookie_name(self) -> str:
        return self._keys.cookie_name

    @property
    def seconds(self) -> int:
        return self._keys.session_seconds
