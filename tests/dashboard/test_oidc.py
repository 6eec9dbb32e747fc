"""Sign-in by a provider: a small strict one for what no honest provider sends, and a real one (Canaille)."""

import base64
import hashlib
import html
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from accounting.people.roles import Role
from dashboard.auth.oidc import Oidc, SignInRefused
from dashboard.auth.sign_in import CALLBACK, OIDC, SignInWays
from gpuvigil.clock import SystemClock
from gpuvigil.config import AlertsSettings, Config, PeopleSettings, load
from gpuvigil.errors import ConfigError
from gpuvigil.model import AuditedAction
from tests.oidc_provider import PASSWORD, SECRET
from tests.servers import ROOT

from .test_auth_middleware import Answer
from .test_sign_in import Named

OURS = "http://here:8501"
KEY = RSAKey.generate_key(2048, {"kid": "one"})
STRANGERS = RSAKey.generate_key(2048, {"kid": "one"})
LEEWAY = 60


@dataclass
class Provider:
    """What a provider is asked over HTTP; the token that it gives next is made of `claims`."""

    url: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=lambda: {"alg": "RS256", "kid": "one"})
    key: Any = field(default_factory=lambda: KEY)
    issuer: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)
    challenge: str = ""

    def document(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer or self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }

    def token(self, sent: dict[str, str]) -> dict[str, Any] | None:
        """None where the code's verifier is not the one that the challenge was made of (RFC 7636)."""
        self.asked.append(sent)
        digest = hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != self.challenge:
            return None
        if self.header["alg"] == "none":
            parts = (json.dumps(one).encode() for one in (self.header, self.claims))
            text = [base64.urlsafe_b64encode(one).decode().rstrip("=") for one in parts]
            return {"access_token": "a", "token_type": "Bearer", "id_token": ".".join([*text, ""])}
        made = jwt.encode(self.header, self.claims, self.key, algorithms=[self.header["alg"]])
        return {"access_token": "a", "token_type": "Bearer", "id_token": made}


@pytest.fixture(scope="module")
def served() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys = {"keys": [KEY.as_dict(private=False)]}
            self._say(provider.document() if "well-known" in self.path else keys)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            told = provider.token(dict(parse_qsl(body)))
            self._say(told or {"error": "invalid_grant"}, 200 if told else 400)

        def _say(self, value: Any, status: int = 200) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield provider
    server.shutdown()
    thread.join()
    server.server_close()


def config(issuer: str, secret: Path | None = None, **more: Any) -> Config:
    people = PeopleSettings(
        **{
            "oidc_issuer": issuer,
            "oidc_client_id": "gpuvigil",
            "oidc_client_secret_file": secret,
            "oidc_name_claim": "sub",
            "oidc_scope": "openid profile groups",
            "group_roles": ("gpu-admins=operator", "students=own"),
            **more,
        }
    )
    return Config(people=people, alerts=AlertsSettings(external_url=OURS))


@dataclass
class Sited(Named):
    """A site that sends people to a provider."""

    config: Config = field(default_factory=Config)

    def ways(self) -> SignInWays:
        return SignInWays(accounts=self.accounts, oidc=Oidc(self.config), audit=self.told.append)

    def leave(self, rest: str = "/jobs?last=1d") -> dict[str, str]:
        """To the provider: what it is asked, with our cookie kept."""
        answer = self.ask(OIDC, urlencode({"next": rest}))
        assert answer.status == 303, answer.body
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        assert {"HttpOnly", "SameSite=Lax", "Path=/sign-in"} <= set(
            answer.headers["set-cookie"].split("; ")
        )
        self.place = answer.headers["location"]
        return {name: values[0] for name, values in parse_qs(urlsplit(self.place).query).items()}

    def back(self, **query: str) -> Answer:
        return self.ask(CALLBACK, urlencode(query))


@pytest.fixture
def site(served: Provider, tmp_path: Path) -> Sited:
    served.claims, served.header, served.key, served.issuer = (
        {},
        {"alg": "RS256", "kid": "one"},
        KEY,
        "",
    )
    served.asked.clear()
    return Sited(tmp_path / "secrets", config=config(served.url))


def honest(served: Provider, site: Sited, asked: dict[str, str]) -> None:
    now = int(site.clock.now().timestamp())
    served.challenge = asked["code_challenge"]
    served.claims = {
        "iss": served.url,
        "aud": "gpuvigil",
        "sub": "olga",
        "nonce": asked["nonce"],
        "iat": now,
        "exp": now + 300,
        "groups": ["gpu-admins"],
    }


@pytest.mark.medium
def test_who_the_provider_knows_comes_in_where_they_wanted_to_be(
    served: Provider, site: Sited
) -> None:
    assert 'href="/sign-in/oidc?next=%2Fjobs%3Flast%3D1d"' in site.ask("/jobs", "last=1d").body
    asked = site.leave()
    assert asked["redirect_uri"] == f"{OURS}{CALLBACK}"
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    honest(served, site, asked)
    answer = site.back(state=asked["state"], code="c", iss=served.url)
    assert (answer.status, answer.headers["location"]) == (303, "/jobs?last=1d")
    site.take(answer)
    site.ask("/")
    found = site.who()
    assert found is not None
    assert (found.name, found.role) == ("olga", Role.OPERATOR)
    assert (site.told[-1].deed, site.told[-1].detail) == (AuditedAction.SIGN_IN, "provider")
    assert "client_secret" not in served.asked[0]


@pytest.mark.medium
def test_what_comes_back_is_good_once_and_in_its_own_browser_alone(
    served: Provider, site: Sited
) -> None:
    asked = site.leave()
    honest(served, site, asked)
    waiting, site.cookie = site.cookie, ""
    assert site.back(state=asked["state"], code="c").status == 403
    site.cookie = waiting
    assert site.back(state=asked["state"] + "x", code="c").status == 403
    assert site.back(code="c").status == 403
    site.clock.advance(2.0)
    assert site.back(state=asked["state"], code="c").status == 303
    site.cookie = waiting
    assert site.back(state=asked["state"], code="c").status == 403


@pytest.mark.medium
def test_after_ten_minutes_it_took_too_long(served: Provider, site: Sited) -> None:
    for seconds, status in ((599, 303), (600, 403)):
        site.cookie = ""
        asked = site.leave()
        site.clock.advance(seconds)
        honest(served, site, asked)
        assert site.back(state=asked["state"], code="c").status == status


@pytest.mark.medium
def test_a_code_of_another_browsers_sign_in_is_worth_nothing(served: Provider, site: Sited) -> None:
    stolen = site.leave()
    honest(served, site, stolen)
    mine = site.leave()
    assert site.back(state=mine["state"], code="c").status == 403


FORGED: list[tuple[str, dict[str, Any]]] = [
    ("another issuer", {"iss": "https://evil.example"}),
    ("no issuer", {"iss": None}),
    ("another audience", {"aud": "other"}),
    ("several audiences and none that it is for", {"aud": ["gpuvigil", "other"]}),
    ("for another party", {"aud": ["gpuvigil", "other"], "azp": "other"}),
    ("another nonce", {"nonce": "n"}),
    ("no nonce", {"nonce": None}),
    ("no end", {"exp": None}),
    ("nobody", {"sub": ""}),
    ("no group that has a role", {"groups": ["visitors"]}),
    ("no groups", {"groups": None}),
]


@pytest.mark.medium
@pytest.mark.parametrize(("what", "wrong"), FORGED, ids=[what for what, _ in FORGED])
def test_a_token_that_does_not_hold_lets_nobody_in(
    served: Provider, site: Sited, what: str, wrong: dict[str, Any]
) -> None:
    asked = site.leave()
    honest(served, site, asked)
    merged = {**served.claims, **wrong}
    served.claims = {name: value for name, value in merged.items() if value is not None}
    answer = site.back(state=asked["state"], code="c")
    assert answer.status == 403, what
    assert site.keys.cookie_name not in answer.headers.get("set-cookie", "")
    assert site.told[-1].deed is AuditedAction.WRONG_SIGN_IN


@pytest.mark.medium
@pytest.mark.parametrize(
    ("header", "key"),
    [
        ({"alg": "none"}, None),
        ({"alg": "HS256", "kid": "one"}, OctKey.import_key(SECRET * 3)),
        ({"alg": "RS256", "kid": "one"}, STRANGERS),
        ({"alg": "RS256", "kid": "unknown"}, STRANGERS),
    ],
    ids=["none", "a shared secret", "another's key", "an unknown key"],
)
@pytest.mark.filterwarnings("ignore")
def test_only_the_providers_own_key_signs(
    served: Provider, site: Sited, header: dict[str, Any], key: Any
) -> None:
    asked = site.leave()
    honest(served, site, asked)
    served.header, served.key = header, key
    assert site.back(state=asked["state"], code="c").status == 403


@pytest.mark.medium
@pytest.mark.parametrize(("late", "status"), [(LEEWAY - 1, 303), (LEEWAY + 1, 403)])
def test_a_token_ends_a_minute_after_its_end(
    served: Provider, site: Sited, late: int, status: int
) -> None:
    asked = site.leave()
    honest(served, site, asked)
    served.claims["exp"] = int(site.clock.now().timestamp()) - late
    assert site.back(state=asked["state"], code="c").status == status


def test_a_provider_that_calls_itself_otherwise_is_not_asked_further(
    served: Provider, site: Sited
) -> None:
    served.issuer = "https://evil.example"
    answer = site.ask(OIDC)
    assert answer.status == 502
    assert "issuer differs from" in answer.body


def test_another_providers_answer_is_none_of_ours(served: Provider, site: Sited) -> None:
    asked = site.leave()
    honest(served, site, asked)
    assert site.back(state=asked["state"], code="c", iss="https://evil.example").status == 403


def test_who_is_sent_back_with_a_refusal_reads_it(site: Sited) -> None:
    asked = site.leave()
    answer = site.back(state=asked["state"], error='access_denied"><script>')
    assert (answer.status, "refused the sign-in" in answer.body) == (403, True)
    assert "<script" not in answer.body


def test_while_the_provider_is_away_the_page_says_so(tmp_path: Path) -> None:
    site = Sited(tmp_path / "secrets", config=config("http://127.0.0.1:1"))
    answer = site.ask(OIDC)
    assert (answer.status, "does not answer" in answer.body) == (502, True)
    assert 'name="password"' in answer.body  # an account still opens


def test_who_comes_back_without_having_left_is_slowed_down_and_is_no_entry(site: Sited) -> None:
    codes = [site.back(state="x", code=str(number)).status for number in range(200)]
    assert codes == [403] * 3 + [429] * 197
    assert site.ask(OIDC).status == 429
    assert not site.told


def test_a_provider_that_is_away_is_asked_once_in_some_seconds() -> None:
    asked: list[str] = []

    class Away(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(503)

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Away)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    oidc = Oidc(config(f"http://127.0.0.1:{server.server_port}"))
    for _ in range(20):
        with pytest.raises(SignInRefused, match="does not answer"):
            oidc.begin("/")
    server.shutdown()
    thread.join()
    server.server_close()
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ('oidc_issuer = "https://id.example.org"', "oidc_client_id"),
        ('oidc_issuer = "http://id.example.org"\noidc_client_id = "g"', "oidc_issuer"),
        ('group_roles = ["staff"]', "group_roles"),
        ('group_roles = ["staff=admin"]', "group_roles"),
        ('group_teams = ["=nlp"]', "group_teams"),
        ('default_role = "root"', "default_role"),
        ('proxy_user_header = "Remote User"', "proxy_user_header"),
    ],
)
def test_what_cannot_be_configured_is_one_line_that_names_the_key(
    tmp_path: Path, lines: str, key: str
) -> None:
    file = tmp_path / "g.toml"
    file.write_text(f"[people]\n{lines}\n")
    with pytest.raises(ConfigError, match=f"people.{key}"):
        load(file)


@dataclass
class Browser:
    """Fills in a provider's forms as a person does."""

    name: str

    def sign_in(self, place: str) -> dict[str, str]:
        """What the provider sends back to us."""
        with httpx.Client() as client:
            answer = client.get(place)
            for _ in range(8):
                while answer.is_redirect:
                    found = answer.url.join(answer.headers["location"])
                    if str(found).startswith(OURS):
                        return dict(parse_qsl(found.query.decode()))
                    answer = client.get(found)
                answer = client.post(answer.url, data=self._filled(answer.text))
        raise AssertionError(answer.text)

    def _filled(self, page: str) -> dict[str, str]:
        form = re.search(r"<form.*?</form>", page, re.DOTALL)
        assert form is not None, page
        hidden = re.findall(r'<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"', form.group())
        filled = {name: html.unescape(value) for name, value in hidden}
        given = {"login": self.name, "password": PASSWORD, "answer": "accept"}
        return filled | {
            name: value for name, value in given.items() if f'name="{name}"' in form.group()
        }


@pytest.fixture(scope="module")
def canaille(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    directory = tmp_path_factory.mktemp("canaille")
    (directory / "secret").write_text(f"{SECRET}\n")
    command = [sys.executable, "-m", "tests.oidc_provider", f"{OURS}{CALLBACK}", str(port)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n", (directory / "log").read_text()
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(10)
    process.stdout.close()


@pytest.fixture
def real(canaille: str, tmp_path: Path) -> Sited:
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    site = Sited(tmp_path / "secrets", config=config(canaille, secret))
    # A provider's tokens are of its own time.
    site.clock.advance((SystemClock().now() - site.clock.now()).total_seconds())
    return site


@pytest.mark.site
@pytest.mark.server
@pytest.mark.parametrize(
    ("name", "role"), [("olga", Role.OPERATOR), ("mira", Role.OWN), ("nora", None)]
)
def test_a_real_provider_signs_its_people_in_with_their_groups(
    real: Sited, name: str, role: Role | None
) -> None:
    real.leave()
    answer = real.back(**Browser(name).sign_in(real.place))
    if role is None:
        assert (answer.status, "no role here" in answer.body) == (403, True)
        assert (real.told[-1].deed, real.told[-1].person) == (AuditedAction.WRONG_SIGN_IN, name)
        return
    assert (answer.status, answer.headers["location"]) == (303, "/jobs?last=1d")
    real.take(answer)
    real.ask("/")
    found = real.who()
    assert found is not None
    assert (found.name, found.role) == (name, role)


@pytest.mark.site
@pytest.mark.server
def test_a_real_providers_code_is_good_once_and_with_its_verifier(real: Sited) -> None:
    real.leave()
    waiting, told = real.cookie, Browser("olga").sign_in(real.place)
    real.leave()  # another browser's sign-in: another verifier, another state
    assert real.back(**told).status == 403
    real.cookie = waiting
    assert real.back(**told).status == 303
    real.cookie = waiting
    assert real.back(**told).status == 403


@pytest.mark.site
@pytest.mark.server
def test_an_issuer_that_is_not_exactly_the_configured_one_is_refused(
    canaille: str, tmp_path: Path
) -> None:
    other = canaille.replace("127.0.0.1", "localhost")
    answer = Sited(tmp_path / "secrets", config=config(other)).ask(OIDC)
    assert answer.status == 502
    assert timedelta(minutes=10) == Oidc.LIFE
