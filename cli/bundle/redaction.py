"""Redaction: numbers and words that are known to be ours may leave a site; all others are hashed or left out.

Names are hashed with a key that is made for one bundle and kept nowhere. Within a bundle a name always has
the same hash, in another bundle a different one, and nobody can find a name by hashing guesses.
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
# Keys whose texts are ours: words of a fixed list, versions, times.
KEPT = frozenset(
    {
        *("version", "state", "severity", "fault", "condition", "lane", "driver_state", "kind"),
        *("what", "origin", "key", "model", "driver", "kernel", "python", "detector", "day"),
        *("started_at", "now", "received_at", "sent_at", "at", "since", "resolved_at", "made_at"),
        *("file", "distribution", "release"),
    }
)
# Keys that gpuvigil itself gives in the hub's status; any other key is a name of the site and is hashed.
KEYS = frozenset(
    {
        *("version", "now", "sequence", "started_at", "store", "records", "wrong_clocks"),
        *("retention", "queue", "refused_lines", "series", "nodes", "rows", "bytes", "tables"),
        *("recent_bytes", "oldest_at", "most_bytes", "dropped", "damaged", "lines", "until"),
        *("cluster", "node", "boot", "lane", "sent_at", "received_at", "live_at"),
        *("offset_seconds", "clock"),
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
# A line of our own log: time, level, service, rest.
_LINE = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]+Z) (debug|info|warning|error) ([a-z_]+) (.*)")
_FACT = re.compile(r'("(?:[^"\\]|\\.)*"|[^\s=]+)((?: [\w.]+=(?:"(?:[^"\\]|\\.)*"|\S*))*)$')
_VALUE = re.compile(r' ([\w.]+)=("(?:[^"\\]|\\.)*"|\S*)')
_WORDS = re.compile(r"\"?[A-Za-z][A-Za-z'., -]{0,100}\"?")
_TOKEN = re.compile(r"\w+|\W", re.DOTALL)
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d+)?(?:e[+-]?\d+)?")


class Known:
    """Finds names as whole words. One pattern of 100,000 names would take half a minute to compile."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {one for one in names if len(one) > 2 or any(map(str.isalpha, one))}
        self._first = {it[0] for one in self._names if (it := _TOKEN.match(one))}
        self._lengths = {len(one) for one in self._names}

    def sub(self, other: Callable[[str], str], text: str) -> str:
        """Return the text with every name replaced by `other(name)`; the longest name at a place wins."""
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
    """Hides the names and secrets of a site, with one hash key."""

    names: Collection[str] = ()
    secrets: Collection[str] = ()
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _known: Known = field(init=False)
    _hidden: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        self._known = Known(self.names)
        self._hidden = _any_of(one for one in self.secrets if len(one) >= _LEAST_SECRET)

    def name(self, text: str) -> str:
        """Return the hashed form of a name, the same everywhere in one bundle."""
        digest = hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()
        return f"name-{digest[:10]}"

    def words(self, text: str) -> str:
        """Return a sentence of ours with every name, address and secret in it hidden."""
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
        """Return a structure with its numbers; texts under a key of `KEPT` stay, others are hashed."""
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
        """Return a line of our own log with all values but numbers hashed; None for any other line."""
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
    """Return a pattern of these texts, longest first so that no part of one stays; None without texts."""
    known = sorted({one for one in texts if one}, key=len, reverse=True)
    if not known:
        return None
    return re.compile("|".join(map(re.escape, known)))
