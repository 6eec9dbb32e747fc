"""Validates untrusted JSON as a record that can be stored and returned again."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from gpuvigil.model import Record, RecordKind

from ..http.responses import Refused

_LARGEST_VERSION = 2**63 - 1
_DEEPEST = 32

# The same limits as for telemetry (`gpuvigil.store.LATEST_NS`). A node whose clock is wrong by
# years may have something critical to report, so there is no tighter limit; beyond it no clock
# gives a time.
_FIRST_YEAR, _LAST_YEAR = 1970, 2199

# PostgreSQL indexes values of up to 2,704 bytes, and two of them are never in one index.
_LONGEST_NAME_BYTES = 1024


def record_of(value: object, where: str) -> Record:
    """Return the record in a JSON value; Refused (400) says what is wrong with it, and `where`."""
    if not isinstance(value, Mapping):
        raise Refused(400, f"{where}: a record must be a JSON object")
    try:
        _check_kind(value.get("kind"))
        found = Record.from_json(value)
        _storable_version(found.version)
        storable(found.id, found.subject, found.parent or "", _state(found.body))
        _check_subject(found.subject)
        for at in (found.at, found.due_at):
            _storable_time(at)
        _storable_body(found.body)
    except (ValueError, TypeError, OverflowError) as error:
        raise Refused(400, f"{where}: {error}") from None
    return found


def _check_kind(kind: object) -> None:
    known = [it.value for it in RecordKind]
    if kind not in known:
        said = "without a kind" if kind is None else f"of kind {str(kind)[:100]!r}"
        raise ValueError(f"a record {said}; known are {', '.join(known)}")


def _check_subject(subject: str) -> None:
    """Raise ValueError for a subject that would be another one if read as a path."""
    if any(unquote(part) in {".", ".."} for part in subject.split("/")):
        raise ValueError(f"a record's subject may not have a part '.' or '..': {subject[:200]!r}")


def _storable_version(version: int) -> None:
    if not 1 <= version <= _LARGEST_VERSION:
        raise ValueError("a record's version must be from 1 to 2^63 - 1")


def storable(*texts: str) -> None:
    """Raise ValueError when a text cannot be stored."""
    for text in texts:
        # A lone surrogate fails here; PostgreSQL takes no NUL.
        written = text.encode()
        if b"\0" in written:
            raise ValueError("a record's names may not hold a NUL")
        if len(written) > _LONGEST_NAME_BYTES:
            raise ValueError(f"a record's names may have {_LONGEST_NAME_BYTES} bytes")


def _state(body: Mapping[str, Any]) -> str:
    """Return the state in a body, which can be queried like a name; empty when there is none."""
    state = body.get("state")
    return state if isinstance(state, str) else ""


def _storable_time(at: datetime | None) -> None:
    if at is not None and not _FIRST_YEAR <= at.year <= _LAST_YEAR:
        raise ValueError(f"a record's times must be from {_FIRST_YEAR} to {_LAST_YEAR}")


def _storable_body(body: Mapping[str, Any]) -> None:
    """Raise ValueError for a body that cannot be returned: infinity, surrogates, deep nesting."""
    level: list[Any] = [body]
    for _ in range(_DEEPEST):
        level = [
            child
            for value in level
            if isinstance(value, dict | list)
            for child in (value.values() if isinstance(value, dict) else value)
        ]
    if level:
        raise ValueError(f"a record's body may nest {_DEEPEST} levels deep")
    json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
