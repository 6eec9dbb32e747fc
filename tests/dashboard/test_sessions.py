"""What a session's cookie is still worth: after settings have changed, and after its time."""

import asyncio
import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest

from accounting.people.roles import HOLDER_OF_THE_LINK, Role
from dashboard.auth.accounts import Accounts, new_person
from dashboard.auth.groups import GroupMapping, IdentityClaims
from dashboard.auth.keys import Keys
from dashboard.auth.replies import Message
from dashboard.auth.sessions import PROVIDER, PROXY, PROXY_LIFE, Sessions
from dashboard.auth.sign_in import OIDC, SIGN_IN
from dashboard.auth.sign_in_attempts import FailedAttempts
from gpuvigil.config import PeopleSettings

from .test_auth_middleware import Site
from .test_oidc import Sited, config
from .test_sign_in import CHEAP, PASSWORD, Named, proxied


@pytest.fixture
def site(tmp_path: Path) -> Named:
    return Named(tmp_path / "secrets")


def _groups(role: str) -> GroupMapping:
    return GroupMapping.of(PeopleSettings(group_roles=(f"gpu-admins={role}",)))


@pytest.mark.parametrize("way", [PROVIDER, PROXY])
def test_what_groups_mean_today_counts_and_a_way_that_is_off_lets_nobody_in(
    site: Named, way: str
) -> None:
    now, word = site.clock.now(), IdentityClaims(name="olga", groups=("gpu-admins",))
    before = Sessions(site.keys, site.accounts, {way: _groups("operator")})
    value = before.of_claims(way, word, now)
    found = before.person(value, now)
    assert found is not None
    assert (found.role, found.way) == (Role.OPERATOR, way)
    today = Sessions(site.keys, site.accounts, {way: _groups("viewer")})
    found = today.person(value, now)
    assert found is not None
    assert found.role is Role.VIEWER
    other = PROXY if way == PROVIDER else PROVIDER
    for groups in ({}, {other: _groups("operator")}, {way: GroupMapping.of(PeopleSettings())}):
        assert Sessions(site.keys, site.accounts, groups).person(value, now) is None


def test_a_proxys_word_lives_for_twelve_hours_and_a_providers_for_the_session(site: Named) -> None:
    now, word = site.clock.now(), IdentityClaims(name="olga", groups=("gpu-admins",))
    groups = {PROXY: _groups("own"), PROVIDER: _groups("own")}
    sessions = Sessions(site.keys, site.accounts, groups)
    of_proxy, of_provider = (sessions.of_claims(way, word, now) for way in groups)
    second = timedelta(seconds=1)
    assert sessions.person(of_proxy, now + PROXY_LIFE - second) is not None
    assert sessions.person(of_proxy, now + PROXY_LIFE + second) is None
    assert sessions.person(of_provider, now + PROXY_LIFE + second) is not None


def test_all_sessions_of_a_name_end_and_later_ones_begin(site: Named) -> None:
    now, second = site.clock.now(), timedelta(seconds=1)
    account = site.accounts.of("mira")
    assert account is not None
    groups = {PROXY: _groups("own"), PROVIDER: _groups("own")}
    sessions = Sessions(site.keys, site.accounts, groups)
    word = IdentityClaims(name="mira", groups=("gpu-admins",))
    stranger = sessions.of_claims(PROXY, replace(word, name="tomke"), now)
    values = [
        sessions.of_account(account, now),
        *(sessions.of_claims(w, word, now) for w in groups),
    ]
    site.keys.end_all("mira", now)
    assert [sessions.person(one, now) for one in values] == [None, None, None]
    assert sessions.person(stranger, now) is not None
    assert sessions.person(sessions.of_account(account, now + second), now + second) is not None


def test_who_comes_by_a_proxy_reads_that_it_signs_out(tmp_path: Path) -> None:
    site = proxied(tmp_path, default_role="own")
    value = site.sessions.of_claims(PROXY, IdentityClaims(name="tomke"), site.clock.now())
    site.cookie = f"{site.keys.cookie_name}={value}"
    for form in (None, {"x": "y"}):
        answer = site.ask("/sign-out", form=form)
        assert (answer.status, "sign out there" in answer.body) == (200, True)
    assert not site.told


def test_links_that_were_opened_before_people_had_names_end_with_the_first_name(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    accounts, now = Accounts(tmp_path, CHEAP), site.clock.now()
    sessions = Sessions(Keys(tmp_path), accounts)
    early = sessions.of_link(now)
    assert sessions.person(early, now) == HOLDER_OF_THE_LINK
    accounts.add(new_person("mira", Role.OWN, [], []), PASSWORD)
    assert sessions.person(early, now) is None
    assert sessions.person(sessions.of_link(now), now) == HOLDER_OF_THE_LINK


@pytest.mark.medium
def test_names_that_somebody_makes_up_push_no_real_one_out(site: Named) -> None:
    def tried(name: str, number: int) -> int:
        host = f"10.{number >> 8}.{number & 255}.9"
        return site.by_name(name, "wrong wrong wrong", client=host).status

    for number in range(FailedAttempts.FREE_OF_AN_ACCOUNT):
        assert tried("mira", number) == 401
    for number in range(FailedAttempts.MOST_ADDRESSES + 1):
        tried(f"made-up-{number}", 100 + number)
    assert tried("mira", 5000) == 429


def test_a_provider_that_hangs_holds_up_no_password(tmp_path: Path) -> None:
    async def asked(site: Sited, path: str, body: bytes) -> int:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body}

        async def send(answer: Message) -> None:
            sent.append(answer)

        scope = {
            "type": "http",
            "method": "POST" if body else "GET",
            "path": path,
            "query_string": b"",
            "headers": [(b"host", b"here:8501"), (b"origin", b"http://here:8501")],
            "client": ("10.0.0.1", 1),
            "scheme": "http",
        }
        await site.door(scope, receive, send)
        return int(sent[0]["status"])

    async def all_at_once(site: Sited) -> tuple[int, list[int]]:
        leaving = [asyncio.ensure_future(asked(site, OIDC, b"")) for _ in range(40)]
        await asyncio.sleep(0.05)
        body = urlencode({"name": "mira", "password": PASSWORD}).encode()
        status = await asyncio.wait_for(asked(site, SIGN_IN, body), 8)
        refused = [one.result() for one in leaving if one.done()]
        for one in leaving:
            one.cancel()
        return status, refused

    with socket.create_server(("127.0.0.1", 0), backlog=64) as hanging:
        issuer = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        site = Sited(tmp_path / "secrets", config=config(issuer))
        assert asyncio.run(all_at_once(site)) == (303, [429] * 8)
