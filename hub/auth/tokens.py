"""The tokens of the configuration, and those that the hub has issued."""

import hmac
from itertools import combinations
from pathlib import Path

from gpuvigil.config import HubSettings, read_secret
from gpuvigil.errors import ConfigError
from gpuvigil.log import Log

from ..http.bearer import Bearer, Scope
from ..records import IssuedTokens

_LOG = Log("hub")


class Secret:
    """A token read from a file, and read again when the file changes."""

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        # Stamped before the read: a file that is replaced during the read is read again.
        self._stamp = self._state()
        self._token = read_secret(path, what)

    def is_same(self, other: "Secret") -> bool:
        return self._token == other._token

    @property
    def token(self) -> str:
        """The token as last read from the file."""
        return self._token

    def matches(self, given: bytes) -> bool:
        """Return whether `given` is the token, compared in constant time."""
        stamp = self._state()
        if stamp != self._stamp:
            # In the middle of a rotation: the old token stays valid until a new one can be read.
            self._stamp = stamp
            try:
                self._token = read_secret(self._path, self._what)
            except ConfigError as error:
                _LOG.warning("token kept", reason=str(error))
        return hmac.compare_digest(self._token.encode(), given)

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


class Tokens:
    """All valid tokens: those of the configuration and those that the hub issued.

    Raises ConfigError when the service's or the collector's token is not set, or when two tokens
    are the same. Not every site has a scheduler, and its token may be an issued one.
    """

    def __init__(self, settings: HubSettings) -> None:
        self.issued_tokens: IssuedTokens | None = None  # until the records are open
        files = {
            Scope.SERVICE: _given(settings.service_token_file, Scope.SERVICE),
            Scope.COLLECTOR: _given(settings.collector_token_file, Scope.COLLECTOR),
        }
        if settings.scheduler_token_file is not None:
            files[Scope.SCHEDULER] = settings.scheduler_token_file
        self._secrets = [
            (Bearer(scope=scope, name="configuration"), Secret(path, f"{scope.value} token"))
            for scope, path in files.items()
        ]
        for (one, secret), (other, of_other) in combinations(self._secrets, 2):
            if secret.is_same(of_other):
                raise ConfigError(
                    f"hub.{one.scope.value}_token_file and hub.{other.scope.value}_token_file hold"
                    " the same token, with which each could do what the other may; put another one"
                    " into either"
                )

    def service_secret(self) -> str:
        """Return the service token, the secret that only a site's services and hubs share."""
        return self._secrets[0][1].token

    def bearer(self, authorization: bytes) -> Bearer | None:
        """Return the bearer of the token in an `Authorization` header; None for an unknown token."""
        scheme, _, token = authorization.partition(b" ")
        if scheme.lower() not in {b"token", b"bearer"}:
            return None
        given = token.strip()
        # All are compared, so that the time does not reveal which one matched.
        found = [bearer for bearer, secret in self._secrets if secret.matches(given)]
        if found or self.issued_tokens is None:
            return found[0] if found else None
        return self.issued_tokens.bearer(given)


def _given(path: Path | None, scope: Scope) -> Path:
    if path is None:
        key = f"{scope.value}_token_file"
        raise ConfigError(
            f"hub.{key} is not set: put a long random word into a file and name it there, or in"
            f" GPUVIGIL_HUB_{key.upper()}"
        )
    return path
