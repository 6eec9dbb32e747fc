"""Notes on charts about what was done to nodes: new versions, maintenance, drains, people's annotations."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from accounting.hardware.node_changes import changed
from accounting.usage.model import cluster_key
from gpuvigil.clock import moment
from gpuvigil.hub_client import Hub
from gpuvigil.model import (
    Acceptance,
    Act,
    NodeAction,
    Record,
    RecordKind,
    Scheduler,
    Setup,
    Subject,
    readable,
)
from gpuvigil.model.annotation import LONGEST, Annotation
from gpuvigil.schedulers.out_of_service import LostTo, lost_to, name_of

MOST_SETUPS = 50_000
# The most notes in the line of text; the chart has all.
_MOST_SAID = 8
_LONGEST_LABEL = 24
# Closer to an end of the chart than this share of its width, a centred label has no room.
_EDGE = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One thing that somebody did, to one node or to several."""

    at: datetime
    label: str  # the short text over a chart
    text: str
    until: datetime | None = None  # the end of something that lasted: a band, not a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The records from which the notes of one cluster, or of one of its nodes, are made."""

    setups: Sequence[Setup] = ()
    actions: Sequence[NodeAction] = ()
    acceptances: Sequence[Acceptance] = ()
    annotations: Sequence[Annotation] = ()
    schedulers: Sequence[Scheduler] = ()


def done(
    hub: Hub, cluster: str, start: datetime, end: datetime, node: Subject | None = None
) -> Done:
    """Return the records of a cluster or of one node of it. HubError if the hub does not answer."""
    key = cluster_key(cluster) if node is None else node.key

    def asked(kind: RecordKind) -> Sequence[Record]:
        return hub.records(kind, subject=key, since=start, until=end)

    # Earlier setups are only needed if something changed in the span.
    setups = asked(RecordKind.SETUP) and hub.records(
        RecordKind.SETUP, subject=key, until=end, limit=MOST_SETUPS
    )
    # An annotation that began before the span may reach into it.
    since = start - LONGEST
    said = hub.records(RecordKind.ANNOTATION, subject=cluster_key(cluster), since=since, until=end)
    told = hub.records(RecordKind.SCHEDULER, subject=cluster_key(cluster))
    return Done(
        setups=tuple(readable(setups, Setup.from_record)),
        actions=tuple(readable(asked(RecordKind.ACTION), NodeAction.from_record)),
        acceptances=tuple(readable(asked(RecordKind.ACCEPTANCE), Acceptance.from_record)),
        annotations=tuple(readable(said, Annotation.from_record)),
        schedulers=tuple(readable(told, Scheduler.from_record)),
    )


_Told = tuple[datetime, Subject, str, str]  # time, node, label over a chart, sentence


def notes(
    records: Done, start: datetime, end: datetime, only: Iterable[Subject] | None = None
) -> tuple[Note, ...]:
    """Return the notes of the span `[start, end)`, oldest first; the same change on several nodes is one note.

    `only`: the nodes whose notes are wanted; None: all nodes.
    """
    nodes = None if only is None else tuple(only)
    names = None if nodes is None else frozenset(map(name_of, nodes))
    found: dict[tuple[str, str], list[tuple[datetime, Subject]]] = {}
    for at, node, label, text in _of_nodes(records, end):
        if start <= at < end and (names is None or name_of(node) in names):
            found.setdefault((label, text), []).append((at, node))
    said = [one for key, times in found.items() for one in _together(*key, times)]
    for one in records.annotations:
        of_them = nodes is None or any(map(one.is_of, nodes))
        over = one.at if one.until is None else one.until
        if one.at < end and over >= start and of_them and not one.deleted:
            text = f"{one.note} (by {one.by})"
            said.append(Note(at=one.at, until=one.until, label=one.note, text=text))
    return tuple(sorted(said, key=lambda one: (one.at, one.text)))


def _of_nodes(records: Done, end: datetime) -> Iterator[_Told]:
    """Yield what the records say of single nodes."""
    by_node: dict[Subject, list[Setup]] = {}
    for setup in records.setups:
        by_node.setdefault(setup.node, []).append(setup)
    for node, setups in by_node.items():
        for one in changed(setups, end):
            yield one.at, node, f"{one.what} {one.new}", f"{one.what}: {one.old} → {one.new}"
    for action in records.actions:
        did = "drained" if action.act is Act.DRAIN else "given back"
        yield action.at, action.node, did, f"{did} by gpuvigil"
    for accepted in records.acceptances:
        yield accepted.at, accepted.node, "accepted", f"accepted by {accepted.by}: {accepted.note}"
    for look in records.schedulers:
        yield from _maintained(look)


def _maintained(report: Scheduler) -> Iterator[_Told]:
    """Yield the start and the end of maintenance, as far as the scheduler's last report says."""
    for node in (*(report.nodes or ()), *report.left):
        if lost_to(node) is not LostTo.MAINTENANCE:
            continue
        subject = Subject(cluster=report.told_by.cluster, node=node.name)
        why = f": {node.reason}" if node.reason else ""
        if node.since is not None:
            yield node.since, subject, "maintenance", f"maintenance{why}"
        if node.until is not None:
            yield node.until, subject, "maintenance ended", f"maintenance ended{why}"


def _together(label: str, text: str, times: Sequence[tuple[datetime, Subject]]) -> Iterator[Note]:
    """Yield one note for a roll-out, at its start, or one for each change of a single node."""
    nodes = {node for _, node in times}
    if len(nodes) == 1:
        yield from (Note(at=at, label=label, text=text) for at, _ in times)
    else:
        at = min(at for at, _ in times)
        yield Note(at=at, label=label, text=f"{text}, on {len(nodes):,} nodes")


def labelled(
    of: Iterable[Note], taken: Iterable[datetime], near: timedelta, start: datetime
) -> Iterator[tuple[datetime, str]]:
    """Yield each note's time and label; the label is empty if another one in `taken` is as `near`.

    A note that began before the chart's `start` has its label there.
    """
    words = list(taken)
    for one in of:
        begin = max(one.at, start)
        close = any(abs(at - begin) <= near for at in words)
        if not close:
            words.append(begin)
        label = (
            one.label if len(one.label) <= _LONGEST_LABEL else one.label[: _LONGEST_LABEL - 1] + "…"
        )
        yield begin, "" if close else label


def bands(
    of: Iterable[Note], start: datetime, end: datetime
) -> Iterator[tuple[datetime, datetime]]:
    """Yield start and end of each note that lasted, cut to the chart from `start` to `end`."""
    for one in of:
        if one.until is not None and one.until > start:
            yield max(one.at, start), min(one.until, end)


def align(at: datetime, start: datetime, end: datetime) -> str:
    """Return how a mark's label is aligned so that it fits into a chart from `start` to `end`."""
    share = (at - start) / (end - start)
    return "left" if share < _EDGE else "right" if share > 1 - _EDGE else "center"


def sentence(of: Sequence[Note]) -> str:
    """Return the newest notes as one line; empty for none."""
    said = "; ".join(f"{_when(one)}: {one.text}" for one in of[-_MOST_SAID:])
    more = f"{len(of) - _MOST_SAID} more, then " if len(of) > _MOST_SAID else ""
    return f"Done in this time: {more}{said}." if of else ""


def _when(one: Note) -> str:
    return moment(one.at) + ("" if one.until is None else f" to {moment(one.until)}")
