"""A site's own severities for Xids and SXids: `analyzer.xid_overrides` and `analyzer.sxid_overrides`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

from ..model import Severity
from . import Xid
from .sxids import Sxid

IGNORE = "ignore"
Coded = TypeVar("Coded", Xid, Sxid)


def overridden(row: Coded, overrides: Sequence[str]) -> Coded | None:
    """Return the row with the site's severity; None when the site ignores the code.

    Call this before choosing the most severe of several rows: then an overridden code hides no
    other.
    """
    word = _words(tuple(overrides)).get(row.code)
    if word is None:
        return row
    if word == IGNORE:
        return None
    return replace(row, severity=Severity(word), source=f"{row.source}; the site's own severity")


@cache
def _words(entries: tuple[str, ...]) -> Mapping[int, str]:
    pairs = (entry.partition("=") for entry in entries)
    return {int(code): word for code, _, word in pairs}
