"""Links in messages that work without a sign-in: signed, and for a limited time.

A link holds the incident, the time until which it is valid, and a signature over both with a key that
alerts and dashboard share. It opens a page; only the form on that page changes anything, since chats
and mail programs open links by themselves for previews.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from ..config import AlertsSettings, secret_source

LIFE = timedelta(days=7)
PATH = "/answer/"
_DIGEST_BYTES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The incident that somebody may answer for, and until when."""

    incident: str
    ends_at: datetime


class Seal:
    """Makes and opens links with the current key, since it may be rotated."""

    def __init__(self, key: Callable[[], str]) -> None:
        self._key = key

    def token(self, incident: str, now: datetime) -> str:
        """Return a token for a link, valid for a week."""
        claim = f"{int((now + LIFE).timestamp())}.{incident}".encode()
        return f"{_text(self._signature(claim))}.{_text(claim)}"

    def opened(self, token: str, now: datetime) -> Offer | None:
        """Return what a token offers; None when it is not ours, or too old."""
        signature, _, text = token.partition(".")
        try:
            given, claim = _bytes(signature), _bytes(text)
            ends, _, incident = claim.decode().partition(".")
            ends_at = datetime.fromtimestamp(int(ends), timezone.utc)
        except (ValueError, OverflowError):
            return None
        if not hmac.compare_digest(given, self._signature(claim)) or ends_at <= now:
            return None
        return Offer(incident=incident, ends_at=ends_at)

    def _signature(self, claim: bytes) -> bytes:
        key = self._key().encode()
        return hmac.new(key, b"offer." + claim, hashlib.sha256).digest()[:_DIGEST_BYTES]


def seal(settings: AlertsSettings) -> Seal | None:
    """Return a seal with `alerts.link_key_file`; None without one. ConfigError when it cannot be read."""
    if settings.link_key_file is None:
        return None
    return Seal(secret_source(settings.link_key_file, "alerts.link_key_file", "key of the links"))


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
