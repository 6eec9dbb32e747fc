"""Signing in by name: who comes in, how guessing is slowed down, and that no session is anybody else's."""

import asyncio
import re
from dataclasses import dataclass, field, replace
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher

from accounting.people.roles import HOLDER_OF_THE_LINK, Person, Role
from dashboard.auth.accounts import HASHER, Accounts, new_person
from dashboard.auth.auth_middleware import AuthMiddleware
from dashboard.auth.proxy_header import PEER, ProxyHeader
from dashboard.auth.replies import Message, Receive, Send
from dashboard.auth.sessions import SESSION_HEADER, Sessions
from dashboard.auth.sign_in import WRONG, SignInWays
from dashboard.auth.sign_in_attempts import FailedAttempts
from gpuvigil.config import PeopleSettings
from gpuvigil.errors import ConfigError
from gpuvigil.model import Audit, AuditedAction

from .test_auth_middleware import ELSEWHERE, POLICY, Answer, Site

PASSWORD = "correct horse battery"
CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
SIGNED = "/answer/abc"
XSS = '"><script>alert(1)</script>'


@dataclass
class Named(Site):
    """A site where people have names."""

    told: list[Audit] = field(default_factory=list)
    settings: PeopleSettings = field(default_factory=PeopleSettings)
    seen: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.accounts = Accounts(self.directory, CHEAP)
        self.accounts.add(new_person("mira", Role.VIEWER, [], ["nlp"]), PASSWORD)
        super().__post_init__()
        self.sessions = Sessions(self.keys, self.accounts, self.ways().groups)

    def ways(self) -> SignInWays:
        proxies = [ip_network("10.9.0.0/16")]
        return SignInWays(
            accounts=self.accounts,
            proxy=ProxyHeader.of(self.settings, proxies),
            audit=self.told.append,
        )

    def new_door(self, public_url: str = "", *, signed: bool = True) -> AuthMiddleware:
        return AuthMiddleware(
            self.page,
            keys=self.keys,
            clock=self.clock,
            policy=POLICY,
            signed=signed,
            public_url=public_url,
            ways=self.ways(),
        )

    async def page(self, scope: Message, receive: Receive, send: Send) -> None:
        self.seen.append(scope)
        await super().page(scope, receive, send)

    def by_name(
        self, name: str = "mira", password: str = PASSWORD, rest: str = "/", **more: Any
    ) -> Answer:
        form = {"name": name, "password": password, "next": rest}
        return self.ask("/sign-in", form=form, **more)

    def take(self, answer: Answer) -> str:
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return self.cookie

    def who(self) -> Person | None:
        """Whom the page that was asked for last would be drawn for."""
        given = dict(self.seen[-1]["headers"]).get(SESSION_HEADER.encode(), b"")
        return self.sessions.person(given.decode(), self.clock.now())


@pytest.fixture
def site(tmp_path: Path) -> Named:
    return Named(tmp_path / "secrets")


def test_a_name_and_its_password_lead_to_where_a_message_pointed(site: Named) -> None:
    asked = site.ask("/incidents", "incident=7")
    assert asked.status == 401
    assert 'name="next" value="/incidents?incident=7"' in asked.body
    assert 'autocomplete="username"' in asked.body
    answer = site.by_name(rest="/incidents?incident=7")
    assert (answer.status, answer.headers["location"]) == (303, "/incidents?incident=7")
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(answer.headers["set-cookie"].split("; "))
    assert "Secure" not in answer.headers["set-cookie"]
    site.take(answer)
    assert site.ask("/").body == "the page"
    assert site.open_websocket() == "websocket.accept"
    assert site.who() == Person(
        name="mira", role=Role.VIEWER, users=frozenset({"mira"}), teams=frozenset({"nlp"})
    )
    assert [(one.deed, one.person) for one in site.told] == [(AuditedAction.SIGN_IN, "mira")]
    assert PASSWORD not in repr(site.told)


def test_over_https_the_cookie_is_secure(site: Named) -> None:
    answer = site.by_name(scheme="https", headers={"origin": "https://here:8501"})
    assert "; Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize("place", ["//evil.example", "https://evil.example", "/\\evil", "", "x"])
def test_no_sign_in_leads_elsewhere(site: Named, place: str) -> None:
    assert site.by_name(rest=place).headers["location"] == "/"


@pytest.mark.parametrize(
    ("name", "password"), [("mira", "wrong"), ("nobody", PASSWORD), ("mira", "")]
)
def test_a_wrong_one_says_nothing_of_which_part_was_wrong(
    site: Named, name: str, password: str
) -> None:
    answer = site.by_name(name, password)
    assert (answer.status, WRONG in answer.body) == (401, True)
    assert "set-cookie" not in answer.headers
    assert [(one.deed, one.person) for one in site.told] == [(AuditedAction.WRONG_SIGN_IN, name)]


def test_an_unknown_name_is_hashed_as_a_known_one_is(site: Named) -> None:
    class Counting(PasswordHasher):
        """The real one, which counts."""

        verified = 0

        def verify(self, *given: Any) -> Any:
            Counting.verified += 1
            return super().verify(*given)

    accounts = Accounts(site.directory, Counting(time_cost=1, memory_cost=8, parallelism=1))
    assert accounts.matching("nobody", PASSWORD) is None
    assert accounts.matching("mira", "wrong") is None
    assert Counting.verified == 2


@pytest.mark.medium
def test_a_thousand_wrong_sign_ins_from_one_address_get_a_handful_of_looks(site: Named) -> None:
    answers = [site.by_name(f"name-{number}", "wrong").status for number in range(1000)]
    assert answers[: FailedAttempts.FREE] == [401] * FailedAttempts.FREE
    assert set(answers[FailedAttempts.FREE :]) == {429}
    assert len(site.told) == FailedAttempts.FREE  # nobody fills the audit log either


@pytest.mark.medium
def test_a_thousand_wrong_sign_ins_from_a_thousand_addresses_are_slowed_down_by_the_account(
    site: Named,
) -> None:
    answers = [
        site.by_name("mira", "wrong", client=f"10.1.{n // 250}.{n % 250}") for n in range(1000)
    ]
    looked_at = [one for one in answers if one.status == 401]
    assert len(looked_at) == FailedAttempts.FREE_OF_AN_ACCOUNT
    assert site.by_name(client="10.2.0.1").status == 429
    site.clock.advance(timedelta(seconds=FailedAttempts.LONGEST_SECONDS).total_seconds())
    assert site.by_name(client="10.2.0.1").status == 303


def test_the_right_password_takes_the_waits_away(site: Named) -> None:
    for _ in range(FailedAttempts.FREE - 1):
        site.by_name("mira", "wrong")
    assert site.by_name().status == 303
    assert site.by_name("mira", "wrong").status == 401


def test_many_at_once_are_each_counted_before_they_are_looked_at(site: Named) -> None:
    async def all_at_once() -> list[int]:
        return await asyncio.gather(*(one() for _ in range(20)))

    async def one() -> int:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"name=mira&password=wrong"}

        async def send(answer: Message) -> None:
            sent.append(answer)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/sign-in",
            "query_string": b"",
            "headers": [(b"host", b"here:8501"), (b"origin", b"http://here:8501")],
            "client": ("10.0.0.1", 1),
            "scheme": "http",
        }
        await site.door(scope, receive, send)
        return int(sent[0]["status"])

    found = asyncio.run(all_at_once())
    assert found.count(401) == FailedAttempts.FREE


def test_no_session_from_before_a_sign_in_is_one_after_it(site: Named) -> None:
    """Fixation: what an attacker has planted, or had, is worth nothing."""
    site.sign_in()
    planted = site.cookie
    answer = site.by_name()
    fresh = site.take(answer)
    assert fresh != planted
    site.cookie = planted
    assert site.ask("/").status == 401
    site.cookie = f"{planted.partition('=')[0]}=made-up; {fresh}"
    assert site.ask("/").body == "the page"
    site.cookie = fresh
    assert site.take(site.by_name()) != fresh


def test_signing_out_ends_the_session_itself(site: Named) -> None:
    cookie = site.take(site.by_name())
    page = site.ask("/sign-out")
    assert (page.status, 'action="/sign-out"' in page.body) == (200, True)
    assert "mira" in page.body
    assert site.ask("/").status == 200  # a link alone signs nobody out
    assert site.ask("/sign-out", form={}).headers["set-cookie"].endswith("Max-Age=0")
    site.cookie = cookie
    assert site.ask("/").status == 401
    assert site.open_websocket() == "websocket.close"
    assert site.told[-1].deed is AuditedAction.SIGN_OUT


@pytest.mark.parametrize("path", ["/sign-in", "/sign-out", "/any"])
def test_no_other_site_can_make_a_browser_change_anything(site: Named, path: str) -> None:
    site.take(site.by_name())
    form = {"name": "mira", "password": PASSWORD}
    for origin in ELSEWHERE:
        assert site.ask(path, form=form, headers={"origin": origin}).status == 403, origin
        assert site.ask("/").status == 200


def test_a_session_ends_with_its_hours_its_account_and_its_password(site: Named) -> None:
    site.take(site.by_name())
    site.clock.advance(site.keys.session_seconds - 1)
    assert site.ask("/").status == 200
    site.clock.advance(1)
    assert site.ask("/").status == 401
    site.take(site.by_name())
    site.accounts.change_password("mira", PASSWORD + "!")
    assert site.ask("/").status == 401
    site.take(site.by_name(password=PASSWORD + "!"))
    site.accounts.remove("mira")
    assert site.ask("/").status == 401


def test_another_role_counts_at_the_next_look(site: Named) -> None:
    site.take(site.by_name())
    site.accounts.change_person(new_person("mira", Role.OWN, [], []))
    site.ask("/")
    found = site.who()
    assert found is not None
    assert found.role is Role.OWN


def test_who_claims_to_be_somebody_in_a_header_is_not_heard(site: Named) -> None:
    site.take(site.by_name())
    operator = site.sessions.of_link(site.clock.now())
    for name in (SESSION_HEADER, SESSION_HEADER.title(), SESSION_HEADER.upper()):
        site.ask("/", headers={name: operator})
        found = site.who()
        assert found is not None
        assert found.name == "mira"
    site.cookie = ""
    assert site.ask("/", headers={SESSION_HEADER: operator}).status == 401


def test_a_cookie_cannot_be_made_into_another_persons(site: Named) -> None:
    name, _, value = site.take(site.by_name()).partition("=")
    claim, _, signature = value.rpartition(".")
    for forged in (
        f"{claim}A.{signature}",
        claim,
        f"{claim}.",
        f"{claim}.{signature[:-1]}{'1' if signature.endswith('0') else '0'}",
        "...",
    ):
        site.cookie = f"{name}={forged}"
        assert site.ask("/").status == 401, forged


def test_what_waits_for_a_provider_is_no_session(site: Named) -> None:
    now = site.clock.now()
    value = site.keys.new_cookie(now, {"oidc": {"state": "s"}}, timedelta(minutes=10))
    site.cookie = f"{site.keys.cookie_name}={value}"
    assert site.ask("/").status == 401


def test_what_is_typed_is_never_markup(site: Named) -> None:
    for answer in (
        site.by_name(XSS, XSS, rest="/"),
        site.ask("/x", f"q={XSS}"),
        site.ask(f"/{XSS}"),
    ):
        assert "<script" not in answer.body
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    site.told.clear()
    site.by_name("mi\x1b[31mra\n", "wrong", client="10.0.0.9")
    assert site.told[0].person == "mi[31mra"


def test_a_messages_link_asks_who_it_is_where_people_have_names(
    site: Named, tmp_path: Path
) -> None:
    asked = site.ask(SIGNED, "do=acknowledge")
    assert asked.status == 401
    assert 'value="/answer/abc?do=acknowledge"' in asked.body
    assert site.by_name(rest=f"{SIGNED}?do=acknowledge").headers["location"].startswith(SIGNED)
    site.take(site.by_name())
    # Its page sends no referrer, and a browser therefore no origin; who knows the address has the link.
    assert site.ask(SIGNED, form={"answer": "silence"}, headers={"origin": "null"}).status == 200
    assert site.ask("/answer/a/b", form={}, headers={"origin": "null"}).status == 403
    nameless = Named(tmp_path / "none")
    nameless.accounts.remove("mira")
    assert nameless.ask(SIGNED).body == "the page"


def test_the_link_and_the_access_token_still_open_for_whoever_holds_them(site: Named) -> None:
    site.sign_in()
    site.ask("/")
    assert site.who() == HOLDER_OF_THE_LINK
    site.cookie = ""
    site.take(site.ask("/sign-in", form={"token": site.access_token}))
    assert site.ask("/").status == 200


def proxied(tmp_path: Path, **settings: Any) -> Named:
    given = {"proxy_user_header": "Remote-User", "proxy_groups_header": "Remote-Groups"}
    roles = ("gpu-admins=operator", "cn=staff,ou=x=viewer")
    people = PeopleSettings(
        **{**given, "group_roles": roles, "group_teams": ("nlp-group=nlp",), **settings}
    )
    return Named(tmp_path / "proxied", settings=people)


def from_peer(site: Named, peer: str, **headers: str) -> Answer:
    door, given = site.door, {name.replace("_", "-"): value for name, value in headers.items()}

    async def through(scope: Message, receive: Receive, send: Send) -> None:
        await door({**scope, PEER: peer}, receive, send)

    site.door = through  # type: ignore[assignment]
    try:
        return site.ask("/", headers=given)
    finally:
        site.door = door


def test_a_named_proxy_says_who_it_is_and_nobody_else_does(tmp_path: Path) -> None:
    site = proxied(tmp_path)
    headers = {"remote_user": "tomke", "remote_groups": "nlp-group, gpu-admins"}
    assert from_peer(site, "10.9.0.1", **headers).status == 200
    assert site.who() == Person(
        name="tomke", role=Role.OPERATOR, users=frozenset({"tomke"}), teams=frozenset({"nlp"})
    )
    for stranger in ("10.10.0.1", "127.0.0.1", "", "10.9.0.1, 10.10.0.1"):
        assert from_peer(site, stranger, **headers).status == 401, stranger


def test_without_a_role_or_a_name_a_proxy_lets_nobody_in(tmp_path: Path) -> None:
    site = proxied(tmp_path)
    assert from_peer(site, "10.9.0.1", remote_user="tomke").status == 401
    assert from_peer(site, "10.9.0.1", remote_user=" ", remote_groups="gpu-admins").status == 401
    everybody = proxied(tmp_path / "2", default_role="own")
    assert from_peer(everybody, "10.9.0.1", remote_user="tomke").status == 200
    found = everybody.who()
    assert found is not None
    assert found.role is Role.OWN


def test_a_header_that_comes_twice_names_nobody(tmp_path: Path) -> None:
    site = proxied(tmp_path, default_role="own")
    scope = {
        "headers": [(b"remote-user", b"tomke"), (b"remote-user", b"root")],
        PEER: "10.9.0.1",
    }
    found = ProxyHeader.of(site.settings, [ip_network("10.9.0.0/16")])
    assert found is not None
    assert found.claims(scope) is None
    once = scope["headers"][:1]
    groups = (b"remote-groups", b"gpu-admins")
    assert found.claims({**scope, "headers": once}) is not None
    assert found.claims({**scope, "headers": [*once, groups]}) is not None
    assert found.claims({**scope, "headers": [*once, groups, groups]}) is None


def test_it_is_off_unless_a_header_is_named() -> None:
    assert ProxyHeader.of(PeopleSettings(), [ip_network("0.0.0.0/0")]) is None


@pytest.mark.parametrize("length", [11, 12, 1024, 1025])
def test_how_long_a_password_may_be(tmp_path: Path, length: int) -> None:
    accounts = Accounts(tmp_path, CHEAP)
    person = new_person("ada", Role.OWN, [], [])
    if length in {12, 1024}:
        accounts.add(person, "x" * length)
        assert accounts.matching("ada", "x" * length) is not None
    else:
        with pytest.raises(ConfigError, match="12 to 1024"):
            accounts.add(person, "x" * length)


def test_the_file_is_its_owners_alone_and_holds_no_password(site: Named) -> None:
    file = site.directory / "people.json"
    assert file.stat().st_mode & 0o077 == 0
    text = file.read_text()
    assert PASSWORD not in text
    assert re.search(r'"\$argon2id\$v=19\$', text)


def test_a_damaged_file_lets_nobody_in_and_opens_no_link(site: Named) -> None:
    site.take(site.by_name())
    (site.directory / "people.json").write_text("{}")
    assert site.ask("/").status == 401
    site.cookie = ""
    assert site.ask(SIGNED).status == 401
    assert site.by_name().status == 401
    site.sign_in()
    assert site.ask("/").status == 200


def test_the_hash_is_as_slow_as_owasp_asks() -> None:
    assert (HASHER.memory_cost, HASHER.time_cost) >= (19 * 1024, 2)
    assert HASHER.type.name == "ID"


def test_two_changes_at_once_lose_none(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path, CHEAP)

    async def add() -> None:
        names = [f"p{number}" for number in range(20)]
        adding = (
            asyncio.to_thread(
                Accounts(tmp_path, CHEAP).add, new_person(one, Role.OWN, [], []), PASSWORD
            )
            for one in names
        )
        await asyncio.gather(*adding)

    asyncio.run(add())
    assert len(accounts.all()) == 20
    assert replace(new_person("p1", Role.OWN, [], [])) == accounts.all()["p1"].person
