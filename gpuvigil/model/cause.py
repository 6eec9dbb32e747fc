"""Why an incident came to where it is, as values: words are made from them for people, once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredBy:
    """Another incident explains it, and ended it: its own fault may well be there still."""

    fingerprint: str  # of the incident that explains it in the end; "" in what was written before
    what: str  # as people read it: "node-1: Node stopped reporting"

    @property
    def text(self) -> str:
        return f"{_COVERED}{self.what}"


@dataclass(frozen=True, slots=True)
class Uncovered:
    """Nothing explains it any more: it stands for itself again, and did not come back."""

    @property
    def text(self) -> str:
        return _UNCOVERED


Cause = CoveredBy | Uncovered

_COVERED, _UNCOVERED = "covered by ", "no longer covered"


def cause_to_json(cause: Cause | None) -> dict[str, str] | None:
    """As a record keeps it."""
    if isinstance(cause, CoveredBy):
        return {"kind": "covered_by", "fingerprint": cause.fingerprint, "what": cause.what}
    return None if cause is None else {"kind": "uncovered"}


def cause_from_json(value: Mapping[str, Any] | None) -> Cause | None:
    """The cause that `cause_to_json` wrote; None for a kind that only a newer version knows."""
    kind = None if value is None else value.get("kind")
    if value is not None and kind == "covered_by":
        return CoveredBy(fingerprint=str(value["fingerprint"]), what=str(value["what"]))
    return Uncovered() if kind == "uncovered" else None
