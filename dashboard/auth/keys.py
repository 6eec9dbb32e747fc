"""The secrets for sign-in, as files: signed cookies, one-time links and the access token.

All files lie in one directory that only its owner may read. No state is kept in memory, so that
several dashboards, and the command that makes a link, agree.
"""

import hashlib
import hmac
import json
import os
import secrets
import stat
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from gpuvigil.config import read_secret
from gpuvigil.errors import ConfigError
from gpuvigil.file_sync import sync

# A link that nobody opened stops working after a day.
LINK_LIFE = timedelta(hours=24)


def are_made(directory: Path) -> bool:
    """Return whether a dashboard has made its secrets there; also True if the folder cannot be read."""
    try:
        return (directory / "session-key").exists()
    except OSError:  # `Keys` raises an error that says why
        return True


class Keys:
    """The secrets of one directory; missing ones are made.

    Raises ConfigError if the directory cannot be used.
    """

    def __init__(self, directory: Path, session: timedelta = timedelta(hours=168)) -> None:
        self._links = directory / "links"
        self._ended = directory / "ended"
        self._session = session
        try:
            for folder in (directory, self._links):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _owner_only(directory)
            self._key = _kept(directory / "session-key", "session key").encode()
            self._access_token = _kept(directory / "access-token", "access token")
        except OSError as error:
            raise ConfigError(
                f"dashboard.secrets_directory: cannot use {directory}: {error.strerror}"
            ) from None
        # Browsers send a host's cookies to all its ports; two dashboards must not overwrite each other's.
        self.cookie_name = f"gpuvigil-{hashlib.sha256(self._key).hexdigest()[:8]}"

    def new_cookie(
        self, now: datetime, claims: Mapping[str, Any] | None = None, life: timedelta | None = None
    ) -> str:
        """Return the value of a signed cookie that carries `claims`, valid for `life` or the session's length."""
        ends = int((now + (life or self._session)).timestamp())
        claim = f"{ends}.{secrets.token_hex(8)}"
        if claims:
            claim += "." + urlsafe_b64encode(json.dumps(claims).encode()).decode()
        return f"{claim}.{self._signature(claim)}"

    def payload(self, value: str, now: datetime) -> Mapping[str, Any] | None:
        """Return what a cookie carries; None for one that is not ours, has expired or was signed out."""
        claim, _, signature = value.rpartition(".")
        if not hmac.compare_digest(self._signature(claim).encode(), signature.encode()):
            return None
        ends, _, rest = claim.partition(".")
        if now.timestamp() >= int(ends) or (self._ended / _name(value)).exists():
            return None
        _, _, told = rest.partition(".")
        found: dict[str, Any] = json.loads(urlsafe_b64decode(told)) if told else {}
        return found

    def end(self, value: str, now: datetime) -> None:
        """Make a cookie invalid, and delete the marks of cookies that have expired since."""
        self._ended.mkdir(mode=0o700, exist_ok=True)
        for path in self._ended.iterdir():
            if _age(path, now) > self._session:
                path.unlink(missing_ok=True)
        if self.payload(value, now) is not None:
            path = self._ended / _name(value)
            path.touch(mode=0o600)
            os.utime(path, (now.timestamp(), now.timestamp()))

    def derived(self, purpose: str) -> bytes:
        """Return a key for another purpose; the session key cannot be derived from it."""
        return hmac.new(self._key, purpose.encode(), hashlib.sha256).digest()

    def end_all(self, name: str, now: datetime) -> None:
        """End all sessions of that name that began until now, however they signed in."""
        self._ended.mkdir(mode=0o700, exist_ok=True)
        path = self._ended / _name(f"person {name}")
        path.touch(mode=0o600)
        os.utime(path, (now.timestamp(), now.timestamp()))

    def is_over(self, name: str, began: float) -> bool:
        """Return whether `end_all` ended that person's session that began at this Unix time, in seconds."""
        try:
            return began <= (self._ended / _name(f"person {name}")).stat().st_mtime
        except FileNotFoundError:
            return False

    @property
    def session_seconds(self) -> int:
        """How long a session lasts, in seconds."""
        return int(self._session.total_seconds())

    def is_access_token(self, text: str) -> bool:
        """Return whether this is the token that the sign-in page asks for."""
        return hmac.compare_digest(text.strip().encode(), self._access_token.encode())

    def new_link_token(self, now: datetime) -> str:
        """Return a token that signs in once, and delete expired unused ones."""
        for path in self._links.iterdir():
            if _age(path, now) > LINK_LIFE:
                path.unlink(missing_ok=True)
        token = secrets.token_urlsafe(24)
        path = self._links / _name(token)
        path.touch(mode=0o600)
        os.utime(path, (now.timestamp(), now.timestamp()))
        return token

    def use_link_token(self, token: str, now: datetime) -> bool:
        """Use a token up by deleting its file; return True only the first time and before it expires."""
        path = self._links / _name(token)
        alive = _age(path, now) <= LINK_LIFE
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        return alive

    def _signature(self, claim: str) -> str:
        return hmac.new(self._key, claim.encode(), hashlib.sha256).hexdigest()


def _name(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _age(path: Path, now: datetime) -> timedelta:
    """Return the age of the file; `timedelta.max` if it is gone."""
    try:
        return timedelta(seconds=now.timestamp() - path.stat().st_mtime)
    except FileNotFoundError:
        return timedelta.max


def _owner_only(directory: Path) -> None:
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & 0o077:
        directory.chmod(mode & 0o700)


def _kept(path: Path, what: str) -> str:
    """Return the file's secret, made now if there is none; if several make it at once, one wins."""
    if not path.exists():
        draft = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(file, "w", encoding="utf-8") as stream:
                stream.write(secrets.token_urlsafe(32) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            os.link(draft, path)
            sync(path.parent)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return read_secret(path, what)
