"""A scheduled report, and its delivery to each receiver."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from gzip import compress, decompress
from typing import Any

from ..clock import from_text, to_text
from .record import Record, RecordKind

# The subject of reports, which are about all clusters.
REPORTS = "reports"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRun:
    """One scheduled report. `html` is empty until it is made; each receiver gets it once.

    A preview shows what is known so far of the report that is due at `final_at`. So does an early one,
    of the report that is due next: somebody asked for it on the page, and it is sent to nobody.
    """

    name: str
    due_at: datetime  # when its schedule says it is to be made
    final_at: datetime | None = None
    early: bool = False
    title: str = ""
    span: str = ""
    summary: str = ""  # the first lines, as Markdown
    html: str = ""
    # Each cluster's numbers and what they were calculated from, for later comparison
    # (`report.sections.revised`).
    numbers: tuple[Mapping[str, Any], ...] = ()

    @property
    def id(self) -> str:
        preview = "" if self.final_at is None else "|preview"
        return f"{self.name}|{to_text(self.due_at)}{preview}"

    def to_record(self, version: int, work_at: datetime | None = None) -> Record:
        """Return a record of kind `report`, due as work at `work_at`; None when no work is left."""
        packed = b64encode(compress(self.html.encode(), mtime=0)).decode("ascii")
        return Record(
            kind=RecordKind.REPORT,
            id=self.id,
            at=self.due_at,
            subject=REPORTS,
            version=version,
            due_at=work_at,
            body={
                "name": self.name,
                "final_at": None if self.final_at is None else to_text(self.final_at),
                "early": self.early,
                "title": self.title,
                "span": self.span,
                "summary": self.summary,
                "html": packed if self.html else "",
                "numbers": [dict(one) for one in self.numbers],
            },
        )

    @classmethod
    def from_record(cls, record: Record) -> "ReportRun":
        """Parse a report run from a record; raise ValueError, KeyError or TypeError if it is not one."""
        body = record.body
        packed = body["html"]
        return cls(
            name=body["name"],
            due_at=record.at,
            final_at=None if (at := body.get("final_at")) is None else from_text(at),
            early=bool(body.get("early", False)),
            title=body["title"],
            span=body["span"],
            summary=body["summary"],
            html=decompress(b64decode(packed)).decode() if packed else "",
            numbers=tuple(body.get("numbers", ())),
        )


class LetterState(str, Enum):
    """The state of a letter's delivery."""

    SENDING = "sending"  # about to be handed over: only the receiver knows whether it was
    WAITING = "waiting"  # the receiver has not accepted it, and said so
    SENT = "sent"
    REFUSED = "refused"  # refused for good


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """The delivery of one report to one receiver: an address, or `channel NAME`."""

    run: str
    to: str
    state: LetterState
    at: datetime
    tries: int = 1
    reason: str = ""

    @property
    def id(self) -> str:
        return f"{self.run}|{self.to}"

    def to_record(self) -> Record:
        """Return a record of kind `letter`, below its report; each step is a new version."""
        ending = 0 if self.state is LetterState.SENDING else 1
        return Record(
            kind=RecordKind.LETTER,
            id=self.id,
            at=self.at,
            subject=REPORTS,
            parent=self.run,
            version=2 * self.tries + ending,
            body={
                "to": self.to,
                "state": self.state.value,
                "at": to_text(self.at),
                "tries": self.tries,
                "reason": self.reason,
            },
        )

    @classmethod
    def from_record(cls, record: Record) -> "Letter":
        """Parse a letter from a record; raise ValueError, KeyError or TypeError if it is not one."""
        body = record.body
        return cls(
            run=str(record.parent),
            to=body["to"],
            state=LetterState(body["state"]),
            at=from_text(body["at"]),
            tries=int(body["tries"]),
            reason=body["reason"],
        )
