"""A GPU that slows its job down: it differs from the job's other GPUs, and from how it compared with them before.

In synchronous work all ranks wait for the slowest one, so its job moves less, on every GPU. The waiting ranks
spin in a collective and draw power for it; the one they wait for does not: it draws less at its clock than they
do, or its clock itself dropped. How a GPU compares with its job's others differs by chip, slot and role; the
sign is that this changes while its job slows down. Where many GPUs of a job change, or some on many nodes, work
was dealt unevenly, and none is to blame; where several of one node do, it is the node.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from gpuvigil.clock import EPOCH, micros
from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Allocation, Evidence, Finding, HolderKind, Incident, Severity, Subject

from ..evidence import draws_least, host_waited_for, notes, own_steps, set_clocks
from ..evidence.job_pace import (
    NEEDS,
    PEERS,
    TIMESCALES,
    Change,
    Timescale,
    beside_of,
    change_of,
)
from ..evidence.last_ranks import LAST_TITLES, LastRank, Why, last_ranks
from ..evidence.lost_pace import changed_at, evidence_of, is_by_clock
from ..evidence.power import least_at_work, limits
from ..evidence.waits import waited_for
from ..window.columns import Mask, per_group
from ..window.holdings import holder_key
from ..window.window import Span, Window
from . import Detector

__all__ = ["NEEDS", "lapsed", "slow_gpus", "would_show_slow_gpu"]

_FAULT = FAULTS["gpu_slow"]
# On more nodes than this, a change is not one node's fault but how the job's work was dealt.
_MOST_NODES = 2
# This long after it was last seen, and with no job that could show it, nothing is known of it any more.
_LAPSE = timedelta(hours=24)
_UNEVEN, _TURNED, _LAST = "uneven_stage", "slow_rank", "last_in_collectives"
_SET, _BEGUN, _HOST = set_clocks.CONDITION, "slow_from_start", "host_short"
# A note of these conditions is reported once.
_OF_WORK = frozenset({_UNEVEN, _TURNED, _LAST, _BEGUN})
_NODE_ACTION = (
    "Look at the node (storage, CPUs, network, power) before its GPUs; keep it out of large jobs."
)
_RANK_ACTION = (
    "Look at what the rank does (longer samples, a shard of its own, work on the CPU), then at its node's"
    " CPUs, memory and storage; nothing speaks against the GPU so far."
)


def slow_gpus(window: Window) -> list[Finding]:
    """Return one finding per GPU, or per node with several slow ones.

    What ranks report comes first, then the longer timescale. A rank that only its own steps call slow comes after
    them: whatever points at its GPU takes precedence. GPUs that compare otherwise than in earlier jobs come
    next, and last those that collectives alone name. A note about a job's work that came and went is not
    repeated.
    """
    told = window.once(own_steps.own_steps, None)
    uneven = [] if told is None else _uneven(window, told)
    found = {finding.subject: finding for finding in ([] if told is None else _sick(window, told))}
    for it in host_waited_for.hosts_waited_for(window):
        found.setdefault(it.node, _by_host(it))
    for finding in (it for scale in TIMESCALES for it in _seen(window, scale)):
        found.setdefault(finding.subject, finding)
    for finding in [] if told is None else _turned(told, found.values()):
        found.setdefault(finding.subject, finding)
    for finding in (*_unusual(window), *_last(window)):
        found.setdefault(finding.subject, finding)
    joined = {gpu for finding in (*uneven, *found.values()) for gpu in finding.members}
    all_of = [*uneven, *(found[subject] for subject in sorted(found.keys() - joined))]
    return [
        _with_waits(window, it)
        for it in all_of
        if it.condition not in _OF_WORK or notes.is_news(window, it)
    ]


def _by_host(one: host_waited_for.WaitedFor) -> Finding:
    return Finding(
        fault="gpu_slow",
        subject=one.node,
        severity=_FAULT.severity,
        since=one.since,
        evidence=one.evidence,
        detector="gpu_slow",
        title=one.title,
        condition=_HOST,
        action=one.action,
        source="ours: GPUs used less, since the host's load rose or heat slows it",
        own_limit=True,
        members=one.gpus,
    )


def _with_waits(window: Window, one: Finding) -> Finding:
    """Add what collectives say about the finding's GPUs, whatever else was found."""
    waits = next(filter(None, (waited_for(window, it) for it in (one.subject, *one.members))), None)
    return one if waits is None else replace(one, evidence=(*one.evidence, waits))


def would_show_slow_gpu(window: Window, incident: Incident) -> bool:
    """Return whether the window can show that an open incident is over.

    It can if each of its GPUs came back to its peers, or compares well in power and clock with those of a later
    job. A GPU that is slow for longer than the spans look back shows no change any more, and is not over.
    """
    gpus = _gpus_of(incident)
    if incident.condition == _HOST:
        return host_waited_for.came_back(window, gpus, incident.since)
    if incident.condition == _LAST:
        return True  # the finding lasts for as long as its node reports it
    if incident.condition == _UNEVEN:
        return all(
            _is(window, gpu, "alike") or not _is_its_job_s(window, incident, gpu) for gpu in gpus
        )
    well = ("alike", "as_first") if incident.condition == _TURNED else ("alike",)
    return bool(gpus) and all(
        _is(window, gpu, *well)
        or (incident.condition == _TURNED and _draws_as_others(window, gpu))
        or _came_back(window, gpu)
        or _is_as_its_peers(window, incident, gpu)
        for gpu in gpus
    )


def lapsed(window: Window, incident: Incident) -> datetime | None:
    """Return when an open incident was last seen, where that is long ago and no job can show it now; else None."""
    told = [a for gpu in _gpus_of(incident) for a in window.allocations.get(gpu.key, ())]
    if any(a.ended_at is None and _can_show(window, a) for a in told):
        return None
    # A job that held the GPU throughout may have been slow to its end.
    ends = [a.ended_at for a in told if a.ended_at is not None and a.started_at < incident.since]
    last = max([incident.updated_at, *ends])
    return last if window.now - last >= _LAPSE else None


def _can_show(window: Window, held: Allocation) -> bool:
    holding = window.holdings.get(holder_key(held))
    return held.holder.kind is HolderKind.JOB and holding is not None and len(holding.gpus) >= PEERS


def _gpus_of(incident: Incident) -> list[Subject]:
    if incident.subject.kind == "gpu":
        return [incident.subject]
    return [one for one in map(Subject.parse, incident.members) if one.kind == "gpu"]


def _is(window: Window, gpu: Subject, *masks: str) -> bool:
    """Return whether one of these masks holds for the GPU's rank, by what it reports about its own work."""
    told = window.once(own_steps.own_steps, None)
    place = None if told is None else told.rows.index.number(gpu)
    return place is not None and any(bool(getattr(told, it)[place]) for it in masks)


def _is_its_job_s(window: Window, incident: Incident, gpu: Subject) -> bool:
    """Return whether a job that began before the incident still holds the GPU."""
    held = [a for a in window.allocations.get(gpu.key, ()) if a.ended_at is None]
    return any(a.started_at <= incident.since for a in held)


def _draws_as_others(window: Window, gpu: Subject) -> bool:
    found = window.once(draws_least.power_among_peers, None)
    place = None if found is None else found.rows.index.number(gpu)
    return found is not None and place is not None and bool(found.alike[place])


def _came_back(window: Window, gpu: Subject) -> bool:
    for scale in TIMESCALES:
        change = window.once(change_of, scale)
        place = None if change is None else change.rows.index.number(gpu)
        if change is not None and place is not None and bool(change.back[place]):
            return True
    return False


def _is_as_its_peers(window: Window, incident: Incident, gpu: Subject) -> bool:
    """Return whether a job that began after the incident holds the GPU, which compares well with that job's others.

    It must not be further below them than would be reported if it were a change.
    """
    stand = window.once(beside_of, TIMESCALES[0])
    place = None if stand is None else stand.rows.index.number(gpu)
    if stand is None or place is None or stand.begun[place] <= micros(incident.since):
        return False
    return bool(stand.alike[place])


def _sick(window: Window, steps: own_steps.OwnSteps) -> list[Finding]:
    """Return findings on GPUs whose rank takes longer at a lower clock, or on their node where there are several."""
    return [_by_clock(window, steps, node, rows) for node, rows in _by_node(steps, steps.sick)]


def _turned(steps: own_steps.OwnSteps, known: Iterable[Finding]) -> list[Finding]:
    """Return findings on ranks that take longer than before, except those of which more is known."""
    named = {gpu for finding in known for gpu in (finding.subject, *finding.members)}
    found = [
        (node, [row for row in rows if steps.rows.subjects[row] not in named])
        for node, rows in _by_node(steps, steps.turned)
    ]
    return [_by_steps(steps, node, rows) for node, rows in found if rows]


def _by_node(steps: own_steps.OwnSteps, mask: Mask) -> list[tuple[Subject, list[int]]]:
    jobs: dict[int, dict[Subject, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in np.flatnonzero(mask).tolist():
        jobs[int(steps.job[row])][steps.rows.subjects[row].of_node()].append(row)
    return [it for nodes in jobs.values() if len(nodes) <= _MOST_NODES for it in nodes.items()]


def _by_clock(
    window: Window, steps: own_steps.OwnSteps, node: Subject, rows: Sequence[int]
) -> Finding:
    several = len(rows) > 1
    if set_clocks.may_be_set(window, [steps.rows.subjects[row] for row in rows]):
        return _as_set(_by_steps(steps, node, rows))
    return replace(
        _by_steps(steps, node, rows),
        severity=_FAULT.severity,
        title="Node slows its job down: its ranks' own work takes longer"
        if several
        else "GPU slows its job down: its rank's own work takes longer",
        action=_NODE_ACTION if several else _FAULT.action,
    )


def _as_set(one: Finding) -> Finding:
    """Reword the finding: the job waits for clocks that somebody may have set, so no hardware is blamed."""
    return replace(
        one,
        severity=_FAULT.severity,
        title=set_clocks.TITLE
        if one.members
        else "Job waits for a GPU at lower clocks: somebody may have set them",
        condition=_SET,
        action=set_clocks.ACTION,
    )


def _by_steps(steps: own_steps.OwnSteps, node: Subject, rows: Sequence[int]) -> Finding:
    """Build a finding worded by the rank that deviates most; a note until it has lasted."""
    worst = max(rows, key=lambda row: float(steps.apart[row]))
    several = len(rows) > 1
    first, clock = float(steps.rows.values(own_steps.FIRST)[worst]), float(steps.clock[worst])
    before = Evidence(name="in its first steps", value=f"{first:.3g} s")
    return Finding(
        fault="gpu_slow",
        subject=node if several else steps.rows.subjects[worst],
        severity=_FAULT.severity if steps.lasts[worst] else Severity.INFO,
        since=own_steps.slow_since(steps, worst),
        evidence=(
            *(
                [Evidence(name="ranks", value=f"{len(rows)} of the node at once")]
                if several
                else []
            ),
            own_steps.own_work(
                steps, worst, own_steps.LEAST_CHANGE if steps.turned[worst] else own_steps.LEAST
            ),
            *([] if np.isnan(first) else [before]),
            *own_steps.of_clock(clock),
        ),
        detector="gpu_slow",
        title=_title(several, bool(steps.begun[worst])),
        condition=_BEGUN if steps.begun[worst] else _TURNED,
        action=_RANK_ACTION,
        source="ours: what each rank tells of its own work in a step",
        own_limit=True,
        members=tuple(sorted(steps.rows.subjects[row] for row in rows)) if several else (),
    )


def _title(several: bool, begun: bool) -> str:
    slow = "been slow since the job began" if begun else "become slow"
    if several:
        return f"Ranks on one node have {slow}: their own work takes longer"
    return f"A rank of the job has {slow}: its own work takes longer"


def _uneven(window: Window, steps: own_steps.OwnSteps) -> list[Finding]:
    """Return a note, on one node, for each job that gave some ranks more to do from the beginning."""
    jobs: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(steps.uneven).tolist():
        jobs[int(steps.job[row])].append(row)
    return [_note(window, steps, rows) for rows in jobs.values()]


def _note(window: Window, steps: own_steps.OwnSteps, rows: Sequence[int]) -> Finding:
    worst = max(rows, key=lambda row: float(steps.apart[row]))
    gpus = tuple(sorted(steps.rows.subjects[row] for row in rows))
    held = window.held(gpus[0])[0]
    return Finding(
        fault="gpu_slow",
        subject=gpus[0].of_node(),
        severity=Severity.INFO,
        since=own_steps.slow_since(steps, worst),
        evidence=(
            own_steps.own_work(steps, worst, own_steps.LEAST),
            Evidence(
                name="ranks",
                value=f"{len(gpus)} of {held.holder}, from its first steps on; their clocks"
                f" {own_steps.of_clocks(steps.clock[list(rows)])}",
            ),
        ),
        detector="gpu_slow",
        title="Some ranks of the job have had more to do since it began",
        condition=_UNEVEN,
        action="Ask the job's owner to cut its model or its data more evenly; no hardware is suspected.",
        source="ours: what each rank tells of its own work in a step",
        own_limit=True,
        members=gpus,
        holder=holder_key(held),
    )


def _seen(window: Window, scale: Timescale) -> list[Finding]:
    change = window.once(change_of, scale)
    if change is None or not (slow := change.slow & _at_work(window, change)).any():
        return []
    jobs: dict[int, dict[Subject, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in np.flatnonzero(slow).tolist():
        jobs[int(change.job[row])][change.rows.subjects[row].of_node()].append(row)
    return [
        _of_node(window, scale, change, node, rows)
        if len(rows) > 1
        else _of_gpu(window, scale, change, rows[0])
        for nodes in jobs.values()
        if len(nodes) <= _MOST_NODES
        for node, rows in nodes.items()
        # A change on all GPUs of a node within one minute comes from how the node was read.
        if len(rows) == 1 or scale.now is Span.STEADY
    ]


def _at_work(window: Window, change: Change) -> Mask:
    """Tell which GPUs are of a job whose middle GPU draws what none at rest does: near rest, chips differ by themselves."""
    steady, limit = window.get("gpu", Span.STEADY), draws_least.LIMIT.column
    least = least_at_work(limits(window, change.rows, limit, steady))
    found: Mask = ~(per_group(change.job, change.watts)[0] < least)
    return found


def _unusual(window: Window) -> list[Finding]:
    """Return findings on ranks that the others wait for, from the job's start on.

    They are judged by what their GPUs draw compared with what they usually do.
    """
    found = window.once(draws_least.power_among_peers, None)
    rows = [] if found is None else np.flatnonzero(found.slow).tolist()
    return [] if found is None else [_by_power(found, row) for row in rows]


def _by_power(found: draws_least.PowerAmongPeers, row: int) -> Finding:
    first, last = (float(found.rows.values(it)[row]) for it in ("first_at", "last_at"))
    return Finding(
        fault="gpu_slow",
        subject=found.rows.subjects[row],
        severity=_FAULT.severity,
        since=EPOCH + timedelta(microseconds=last - float(found.part[row]) * (last - first)),
        evidence=(
            Evidence(
                name="power at its clock",
                value=f"{100.0 * np.expm1(found.draws[row]):+.1f} % beside the job's other GPUs and what it"
                " usually is beside others, at the same NVLink traffic",
                limit=f"-{100.0 * draws_least.LEAST:g} %",
                peers=f"{found.peers[row] - 1:.0f} other GPUs of the job",
            ),
        ),
        detector="gpu_slow",
        title="A rank of the job is slow: its GPU draws less than the others', which wait for it",
        condition=_TURNED,
        action=_RANK_ACTION,
        source="ours: who waits in a collective spins, and draws more than who comes last",
        own_limit=True,
    )


def _last(window: Window) -> list[Finding]:
    """Return a finding for each rank that comes last to its job's collectives, unless something says that it is
    like the others.

    It is a note where nobody knows whether the rank is slow or has more to do.
    """
    return [
        _as_last(gpu, one, set_clocks.may_be_set(window, [gpu]))
        for gpu, one in window.once(last_ranks, None).items()
        if not _is(window, gpu, "alike", "as_first")
        and not (one.why is Why.UNKNOWN and _draws_as_others(window, gpu))
    ]


def _as_last(gpu: Subject, one: LastRank, may_be_set: bool) -> Finding:
    """Build the finding; the time that the rank waits is added to its evidence later."""
    found = Finding(
        fault="gpu_slow",
        subject=gpu,
        severity=Severity.INFO if one.why is Why.UNKNOWN else _FAULT.severity,
        since=one.since,
        certain=one.why is Why.TURNED,  # its node found the same at two passes
        evidence=own_steps.of_clock(one.clock) if one.why is Why.CLOCK else (),
        detector="gpu_slow",
        title=LAST_TITLES[one.why],
        condition=_LAST,
        action=_FAULT.action if one.why is Why.CLOCK else _RANK_ACTION,
        source="NCCL Inspector: who is in a collective for the shortest time came last",
        own_limit=True,
    )
    return _as_set(found) if one.why is Why.CLOCK and may_be_set else found


def _of_node(
    window: Window, scale: Timescale, change: Change, node: Subject, rows: Sequence[int]
) -> Finding:
    """Build a node's finding, worded by the GPU that deviates most."""
    worst = min(rows, key=lambda row: float(np.fmin(change.draws[row], change.clock[row])))
    one = _finding(window, scale, change, worst)
    gpus = tuple(sorted(change.rows.subjects[row] for row in rows))
    found = replace(
        one,
        subject=node,
        evidence=(Evidence(name="GPUs", value=f"{len(gpus)} of the node at once"), *one.evidence),
        action=_NODE_ACTION,
        title="Node slows its job down",
        condition="whole_node",
        members=gpus,
    )
    by_clock = bool((change.clock[list(rows)] <= -scale.least_clock).all())
    return _as_set(found) if by_clock and set_clocks.may_be_set(window, gpus) else found


def _of_gpu(window: Window, scale: Timescale, change: Change, row: int) -> Finding:
    one, by_clock = _finding(window, scale, change, row), is_by_clock(scale, change, row)
    return _as_set(one) if by_clock and set_clocks.may_be_set(window, [one.subject]) else one


def _finding(window: Window, scale: Timescale, change: Change, row: int) -> Finding:
    return Finding(
        fault="gpu_slow",
        subject=change.rows.subjects[row],
        severity=_FAULT.severity,
        since=changed_at(change, row),
        evidence=evidence_of(window, scale, change, row),
        detector="gpu_slow",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


DETECTOR = Detector(
    name="gpu_slow",
    find=slow_gpus,
    faults=found_by("gpu_slow"),
    needs=(*NEEDS, *host_waited_for.NEEDS, *own_steps.NEEDS, *draws_least.NEEDS, *set_clocks.NEEDS),
    sentence="A GPU that its job's other GPUs began to wait for.",
    source="what a GPU draws at its clock, against its job's others and its own past",
    needs_holders=True,
    would_show=would_show_slow_gpu,
    lapsed=lapsed,
    learns={draws_least.DRAWS.name: draws_least.learned},
)
