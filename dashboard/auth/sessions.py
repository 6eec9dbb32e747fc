"""Who a session's cookie belongs to.

A cookie is signed, and says who signed in and when that ends. A role comes from the accounts at every
look, so that its change and a removed person count at once; of who came by another's word (OIDC, a
proxy) the cookie carries what was said. One that was signed out of is remembered until its end.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from accounting.people.roles import HOLDER_OF_THE_LINK, Person
from gpuvigil.errors import ConfigError

from .accounts import Account, Accounts
from .keys import Keys

# The page learns by it who asks; whoever sends it from outside is not heard.
SESSION_HEADER = "x-gpuvigil-session"


class Sessions:
    """Signs people in, tells who somebody is, and signs them out."""

    def __init__(self, keys: Keys, accounts: Accounts | None) -> None:
        self._keys = keys
        self._accounts = accounts

    def of_link(self, now: datetime) -> str:
        """A cookie for who has opened a one-time link, or knows the access token."""
        return self._keys.new_cookie(now)

    def of_account(self, account: Account, now: datetime) -> str:
        said = {"name": account.person.name, "version": account.version}
        return self._keys.new_cookie(now, said)

    def of_word(self, person: Person, now: datetime) -> str:
        """For whom a provider or a proxy has vouched."""
        return self._keys.new_cookie(now, {"person": person.to_json()})

    def person(self, value: str, now: datetime) -> Person | None:
        """None for a cookie that is not ours, is over, or whose account is gone or has another password."""
        said = self._keys.said(value, now)
        if said is None:
            return None
        if not said:
            return HOLDER_OF_THE_LINK
        try:
            return self._named(said)
        except (ValueError, KeyError, TypeError):  # of another version
            return None

    def _named(self, said: Mapping[str, Any]) -> Person | None:
        if "person" in said:
            return Person.from_json(said["person"])
        try:
            account = None if self._accounts is None else self._accounts.of(str(said["name"]))
        except ConfigError:  # the file is damaged: nobody comes in by it
            return None
        current = account is not None and account.version == said["version"]
        return account.person if account is not None and current else None

    def end(self, value: str, now: datetime) -> None:
        """Signed out: nobody comes in with it any more."""
        self._keys.end(value, now)

    @property
    def cookie_name(self) -> str:
        return self._keys.cookie_name

    @property
    def seconds(self) -> int:
        return self._keys.session_seconds
