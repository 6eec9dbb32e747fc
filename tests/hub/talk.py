"""Requests as a stranger sends them, byte by byte, and what came back."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from gpuvigil.clock import to_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Status, headers with lower-case names, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    url: str,
    body: bytes | None = None,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    method: str | None = None,
) -> Reply:
    """One request on a connection of its own; any status is an answer."""
    sent = dict(headers or {})
    if token is not None:
        sent["Authorization"] = f"Token {token}"
    request = urllib.request.Request(url, body, sent, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return _reply(answer.status, answer.headers.items(), answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return _reply(error.code, error.headers.items(), error.read())


def _reply(status: int, headers: Any, body: bytes) -> Reply:
    lower = {name.lower(): value for name, value in headers}
    return Reply(status=status, headers=lower, body=body)


def identity(sequence: int, lane: str = "live", node: str = "n1") -> dict[str, str]:
    return {
        "Gpuvigil-Cluster": "test",
        "Gpuvigil-Node": node,
        "Gpuvigil-Boot": "b1",
        "Gpuvigil-Lane": lane,
        "Gpuvigil-Sequence": str(sequence),
        "Gpuvigil-Sent-At": to_text(datetime.now(timezone.utc)),
        "Gpuvigil-Version": "0.1.0",
    }
