"""A GPU with an active Xid: a sticky one until it is cured, a passing one while it repeats."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from gpuvigil.faults import XID_FAULTS, Scope, Xid, found_by
from gpuvigil.faults.overrides import overridden
from gpuvigil.faults.xid_messages import Signature, signature
from gpuvigil.model import Event, EventKind, Evidence, Finding, Severity, Subject

from ..evidence.coded_events import Coded
from ..evidence.xid_policy import relevant_xids, row_of, suspect
from ..evidence.xid_repeats import Repeats, repeats
from ..window.window import Need, Span, Window
from . import Detector
from .gpu_lost import xid_evidence

# A boot counts as a cure once the GPU's newest line says that it answers.
NEEDS = (Need(measurement="gpu", span=Span.NOW, fields=("up",)),)

_XIDS = Coded(
    fault="gpu_xid",
    kind=EventKind.XID,
    # Some Xids have a detector of their own.
    code=lambda event: None if event.xid in XID_FAULTS else event.xid,
    row=row_of,
    # 63, 64, 94, 95, 171 or 172 come with it and say which memory was affected.
    waits=frozenset({48}),
)
_ADVICE = 154
_MOST_OTHERS = 8
# From the most drastic request on: a replacement or a reboot does all that a reset does.
_ASKED = (
    "field diagnostic, and have",
    "reboot",
    "check the link's seating, then reset",
    "drain the node, then reset",
    "reset the gpu",
)


def xid_faults(window: Window) -> list[Finding]:
    """Return one finding per GPU; the worst of its active codes sets severity, action and source.

    Where that code is a program's own error, it is the program's fault and not the GPU's. The driver's advice
    raises what the other codes say, and never lowers it.
    """
    found = (_finding(window, *active) for active in _XIDS.active(window))
    return [finding for finding in found if finding is not None]


def _finding(window: Window, subject: Subject, events: list[Event]) -> Finding | None:
    wanted = window.settings.xid_overrides
    heard = [e for e in relevant_xids(window, subject, events) if overridden(row_of(e), wanted)]
    if not heard:
        return None
    told = [event for event in heard if event.xid != _ADVICE] or heard
    came_back = _came_back(window, subject, told)
    judged = _as_judged(tuple(wanted), frozenset(came_back))
    worst = judged.worst(told)
    row = judged.row(worst)
    more = came_back.get(worst.code)
    evidence = [*_evidence(told, judged), *(() if more is None else more.evidence)]
    finding = judged.finding(window, subject, told, evidence)
    finding = replace(
        finding,
        fault="gpu_program" if _is_the_programs(row) else finding.fault,
        confined=all(row_of(event).confined for event in told) and row.confined,
    )
    advice = [event for event in heard if event.xid == _ADVICE]
    if not advice or told == heard:
        return finding
    return _raised(finding, judged.row(judged.worst(advice)))


def _came_back(window: Window, subject: Subject, events: Sequence[Event]) -> dict[int, Repeats]:
    """Return the program errors that recurred on this GPU more often than programs explain, by code."""
    found = {code: repeats(window, subject, code) for code in {event.code for event in events}}
    return {code: one for code, one in found.items() if one is not None}


@lru_cache
def _as_judged(wanted: tuple[str, ...], came_back: frozenset[int]) -> Coded[Xid]:
    """Return the Xids with their effective severities: a suspect's where a code came back, then the site's own."""

    def row(event: Event) -> Xid:
        known = suspect(event.code) if event.code in came_back else row_of(event)
        return overridden(known, wanted) or known

    return replace(_XIDS, row=row)


def _is_the_programs(row: Xid) -> bool:
    """Return whether a GPU's worst code is only a program's error, so that nothing is said against the GPU.

    What a failing GPU reports later is then an incident of its own, and does not worsen the program's note.
    """
    return row.confined and row.severity is Severity.INFO and row.scope is Scope.PASSING


def _raised(finding: Finding, advice: Xid) -> Finding:
    """Return the finding with the driver's advice added; severity and action follow the advice where it asks for more."""
    more = _asks(advice.action) > _asks(finding.action)
    return replace(
        finding,
        fault="gpu_xid",
        severity=min(finding.severity, advice.severity, key=lambda s: s.rank),
        action=advice.action if more else finding.action,
        evidence=(*finding.evidence, Evidence(name="Xid 154", value=advice.summary)),
        certain=finding.certain or advice.severity is not Severity.INFO,
    )


def _asks(action: str) -> tuple[bool, ...]:
    """Return for each known request, the most drastic first, whether the action contains it; compared in that order."""
    text = action.lower()
    return tuple(words in text for words in _ASKED)


def _evidence(events: list[Event], judged: Coded[Xid]) -> list[Evidence]:
    """Describe the worst code in full, then count the others, the most severe first."""
    worst = judged.worst(events)
    leading = _signature(worst)
    evidence = xid_evidence([event for event in events if _signature(event) == leading])
    others: dict[tuple[int, int, str], int] = Counter()
    for event in events:
        said = _signature(event)
        if said != leading:
            rank = judged.row(event).severity.rank
            others[rank, event.code, said[1].place] += event.count
    named = [
        f"{' '.join(filter(None, (str(code), place)))} x{n}"
        for (_, code, place), n in sorted(others.items())
    ]
    if named:
        shown, left = named[:_MOST_OTHERS], named[_MOST_OTHERS:]
        value = ", ".join(shown) + (f" and {len(left)} more" if left else "")
        evidence.append(Evidence(name="other Xids", value=value))
    return evidence


def _signature(event: Event) -> tuple[int | None, Signature]:
    return event.xid, signature(event.code, event.message)


DETECTOR = Detector(
    name="gpu_xid",
    find=xid_faults,
    faults=found_by("gpu_xid"),
    needs=NEEDS,
    reads_events=True,
    sentence="A GPU with an Xid that no reset, reboot or return has cured, or that repeats.",
    source="NVIDIA Xid catalogue, a row per code",
)
