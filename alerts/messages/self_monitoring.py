"""Incidents about gpuvigil itself, and the daily digests; pure.

They take the same way as what the analyzer finds: as transitions that alerts claims, decides and
delivers. Ids and numbers follow from stored records, so that two processes say the same thing once.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuvigil.clock import duration, from_text
from gpuvigil.faults import FAULTS, Blame
from gpuvigil.faults.gpu_states import UNHEARD
from gpuvigil.lifecycle import Signal, State
from gpuvigil.model import (
    UNREADABLE,
    Evidence,
    Impact,
    Incident,
    Record,
    RecordKind,
    Severity,
    Subject,
    Transition,
    fingerprint,
)
from gpuvigil.numbers_in_words import counted

OWN = "gpuvigil"  # the cluster of such incidents
CHANNEL_FAILED, DIGEST = "gpuvigil_channel", "digest"
ON_TRIAL = "on_trial"  # also sent in a digest, and counted apart there

# How long a part is silent before somebody is told.
ANALYZER_SILENT = timedelta(seconds=60)
COLLECTORS_SILENT = timedelta(seconds=180)  # longer than the list of nodes may be old
# With the pauses between them, about a minute.
FAILURES = 6
# A refused message is not tried again: nobody has it.
REFUSALS = 3
LISTED = 10
NAMED = 3  # incidents named in one line of a digest
_OF_HOLDERS = frozenset({Blame.HOLDER, Blame.USE})
# A single node has its own incident; this many, and this share of all, are gpuvigil's trouble.
FULL_SPOOLS, FULL_SHARE = 3, 0.1


# Readers report at least every ten minutes.
READER_SILENT, READER_GONE = timedelta(minutes=25), timedelta(days=1)
READERS = {
    "slurm": ("Slurm is no longer asked; jobs and drains are not known", "'gpuvigil slurm'"),
    "kubernetes": (
        "Kubernetes is no longer asked; its jobs are not known",
        "'gpuvigil kubernetes'",
    ),
    "switches": (
        "Switches are no longer read; what fails in them goes undetected",
        "'gpuvigil infiniband' or 'gpuvigil switches'",
    ),
    "equipment": (
        "Power and cooling are no longer read; what fails there goes undetected",
        "'gpuvigil switches'",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A problem of gpuvigil itself that somebody has to fix."""

    name: str  # unique among troubles
    fault: str
    title: str
    value: str
    action: str
    place: str
    severity: Severity = Severity.CRITICAL

    @property
    def incident(self) -> str:
        return f"self-{self.name}"


def is_digest(incident: str) -> bool:
    """Return whether an incident is a digest of one day, by its id."""
    return incident.startswith(f"self-{DIGEST}-")


def analyzer_trouble(
    pulse: Record | None, now: datetime, listening: datetime | None = None
) -> Trouble | None:
    """Return the trouble of an analyzer that is silent; it writes a pulse every few seconds.

    `listening`: since when this process could have seen a pulse. Silence before that means nothing.
    """
    if pulse is None or now - max(pulse.at, listening or pulse.at) < ANALYZER_SILENT:
        return None
    return Trouble(
        name="analyzer",
        fault="gpuvigil_analyzer",
        title="gpuvigil's analyzer has stopped; no faults are detected",
        value=f"last heard of {duration(now - pulse.at)} ago",
        action="Check the analyzer's log and restart it.",
        place="analyzer",
    )


def detectors_trouble(pulse: Record | None) -> Trouble | None:
    """Return the trouble of an analyzer whose detectors fail, in part: their faults go undetected."""
    failing = None if pulse is None else pulse.body.get("failing")
    if not isinstance(failing, Mapping) or not failing:
        return None
    return Trouble(
        name="detectors",
        fault="gpuvigil_detectors",
        title="Some gpuvigil detectors are failing; their faults go undetected",
        value="; ".join(f"{name}: {error}" for name, error in sorted(failing.items())[:LISTED]),
        action="Check the analyzer's log and report the error.",
        place="analyzer",
    )


def collector_trouble(
    nodes: Sequence[Mapping[str, object]], now: datetime, listening: datetime | None = None
) -> Trouble | None:
    """Return the trouble of all collectors being silent; a single one is left to the analyzer.

    `listening`: as for `analyzer_trouble`.
    """
    times = [from_text(str(node["received_at"])) for node in nodes if node.get("received_at")]
    if not times or now - max(*times, listening or times[0]) < COLLECTORS_SILENT:
        return None
    return Trouble(
        name="collectors",
        fault="gpuvigil_collectors",
        title="No gpuvigil collector sends data",
        value=f"{counted(len(times), 'node')}, the last heard of {duration(now - max(times))} ago",
        action="Check the network to the hub, and the collectors' token: 'gpuvigil doctor' on a node.",
        place="collectors",
    )


def is_reported(nodes: Iterable[Mapping[str, object]], active: Iterable[Incident]) -> bool:
    """Return whether an active incident of several nodes names the node heard last."""
    known = [node for node in nodes if node.get("received_at")]
    last = max(known, key=lambda node: from_text(str(node["received_at"])))
    key = Subject(cluster=str(last["cluster"]), node=str(last["node"])).key
    return any(
        one.fault in UNHEARD and key in one.members and _is_of_several(one) for one in active
    )


def _is_of_several(incident: Incident) -> bool:
    return len({tuple(member.split("/")[:2]) for member in incident.members}) > 1


def spool_trouble(full: Sequence[str], nodes: int) -> Trouble | None:
    """Return the trouble that collectors of many nodes, named in `full`, cannot keep measurements."""
    if len(full) < max(FULL_SPOOLS, FULL_SHARE * nodes):
        return None
    named = ", ".join(full[:LISTED])
    more = f" and {len(full) - LISTED} more" if len(full) > LISTED else ""
    return Trouble(
        name="spools",
        fault="gpuvigil_spools",
        title="Many gpuvigil collectors have a full spool or disk; measurements may be lost",
        value=f"{len(full)} of {nodes} nodes: {named}{more}",
        action="Check that the hub answers and keeps up ('gpuvigil doctor' on a node); then give"
        " collector.spool_bytes more room, or free space on the nodes.",
        place="collectors",
    )


def reader_trouble(
    last: Record, now: datetime, listening: datetime | None = None
) -> Trouble | None:
    """Return the trouble of a reader of a cluster's scheduler or switches that has fallen silent.

    `last`: the newest record of one of `READERS`. After a day it is not missed any more: it was
    taken down. `listening`: as for `analyzer_trouble`.
    """
    silent = now - max(last.at, listening or last.at)
    if silent < READER_SILENT or now - last.at >= READER_GONE:
        return None
    reader, at = reader_of(last), Subject.parse(last.subject)
    title, command = READERS[reader]
    # Neither Kubernetes' reader nor a switch says on which machine it is read.
    on = f" on {at.node}" if reader == "slurm" else ""
    return Trouble(
        name=f"{reader}-{at.cluster}",
        fault="gpuvigil_reader",
        title=title,
        value=f"cluster {at.cluster}, last heard of {duration(now - last.at)} ago",
        action=f"Check the log of {command}{on} and restart it.",
        place=at.cluster,
        severity=Severity.WARNING,
    )


def reader_of(record: Record) -> str:
    """Return which of `READERS` wrote a record; Slurm's is the same one on any machine."""
    if record.kind is RecordKind.SWITCH:
        return "switches"
    if record.kind is RecordKind.EQUIPMENT:
        return "equipment"
    is_kubernetes = Subject.parse(record.subject).node == "kubernetes"
    return "kubernetes" if is_kubernetes else "slurm"


def channel_trouble(pulse: Mapping[str, object]) -> Trouble | None:
    """Return the trouble of a channel whose receiver keeps failing or refusing messages."""
    name, failures, refusals = (
        str(pulse["name"]),
        _count(pulse, "failures"),
        _count(pulse, "refusals"),
    )
    if failures < FAILURES and refusals < REFUSALS:
        return None
    many = f"{counted(failures, 'attempt')} in a row failed"
    action = f"Fix the error, then run: gpuvigil alert test {name}"
    if refusals:
        many = f"{counted(refusals, 'message')} in a row rejected" + f", {many}" * (failures > 0)
        action += f"; to send what was rejected, run: gpuvigil alert retry --channel {name}"
    return Trouble(
        name=f"channel-{name}",
        fault=CHANNEL_FAILED,
        title=f"The channel {name} delivers nothing",
        value=f"{many}: {pulse.get('last_error') or 'no reason'}",
        action=action,
        place=name,
    )


def _count(pulse: Mapping[str, object], key: str) -> int:
    return int(str(pulse[key]))


def opened(trouble: Trouble, before: Transition | None, now: datetime) -> Transition | None:
    """Return the step that reports a trouble; None when it was reported already."""
    if before is not None and before.to_state == State.OPEN.value:
        return None
    incident = _incident(trouble, now, severity=trouble.severity)
    return _step(incident, before, now, over=False)


def ended(before: Transition | None, now: datetime) -> Transition | None:
    """Return the step that ends a trouble; None when it does not stand."""
    if before is None or before.to_state != State.OPEN.value:
        return None
    return _step(Incident.from_record(Record.from_json(before.snapshot)), before, now, over=True)


def of_gone_channels(
    steps: Iterable[Transition], channels: Collection[str], now: datetime
) -> list[Transition]:
    """Return the ends of troubles of channels that are no longer configured: nobody can fix them."""
    newest: dict[str, Transition] = {}
    for one in sorted(steps, key=lambda step: step.number):
        if _fault(one) == CHANNEL_FAILED and one.subject.node not in channels:
            newest[one.incident] = one
    return [step for one in newest.values() if (step := ended(one, now)) is not None]


def digest(
    channel: str,
    not_sent: Iterable[Record],
    begin: datetime,
    end: datetime,
    active: Iterable[Incident] = (),
) -> Transition | None:
    """Return a channel's digest of the notices that were not sent from `begin` to `end`; None when there is nothing.

    First comes what is left of `active`: more than information, and not acknowledged. Then comes
    what is on trial, by its place: somebody has to say whether it was right.
    """
    found: dict[str, dict[str, Incident]] = {DIGEST: {}, ON_TRIAL: {}}
    for record in not_sent:
        by_id = found.get(str(record.body.get("verdict")))
        ours = record.body.get("channel") == channel and begin <= record.at < end
        if by_id is not None and ours:
            with suppress(*UNREADABLE):  # what another version wrote
                incident = Incident.from_record(Record.from_json(record.body["snapshot"]))
                by_id[incident.id] = incident
    notes, tried = found[DIGEST], found[ON_TRIAL]
    if not notes and not tried:
        return None
    left = [one for one in active if _is_left(one) and one.id not in tried]
    named = (("nobody has taken", left), ("on trial", tried.values()))
    lines = [Evidence(name=name, value=_named(them, end)) for name, them in named if them]
    tally = Counter(map(_counted_as, notes.values()))
    lines += [Evidence(name=title, value=str(count)) for title, count in tally.most_common(LISTED)]
    trouble = Trouble(
        name=_digest_name(channel, begin),
        fault=DIGEST,
        title=f"Digest since {begin:%d %b %H:%M} UTC: {_many(len(notes), len(tried))}",
        value="",
        action=_asked(bool(left), bool(tried)),
        place=channel,
    )
    incident = _incident(trouble, end, severity=Severity.INFO, evidence=tuple(lines))
    return _step(incident, None, end, over=False)


def _many(notes: int, tried: int) -> str:
    """Return words like `3 info incidents, 1 on trial`."""
    if not notes:
        return f"{counted(tried, 'incident')} on trial"
    return counted(notes, "info incident") + (f", {tried} on trial" if tried else "")


def _asked(left: bool, tried: bool) -> str:
    """Return what a digest asks of its reader."""
    asked = ["Acknowledge or silence what nobody has taken."] if left else []
    if tried:
        asked.append("Rate what is on trial as useful or noise, on its page.")
    return " ".join([*(asked or ["Nothing now."]), "The page Incidents lists them all."])


def _counted_as(one: Incident) -> str:
    """Return an incident's title, or its fault's if it is about use: those titles name holders."""
    row = FAULTS.get(one.fault)
    return row.title if row is not None and row.blame in _OF_HOLDERS else one.title


def digest_of(channel: str, begin: datetime) -> str:
    """Return the id of the incident of a channel's digest since `begin`."""
    return f"self-{_digest_name(channel, begin)}"


def _digest_name(channel: str, begin: datetime) -> str:
    return f"digest-{channel}-{begin:%Y-%m-%d}"


def _is_left(one: Incident) -> bool:
    unattended = one.state in {State.OPEN.value, State.FLAPPING.value}
    if one.out_of_service is not None:
        return False
    return unattended and one.subject.real and one.severity is not Severity.INFO


def _named(left: Iterable[Incident], now: datetime) -> str:
    """Return the worst and oldest incidents, and how many more there are."""
    ordered = sorted(left, key=lambda one: (one.severity.rank, one.since, one.id))
    named = [
        f"{one.title}, {one.label or one.subject.node} ({one.severity.value}, {duration(now - one.since)})"
        for one in ordered[:NAMED]
    ]
    more = f" and {len(ordered) - NAMED} more" if len(ordered) > NAMED else ""
    return "; ".join(named) + more


def _fault(step: Transition) -> str:
    """Return the fault of a step; empty where another version wrote it otherwise."""
    body = step.snapshot.get("body")
    return str(body.get("fault", "")) if isinstance(body, Mapping) else ""


def _incident(
    trouble: Trouble,
    now: datetime,
    severity: Severity = Severity.CRITICAL,
    evidence: tuple[Evidence, ...] = (),
) -> Incident:
    subject = Subject(cluster=OWN, node=trouble.place)
    return Incident(
        id=trouble.incident,
        fingerprint=fingerprint(trouble.fault, subject),
        fault=trouble.fault,
        subject=subject,
        severity=severity,
        state=State.OPEN.value,
        title=trouble.title,
        since=now,
        updated_at=now,
        impact=Impact(text="faults may go unreported" if severity is Severity.CRITICAL else "none"),
        evidence=evidence or (Evidence(name="Seen", value=trouble.value),),
        action=trouble.action,
        source="gpuvigil's own health",
        label=trouble.place,
    )


def _step(
    incident: Incident, before: Transition | None, now: datetime, *, over: bool
) -> Transition:
    states = (State.OPEN, State.RESOLVED) if over else (State.SUSPECT, State.OPEN)
    from_state = states[0] if before is None else State(before.to_state)
    now_so = replace(incident, state=states[1].value, resolved_at=now if over else None)
    signal = Signal.CLEARED if over else Signal.CONFIRMED if before is None else Signal.RETURNED
    return Transition(
        incident=incident.id,
        number=1 if before is None else before.number + 1,
        from_state=from_state.value,
        to_state=states[1].value,
        signal=signal.value,
        at=now,
        reason="gpuvigil's own health",
        subject=incident.subject,
        snapshot=now_so.to_record().to_json(),
    )
