"""Who a session's cookie belongs to.

A cookie is signed, and says who signed in, how, when, and when that ends. A role comes from the accounts
at every look, so that its change and a removed person count at once; of who came by another's word
(OIDC, a proxy) the cookie carries name and groups, and today's `group_roles` say what they mean. One that
was signed out of is remembered until its end.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from accounting.people.roles import HOLDER_OF_THE_LINK, Person
from gpuvigil.errors import ConfigError

from .accounts import Account, Accounts
from .groups import Groups, Word
from .keys import Keys

# The page learns by it who asks; whoever sends it from outside is not heard.
SESSION_HEADER = "x-gpuvigil-session"
PASSWORD, PROVIDER, PROXY = "password", "provider", "proxy"
# A proxy speaks at each request; only a page that stays open lives by what it said before.
PROXY_LIFE = timedelta(hours=12)


class Sessions:
    """Signs people in, tells who somebody is, and signs them out."""

    def __init__(
        self, keys: Keys, accounts: Accounts | None, groups: Mapping[str, Groups] | None = None
    ) -> None:
        """`groups` are what groups mean by each way that is on, of `PROVIDER` and `PROXY`."""
        self._keys = keys
        self._accounts = accounts
        self._groups = groups or {}

    @property
    def have_names(self) -> bool:
        """Whether people have names here."""
        try:
            return bool(self._groups) or bool(self._accounts and self._accounts.all())
        except ConfigError:  # nobody can come in by a damaged file, and nothing opens because of it
            return True

    def of_link(self, now: datetime) -> str:
        """A cookie for who has opened a one-time link, or knows the access token."""
        return self._keys.new_cookie(now, {"named": self.have_names})

    def of_account(self, account: Account, now: datetime) -> str:
        said = {"name": account.person.name, "version": account.version, "at": now.timestamp()}
        return self._keys.new_cookie(now, {**said, "way": PASSWORD})

    def of_word(self, way: str, word: Word, now: datetime) -> str:
        """For whom a provider or a proxy has vouched."""
        said = {"name": word.name, "groups": word.groups, "at": now.timestamp(), "way": way}
        life = min(PROXY_LIFE, timedelta(seconds=self.seconds)) if way == PROXY else None
        return self._keys.new_cookie(now, said, life)

    def person(self, value: str, now: datetime) -> Person | None:
        """None for a cookie that is not ours, is over, or whose account is gone or has another password."""
        said = self._keys.said(value, now)
        if said is None:
            return None
        if not said or "named" in said:
            # Everybody had come by a link before people got names: they are to say theirs now.
            counts = said.get("named") or not self.have_names
            return HOLDER_OF_THE_LINK if counts else None
        try:
            person = self._named(said)
            over = person is None or self._keys.is_over(person.name, said["at"])
            return None if person is None or over else replace(person, way=said["way"])
        except (ValueError, KeyError, TypeError):  # of another version
            return None

    def _named(self, said: Mapping[str, Any]) -> Person | None:
        if said["way"] != PASSWORD:  # one that was switched off is in no groups: KeyError
            word = Word(name=str(said["name"]), groups=tuple(map(str, said["groups"])))
            return self._groups[said["way"]].person(word)
        try:
            account = None if self._accounts is None else self._accounts.of(str(said["name"]))
        except ConfigError:  # the file is damaged: nobody comes in by it
            return None
        current = account is not None and account.version == said["version"]
        return account.person if account is not None and current else None

    def is_proxys(self, value: str, now: datetime) -> bool:
        """Whether this is a proxy's word, which comes again with the next request."""
        said = self._keys.said(value, now)
        return said is not None and said.get("way") == PROXY

    def end(self, value: str, now: datetime) -> None:
        """Signed out: nobody comes in with it any more."""
        self._keys.end(value, now)

    @property
    def cookie_name(self) -> str:
        return self._keys.cookie_name

    @property
    def seconds(self) -> int:
        return self._keys.session_seconds
