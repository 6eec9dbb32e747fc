"""The meaning of servers' refusals of line protocol; the table is in docs/stores.md.

The words of InfluxDB 1.6 and VictoriaMetrics 1.79 are as observed; those of InfluxDB 2 and 3 and of
newer VictoriaMetrics are from their documentation, issues and sources, read 2026-11.
"""

import json
import re
from collections.abc import Sequence
from enum import Enum


class Meaning(Enum):
    """What becomes of a body that was refused."""

    PARTLY = "the good lines are kept, and the others never will be"
    A_LINE = "a line is at fault; what was kept of the others is not known"
    TOO_LARGE = "smaller bodies are taken"
    NO_V2 = "the server has no such path, as InfluxDB before 1.8"
    LATER = "the same may be taken when somebody has put something right"


# InfluxDB 2.0 answered 500 for lines older than its retention, and had kept the others.
_ABOUT_LINES = frozenset({400, 422, 500})
_PARTLY = "partial write"
_A_LINE = re.compile(
    r"unable to parse '"  # InfluxDB 1 and 2
    r"|failed to parse line protocol|parsing failed|error parsing line"  # InfluxDB 3
    r"|incorrect influx line|too long line"  # VictoriaMetrics; before 1.105 it passed bad lines over
    r"|field type conflict"
)
# As Go's own server, and so InfluxDB 1, says it; a proxy's page says something else.
_GO_NOT_FOUND = "404 page not found"


def meaning(status: int, said: str) -> Meaning:
    """Return the meaning of an answer to a write other than 204; `said` is the answer's body."""
    if status == 413:
        return Meaning.TOO_LARGE
    if status in _ABOUT_LINES and _PARTLY in said:
        return Meaning.PARTLY
    if status in {400, 422} and _A_LINE.search(said):
        return Meaning.A_LINE
    if status == 404 and said.strip() == _GO_NOT_FOUND:
        return Meaning.NO_V2
    return Meaning.LATER


def refused_lines(said: str, lines: int) -> int:
    """Return how many of `lines` a server refused while keeping the others; at least one.

    InfluxDB 1 counts either conflicts (`dropped=2`) or what it could not parse, not both: in the second
    case it says `dropped=0` and names every such line. InfluxDB 3 names up to a hundred.
    """
    counted = map(int, re.findall(r"\bdropped=(\d+)", said))
    named = len(re.findall(r"unable to parse '|error parsing line", said))
    return min(max(1, named, len(_listed(said)), *counted), lines)


def in_short(said: str, secret: str = "") -> str:
    """Return a server's plain text or JSON answer in one line for people; nothing of a web page.

    A proxy may repeat an invalid secret (vmauth does): the secret is masked.
    """
    text = said.strip()
    if text.startswith("<"):
        return "a web page"
    try:
        value = json.loads(text)
        # InfluxDB 1 and 3 use `error` where 2 uses `message`.
        text = str(value.get("message") or value.get("error") or text)
    except (ValueError, AttributeError):
        # VictoriaMetrics begins with the client's address and the URI.
        text = re.sub(r"^remoteAddr: \S+ requestURI: \S+ ", "", text)
    if secret:
        text = text.replace(secret, "***")
    return " ".join(text.split())[:300]


def _listed(said: str) -> Sequence[object]:
    try:
        listed = json.loads(said)["data"]
    except (ValueError, KeyError, TypeError):
        return ()
    return listed if isinstance(listed, list) else ()
