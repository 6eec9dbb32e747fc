"""Redaction: numbers and words that are known to be ours may leave a site; every other word is hashed or left out.

A name is hashed with a key that is made for one bundle and kept nowhere: the same name is the same
word in one bundle, in the next it is another, and nobody can try names until one fits.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuvigil.metrics import MEASUREMENTS

_HIDDEN = "***"
_LEAST_SECRET = 4
# Of structured values those texts are ours: words of a list, versions, times.
KEPT = frozenset(
    {
        *("version", "state", "severity", "fault", "condition", "lane", "driver_state", "kind"),
        *("what", "origin", "key", "model", "driver", "kernel", "python", "detector", "day"),
        *("started_at", "now", "received_at", "sent_at", "at", "since", "resolved_at", "made_at"),
        *("file", "distribution", "release"),
    }
)
# What the hub's status calls its own; what stands under any other name is the site's.
KEYS = frozenset(
    {
        *("version", "now", "sequence", "started_at", "store", "records", "wrong_clocks"),
        *("retention", "queue", "refused_lines", "series", "nodes", "rows", "bytes", "tables"),
        *("recent_bytes", "oldest_at", "most_bytes", "dropped", "damaged", "lines", "until"),
        *("cluster", "node", "boot", "lane", "sent_at", "received_at", "offset_seconds", "clock"),
        *("telemetry_hours", "rollup_days", "records_days", "bodies", "known", "most_per_node"),
        *("floods", "since", "backup_at", "repairs", "at", "file", "reason", "moved_to", "backup"),
        *("commits", "missing_since", "missing_until", "empty", "extra", *MEASUREMENTS),
    }
)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>]+", re.IGNORECASE)
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_IP = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])|(?<![\w:])(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}\b"
    r"|(?<![\w:])(?:[0-9a-f]{1,4}:)*(?:[0-9a-f]{0,4}::|::)(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4})*)?(?![\w:])",
    re.IGNORECASE,
)
_UUID = re.compile(
    r"(?:GPU-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE
)
_PAIR = re.compile(
    r"(\b[\w-]*(?:token|secret|passw|passwd|key|authorization|bearer|cookie|credential)[\w-]*"
    r"[\"']?\s*[=:]\s*(?:(?:bearer|token|basic)\s+)?)(\"[^\"]*\"|'[^']*'|[^\s,;]+)",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"\b(bearer|basic|token)\s+[\w+/=._~-]{6,}", re.IGNORECASE)
_LONG = re.compile(r"(?<![\w+/=-])(?=[\w+/=-]*\d)(?=[\w+/=-]*[a-z])[\w+/=-]{20,}", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w.])/(?:[\w.@+-]+/)*[\w.@+-]+")
# A line of our own log: time, level, service, and the rest.
_LINE = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]+Z) (debug|info|warning|error) ([a-z_]+) (.*)")
_FACT = re.compile(r'("(?:[^"\\]|\\.)*"|[^\s=]+)((?: [\w.]+=(?:"(?:[^"\\]|\\.)*"|\S*))*)$')
_VALUE = re.compile(r' ([\w.]+)=("(?:[^"\\]|\\.)*"|\S*)')
_WORDS = re.compile(r"\"?[A-Za-z][A-Za-z'., -]{0,100}\"?")
_TOKEN = re.compile(r"\w+|\W", re.DOTALL)
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d+)?(?:e[+-]?\d+)?")


class Known:
    """Finds names as whole words, of however many there are: one pattern of 100,000 takes half a minute to make."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {one for one in names if len(one) > 2 or any(map(str.isalpha, one))}
        self._first = {it[0] for one in self._names if (it := _TOKEN.match(one))}
        self._lengths = {len(one) for one in self._names}

    def sub(self, other: Callable[[str], str], text: str) -> str:
        """The text with another word for each name, the longest that begins at a place."""
        tokens = list(_TOKEN.finditer(text))
        ends = [it.end() for it in tokens if not _in_word(text, it.end())]
        found, at = [], 0
        for token in tokens:
            start = token.start()
            if start < at or token[0] not in self._first:
                continue
            lengths = (end - start for end in reversed(ends) if end > start)
            fits = (n for n in lengths if n in self._lengths)
            most = next((n for n in fits if text[start : start + n] in self._names), 0)
            if most:
                found += [text[at:start], other(text[start : start + most])]
                at = start + most
        return "".join([*found, text[at:]])


@dataclass(slots=True)
class Redactor:
    """Knows the names and secrets of a site, and one key."""

    names: Collection[str] = ()
    secrets: Collection[str] = ()
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _known: Known = field(init=False)
    _hidden: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        self._known = Known(self.names)
        self._hidden = _any_of(one for one in self.secrets if len(one) >= _LEAST_SECRET)

    def name(self, text: str) -> str:
        """A name as another word, the same in all of the bundle."""
        digest = hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()
        return f"name-{digest[:10]}"

    def words(self, text: str) -> str:
        """A sentence of ours, with every name, address and secret in it hidden."""
        hide: list[tuple[re.Pattern[str] | None, Callable[[re.Match[str]], str]]] = [
            (self._hidden, lambda _: _HIDDEN),
            (_PAIR, lambda it: f"{it[1]}{_HIDDEN}"),
            (_SCHEME, lambda it: f"{it[1]} {_HIDDEN}"),
            (_ADDRESS, lambda it: f"{it[0].partition(':')[0]}://{self.name(it[0])}"),
            (_MAIL, lambda it: self.name(it[0])),
            (_UUID, lambda it: self.name(it[0])),
            (_IP, lambda it: self.name(it[0])),
            (_PATH, lambda it: self.name(it[0])),
        ]
        for pattern, other in hide:
            text = text if pattern is None else pattern.sub(other, text)
        text = self._known.sub(self.name, text)
        return _LONG.sub(lambda it: it[0] if it[0].startswith("name-") else _HIDDEN, text)

    def value(self, value: Any, key: str = "") -> Any:
        """A structure with its numbers; texts are kept by the key that they stand under, else hashed."""
        if isinstance(value, Mapping):
            return {
                name if name in KEYS else self.name(str(name)): self.value(one, str(name))
                for name, one in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(one, key) for one in value]
        if isinstance(value, str):
            return self.words(value) if key in KEPT else self.name(value) if value else ""
        return value

    def log_line(self, line: str) -> str | None:
        """One of our own lines, its values hashed but for numbers; None for any other line."""
        found = _LINE.fullmatch(line.rstrip("\n"))
        rest = None if found is None else _FACT.fullmatch(found[4])
        if found is None or rest is None or not _WORDS.fullmatch(rest[1]):
            return None
        said = [(name, text) for name, text in _VALUE.findall(rest[2])]
        values = "".join(f" {name}={self._logged(text)}" for name, text in said)
        return f"{found[1]} {found[2]} {found[3]} {self.words(rest[1])}{values}"

    def _logged(self, text: str) -> str:
        if _NUMBER.fullmatch(text) or text in {"True", "False", "None"}:
            return text
        return self.name(text.strip('"'))


def _in_word(text: str, at: int) -> bool:
    return text[at : at + 1].isalnum() or text[at : at + 1] == "_"


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    """The longest first, so that no part of one stays."""
    known = sorted({one for one in texts if one}, key=len, reverse=True)
    if not known:
        return None
    return re.compile("|".join(map(re.escape, known)))
