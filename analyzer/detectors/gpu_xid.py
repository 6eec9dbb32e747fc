"""A GPU with an Xid that stands: sticky until it is cured, passing while it repeats."""

from collections import Counter
from dataclasses import replace

from gpuvigil.faults import XID_FAULTS, Scope, Xid
from gpuvigil.model import Event, EventKind, Evidence, Finding, Severity, Subject

from ..coded import Coded
from ..window import Need, Span, Window
from ..xid_policy import audible, overridden, row_of, suspect
from ..xid_repeats import repeats
from .gpu_lost import xid_evidence

# A boot has cured a GPU once its newest line says that it answers.
NEEDS = (Need(measurement="gpu", span=Span.NOW, fields=("up",)),)

_XIDS = Coded(
    fault="gpu_xid",
    kind=EventKind.XID,
    # Some are told by a detector of their own.
    code=lambda event: None if event.xid in XID_FAULTS else event.xid,
    row=row_of,
    # 63, 64, 94, 95, 171 or 172 come with it and say which memory it was.
    waits=frozenset({48}),
)
_ADVICE = 154


def xid_faults(window: Window) -> list[Finding]:
    """One finding per GPU; the worst of its standing codes gives severity, action and source.

    Where that is a program's own error, it is the program's and not the GPU's fault.
    The driver's advice raises what the others say, and never lowers it.
    """
    found = (_finding(window, *standing) for standing in _XIDS.standing(window))
    return [finding for finding in found if finding is not None]


def _finding(window: Window, subject: Subject, events: list[Event]) -> Finding | None:
    wanted = window.settings.xid_overrides
    heard = [e for e in audible(window, subject, events) if overridden(row_of(e), wanted)]
    if not heard:
        return None
    told = [event for event in heard if event.xid != _ADVICE] or heard
    worst = _XIDS.worst(told)
    came_back = repeats(window, subject, worst.xid or 0)
    row = row_of(worst) if came_back is None else suspect(worst.xid or 0)
    finding = _XIDS.finding(
        window,
        subject,
        told,
        [*_evidence(told), *(() if came_back is None else came_back.evidence)],
        confined=all(row_of(event).confined for event in told),
    )
    row = overridden(row, wanted) or row
    finding = replace(
        finding,
        fault="gpu_program" if _is_the_programs(row) else finding.fault,
        severity=row.severity,
        action=row.action,
        source=row.source,
        title=row.title,
        confined=finding.confined and row.confined,
        certain=finding.certain and row.severity is not Severity.INFO,
    )
    advice = [event for event in heard if event.xid == _ADVICE]
    return _raised(finding, row_of(advice[-1])) if advice and told != heard else finding


def _is_the_programs(row: Xid) -> bool:
    """Whether even the worst code of a GPU is a program's affair: nothing is said of the GPU.

    What a failing GPU says later is an incident of its own, and not the program's note grown worse.
    """
    return row.confined and row.severity is Severity.INFO and row.scope is Scope.PASSING


def _raised(finding: Finding, advice: Xid) -> Finding:
    """With what the driver asks for, where that is more."""
    more = _weight(advice.action) > _weight(finding.action)
    return replace(
        finding,
        fault="gpu_xid",
        severity=min(finding.severity, advice.severity, key=lambda s: s.rank),
        action=advice.action if more else finding.action,
        evidence=(*finding.evidence, Evidence(name="Xid 154", value=advice.summary)),
        certain=finding.certain or advice.severity is not Severity.INFO,
    )


def _weight(action: str) -> int:
    """Of an action's words: a replacement and a reboot do all that a reset does."""
    text = action.lower()
    if "field diagnostic, and have" in text or "reboot" in text:
        return 3
    if "drain the node, then reset" in text or "check the link's seating, then reset" in text:
        return 2
    return 1 if "reset the gpu" in text else 0


def _evidence(events: list[Event]) -> list[Evidence]:
    worst = _XIDS.worst(events)
    counts = Counter[int | None]()
    for event in events:
        counts[event.xid] += event.count
    evidence = xid_evidence([event for event in events if event.xid == worst.xid])
    others = ", ".join(f"{code} x{n}" for code, n in sorted(counts.items()) if code != worst.xid)
    if others:
        evidence.append(Evidence(name="other Xids", value=others))
    return evidence
