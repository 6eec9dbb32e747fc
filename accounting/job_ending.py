"""How a job ended and why: its end state, and what happened on its nodes around then.

A pure function. Slurm's own word counts where it cannot be mistaken: a time limit, a person's cancel, a preemption. Where a
job merely failed, what its nodes told from ten minutes before its end to five after may say why; the first of it comes first.
What a program does to itself is never blamed on hardware: an Xid that a program causes (13, 31, 43, 45) is the program's.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from gpuvigil.faults import FAULTS, Scope, xid
from gpuvigil.model import Event, EventKind, Incident, Severity

BEFORE, AFTER = timedelta(minutes=10), timedelta(minutes=5)
# A controller counts whole seconds, and clocks of nodes differ; what a job that ends does to a GPU comes behind its end.
_SKEW = timedelta(seconds=5)
# An event is told at its moment, what numbers tell since the last of them that was well: a tick before, and a bit.
_AT_ONCE = timedelta(seconds=15)
# A link that was back for so long before the end had not ended it: collectives give up within seconds to a minute or two.
_BACK_FOR = timedelta(minutes=2)


class Why(str, Enum):
    """What ended a job."""

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
    """A job's end as far as it was told: `state` is Slurm's word, None where only its nodes told of it."""

    state: str | None
    ended_at: datetime | None
    exit_code: str | None = None  # "3:0" is exit(3), "0:9" is SIGKILL
    started_at: datetime | None = None
    gpus: frozenset[str] = (
        frozenset()
    )  # keys of the GPUs that it held; where none is known, no GPU is its own
    nodes: int = 1
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clue:
    """Something that happened on a node of the job: `speaks_for` is None for what only stands beside."""

    at: datetime
    where: str  # key of its subject
    what: str
    speaks_for: Why | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The cause in one word and in one sentence, and everything around the end, first event first."""

    why: Why
    said: str
    clues: tuple[Clue, ...] = ()


_BY_STATE = {
    "COMPLETED": (Why.COMPLETED, "it ended by itself with exit code 0"),
    "TIMEOUT": (Why.TIME_LIMIT, "it reached its time limit"),
    "DEADLINE": (Why.TIME_LIMIT, "it could not end before its deadline"),
    "PREEMPTED": (Why.PREEMPTED, "another job took its place"),
    "OUT_OF_MEMORY": (Why.MEMORY, "it needed more host memory than it had"),
    "CANCELLED": (Why.CANCELLED, "a person or a program cancelled it"),
    "REVOKED": (Why.CANCELLED, "it was started elsewhere"),
}
_GOES_ON = frozenset({"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING"})
_NODE_FAILED = frozenset({"NODE_FAIL", "BOOT_FAIL"})
# Slurm's word may hide a cause: it cancels what a dead node ran, and a person cancels what hangs.
_SURE = frozenset({"COMPLETED", "TIMEOUT", "DEADLINE", "PREEMPTED", "CANCELLED", "REVOKED"})
_OF_EVENTS = {
    EventKind.GPU_LOST: (Why.HARDWARE, "GPU fell off the bus"),
    EventKind.SXID: (Why.HARDWARE, "NVSwitch error"),
    EventKind.MACHINE_CHECK: (Why.HARDWARE, "machine check"),
    EventKind.PCIE_ERROR: (Why.HARDWARE, "PCIe error"),
    EventKind.DRIVER_SILENT: (Why.HARDWARE, "driver stopped answering"),
    EventKind.PORT_DOWN: (Why.NETWORK, "network port went down"),
    EventKind.OOM_KILL: (Why.MEMORY, "the kernel killed a process for want of memory"),
    EventKind.STORAGE_ERROR: (Why.NODE, "a drive of the node failed"),
    EventKind.BOOT: (Why.NODE, "the node was booted"),
}
_SAID = {
    Why.HARDWARE: "hardware failed",
    Why.NODE: "its node went away",
    Why.NETWORK: "the network of its node failed",
    Why.MEMORY: "host memory ran out",
}
# Most that the kernel tells of these was corrected and ended nothing; the others say so in the kernel's or the firmware's words.
_GRADED = frozenset({EventKind.PCIE_ERROR, EventKind.MACHINE_CHECK})
_GRAVE = re.compile(r"(?<!non-)\bfatal\b|uncorrect|process killed|\bUE\b|contain", re.IGNORECASE)
# Codes whose cause may be a program's own work, whatever the table says of their severity: 13, 31 and 43 by the
# catalogue's "application", 45 is what the driver cleans up behind a process that was ended, 137 and 8 likewise.
_OF_MEMORY = frozenset({94, 95})  # uncorrectable errors of its memory end the program that met them
_OF_PROGRAMS = frozenset({8, 13, 31, 43, 45, 68, 69, 137})


def around(ended_at: datetime) -> tuple[datetime, datetime]:
    """From when to when events may have to do with an end."""
    return ended_at - BEFORE, ended_at + AFTER


def by_word(state: str | None) -> Why | None:
    """What ended a job by its scheduler's word alone; None where that may hide a cause."""
    return _BY_STATE[state][0] if state in _SURE else None


def verdict(ending: Ending, events: Iterable[Event], incidents: Iterable[Incident] = ()) -> Verdict:
    """Why a job ended; events and incidents may be in any order, and of other times, too."""
    if ending.ended_at is None or ending.state in _GOES_ON:
        return Verdict(why=Why.RUNNING, said=_waits(ending))
    clues = tuple(_clues(ending, ending.ended_at, tuple(events), incidents))
    if ending.state in _SURE:
        why, said = _BY_STATE[ending.state]
        return Verdict(why=why, said=said, clues=clues)
    causes = [
        one for one in clues if one.speaks_for is not None and one.at <= ending.ended_at + _SKEW
    ]
    told = _of_nodes(ending, causes) or _of_itself(ending)
    return Verdict(why=told[0], said=told[1], clues=clues)


def _waits(ending: Ending) -> str:
    return f"it is {(ending.state or 'running').lower()}" + (
        f": {ending.reason}" if ending.reason else ""
    )


def _of_nodes(ending: Ending, causes: Sequence[Clue]) -> tuple[Why, str] | None:
    """The first cause on its nodes; only a job that failed has one there."""
    if ending.state in _NODE_FAILED:
        found = next((one for one in causes if one.speaks_for is Why.HARDWARE), None)
        return _cause(found) if found else (Why.NODE, "Slurm lost its node")
    if _ended_well(ending):
        return None
    if ending.state == "OUT_OF_MEMORY":
        return _BY_STATE["OUT_OF_MEMORY"]
    if not causes:
        return None
    # Of what happened at the same moment the job's own GPU is nearer than the network.
    at_once = [one for one in causes if one.at <= causes[0].at + _AT_ONCE]
    own = next((one for one in at_once if one.speaks_for is Why.HARDWARE), None)
    return _cause(own or causes[0])


def _cause(clue: Clue) -> tuple[Why, str]:
    assert clue.speaks_for is not None
    return clue.speaks_for, f"{_SAID[clue.speaks_for]}: {clue.what}"


def _of_itself(ending: Ending) -> tuple[Why, str]:
    """What its exit code says, when nothing on its nodes does."""
    if _ended_well(ending):
        return Why.COMPLETED, "it ended by itself with exit code 0"
    code, _, signal = (ending.exit_code or "").partition(":")
    if signal.isdigit() and int(signal):
        if int(signal) in _KILLED:
            return Why.NO_EVIDENCE, f"signal {signal} ended it, and nothing tells who sent it"
        return Why.PROGRAM, f"it crashed with signal {signal}"
    if code.isdigit() and int(code):
        if int(code) - 128 in _KILLED:
            return (
                Why.NO_EVIDENCE,
                f"exit code {code}: signal {int(code) - 128} ended it, and nothing tells who sent it",
            )
        return Why.PROGRAM, f"it ended by itself with exit code {code}"
    return Why.NO_EVIDENCE, "nothing that was told says why"


_KILLED = frozenset({9, 15})  # SIGKILL, SIGTERM: somebody else's


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
        # What began long before and still stood is as near as what began now.
        if one.since < end and (one.resolved_at is None or one.resolved_at >= start)
    ]
    return sorted(set(found), key=lambda one: (one.at, one.where, one.what))


def _back(events: Iterable[Event]) -> dict[Event, datetime]:
    """Of links that went down, when each was up again."""
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


def _of_event(event: Event, ending: Ending) -> Why | None:
    if not _is_its(event.subject.key, event.subject.gpu, ending) or _is_before(event.at, ending):
        return None
    if event.kind is EventKind.XID:
        return Why.HARDWARE if event.xid is not None and _is_hardware(event.xid) else None
    if event.kind in _GRADED and not _GRAVE.search(event.message):
        return None
    return _of(ending, _OF_EVENTS[event.kind][0]) if event.kind in _OF_EVENTS else None


def _of(ending: Ending, why: Why | None) -> Why | None:
    """A job on one node needs no other: the fabric may have failed, and did not end it."""
    return None if why is Why.NETWORK and ending.nodes < 2 else why


def _is_hardware(code: int) -> bool:
    """Whether an Xid is the GPU's own: neither a program's work nor one that merely passes."""
    if code in _OF_MEMORY:
        return True
    row = xid(code)
    if code in _OF_PROGRAMS or row.confined:
        return False
    return row.scope is Scope.STICKY and row.severity is Severity.CRITICAL


def _of_incident(incident: Incident, ending: Ending) -> Why | None:
    """What began long before the end was lived with: it stands beside."""
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
    why = Why(ends.by.value)
    # A silent node is a dead one or a dead collector: of one that told a job's exit code it is the second.
    if why is Why.NODE and ending.nodes < 2 and _tells_itself(ending):
        return None
    return _of(ending, why)


def _is_before(at: datetime, ending: Ending) -> bool:
    """What was over when a job began has not ended it."""
    return ending.started_at is not None and at < ending.started_at - _SKEW


def _tells_itself(ending: Ending) -> bool:
    """Whether its node lived to tell how its program ended."""
    return ending.state == "FAILED" and bool(ending.exit_code)


def _is_its(key: str, gpu: str | None, ending: Ending) -> bool:
    """Another job's GPU on the same node ends nobody else's job."""
    return gpu is None or key in ending.gpus
