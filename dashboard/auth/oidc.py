"""Sign-in by an OpenID Connect provider: the authorization code flow with PKCE.

A token's signature, issuer, audience, expiry and nonce are checked (OpenID Connect Core 1.0, 3.1.3.7).
State and PKCE verifier lie in a signed cookie that lasts ten minutes (RFC 7636, RFC 9700).
"""

import hmac
import importlib
import secrets
import threading
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from gpuvigil.config import Config, PeopleSettings, secret_source
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.log import Log

from .groups import GroupMapping, IdentityClaims

_TIMEOUT_SECONDS = 10.0
# How long the provider's metadata and keys are cached; keys are also asked for again if one is unknown.
_FRESH_SECONDS = 3600.0
_LEEWAY_SECONDS = 60
# After a failure the provider is not asked again for so long, whoever wants to sign in.
_AWAY_SECONDS = 5.0
# Only signatures by the provider's private key: "none" and shared secrets could be anybody's.
_ALGORITHMS = [
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
]
_LOG = Log("dashboard")


class SignInRefused(GpuvigilError):
    """A refused sign-in, with the reason as the person sees it; `name` is who they claim to be."""

    def __init__(self, why: str, name: str = "") -> None:
        super().__init__(why)
        self.name = name


class Oidc:
    """One identity provider; requests to it block, so call these methods in threads."""

    LIFE = timedelta(minutes=10)

    def __init__(self, config: Config) -> None:
        """Read the settings; ConfigError if authlib is not installed."""
        settings = config.people
        self._settings: PeopleSettings = settings
        self._issuer = settings.oidc_issuer.rstrip("/")
        self.groups = GroupMapping.of(settings)
        self._redirect = f"{config.alerts.external_url.rstrip('/')}/sign-in/oidc/callback"
        self._secret = (
            None
            if settings.oidc_client_secret_file is None
            else secret_source(
                settings.oidc_client_secret_file, "people.oidc_client_secret_file", "client secret"
            )
        )
        try:
            self._client: Any = importlib.import_module("authlib.integrations.httpx_client")
            self._jose: Any = importlib.import_module("joserfc.jwt")
            self._jwk: Any = importlib.import_module("joserfc.jwk")
            # The HTTP library that authlib uses: httpx, or httpx2 if installed.
            bases = [
                base.__module__.partition(".")[0] for base in self._client.OAuth2Client.__mro__
            ]
            self._http: Any = importlib.import_module(next(it for it in bases if "httpx" in it))
        except ImportError as error:
            raise ConfigError(
                "people.oidc_issuer: sign-in by a provider needs authlib:"
                f" in a checkout, pip install '.[oidc]' ({error})"
            ) from None
        errors = (
            importlib.import_module("authlib.common.errors").AuthlibBaseError,
            importlib.import_module("joserfc.errors").JoseError,
        )
        self._wrong: tuple[type[Exception], ...] = (
            *errors,
            self._http.HTTPError,
            KeyError,
            ValueError,
        )
        self._lock = threading.Lock()
        self._known: tuple[float, Mapping[str, Any]] | None = None
        self._away: tuple[float, str] | None = None
        self._keys: tuple[float, Any] | None = None

    @staticmethod
    def cookie(ours: str) -> str:
        """Return the name of the cookie that holds a sign-in's state while the person is at the provider."""
        return f"{ours}-oidc"

    @staticmethod
    def next_of(query: str) -> str:
        """Return the address that the person wants after signing in."""
        return dict(parse_qsl(query)).get("next", "/")

    def begin(self, rest: str) -> tuple[str, Mapping[str, str]]:
        """Return the provider's address and the state to check its answer by; Refused if it is away."""
        kept = {
            "state": secrets.token_urlsafe(24),
            "nonce": secrets.token_urlsafe(24),
            "verifier": secrets.token_urlsafe(48),
            "next": rest,
        }
        place = self._provider()["authorization_endpoint"]
        with self._session() as session:
            url, _ = session.create_authorization_url(
                place, state=kept["state"], nonce=kept["nonce"], code_verifier=kept["verifier"]
            )
        return str(url), kept

    def claims(self, query: str, kept: Mapping[str, str], now: datetime) -> IdentityClaims:
        """Return who came back from the provider; Refused, with the reason, if they may not sign in."""
        told = dict(parse_qsl(query))
        if not hmac.compare_digest(told.get("state", "").encode(), kept["state"].encode()):
            raise SignInRefused("This sign-in began in another browser. Start again.")
        if told.get("iss", self._issuer).rstrip("/") != self._issuer:  # RFC 9207
            raise SignInRefused("Another provider answered. Start again.")
        if "code" not in told:
            _LOG.warning("the provider refused a sign-in", error=told.get("error", "")[:100])
            raise SignInRefused("The provider refused the sign-in.")
        claims = self._claims(self._token(told["code"], kept["verifier"]), kept["nonce"], now)
        return self._known_person(claims)

    def _known_person(self, claims: Mapping[str, Any]) -> IdentityClaims:
        name = str(claims.get(self._settings.oidc_name_claim) or "")
        told = claims.get(self._settings.oidc_groups_claim) or []
        groups = [str(one) for one in told] if isinstance(told, list) else [str(told)]
        word = self.groups.claims(name, groups)
        if word is None:
            raise SignInRefused(
                "You have an account there, but no role here: ask an operator.", name
            )
        return word

    def _token(self, code: str, verifier: str) -> str:
        try:
            with self._session() as session:
                found = session.fetch_token(
                    self._provider()["token_endpoint"],
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=verifier,
                )
            return str(found["id_token"])
        except self._wrong as error:
            _LOG.warning("the provider gave no token", error=repr(error)[:300])
            raise SignInRefused("The provider's answer cannot be used.") from None

    def _claims(self, token: str, nonce: str, now: datetime) -> Mapping[str, Any]:
        """Return the token's claims after all checks; Refused if one fails."""
        try:
            claims: Mapping[str, Any] = self._decoded(token).claims
            registry = self._jose.JWTClaimsRegistry(
                now=int(now.timestamp()),
                leeway=_LEEWAY_SECONDS,
                iss={"essential": True, "values": [self._issuer, f"{self._issuer}/"]},
                aud={"essential": True, "value": self._settings.oidc_client_id},
                exp={"essential": True},
                iat={"essential": True},
                sub={"essential": True},
                nonce={"essential": True, "value": nonce},
            )
            registry.validate(claims)
        except self._wrong as error:
            _LOG.warning("a provider's token was refused", error=repr(error)[:300])
            raise SignInRefused("The provider's answer is not valid.") from None
        # A token for several audiences must name us as the authorized party (Core 1.0, 3.1.3.7, 4 and 5).
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if (
            claims.get("azp", None if several else self._settings.oidc_client_id)
            != self._settings.oidc_client_id
        ):
            raise SignInRefused("The provider's answer is for somebody else.")
        return claims

    def _decoded(self, token: str) -> Any:
        try:
            return self._jose.decode(token, self._key_set(fresh=False), algorithms=_ALGORITHMS)
        except self._wrong:
            # Either the provider's keys have changed or the token is forged: only fresh keys tell.
            return self._jose.decode(token, self._key_set(fresh=True), algorithms=_ALGORITHMS)

    def _key_set(self, *, fresh: bool) -> Any:
        with self._lock:
            kept = self._keys
        now = time.monotonic()
        # Forged tokens must not make us ask each time.
        if kept is not None and now - kept[0] < (_LEEWAY_SECONDS if fresh else _FRESH_SECONDS):
            return kept[1]
        found = self._jwk.KeySet.import_key_set(self._json(self._provider()["jwks_uri"]))
        with self._lock:
            self._keys = now, found
        return found

    def _provider(self) -> Mapping[str, Any]:
        now = time.monotonic()
        with self._lock:
            if self._known is not None and now - self._known[0] < _FRESH_SECONDS:
                return self._known[1]
            if self._away is not None and now - self._away[0] < _AWAY_SECONDS:
                raise SignInRefused(self._away[1])
        try:
            found = self._discovered()
        except SignInRefused as error:
            with self._lock:
                self._away = time.monotonic(), str(error)
            raise
        with self._lock:
            self._known = time.monotonic(), found
        return found

    def _discovered(self) -> Mapping[str, Any]:
        found = self._json(f"{self._issuer}/.well-known/openid-configuration")
        if str(found.get("issuer", "")).rstrip("/") != self._issuer:
            raise SignInRefused("The provider's issuer differs from people.oidc_issuer.")
        for key in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if urlsplit(str(found.get(key, ""))).scheme not in {
                "https",
                urlsplit(self._issuer).scheme,
            }:
                raise SignInRefused(f"The provider's {key} cannot be used.")
        return found

    def _json(self, url: str) -> Mapping[str, Any]:
        try:
            answer = self._http.get(url, timeout=_TIMEOUT_SECONDS, follow_redirects=False)
            answer.raise_for_status()
            found: Mapping[str, Any] = answer.json()
        except (self._http.HTTPError, ValueError) as error:
            _LOG.warning("the provider does not answer", url=url, error=repr(error)[:300])
            raise SignInRefused("The sign-in provider does not answer. Try again.") from None
        return found

    def _session(self) -> Any:
        return self._client.OAuth2Client(
            client_id=self._settings.oidc_client_id,
            client_secret=None if self._secret is None else self._secret(),
            scope=self._settings.oidc_scope,
            redirect_uri=self._redirect,
            code_challenge_method="S256",
            token_endpoint_auth_method="none" if self._secret is None else "client_secret_basic",
            timeout=_TIMEOUT_SECONDS,
        )
