"""A recording played through the analyzer and the incident lifecycle, and judged."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np

from gpuvigil.clock import to_text
from gpuvigil.config import AnalyzerSettings
from gpuvigil.faults import FAULTS
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import Severity, Subject
from simulator.fleet import Truth
from simulator.fleet.kinds import KINDS

from ..judge.claims import Claim, IncidentText, claims
from ..judge.fault_names import NAMING, OF_USE, is_named, names
from ..judge.matching import Judged, Outcome, Verdict, began, judge, named_for_good
from ..replay import Replay
from .recording import HOUR, Recording

# Rows of each subject within the shortest span: three show that something lasts, and one may be late.
_LINES = 4
# Every cause that a truth may state and an incident can name: a fault, its condition, a kind that the
# simulated fleet plays, an Xid.
_XIDS = frozenset(f"xid {code}" for code in range(1, 1000))
CAUSES = frozenset({*FAULTS, *CONDITIONS, *KINDS, *_XIDS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """The incidents compared with what was wrong."""

    outcomes: tuple[tuple[Truth, Outcome], ...]
    judged: tuple[Judged, ...]

    @property
    def missed(self) -> int:
        return sum(not outcome.found for _, outcome in self.outcomes)

    @property
    def wrong(self) -> tuple[Claim, ...]:
        """Messages about no fault of the truth; notes, which page nobody, are left out."""
        false = (one.claim for one in self.judged if one.verdict is Verdict.FALSE)
        return tuple(claim for claim in false if claim.read_at is not None)

    def of(self, claim: Claim) -> Judged | None:
        """Return an incident's best verdict in any of its spans; None when it was not judged."""
        those = [one for one in self.judged if one.claim.id == claim.id]
        return min(those, key=lambda one: list(Verdict).index(one.verdict), default=None)


def settings_for(seconds: float) -> AnalyzerSettings:
    """Return the analyzer's settings with each span long enough for rows that are so many seconds apart."""
    usual = AnalyzerSettings()
    return replace(
        usual,
        window_seconds=max(usual.window_seconds, _LINES * seconds),
        steady_seconds=max(usual.steady_seconds, 2.5 * _LINES * seconds),
        trend_seconds=max(usual.trend_seconds, 7.5 * _LINES * seconds),
    )


def played(
    recording: Recording,
    settings: AnalyzerSettings | None = None,
    silence: bool = False,
    tell: Callable[[float], None] = lambda share: None,
) -> list[Claim]:
    """Return the incidents of a recording, in the order in which they were opened.

    With `silence`, a time without any row counts as the silence of every node, not as a gap in the recording. `tell`
    receives the share that is done.
    """
    replay = Replay(settings or settings_for(recording.slowest_seconds), ahead=HOUR)
    for start, end in () if silence else recording.gaps:
        replay.hub_away(start, end)
    for block in recording.blocks():
        replay.feed(block)
        tell((block.end - recording.start) / (recording.end - recording.start))
    return claims(replay.transitions)


def judged(truths: Sequence[Truth], said: Sequence[Claim]) -> Verdicts:
    """Compare each incident with what was wrong.

    How a GPU is used is no fault, so incidents about it count only where a truth asks for them, and are compared with
    such truths alone.
    """
    wanted = {truth.fault for truth in truths}
    codes = {int(cause[4:]) for cause in wanted if cause in _XIDS}
    outcomes: dict[str, Outcome] = {}
    found: list[Judged] = []
    for of_use in (False, True):
        some = [truth for truth in truths if (truth.fault in OF_USE) == of_use]
        those = [one for one in said if (one.fault in OF_USE) == of_use]
        if of_use and not some:
            continue
        told, messages = _compared(some, [_named(one, codes) for one in those])
        outcomes |= told
        found += messages
    return Verdicts(
        outcomes=tuple((truth, outcomes[truth.id]) for truth in truths), judged=tuple(found)
    )


def _compared(
    truths: Sequence[Truth], said: Sequence[Claim]
) -> tuple[dict[str, Outcome], list[Judged]]:
    """Return the outcome of each truth by its id, and a verdict for each message."""
    told, messages = judge([_with_lists(truth, said) for truth in truths], said)
    any_will_do = {truth.id for truth in truths if not truth.fault}
    found = [
        replace(one, verdict=Verdict.RIGHT)
        if one.verdict is Verdict.OTHER and one.truth in any_will_do
        else one
        for one in messages
    ]
    pairs = zip(truths, told, strict=True)
    return {truth.id: _with_notes(truth, outcome, found) for truth, outcome in pairs}, found


def _with_lists(truth: Truth, said: Iterable[Claim]) -> Truth:
    """Add to a truth the subjects of incidents on other nodes that name its cause and list its node.

    For a job that hangs on several nodes, the incident is about the first, while the truth may name any of them.
    """
    node = truth.subject.of_node()
    more = [
        one.subject
        for one in said
        if truth.fault
        and one.subject.of_node() != node
        and is_named(truth, one.fault, one.text)
        and _lists(one, node)
    ]
    return replace(truth, also=(*truth.also, *more))


def _lists(one: Claim, node: Subject) -> bool:
    return any(Subject.parse(member).of_node() == node for member in one.members)


def _with_notes(truth: Truth, outcome: Outcome, found: Iterable[Judged]) -> Outcome:
    """Let a note find a cause that was asked for, since the product may only make a note of it.

    So does an incident that names the cause and lists the very subject beside others: it can stand for several truths.
    """
    right = [
        one.claim
        for one in found
        if one.verdict is Verdict.RIGHT and (one.truth == truth.id or _stands_for(one.claim, truth))
    ]
    if outcome.found or not truth.fault or not right:
        return outcome
    first = min(claim.opened_at for claim in right)
    place = any(truth.subject.key in claim.members for claim in right)
    seconds = max((first - truth.detectable_from).total_seconds(), 0.0)
    named = any(named_for_good(claim, truth) for claim in right)
    return replace(outcome, seconds=seconds, place=place, cause=outcome.cause or named)


def _stands_for(one: Claim, truth: Truth) -> bool:
    """Return whether an incident that names the truth's cause lists its subject, and began while it lasted."""
    return (
        truth.subject.key in one.members
        and is_named(truth, one.fault, one.text)
        and began(one, truth, truth.end) is not None
    )


def _named(one: Claim, codes: Collection[int]) -> Claim:
    """Return the incident with all causes it names, in the judge's form.

    An Xid is named by its code, and by an incident about the catalogue's meaning of the code.
    """
    (by_xid, *_) = (key for key, row in FAULTS.items() if row.by_xid)

    def of(said: IncidentText) -> frozenset[str]:
        kinds = names(one.fault, said)
        rows = {key for key, row in FAULTS.items() if kinds & set(row.simulated_as)}
        meant = {it for it in codes if kinds & names(by_xid, IncidentText(title="", xid=it))}
        xids = {f"xid {code}" for code in (meant | {said.xid}) - {None}}
        return frozenset({one.fault, said.condition, *kinds, *rows, *xids})

    everything = sorted(of(one.text) - {""})
    words = tuple((at, replace(said, xid=None)) for at, said in one.texts)
    return replace(one, fault=f"{one.fault}{NAMING}{'|'.join(everything)}", texts=words)


def figures(verdicts: Verdicts, node_days: float) -> dict[str, Any]:
    """Return counts of found, right causes and wrong incidents, and the delays."""
    outcomes = [outcome for _, outcome in verdicts.outcomes]
    asked = [outcome for truth, outcome in verdicts.outcomes if truth.fault]
    seconds = [outcome.seconds for outcome in outcomes if outcome.seconds is not None]
    wrong = verdicts.wrong
    return {
        "truths": len(outcomes),
        "found": len(seconds),
        "missed": verdicts.missed,
        "causes_asked": len(asked),
        "cause_right": sum(outcome.cause for outcome in asked),
        "place_right": sum(outcome.place for outcome in outcomes),
        "delay_seconds_median": float(np.median(seconds)) if seconds else None,
        "delay_seconds_max": max(seconds, default=None),
        "wrong": len(wrong),
        "wrong_critical": sum(one.severity is Severity.CRITICAL for one in wrong),
        "node_days": node_days,
    }


def incident(one: Claim, verdict: Judged | None) -> dict[str, Any]:
    """Return an incident for programs; times are text, and `verdict` is None without a truth file."""
    return {
        "fault": one.fault,
        "condition": one.text.condition or None,
        "xid": one.text.xid,
        "severity": one.severity.value,
        "title": one.title,
        "action": one.action,
        "subject": one.subject.key,
        "cluster": one.subject.cluster,
        "node": one.subject.node,
        "gpu": one.subject.gpu,
        "device": one.subject.device,
        "port": one.subject.port,
        "members": list(one.members),
        "opened_at": to_text(one.opened_at),
        "resolved_at": _text(one.spans[-1][1]),
        "spans": [[to_text(since), _text(until)] for since, until in one.spans],
        "verdict": None if verdict is None else verdict.verdict.value,
        "truth": None if verdict is None else verdict.truth,
    }


def truth(one: Truth, outcome: Outcome) -> dict[str, Any]:
    """Return a truth for programs, with its outcome."""
    return {
        "id": one.id,
        "what": one.cause,
        "cause": one.fault or None,
        "subject": one.subject.key,
        "from": to_text(one.start),
        "to": to_text(one.end),
        "found": outcome.found,
        "delay_seconds": outcome.seconds,
        "cause_right": outcome.cause if one.fault else None,
        "place_right": outcome.place,
        "incidents": outcome.incidents,
    }


def _text(at: datetime | None) -> str | None:
    return None if at is None else to_text(at)
