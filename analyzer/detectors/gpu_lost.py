"""A GPU that is gone: the driver says that it is lost, an Xid says so, or nobody reads it any more."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime

import numpy as np

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS, XID_FAULTS, found_by
from gpuvigil.faults.overrides import overridden
from gpuvigil.faults.xid_messages import read
from gpuvigil.model import Event, EventKind, Evidence, Finding, Severity, Subject, Unmeasured
from gpuvigil.store import Aggregate, Function

from ..evidence.claims import Claim, findings
from ..evidence.cures import cured_at
from ..window.columns import Codes, combined_codes, group_count, group_maximum, nodes
from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector

_INDEX = Aggregate(function=Function.MAX, field="index")
NEEDS = (
    Need(
        measurement="gpu",
        span=Span.NOW,
        fields=("up", "unmeasured_reason", "index", "pcie_present"),
    ),
    *(
        Need(measurement="gpu", span=span, aggregates=(_INDEX,))
        for span in (Span.RECENT, Span.STEADY)
    ),
)

_FAULT = FAULTS["gpu_lost"]
# Exporters send nothing about a GPU that is gone (GWDG, "When GPUs fail quietly": missing samples are the
# sign). It must be missing for this many seconds and lines, while others of its node have this many lines
# now. Ours.
_UNREAD_SECONDS, _UNREAD_LINES, _LINES_NOW = 120.0, 5.0, 3.0


def lost_gpus(window: Window) -> list[Finding]:
    """Return one finding per lost GPU, whichever of Xid, event and row reports it first.

    A lost event is over once a later row says that the GPU answers; an Xid stands until it is cured.
    """
    events: dict[Subject, list[Event]] = defaultdict(list)
    for event in window.all_events(EventKind.XID, EventKind.GPU_LOST):
        if event.kind is EventKind.GPU_LOST or _reports_loss(event, window.settings.xid_overrides):
            events[event.subject].append(event)
    rows = window.get("gpu", Span.NOW)
    down = dict(rows.where(rows.values("up") == 0))
    subjects = sorted({*events, *down}, key=lambda subject: subject.key)
    found = (_finding(window, subject, events[subject], down.get(subject)) for subject in subjects)
    told = [finding for finding in found if finding is not None]
    known = {finding.subject for finding in told}
    unread = findings("gpu_lost", (it for it in _unread(window) if it.subject not in known))
    return [*told, *unread]


def _unread(window: Window) -> Iterator[Claim]:
    """Yield GPUs without a line for a while, on nodes that still report at least as many others.

    Our own collector sends a line for each GPU, even for a lost one.
    """
    rows = window.get("gpu", Span.STEADY)
    if not len(rows):
        return
    last, node = rows.values("last_at"), nodes(rows)
    quiet = (group_maximum(node, last) - last) / 1e6
    gone = quiet >= np.fmax(_UNREAD_SECONDS, _UNREAD_LINES * window.ticks(rows))
    if not gone.any():
        return
    gone &= group_count(node, gone) <= group_count(node, ~gone)
    lines = window.get("gpu", Span.RECENT).beside(rows, "samples")
    gone &= group_maximum(node, lines) >= _LINES_NOW
    # A GPU that has the same index by now is its replacement.
    index: Codes = np.nan_to_num(rows.values(_INDEX.column), nan=-1.0).astype(np.int64)
    gone &= (index < 0) | (group_maximum(combined_codes(node, index + 1), last) == last)
    for subject, row in rows.where(gone):
        if window.has(subject):
            since = row["last_at"]
            said = Evidence(name="last read", value=moment(since), peers="read since")
            yield Claim(condition="gpu_unread", subject=subject, since=since, evidence=(said,))


def _reports_loss(event: Event, overrides: Sequence[str]) -> bool:
    """Return whether an Xid says that its GPU is gone, and the site's overrides do not silence it."""
    if XID_FAULTS.get(event.code) != "gpu_lost":
        return False
    return overridden(read(event.code, event.message), overrides) is not None


def _finding(
    window: Window, subject: Subject, events: list[Event], row: Row | None
) -> Finding | None:
    cured = cured_at(window, "gpu_lost", subject)
    active = [e for e in events if _is_current(window, e, cured)]
    if row is not None and cured is not None and row["at"] <= cured:
        row = None
    if not active and row is None:
        return None
    return Finding(
        fault="gpu_lost",
        subject=subject,
        severity=_severity(window, active, row),
        since=min([*(e.at for e in active), *([row["at"]] if row else [])]),
        evidence=_evidence(active, row),
        detector="gpu_lost",
        action=_FAULT.action,
        source=_FAULT.source,
        certain=True,
        late=row is None and window.came_late(active),
    )


def _severity(window: Window, events: Sequence[Event], row: Row | None) -> Severity:
    """Return the fault's severity; where only Xids report the loss, the worst that the site gives them."""
    if row is not None or any(event.kind is EventKind.GPU_LOST for event in events):
        return _FAULT.severity
    overrides = window.settings.xid_overrides
    known = (overridden(read(e.code, e.message), overrides) for e in events)
    return min((one.severity for one in known if one is not None), key=lambda it: it.rank)


def _is_current(window: Window, event: Event, cured: datetime | None) -> bool:
    if cured is not None and event.at < cured:
        return False
    row = window.newest(event.subject)
    contradicted = row is not None and row.get("up") == 1 and row["at"] > event.at
    return event.kind is EventKind.XID or not contradicted


def _evidence(events: list[Event], row: Row | None) -> tuple[Evidence, ...]:
    codes = [event for event in events if event.xid is not None]
    evidence = xid_evidence(codes) if codes else []
    reason = None if row is None else row.get("unmeasured_reason")
    if reason == Unmeasured.LOST or len(codes) < len(events):
        evidence.append(Evidence(name="driver", value="the GPU is lost"))
    elif row is not None:
        text = Unmeasured(reason).text if reason in set(Unmeasured) else "no reason given"
        evidence.append(Evidence(name="answers", value=f"no, {text}"))
    listed = None if row is None else row.get("pcie_present")
    if listed is not None:
        # Power or seating is the suspect where the GPU is gone from the bus, the driver where it is still
        # there.
        value = "still lists it" if listed else "no longer lists it"
        evidence.append(Evidence(name="PCI bus", value=value))
    return tuple(evidence)


def xid_evidence(events: Sequence[Event]) -> list[Evidence]:
    """Describe reports of the same Xid, oldest event first: when, how often, and what is known about the code."""
    newest = events[-1]
    row, at = read(newest.code, newest.message), moment(newest.at)
    count = sum(event.count for event in events)
    times = f"{count} times, last at" if count > 1 else "reported at"
    evidence = [
        Evidence(name=f"Xid {row.code}", value=f"{times} {at}"),
        Evidence(name="meaning", value=row.summary.rstrip("."), detail=True),
        Evidence(name="called by the driver", value=row.mnemonic, detail=True),
    ]
    if newest.message:
        evidence.append(Evidence(name="message", value=newest.message, detail=True))
    return evidence


DETECTOR = Detector(
    name="gpu_lost",
    find=lost_gpus,
    faults=found_by("gpu_lost"),
    needs=NEEDS,
    reads_events=True,
    judges_absence=True,
    sentence="A GPU that the driver lost, that reported an Xid which says so, or that alone of its node is not read any more.",
    source="NVIDIA Xid catalogue, Xid 79; NVML_ERROR_GPU_IS_LOST",
)
