"""Retention: which records ended so long ago that they are deleted.

These are: events; usage; annotations; what was usual for GPUs of nodes that are gone; reports with
their letters; pulses of processes that are gone; retirements; nodes that nobody reports any more,
with the allocations there whose end was never reported and the setups they ran on; setups of other
nodes that a later one has replaced; allocations and silences that have ended; and resolved
incidents with their transitions, notices, acknowledgements, opinions, returns and actions.

Also deleted is what alerts says without an incident: notices to the holders of idle GPUs, those
about gpuvigil itself but for the newest step of each trouble, and digests. What is open is never
deleted, nor an event or a node that an active incident may rest on.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, exists, func, or_, select

from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import ENDED_STATES, AllocationState, RecordKind

from .tables import record

# Records of one look; each look is a transaction of its own, so that others get their turn.
BATCH = 5_000

_COLUMNS: Sequence[ColumnElement[Any]] = [
    record.c[k] for k in ("kind", "id", "sequence", "at", "subject", "body")
]
_OVER = (State.RESOLVED.value, State.DISMISSED.value)
_BELONGING = tuple(
    kind.value
    for kind in (
        *(RecordKind.TRANSITION, RecordKind.NOTICE),
        *(RecordKind.ACKNOWLEDGEMENT, RecordKind.OPINION, RecordKind.RMA),
        RecordKind.ACTION,
    )
)
_OF_NODES = (
    RecordKind.EVENT.value,
    RecordKind.INVENTORY.value,
    RecordKind.RETIREMENT.value,
)
_ENDS = {
    RecordKind.ALLOCATION.value: "ended_at",
    RecordKind.INCIDENT.value: "resolved_at",
    RecordKind.JOB.value: "ended_at",
    RecordKind.SILENCE.value: "ends_at",
}


# Kinds about a time that is past, and about nothing that goes on.
_OF_A_TIME = (
    *(RecordKind.USAGE, RecordKind.USAGE_SPAN, RecordKind.WASTE),
    *(RecordKind.AUDIT, RecordKind.REPORT, RecordKind.LETTER),
    # For a node that exists these are written again.
    *(RecordKind.ANNOTATION, RecordKind.USUAL, RecordKind.EQUIPMENT),
)

# The prefixes of ids of what alerts reports without an incident.
_IDLE_NOTICE, _OF_ITSELF, _DIGEST = "idle-", "self-", "self-digest-"


def expired(connection: Connection, before: str, after: int) -> Sequence[Row[Any]]:
    """Return the next records from before a time that are over, in the order of their sequence."""
    over = or_(
        # An existing node reports its inventory again and again; its retirement is reported after
        # its last inventory.
        and_(record.c.kind.in_(_OF_NODES), ~_carries_an_incident()),
        record.c.kind.in_([kind.value for kind in _OF_A_TIME]),
        and_(
            record.c.kind == RecordKind.ALLOCATION.value,
            record.c.state == AllocationState.ENDED.value,
        ),
        and_(record.c.kind == RecordKind.INCIDENT.value, record.c.state.in_(_OVER)),
        record.c.kind == RecordKind.SILENCE.value,
        and_(record.c.kind == RecordKind.JOB.value, record.c.state.in_(ENDED_STATES)),
        _reported_by_alerts(),
        _has_a_successor(before),
        # The pulse of one process among several: the next one has another id.
        and_(record.c.kind == RecordKind.PULSE.value, record.c.id.contains(":")),
    )
    query = (
        select(*_COLUMNS)
        .where(over, record.c.at < before, record.c.sequence > after)
        .order_by(record.c.sequence)
        .limit(BATCH)
    )
    return connection.execute(query).all()


def old(row: Row[Any], before: str) -> bool:
    """Return whether a record was over before a time; it may have begun long before it ended."""
    ended = json.loads(row.body).get(_ENDS.get(row.kind))
    return bool((ended if isinstance(ended, str) else row.at) < before)


def drop(connection: Connection, rows: Sequence[Row[Any]]) -> int:
    """Delete the records, and what belongs to incidents and nodes among them; return how many."""
    gone = 0
    for kind in {row.kind for row in rows}:
        ids = [row.id for row in rows if row.kind == kind]
        of_kind = and_(record.c.kind == kind, record.c.id.in_(ids))
        gone += connection.execute(delete(record).where(of_kind)).rowcount
        if kind == RecordKind.INCIDENT.value:
            below = and_(record.c.kind.in_(_BELONGING), record.c.parent.in_(ids))
            gone += connection.execute(delete(record).where(below)).rowcount
        if kind == RecordKind.INVENTORY.value:
            gone += _drop_held(connection, {row.subject for row in rows if row.kind == kind})
            ran_on = and_(record.c.kind == RecordKind.SETUP.value, record.c.subject.in_(ids))
            gone += connection.execute(delete(record).where(ran_on)).rowcount
    return gone


def _drop_held(connection: Connection, nodes: Collection[str]) -> int:
    """Delete the allocations on nodes that are gone: nobody is left to report their end."""
    held = and_(
        record.c.kind == RecordKind.ALLOCATION.value,
        record.c.state == AllocationState.HELD.value,
    )
    found = connection.execute(select(record.c.sequence, record.c.subject).where(held)).all()
    there = [it.sequence for it in found if "/".join(it.subject.split("/")[:2]) in nodes]
    return sum(
        connection.execute(delete(record).where(record.c.sequence.in_(part))).rowcount
        for part in (there[begin : begin + BATCH] for begin in range(0, len(there), BATCH))
    )


def _has_a_successor(before: str) -> ColumnElement[bool]:
    """Return the condition that a setup was replaced by a later one before a time.

    The last setup from before that time is what a node ran on then, however old it is. Ids sort by
    node and time, so they are compared.
    """
    later = record.alias("later_setup")
    successor = exists().where(
        later.c.kind == record.c.kind,
        later.c.id > record.c.id,
        later.c.id < record.c.subject + "|" + before,
    )
    return and_(record.c.kind == RecordKind.SETUP.value, successor)


def _reported_by_alerts() -> ColumnElement[bool]:
    """Return the condition for transitions and notices that have no incident to be deleted with.

    It leaves out the last step of a trouble of gpuvigil itself, which may stand, and what is still
    to be sent.
    """
    later = record.alias("later")
    parent = record.c.parent
    has_later = exists().where(
        later.c.kind == record.c.kind,
        later.c.parent == parent,
        later.c.sequence > record.c.sequence,
    )
    once = or_(*(parent.startswith(begin, autoescape=True) for begin in (_IDLE_NOTICE, _DIGEST)))
    of_itself = parent.startswith(_OF_ITSELF, autoescape=True)
    return and_(
        record.c.due_at.is_(None),
        or_(
            and_(
                record.c.kind == RecordKind.TRANSITION.value, or_(once, and_(of_itself, has_later))
            ),
            and_(record.c.kind == RecordKind.NOTICE.value, or_(once, of_itself)),
        ),
    )


def _carries_an_incident() -> ColumnElement[bool]:
    """Return the condition that an active incident is about the subject, a part or a parent of it."""
    incident = record.alias("incident")
    return exists().where(
        incident.c.kind == RecordKind.INCIDENT.value,
        incident.c.state.in_([state.value for state in ACTIVE]),
        or_(
            record.c.subject == incident.c.subject,
            _is_in(record.c.subject, incident.c.subject),
            _is_in(incident.c.subject, record.c.subject),
        ),
    )


def _is_in(subject: ColumnElement[str], other: ColumnElement[str]) -> ColumnElement[bool]:
    above = other + "/"
    return func.substr(subject, 1, func.length(above)) == above
