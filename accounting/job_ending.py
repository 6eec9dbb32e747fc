"""How a job ended and why: its end state, and what happened on its nodes around that time.

Pure functions. Slurm's own state counts where it is unambiguous: a time limit, a cancel by a person, a preemption.
Where a job merely failed, the events on its nodes from ten minutes before its end to five after may say why; the
first one comes first. What a program does to itself is never blamed on hardware: an Xid that a program causes
(13, 31, 43, 45) is the program's.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from gpuvigil.faults import FAULTS, Scope, xid
from gpuvigil.model import Event, EventKind, Incident, Severity

BEFORE, AFTER = timedelta(minutes=10), timedelta(minutes=5)
# A controller counts whole seconds, and nodes' clocks differ; what an ending job does to a GPU is seen after its end.
_SKEW = timedelta(seconds=5)
# An event carries its moment, an incident from samples that of the last good one: a tick earlier, and a bit.
_AT_ONCE = timedelta(seconds=15)
# A link that was up again this long before the end did not cause it: collectives give up within a minute or two.
_BACK_FOR = timedelta(minutes=2)


class EndCause(str, Enum):
    """The kinds of causes that end a job."""

    COMPLETED = "completed"
    HARDWARE = "hardware"
    NODE = "node"
    NETWORK = "network"
    MEMORY = "memory"
    TIME_LIMIT = "time limit"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    PROGRAM = "program"
    NO_EVIDENCE = "no evidence"
    RUNNING = "not ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a job; `state` is Slurm's word, None where only its nodes reported it."""

    state: str | None
    ended_at: datetime | None
    exit_code: str | None = None  # "3:0" is exit(3), "0:9" is SIGKILL
    started_at: datetime | None = None
    gpus: frozenset[str] = (
        frozenset()
    )  # keys of the GPUs that it held; where none is known, no GPU counts as its own
    nodes: int = 1
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clue:
    """Something that happened on a node of the job; `speaks_for` is None where it is no cause."""

    at: datetime
    where: str  # key of the subject
    what: str
    speaks_for: EndCause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The cause in one word and in one sentence, and everything around the end, oldest first."""

    why: EndCause
    text: str
    clues: tuple[Clue, ...] = ()


_BY_STATE = {
    "COMPLETED": (EndCause.COMPLETED, "it ended by itself with exit code 0"),
    "TIMEOUT": (EndCause.TIME_LIMIT, "it reached its time limit"),
    "DEADLINE": (EndCause.TIME_LIMIT, "it could not end before its deadline"),
    "PREEMPTED": (EndCause.PREEMPTED, "another job took its place"),
    "OUT_OF_MEMORY": (EndCause.MEMORY, "it needed more host memory than it had"),
    "CANCELLED": (EndCause.CANCELLED, "a person or a program cancelled it"),
    "REVOKED": (EndCause.CANCELLED, "it was started elsewhere"),
}
_GOES_ON = frozenset({"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING"})
_NODE_FAILED = frozenset({"NODE_FAIL", "BOOT_FAIL"})
# The other states may hide a cause: Slurm cancels what a dead node ran, and a person cancels what hangs.
_SURE = frozenset({"COMPLETED", "TIMEOUT", "DEADLINE", "PREEMPTED", "CANCELLED", "REVOKED"})
_OF_EVENTS = {
    EventKind.GPU_LOST: (EndCause.HARDWARE, "GPU fell off the bus"),
    EventKind.SXID: (EndCause.HARDWARE, "NVSwitch error"),
    EventKind.MACHINE_CHECK: (EndCause.HARDWARE, "machine check"),
    EventKind.PCIE_ERROR: (EndCause.HARDWARE, "PCIe error"),
    EventKind.DRIVER_SILENT: (EndCause.HARDWARE, "driver stopped answering"),
    EventKind.PORT_DOWN: (EndCause.NETWORK, "network port went down"),
    EventKind.OOM_KILL: (EndCause.MEMORY, "the kernel killed a process for want of memory"),
    EventKind.STORAGE_ERROR: (EndCause.NODE, "a drive of the node failed"),
    EventKind.BOOT: (EndCause.NODE, "the node was booted"),
}
_SAID = {
    EndCause.HARDWARE: "hardware failed",
    EndCause.NODE: "its node went away",
    EndCause.NETWORK: "the network of its node failed",
    EndCause.MEMORY: "host memory ran out",
}
# Most such kernel messages are about corrected errors, which end nothing; the others contain one of these words.
_GRADED = frozenset({EventKind.PCIE_ERROR, EventKind.MACHINE_CHECK})
_GRAVE = re.compile(r"(?<!non-)\bfatal\b|uncorrect|process killed|\bUE\b|contain", re.IGNORECASE)
# Codes whose cause may be a program's own work, whatever the table says of their severity: 13, 31 and 43 by the
# catalogue's "application", 45 is what the driver cleans up behind a process that was ended, 137 and 8 likewise.
_OF_MEMORY = frozenset({94, 95})  # uncorrectable errors of its memory end the program that met them
_OF_PROGRAMS = frozenset({8, 13, 31, 43, 45, 68, 69, 137})


def around(ended_at: datetime) -> tuple[datetime, datetime]:
    """Return the span in which events may be related to the end."""
    return ended_at - BEFORE, ended_at + AFTER


def cause_by_scheduler(state: str | None) -> EndCause | None:
    """Return what ended a job by its scheduler's word alone; None where that may hide a cause."""
    return _BY_STATE[state][0] if state in _SURE else None


def verdict(ending: Ending, events: Iterable[Event], incidents: Iterable[Incident] = ()) -> Verdict:
    """Return why a job ended; events and incidents may be in any order, and from other times."""
    if ending.ended_at is None or ending.state in _GOES_ON:
        return Verdict(why=EndCause.RUNNING, text=_waits(ending))
    clues = tuple(_clues(ending, ending.ended_at, tuple(events), incidents))
    if ending.state in _SURE:
        why, said = _BY_STATE[ending.state]
        return Verdict(why=why, text=said, clues=clues)
    causes = [
        one for one in clues if one.speaks_for is not None and one.at <= ending.ended_at + _SKEW
    ]
    told = _of_nodes(ending, causes) or _of_itself(ending)
    return Verdict(why=told[0], text=told[1], clues=clues)


def _waits(ending: Ending) -> str:
    return f"it is {(ending.state or 'running').lower()}" + (
        f": {ending.reason}" if ending.reason else ""
    )


def _of_nodes(ending: Ending, causes: Sequence[Clue]) -> tuple[EndCause, str] | None:
    """Return the first cause on its nodes; only a job that failed has one there."""
    if ending.state in _NODE_FAILED:
        found = next((one for one in causes if one.speaks_for is EndCause.HARDWARE), None)
        return _cause(found) if found else (EndCause.NODE, "Slurm lost its node")
    if _ended_well(ending):
        return None
    if ending.state == "OUT_OF_MEMORY":
        return _BY_STATE["OUT_OF_MEMORY"]
    if not causes:
        return None
    # Among causes at the same moment the job's own GPU comes before the network.
    at_once = [one for one in causes if one.at <= causes[0].at + _AT_ONCE]
    own = next((one for one in at_once if one.speaks_for is EndCause.HARDWARE), None)
    return _cause(own or causes[0])


def _cause(clue: Clue) -> tuple[EndCause, str]:
    assert clue.speaks_for is not None
    return clue.speaks_for, f"{_SAID[clue.speaks_for]}: {clue.what}"


def _of_itself(ending: Ending) -> tuple[EndCause, str]:
    """Return what the exit code means, where nothing on the nodes explains the end."""
    if _ended_well(ending):
        return EndCause.COMPLETED, "it ended by itself with exit code 0"
    code, _, signal = (ending.exit_code or "").partition(":")
    if signal.isdigit() and int(signal):
        if int(signal) in _KILLED:
            return (
                EndCause.NO_EVIDENCE,
                f"signal {signal} ended it, and it is not known who sent it",
            )
        return EndCause.PROGRAM, f"it crashed with signal {signal}"
    if code.isdigit() and int(code):
        if int(code) - 128 in _KILLED:
            return (
                EndCause.NO_EVIDENCE,
                f"exit code {code}: signal {int(code) - 128} ended it, and it is not known who sent it",
            )
        return EndCause.PROGRAM, f"it ended by itself with exit code {code}"
    return EndCause.NO_EVIDENCE, "nothing that was reported says why"


_KILLED = frozenset({9, 15})  # SIGKILL, SIGTERM: sent by somebody else


def _ended_well(ending: Ending) -> bool:
    return ending.state in {"COMPLETED", None} and ending.exit_code == "0:0"


def _clues(
    ending: Ending, ended_at: datetime, events: Sequence[Event], incidents: Iterable[Incident]
) -> list[Clue]:
    start, end = around(ended_at)
    back = _back(events)
    found = [
        Clue(at=one.at, where=one.subject.key, what=_words(one), speaks_for=_of_event(one, ending))
        if back.get(one, ended_at) > ended_at - _BACK_FOR
        else Clue(at=one.at, where=one.subject.key, what=_words(one))
        for one in events
        if start <= one.at < end
    ]
    found += [
        Clue(
            at=one.since,
            where=one.subject.key,
            what=one.title or FAULTS[one.fault].title,
            speaks_for=_of_incident(one, ending),
        )
        for one in incidents
        # What began long before and still stood counts as near.
        if one.since < end and (one.resolved_at is None or one.resolved_at >= start)
    ]
    return sorted(set(found), key=lambda one: (one.at, one.where, one.what))


def _back(events: Iterable[Event]) -> dict[Event, datetime]:
    """Return when each link that went down was up again."""
    found: dict[Event, datetime] = {}
    down: dict[str, Event] = {}
    for one in sorted(events, key=lambda event: event.at):
        if one.kind is EventKind.PORT_DOWN:
            down[one.subject.key] = one
        elif one.kind is EventKind.PORT_UP and one.subject.key in down:
            found[down.pop(one.subject.key)] = one.at
    return found


def _words(event: Event) -> str:
    if event.xid is not None:
        return xid(event.xid).title
    _, said = _OF_EVENTS.get(event.kind, (None, event.kind.value.replace("_", " ")))
    return said


def _of_event(event: Event, ending: Ending) -> EndCause | None:
    if not _is_its(event.subject.key, event.subject.gpu, ending) or _is_before(event.at, ending):
        return None
    if event.kind is EventKind.XID:
        return EndCause.HARDWARE if event.xid is not None and _is_hardware(event.xid) else None
    if event.kind in _GRADED and not _GRAVE.search(event.message):
        return None
    return _of(ending, _OF_EVENTS[event.kind][0]) if event.kind in _OF_EVENTS else None


def _of(ending: Ending, why: EndCause | None) -> EndCause | None:
    """Return the cause, but no network for a job on one node: its failure did not end that job."""
    return None if why is EndCause.NETWORK and ending.nodes < 2 else why


def _is_hardware(code: int) -> bool:
    """Return whether an Xid is a fault of the GPU: neither a program's doing nor a passing one."""
    if code in _OF_MEMORY:
        return True
    row = xid(code)
    if code in _OF_PROGRAMS or row.confined:
        return False
    return row.scope is Scope.STICKY and row.severity is Severity.CRITICAL


def _of_incident(incident: Incident, ending: Ending) -> EndCause | None:
    """Return the cause that an incident is; None for one that began long before the end: the job lived with it."""
    assert ending.ended_at is not None
    fresh = incident.since >= around(ending.ended_at)[0]
    its = _is_its(incident.subject.key, incident.subject.gpu, ending)
    ends = FAULTS[incident.fault].ends_job if incident.fault in FAULTS else None
    if ends is None:
        return None
    grave = incident.severity is Severity.CRITICAL or ends.always
    if not (fresh and its and grave) or _is_before(incident.since, ending):
        return None
    if incident.resolved_at is not None and incident.resolved_at <= ending.ended_at - _BACK_FOR:
        return None
    why = EndCause(ends.by.value)
    # A silent node is a dead node or a dead collector; if it reported the job's exit code it is the latter.
    if why is EndCause.NODE and ending.nodes < 2 and _reports_end(ending):
        return None
    return _of(ending, why)


def _is_before(at: datetime, ending: Ending) -> bool:
    """Return whether this was before the job began, and so did not end it."""
    return ending.started_at is not None and at < ending.started_at - _SKEW


def _reports_end(ending: Ending) -> bool:
    """Return whether the node lived to report how the program ended."""
    return ending.state == "FAILED" and bool(ending.exit_code)


def _is_its(key: str, gpu: str | None, ending: Ending) -> bool:
    """Return whether this concerns the node or one of the job's own GPUs, not another job's."""
    return gpu is None or key in ending.gpus
