"""A node whose kernel crashed, or that went down without notice again and again within a day, and came back.

While it is down it counts as silent, which ends when it is heard again, and an absence of minutes is not
reported. What remains is a machine that takes down every job that it gets. Once is enough where the kernel left a
dump of its end: nobody's power button does that.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS, found_by
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import Allocation, Event, EventKind, Evidence, Finding, Severity, Subject

from ..evidence.planned_silence import GOES
from ..evidence.taken_along import held_on, was_cut_off
from ..window.fault_kinds import SILENCES
from ..window.holdings import name
from ..window.window import Window
from . import Detector

_FAULT, _ONCE = FAULTS["node_crashes"], CONDITIONS["kernel_crashed"]
_DAY = timedelta(hours=24)
# Twice under jobs of a scheduler, or once under one and three times in all: this finding makes people keep
# jobs off the node, and a machine that somebody works on also goes down without notice, with no job.
_UNDER_JOBS, _IN_ALL = 2, 3
# The node has stayed up for as long as a night shift: a later crash is reported anew.
_STAYS_UP = timedelta(hours=6)
_SHOWN = 5
# One start may be reported twice if the clock was corrected in between.
_ONE_START = timedelta(minutes=2)
# From the end of a lost job to the kernel's start: a machine of eight GPUs tests itself for minutes.
_STARTS = timedelta(minutes=15)
# For this long before a start, a notice of shutdown belongs to that start, and a repair to what was reported
# before it.
_ORDERED = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class _Crash:
    """When the machine started again, the jobs that went down with it, and what is said of the dump it left."""

    at: datetime
    jobs: Sequence[Allocation]
    dump: str


def crashing_nodes(window: Window) -> list[Finding]:
    """Return one finding per crashing node, until it has stayed up for hours."""
    boots: dict[Subject, list[Event]] = defaultdict(list)
    for event in window.all_events(EventKind.BOOT):
        if window.now - event.at < _DAY:
            boots[event.subject.of_node()].append(event)
    found = []
    for node, them in sorted(boots.items()):
        if len(them) < _UNDER_JOBS and not any(event.crashed for event in them):
            continue
        crashes = list(_crashes(window, node, them))
        lately = [crash for crash in crashes if window.now - crash.at < _STAYS_UP]
        if _is_again(crashes) and lately:
            found.append(_finding(node, crashes))
        elif dumped := [crash for crash in lately if crash.dump]:
            found.append(_of_dump(node, dumped[-1]))
    return found


def _starts(boots: Iterable[datetime]) -> list[datetime]:
    """Return each start of the machine once, the oldest first."""
    starts: list[datetime] = []
    for at in sorted(boots):
        if not starts or at - starts[-1] >= _ONE_START:
            starts.append(at)
    return starts


def _is_again(crashes: Sequence[_Crash]) -> bool:
    under_jobs = sum(1 for crash in crashes if crash.jobs)
    return under_jobs >= _UNDER_JOBS or (under_jobs > 0 and len(crashes) >= _IN_ALL)


def _crashes(window: Window, node: Subject, boots: Sequence[Event]) -> Iterator[_Crash]:
    starts = _starts(event.at for event in boots)
    words = [event.at for event in window.node_events(node, *GOES)]
    for before, at in zip((None, *starts), starts, strict=False):
        since = at - _ORDERED if before is None else max(before, at - _ORDERED)
        if any(since <= word <= at for word in words) or _was_repaired(window, node, at):
            continue
        dumps = [it.message for it in boots if it.crashed and at <= it.at < at + _ONE_START]
        jobs = [a for a in held_on(window, node) if _was_lost(a, at)]
        yield _Crash(at, jobs, dumps[0] if dumps else "")


def _was_lost(job: Allocation, boot: datetime) -> bool:
    """Return whether the job was on the node when it went down.

    A job that was done before, or began after the boot, lost nothing.
    """
    if job.started_at >= boot:
        return False
    if job.ended_at is None or job.ended_at >= boot:
        return True
    return job.ended_at >= boot - _STARTS and was_cut_off(job)


def _was_repaired(window: Window, node: Subject, boot: datetime) -> bool:
    """Return whether the node had another incident, for which somebody may have switched it off and on."""
    return any(
        one.fault not in SILENCES
        and one.fault != _FAULT.key
        and one.severity is not Severity.INFO
        and one.since < boot
        and (one.resolved_at is None or one.resolved_at >= boot - _ORDERED)
        for one in window.recent_incidents
        if node in {Subject.parse(key).of_node() for key in (one.subject.key, *one.members)}
    )


def _finding(node: Subject, crashes: Sequence[_Crash]) -> Finding:
    jobs = sorted({name(job) for crash in crashes for job in crash.jobs})
    hours = _DAY / timedelta(hours=1)
    return Finding(
        fault="node_crashes",
        subject=node,
        severity=_FAULT.severity,
        since=crashes[0].at,
        evidence=(
            Evidence(
                name="went down without a word",
                value=f"{len(crashes)} times in {hours:g} h, up again at "
                + ", ".join(moment(crash.at) for crash in crashes[-_SHOWN:]),
                limit="once",
            ),
            Evidence(name="jobs that it took along", value=", ".join(jobs[:_SHOWN])),
        ),
        detector="node_crashes",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        certain=True,
    )


def _of_dump(node: Subject, crash: _Crash) -> Finding:
    jobs = sorted({name(job) for job in crash.jobs})[:_SHOWN]
    lost = [Evidence(name="jobs that it took along", value=", ".join(jobs))] if jobs else []
    return Finding(
        fault="node_crashes",
        subject=node,
        severity=_ONCE.severity,
        since=crash.at,
        evidence=(
            Evidence(name="went down without a word", value=f"up again at {moment(crash.at)}"),
            Evidence(name="the collector says", value=crash.dump),
            *lost,
        ),
        detector="node_crashes",
        title=_ONCE.title,
        condition=_ONCE.key,
        action=_ONCE.action,
        source=_ONCE.source,
        own_limit=_ONCE.own_limit,
        certain=True,
    )


DETECTOR = Detector(
    name="node_crashes",
    find=crashing_nodes,
    faults=found_by("node_crashes"),
    needs=(),
    reads_events=True,
    sentence="A node whose kernel crashed, or that went down again and again within a day without a word, with jobs on it, and came back.",
    source="when the machine was started, its last words, and the jobs that it had",
)
