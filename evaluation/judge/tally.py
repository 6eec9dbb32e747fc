"""What a set of detectors did on one fleet, as counts that can be added over fleets."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

from gpuvigil.model import Severity
from simulator.fleet import Truth

from .claims import Claim
from .matching import Judged, Outcome, Verdict, judge, with_hidden

_READ = (Severity.CRITICAL, Severity.WARNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A warning or critical as somebody read it."""

    seconds: float  # after the fleet's beginning
    severity: str
    title: str
    subject: str
    verdict: str
    about: str = ""  # the kind of fault it belongs to


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """One set of detectors on one fleet."""

    node_days: float
    outcomes: tuple[Outcome, ...] = ()
    # Warnings and criticals, by severity and then verdict.
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    # Wrong messages by the claimed fault.
    wrong: Mapping[str, int] = field(default_factory=dict)
    # Notes (infos) about no fault, which only the digest has; None: not counted in that play.
    wrong_notes: int | None = None
    messages: tuple[Message, ...] = ()

    def to_json(self, messages: bool = False) -> dict[str, Any]:
        """Return plain values; an outcome is a list in the order of `Outcome`'s fields, without their names.

        Messages are kept only for sets whose messages somebody wants to read.
        """
        return {
            "node_days": round(self.node_days, 6),
            "outcomes": [list(asdict(outcome).values()) for outcome in self.outcomes],
            "counts": {name: dict(sorted(them.items())) for name, them in self.counts.items()},
            "wrong": dict(sorted(self.wrong.items())),
            "wrong_notes": self.wrong_notes,
            "messages": [list(asdict(it).values()) for it in self.messages] if messages else [],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Tally":
        return cls(
            node_days=values["node_days"],
            outcomes=tuple(Outcome(**_named(Outcome, row)) for row in values["outcomes"]),
            counts=values["counts"],
            wrong=values["wrong"],
            wrong_notes=values.get("wrong_notes"),
            messages=tuple(Message(**_named(Message, row)) for row in values["messages"]),
        )

    def false(self, *severities: Severity) -> int:
        """Return how many messages of these severities were about no fault."""
        return sum(
            self.counts.get(it.value, {}).get(Verdict.FALSE.value, 0) for it in severities or _READ
        )


def _named(kind: type[Outcome | Message], row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip((it.name for it in fields(kind)), row, strict=True))


def tally(
    truths: Sequence[Truth],
    claims: Sequence[Claim],
    nodes: int,
    span: tuple[datetime, datetime],
) -> Tally:
    """Return what a set of detectors did on a fleet; a fault that nobody can find is not counted, nor is who names it wrong."""
    seen = [truth for truth in truths if not truth.hidden]
    outcomes, judged = judge(seen, claims)
    judged = with_hidden(judged, [truth for truth in truths if truth.hidden])
    kinds = {truth.id: truth.fault for truth in truths}
    read = [one for one in judged if one.claim.read_at is not None]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in read:
        counts[one.claim.severity.value][one.verdict.value] += 1
    return Tally(
        node_days=(span[1] - span[0]).total_seconds() / 86_400.0 * nodes,
        outcomes=tuple(outcomes),
        counts={name: dict(them) for name, them in sorted(counts.items())},
        wrong=Counter(one.claim.fault for one in read if one.verdict is Verdict.FALSE),
        wrong_notes=sum(
            one.claim.read_at is None and one.verdict is Verdict.FALSE for one in judged
        ),
        messages=tuple(
            sorted(
                (_message(one, span[0], kinds) for one in read),
                key=lambda it: (it.seconds, it.subject, it.title),
            )
        ),
    )


def _message(one: Judged, begin: datetime, kinds: Mapping[str, str]) -> Message:
    at = one.claim.read_at or one.claim.opened_at
    return Message(
        seconds=(at - begin).total_seconds(),
        severity=one.claim.severity.value,
        title=one.claim.title,
        subject=one.claim.subject.key,
        verdict=one.verdict.value,
        about=kinds.get(one.truth or "", ""),
    )
