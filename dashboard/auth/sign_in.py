"""The sign-in desk: signs people in and out, slows down guessing, and writes audit entries."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from gpuvigil.clock import Clock
from gpuvigil.errors import ConfigError
from gpuvigil.model import Audit, AuditedAction

from .accounts import Account, Accounts
from .groups import GroupMapping
from .keys import Keys
from .oidc import Oidc, SignInRefused
from .proxy_header import ProxyHeader
from .replies import Message, Receive, Send, answer, redirect, sign_in_page, sign_out_page
from .requests import OwnAddress, address, cookies, form, local
from .sessions import PASSWORD, PROVIDER, PROXY, Sessions
from .sign_in_attempts import FailedAttempts
from .sign_in_page import SignInOptions

SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
OIDC, CALLBACK = "/sign-in/oidc", "/sign-in/oidc/callback"
PATHS = frozenset({SIGN_IN, SIGN_OUT, OIDC, CALLBACK})
ELSEWHERE = (
    "it comes from another site, or does not say from where: open the dashboard at its own"
    " address; behind a proxy, set alerts.external_url to the address that browsers see"
)
REFUSED = f"refused: {ELSEWHERE}\n".encode()
# A password check takes 20 ms and 19 MiB: limits on checks at a time, and on those that wait or run.
_AT_ONCE, _WAITING = 2, 32
# Threads for the provider: if it hangs, it does not hold up password checks.
_ASKING = 4
_LONGEST_NAME = 100
WRONG = "Wrong name or password."
TOO_LONG = "This sign-in took too long, or began in another browser."
_T = TypeVar("_T")


def _no_audit(_: Audit) -> None:
    """Drop the entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInWays:
    """The ways to sign in beside one-time links and the access token; `audit` takes audit entries."""

    accounts: Accounts | None = None
    proxy: ProxyHeader | None = None
    oidc: Oidc | None = None
    audit: Callable[[Audit], None] = _no_audit

    @property
    def groups(self) -> Mapping[str, GroupMapping]:
        """Roles and teams of groups, by each sign-in way that is enabled."""
        found = {PROVIDER: self.oidc, PROXY: self.proxy}
        return {way: one.groups for way, one in found.items() if one is not None}

    @property
    def has_accounts(self) -> bool:
        try:
            return self.accounts is not None and bool(self.accounts.all())
        except ConfigError:  # a damaged file lets nobody in, and must not open anything
            return True


class SignInHandler:
    """Answers the addresses below `/sign-in` and `/sign-out`."""

    def __init__(
        self, keys: Keys, sessions: Sessions, clock: Clock, place: OwnAddress, ways: SignInWays
    ) -> None:
        self._keys = keys
        self._sessions = sessions
        self._clock = clock
        self._place = place
        self._ways = ways
        self._tries = FailedAttempts()
        # Two tables, so that made-up names do not push real ones out.
        self._of_accounts = FailedAttempts(FailedAttempts.FREE_OF_AN_ACCOUNT)
        self._of_nobody = FailedAttempts(FailedAttempts.FREE_OF_AN_ACCOUNT)
        self._threads = ThreadPoolExecutor(_ASKING, "provider")
        self._asking = 0
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._checking = 0

    @property
    def offered(self) -> SignInOptions:
        return SignInOptions(names=self._ways.has_accounts, provider=self._ways.oidc is not None)

    async def answer(self, scope: Message, receive: Receive, send: Send, session: str) -> None:
        """Answer a request for one of `PATHS`; `session` is the request's, empty for none."""
        path, posted = scope["path"], scope["method"] == "POST"
        if posted and not self._place.is_ours(scope):
            await answer(send, 403, REFUSED)
        elif path == SIGN_OUT:
            await self._sign_out(scope, send, session, posted=posted)
        elif path == SIGN_IN and posted:
            await self._sign_in(scope, receive, send)
        elif path == OIDC and self._ways.oidc is not None:
            await self._leave(scope, send, self._ways.oidc)
        elif path == CALLBACK and self._ways.oidc is not None:
            await self._come_back(scope, send, self._ways.oidc)
        else:
            await redirect(send, "/")

    async def open(self, scope: Message, send: Send, rest: str, token: str, *, known: bool) -> None:
        """Answer a one-time link: with a session and a redirect, or with the sign-in page and a reason."""
        if known:
            await redirect(send, rest)
            return
        now = self._clock.now()
        if self._wait(scope) == 0 and self._keys.use_link_token(token, now):
            await self._welcome(scope, send, rest, self._sessions.of_link(now), "one-time link")
            return
        why = "This link was used before, has expired or is wrong. Run gpuvigil url for a new one."
        await self._refuse(scope, send, rest, why, "")

    async def _sign_in(self, scope: Message, receive: Receive, send: Send) -> None:
        sent = await form(receive)
        if sent is None:
            return
        rest, now = local(sent.get("next", "/")), self._clock.now()
        if self._ways.accounts is not None and sent.get("name", "").strip():
            await self._by_name(scope, send, sent, rest)
        elif self._wait(scope) == 0 and self._keys.is_access_token(sent.get("token", "")):
            await self._welcome(scope, send, rest, self._sessions.of_link(now), "access token")
        else:
            await self._refuse(scope, send, rest, "This is not the access token.", "")

    async def _by_name(self, scope: Message, send: Send, sent: dict[str, str], rest: str) -> None:
        name, now = sent["name"].strip()[:_LONGEST_NAME], self._clock.monotonic()
        tries = self._tries_of(name)
        wait = max(self._wait(scope), tries.wait_seconds(name, now))
        if wait > 0 or self._checking >= _WAITING:
            await self._too_many(send, rest, max(wait, 1))
            return
        # Count the try before checking it, so that many at once all count.
        self._tries.add(address(scope), now)
        tries.add(name, now)
        account = await self._checked(name, sent.get("password", ""))
        if account is None:
            self._audit(AuditedAction.WRONG_SIGN_IN, name, scope)
            await self._shown(send, 401, WRONG, rest)
            return
        self._tries.forget(address(scope))
        tries.forget(name)
        session = self._sessions.of_account(account, self._clock.now())
        await self._welcome(scope, send, rest, session, PASSWORD, account.person.name)

    def _tries_of(self, name: str) -> FailedAttempts:
        accounts = self._ways.accounts
        try:
            known = accounts is not None and accounts.of(name) is not None
        except ConfigError:
            known = False
        return self._of_accounts if known else self._of_nobody

    async def _checked(self, name: str, password: str) -> Account | None:
        accounts = self._ways.accounts
        if accounts is None:
            return None
        self._checking += 1
        try:
            async with self._turns:
                return await asyncio.to_thread(accounts.matching, name, password)
        except ConfigError:
            return None
        finally:
            self._checking -= 1

    async def _leave(self, scope: Message, send: Send, oidc: Oidc) -> None:
        """Redirect to the provider, with a cookie by which its answer is checked."""
        rest = local(oidc.next_of(scope["query_string"].decode("latin-1")))
        if await self._is_braked(scope, send, rest):
            return
        try:
            place, kept = await self._asked(lambda: oidc.begin(rest))
        except SignInRefused as error:
            await self._shown(send, 502, str(error), "/")
            return
        value = self._keys.new_cookie(self._clock.now(), {"oidc": kept}, oidc.LIFE)
        cookie = self._cookie(
            scope, oidc.cookie(self._keys.cookie_name), value, SIGN_IN, oidc.LIFE.seconds
        )
        await redirect(send, place, cookie)

    async def _come_back(self, scope: Message, send: Send, oidc: Oidc) -> None:
        now, ours = self._clock.now(), oidc.cookie(self._keys.cookie_name)
        values = [value for name, value in cookies(scope) if name == ours]
        told = [said for one in values if (said := self._keys.payload(one, now)) and "oidc" in said]
        if await self._is_braked(scope, send, "/"):
            return
        if not told:  # anybody can request this address, so no audit entry is written
            self._tries.add(address(scope), self._clock.monotonic())
            await self._shown(send, 403, TOO_LONG, "/")
            return
        kept: Mapping[str, str] = told[0]["oidc"]
        query = scope["query_string"].decode("latin-1")
        try:
            word = await self._asked(lambda: oidc.claims(query, kept, now))
        except SignInRefused as error:
            self._tries.add(address(scope), self._clock.monotonic())
            self._audit(AuditedAction.WRONG_SIGN_IN, error.name, scope, str(error))
            await self._shown(send, 403, str(error), "/")
            return
        for value in values:  # the state is valid only once
            self._keys.end(value, now)
        self._tries.forget(address(scope))
        session = self._sessions.of_claims(PROVIDER, word, now)
        await self._welcome(scope, send, local(kept["next"]), session, PROVIDER, word.name)

    async def _is_braked(self, scope: Message, send: Send, rest: str) -> bool:
        """Return whether the client has to wait, after telling it so."""
        wait = max(self._wait(scope), int(self._asking >= _WAITING))
        if wait > 0:
            await self._too_many(send, rest, wait)
        return wait > 0

    async def _asked(self, ask: Callable[[], _T]) -> _T:
        """Run a request to the provider in the provider's threads."""
        self._asking += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        finally:
            self._asking -= 1

    async def _welcome(
        self, scope: Message, send: Send, rest: str, session: str, way: str, name: str = ""
    ) -> None:
        """Give the browser a new session, end its earlier one, and redirect to `rest`."""
        now, ours = self._clock.now(), self._sessions.cookie_name
        for earlier in (value for cookie, value in cookies(scope) if cookie == ours):
            self._sessions.end(earlier, now)
        self._audit(AuditedAction.SIGN_IN, name, scope, way)
        await redirect(send, rest, self._cookie(scope, ours, session, "/", self._sessions.seconds))

    async def _sign_out(self, scope: Message, send: Send, session: str, *, posted: bool) -> None:
        person = self._sessions.person(session, self._clock.now()) if session else None
        if person is None:
            await redirect(send, "/")
        elif (proxys := self._sessions.is_proxys(session, self._clock.now())) or not posted:
            await sign_out_page(send, person, by_proxy=proxys)
        else:
            self._sessions.end(session, self._clock.now())
            self._audit(AuditedAction.SIGN_OUT, person.name, scope)
            ours = self._sessions.cookie_name
            await redirect(send, "/", self._cookie(scope, ours, "", "/", 0))

    async def _refuse(self, scope: Message, send: Send, rest: str, reason: str, name: str) -> None:
        """Count a wrong try and say why it was refused; after several, only say how long to wait."""
        wait = self._wait(scope)
        if wait > 0:
            await self._too_many(send, rest, wait)
            return
        self._tries.add(address(scope), self._clock.monotonic())
        self._audit(AuditedAction.WRONG_SIGN_IN, name, scope)
        await self._shown(send, 401, reason, rest)

    async def _too_many(self, send: Send, rest: str, wait: int) -> None:
        text = f"Too many wrong tries: wait {wait} s, then try again."
        await self._shown(send, 429, text, rest, {"retry-after": str(wait)})

    async def _shown(
        self, send: Send, status: int, reason: str, rest: str, headers: dict[str, str] | None = None
    ) -> None:
        await sign_in_page(send, status, reason, rest, headers, offered=self.offered)

    def _wait(self, scope: Message) -> int:
        return self._tries.wait_seconds(address(scope), self._clock.monotonic())

    def _audit(self, deed: AuditedAction, name: str, scope: Message, detail: str = "") -> None:
        entry = Audit(
            deed=deed,
            person="".join(ch for ch in name if ch.isprintable())[:_LONGEST_NAME],
            detail=detail,
            address=address(scope),
            at=self._clock.now(),
        )
        self._ways.audit(entry)

    def _cookie(self, scope: Message, name: str, value: str, path: str, seconds: int) -> str:
        secure = "; Secure" if self._place.is_secure(scope) else ""
        return f"{name}={value}; Path={path}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}"
