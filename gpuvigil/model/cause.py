"""Why an incident changed its state, as values from which the text for people is made in one place."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from ..clock import from_text, moment, to_text
from .collected import EventKind


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredBy:
    """Another incident explains this one and ended it; this one's own fault may well still be there."""

    fingerprint: str  # of the incident that finally explains it; "" in older records
    what: str  # as people read it: "node-1: Node stopped reporting"

    @property
    def text(self) -> str:
        return f"{_COVERED}{self.what}"


@dataclass(frozen=True, slots=True)
class Uncovered:
    """No incident explains this one any more: it stands by itself again, and did not come back."""

    @property
    def text(self) -> str:
        return _UNCOVERED


class EndedBy(str, Enum):
    """The ways in which an incident ends, other than by one that covers it."""

    EVENT = "event"  # a cure: a reset, a boot, a port that is up
    REPORTS_AGAIN = "reports_again"  # the node, or the nodes, do
    RETIRED = "retired"  # the node was, by a person or by gpuvigil
    GONE = "gone"  # all of the nodes are
    APART = "apart"  # a shared incident is split into one for each node
    NOT_SHOWN = "not_shown"  # no job runs that could show the fault
    NOT_SEEN = "not_seen"  # looked for, and not found


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of an incident; which further fields are set depends on how it ended."""

    by: EndedBy
    at: datetime | None = None  # time of the event or the retirement, or since when it reports
    event: EventKind | None = None
    who: str = ""  # the person who retired the node
    seconds: float | None = None  # for how long the fault was looked for
    left: tuple[int, int] | None = None  # a cluster's nodes that still have it, of how many

    @property
    def text(self) -> str:
        at = "" if self.at is None else moment(self.at)
        event = "" if self.event is None else self.event.value.replace("_", " ")
        return {
            EndedBy.EVENT: f"cured: {event} at {at}",
            EndedBy.REPORTS_AGAIN: f"reports again since {at}" if at else "its nodes report again",
            EndedBy.RETIRED: f"retired by {self.who} at {at}",
            EndedBy.GONE: "its nodes are gone",
            EndedBy.APART: "no matter of its rack any more: each is told for itself"
            if self.left is None
            else f"only {self.left[0]} of {self.left[1]} nodes left: each is told for itself",
            EndedBy.NOT_SHOWN: f"not seen since {at}; no job can show it now: run a benchmark on it",
            EndedBy.NOT_SEEN: f"not seen for {self.seconds or 0.0:.0f} s",
        }[self.by]


Cause = CoveredBy | Uncovered | Ended

_COVERED, _UNCOVERED = "covered by ", "no longer covered"


def cause_to_json(cause: Cause | None) -> dict[str, Any] | None:
    """Return the cause as a record keeps it; unknown fields of an end are left out."""
    if isinstance(cause, Ended):
        found = {
            "at": None if cause.at is None else to_text(cause.at),
            "event": None if cause.event is None else cause.event.value,
            "who": cause.who or None,
            "seconds": cause.seconds,
            "left": None if cause.left is None else list(cause.left),
        }
        told = {key: value for key, value in found.items() if value is not None}
        return {"kind": "ended", "by": cause.by.value, **told}
    if isinstance(cause, CoveredBy):
        return {"kind": "covered_by", "fingerprint": cause.fingerprint, "what": cause.what}
    return None if cause is None else {"kind": "uncovered"}


def cause_from_json(value: Mapping[str, Any] | None) -> Cause | None:
    """Return the cause that `cause_to_json` wrote; None for a kind that only a newer version knows."""
    kind = None if value is None else value.get("kind")
    if value is not None and kind == "covered_by":
        return CoveredBy(fingerprint=str(value["fingerprint"]), what=str(value["what"]))
    if value is not None and kind == "ended":
        return _ended(value)
    return Uncovered() if kind == "uncovered" else None


def _ended(value: Mapping[str, Any]) -> Ended | None:
    at, event, left = value.get("at"), value.get("event"), value.get("left")
    try:
        return Ended(
            by=EndedBy(value["by"]),
            at=None if at is None else from_text(at),
            event=None if event is None else EventKind(event),
            who=str(value.get("who", "")),
            seconds=value.get("seconds"),
            left=None if left is None else (int(left[0]), int(left[1])),
        )
    except ValueError:
        return None
