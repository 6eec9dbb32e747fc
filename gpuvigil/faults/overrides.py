"""A site's own severities of Xids and SXids: `analyzer.xid_overrides` and `analyzer.sxid_overrides`."""

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
    """The row as the site wants it; None when it does not want to hear of the code.

    Asked before the gravest of several is chosen: what a site makes less of hides nothing beside it.
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
