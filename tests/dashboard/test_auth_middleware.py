import asyncio
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from dashboard.auth.auth_middleware import AuthMiddleware, main, new_link
from dashboard.auth.keys import Keys
from dashboard.auth.replies import Message, Receive, Send
from dashboard.auth.sign_in_attempts import FailedAttempts
from gpuvigil.clock import ManualClock

POLICY = "default-src 'self'"
OURS = "http://here:8501"
START = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: str


@dataclass
class Site:
    """A door with a page behind it, asked as a server asks an ASGI application."""

    directory: Path
    clock: ManualClock = field(default_factory=lambda: ManualClock(START))
    cookie: str = ""
    reached: int = 0

    def __post_init__(self) -> None:
        self.keys = Keys(self.directory)
        self.door = self.new_door()

    def new_door(self, public_url: str = "", *, signed: bool = False) -> AuthMiddleware:
        return AuthMiddleware(
            self.page,
            keys=self.keys,
            clock=self.clock,
            policy=POLICY,
            signed=signed,
            public_url=public_url,
        )

    async def page(self, scope: Message, _receive: Receive, send: Send) -> None:
        self.reached += 1
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            return
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"the page"})

    def ask(
        self,
        path: str,
        query: str = "",
        *,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        scheme: str = "http",
        client: str = "127.0.0.1",
    ) -> Answer:
        given = {"host": "here:8501", "origin": OURS, "cookie": self.cookie, **(headers or {})}
        scope = {
            "type": "http",
            "method": "POST" if form is not None else method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(k.encode(), v.encode()) for k, v in given.items() if v],
            "client": (client, 4711),
            "scheme": scheme,
        }
        sent = self.run(scope, {"type": "http.request", "body": urlencode(form or {}).encode()})
        pairs = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return Answer(sent[0]["status"], pairs, body.decode())

    def open_websocket(
        self, origin: str = "http://here:8501", host: str = "here:8501", scheme: str = "ws"
    ) -> str:
        given = {"host": host, "origin": origin, "cookie": self.cookie}
        scope = {
            "type": "websocket",
            "path": "/_stcore/stream",
            "query_string": b"",
            "headers": [(k.encode(), v.encode()) for k, v in given.items() if v],
            "client": ("127.0.0.1", 4711),
            "scheme": scheme,
        }
        return str(self.run(scope, {"type": "websocket.connect"})[0]["type"])

    def run(self, scope: Message, message: Message) -> list[Message]:
        sent: list[Message] = []

        async def receive() -> Message:
            return message

        async def send(answer: Message) -> None:
            sent.append(answer)

        asyncio.run(self.door(scope, receive, send))
        return sent

    def sign_in(self) -> None:
        answer = self.ask("/", f"token={self.keys.new_link_token(self.clock.now())}")
        self.cookie = answer.headers["set-cookie"].partition(";")[0]

    @property
    def access_token(self) -> str:
        return (self.directory / "access-token").read_text(encoding="utf-8").strip()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "secrets")


def test_without_a_session_a_page_is_a_sign_in_page_that_needs_nothing_from_elsewhere(
    site: Site,
) -> None:
    answer = site.ask("/gpu", "node=sim-003&gpu=5")
    assert answer.status == 401
    assert 'action="/sign-in"' in answer.body
    assert "http:" not in answer.body
    assert "https:" not in answer.body
    assert "<script" not in answer.body
    assert 'name="next" value="/gpu?node=sim-003&amp;gpu=5"' in answer.body
    assert site.reached == 0


@pytest.mark.parametrize("path", ["/_stcore/health", "/static/js/index.js", "/media/x.png"])
def test_without_a_session_parts_of_pages_are_refused(site: Site, path: str) -> None:
    assert site.ask(path).status == 401
    assert site.ask(path, method="POST").status == 401
    assert site.reached == 0


def test_without_a_session_a_websocket_is_closed_before_it_opens(site: Site) -> None:
    assert site.open_websocket() == "websocket.close"
    assert site.reached == 0


def test_with_a_session_pages_and_websockets_are_let_through(site: Site) -> None:
    site.sign_in()
    assert site.ask("/").body == "the page"
    assert site.open_websocket() == "websocket.accept"


def test_health_is_open_to_everybody(site: Site) -> None:
    assert site.ask("/healthz").status == 200


def test_a_one_time_address_signs_in_and_keeps_the_rest_of_its_query(site: Site) -> None:
    token = site.keys.new_link_token(site.clock.now())
    answer = site.ask("/gpu", f"node=a%26b&token={token}&gpu=5")
    assert answer.status == 303
    assert answer.headers["location"] == "/gpu?node=a%26b&gpu=5"
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    assert token not in cookie
    assert answer.headers["cache-control"] == "no-store"


def test_a_used_address_says_so_and_how_to_get_another(site: Site) -> None:
    token = site.keys.new_link_token(site.clock.now())
    site.ask("/", f"token={token}")
    answer = site.ask("/", f"token={token}")
    assert answer.status == 401
    assert "Run gpuvigil url for a new one" in answer.body
    assert "set-cookie" not in answer.headers


def test_who_is_signed_in_uses_up_no_token(site: Site) -> None:
    site.sign_in()
    token = site.keys.new_link_token(site.clock.now())
    assert site.ask("/", f"token={token}").headers["location"] == "/"
    assert site.keys.use_link_token(token, site.clock.now())


def test_looking_at_an_address_without_opening_it_does_not_use_it_up(site: Site) -> None:
    token = site.keys.new_link_token(site.clock.now())
    site.ask("/", f"token={token}", method="HEAD")
    assert site.keys.use_link_token(token, site.clock.now())


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "///evil.example"])
def test_a_sign_in_never_leads_to_another_site(site: Site, path: str) -> None:
    token = site.keys.new_link_token(site.clock.now())
    assert re.match(r"/[^/\\]", site.ask(path, f"token={token}").headers["location"])
    answer = site.ask("/sign-in", form={"token": site.access_token, "next": path})
    assert answer.headers["location"] == "/"


def test_a_header_cannot_be_smuggled_through_the_address(site: Site) -> None:
    token = site.keys.new_link_token(site.clock.now())
    location = site.ask("/a\r\nx: y", f"token={token}&q=%0d%0ax:y").headers["location"]
    assert location == "/" + quote("a\r\nx: y") + "?q=%0D%0Ax%3Ay"


def test_the_access_token_signs_in_and_leads_back(site: Site) -> None:
    answer = site.ask("/sign-in", form={"token": site.access_token, "next": "/?incident=7"})
    assert (answer.status, answer.headers["location"]) == (303, "/?incident=7")
    site.cookie = answer.headers["set-cookie"].partition(";")[0]
    assert site.ask("/").body == "the page"


ELSEWHERE = [
    "",
    "null",
    "https://evil.example",
    "http://here:8502",
    "http://here",
    "https://here:8501",
    "http://here:8501.evil.example",
    "http://evil@here:8501",
    "http://here:8501/",
    "http://here:8501, http://evil.example",
    "http://here:85o1",
    "here:8501",
    "file://",
]


@pytest.mark.parametrize("origin", ELSEWHERE)
def test_what_is_sent_from_elsewhere_or_from_nowhere_is_refused(site: Site, origin: str) -> None:
    form = {"token": site.access_token}
    assert site.ask("/sign-in", form=form, headers={"origin": origin}).status == 403
    assert site.ask("/sign-in", form=form).status == 303
    site.sign_in()
    assert site.open_websocket(origin) == "websocket.close"
    assert site.ask("/_stcore/x", headers={"origin": origin}, method="PUT").status == 403
    assert site.reached == 0
    assert site.open_websocket() == "websocket.accept"
    assert site.ask("/_stcore/x", method="PUT").status == 200
    # Who opens an address has no origin.
    assert site.ask("/", headers={"origin": origin}).status == 200


@pytest.mark.parametrize(
    ("host", "origin", "scheme"),
    [
        ("here", "http://here", "ws"),
        ("here:80", "http://here", "ws"),
        ("here", "http://here:80", "ws"),
        ("HERE.", "http://here", "ws"),
        ("here", "https://here", "wss"),
        ("here:443", "https://here", "wss"),
        ("[::1]:8501", "http://[::1]:8501", "ws"),
    ],
)
def test_a_port_that_goes_without_saying_is_the_scheme_s(
    site: Site, host: str, origin: str, scheme: str
) -> None:
    site.sign_in()
    assert site.open_websocket(origin, host, scheme) == "websocket.accept"


@pytest.mark.parametrize(
    ("public", "origin", "host", "let_in"),
    [
        # A proxy with TLS that passes the name on, or asks in its own.
        ("https://gpu.example", "https://gpu.example", "gpu.example", True),
        ("https://gpu.example/", "https://gpu.example", "127.0.0.1:8501", True),
        ("https://gpu.example:8443", "https://gpu.example:8443", "127.0.0.1:8501", True),
        ("https://gpu.example:8443", "https://gpu.example", "gpu.example:8443", False),
        # What has no TLS may have been written by anybody on the way.
        ("https://gpu.example", "http://gpu.example", "gpu.example", False),
        # Past the proxy, and through a tunnel.
        ("https://gpu.example", "http://127.0.0.1:8501", "127.0.0.1:8501", True),
        ("https://gpu.example", "http://localhost:9000", "localhost:9000", True),
    ],
)
def test_behind_a_proxy_the_public_address_is_ours(
    site: Site, public: str, origin: str, host: str, let_in: bool
) -> None:
    site.door = site.new_door(public)
    site.sign_in()
    expected = "websocket.accept" if let_in else "websocket.close"
    assert site.open_websocket(origin, host) == expected
    form = {"token": site.access_token}
    answer = site.ask("/sign-in", form=form, headers={"origin": origin, "host": host})
    assert answer.status == (303 if let_in else 403)
    if let_in:
        tls = host == "gpu.example"
        assert ("Secure" in answer.headers["set-cookie"].split("; ")) == tls


def test_a_form_that_breaks_off_is_no_try(site: Site) -> None:
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/sign-in",
        "query_string": b"",
        "headers": [(b"host", b"here:8501"), (b"origin", OURS.encode())],
        "client": ("127.0.0.1", 4711),
        "scheme": "http",
    }
    for _ in range(9):
        assert site.run(scope, {"type": "http.disconnect"}) == []
    assert site.ask("/sign-in", form={"token": site.access_token}).status == 303


def test_wrong_tries_are_slowed_and_then_forgotten(site: Site) -> None:
    def guess(token: str) -> Answer:
        return site.ask("/sign-in", form={"token": token})

    assert [guess("wrong").status for _ in range(3)] == [401, 401, 401]
    slowed = guess(site.access_token)
    assert slowed.status == 429
    assert int(slowed.headers["retry-after"]) >= 1
    site.clock.advance(2)
    assert guess(site.access_token).status == 303


def test_a_wait_grows_to_a_limit_and_addresses_are_bounded() -> None:
    tries = FailedAttempts()
    for number in range(40):
        tries.add("a", float(number))
    assert tries.wait_seconds("a", 39.0) <= FailedAttempts.LONGEST_SECONDS + 1
    assert tries.wait_seconds("b", 39.0) == 0
    for number in range(FailedAttempts.MOST_ADDRESSES):
        tries.add(f"x{number}", 40.0)
    assert tries.wait_seconds("a", 40.0) == 0


def test_an_answer_carries_the_safety_headers_whoever_gives_it(site: Site) -> None:
    site.sign_in()
    for answer in (site.ask("/"), site.ask("/healthz"), Site(site.directory).ask("/")):
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert "'unsafe-inline'" not in answer.headers["content-security-policy"]
    assert site.ask("/").headers["content-security-policy"] == POLICY


@pytest.mark.parametrize(
    "other",
    [
        'prefs={"theme":"dark"}',
        "path=/x",
        "ui[]=x y",
        "flag",
        "a,b=1",
        "=",
        "",
        "expires=never; é=ü",
    ],
)
def test_cookies_of_others_on_this_host_shut_nobody_out(site: Site, other: str) -> None:
    site.sign_in()
    ours = site.cookie
    for cookie in (f"{other}; {ours}", f"{ours}; {other}", f"{other};{ours};{other}"):
        site.cookie = cookie
        assert site.ask("/").body == "the page"
        assert site.open_websocket() == "websocket.accept"


def test_a_session_is_found_behind_an_older_one_of_the_same_name(site: Site) -> None:
    site.sign_in()
    site.cookie = f"{site.keys.cookie_name}=1.2.3; {site.cookie}"
    assert site.ask("/").body == "the page"


def test_a_cookie_that_is_nonsense_is_no_session(site: Site) -> None:
    for cookie in ("a=b; ;;=", "\x00", f"{site.keys.cookie_name}=1.2.3", "[]=x"):
        site.cookie = cookie
        assert site.ask("/").status == 401


def test_a_hostile_address_is_escaped_on_the_sign_in_page(site: Site) -> None:
    assert '"><b>' not in site.ask('/"><b>', "x=%22%3E%3Cb%3E").body


def test_the_command_prints_an_address_that_works(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gpuvigil.toml"
    file.write_text(
        '[alerts]\nexternal_url = "http://here:8501/"\n'
        f'[dashboard]\nsecrets_directory = "{site.directory}"\n',
        encoding="utf-8",
    )
    assert main(["--config", str(file)]) == 0
    address = capsys.readouterr().out.strip()
    assert address.startswith("http://here:8501/?token=")
    site.sign_in()
    assert site.ask("/", address.partition("?")[2]).status == 303


def test_a_new_link_is_of_the_dashboard_that_uses_these_secrets(site: Site) -> None:
    address = new_link(site.directory, "https://gpu.example", site.clock)
    assert site.ask("/", address.partition("?")[2]).status == 303


@pytest.mark.parametrize(
    ("signed", "path", "status"),
    [
        (True, "/answer/a.b", 200),
        (True, "/answer/", 401),
        (True, "/answer/a.b/more", 401),
        (True, "/answer/../incidents", 401),
        (False, "/answer/a.b", 401),
    ],
)
def test_only_a_message_s_link_itself_is_open_and_only_where_links_are_signed(
    tmp_path: Path, signed: bool, path: str, status: int
) -> None:
    site = Site(tmp_path)
    site.door = site.new_door(signed=signed)
    assert site.ask(path).status == status
    assert site.reached == (status == 200)


def test_an_address_is_made_where_a_dashboard_has_been_and_said_where_none_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, secrets = tmp_path / "c.toml", tmp_path / "secrets"

    def said(port: int, url: str) -> tuple[int, str, str]:
        config.write_text(
            f"[alerts]\nexternal_url = '{url}'\n"
            f"[dashboard]\nport = {port}\nsecrets_directory = '{secrets}'\n"
        )
        code = main(["--config", str(config)])
        told = capsys.readouterr()
        return code, told.out, told.err

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        here = f"http://127.0.0.1:{port}"
        code, out, err = said(port, here)
        assert (code, out, secrets.exists()) == (2, "", False)
        assert "start the dashboard first" in err
        Keys(secrets)
        code, out, err = said(port, here)
        assert (code, out.startswith(f"{here}/?token="), err) == (0, True, "")
        code, out, err = said(port, "https://gpus.example.org")
        assert out.startswith("https://gpus.example.org/?token=")
        assert err.startswith(f"gpuvigil url: on this machine: {here}/?token=")
    code, out, err = said(port, here)
    assert (code, out.startswith(here)) == (0, True)
    assert (
        err
        == f"gpuvigil url: nothing answers at 127.0.0.1 port {port}: start the dashboard first\n"
    )
