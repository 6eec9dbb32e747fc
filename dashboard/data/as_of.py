"""Pure functions that give records as they were at a moment of the past.

Only the newest version of a record is kept. Its version at a moment follows from the times in it, or from
what was recorded at each step; what follows from neither is no longer known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from accounting.usage import BUCKET
from accounting.usage.ledger import STATES
from gpuvigil.clock import from_text, to_text
from gpuvigil.model import UNREADABLE, Attribute, Record, RecordKind

_LENGTHS = {state: length for length, state in STATES.items()}


def time_in(record: Record, key: str) -> datetime | None:
    """Return a time from a record's body; None if there is none."""
    text = record.body.get(key)
    try:
        return from_text(text) if isinstance(text, str) else None
    except ValueError:
        return None


def over(record: Record, key: str, at: datetime) -> bool:
    """Return whether the record had ended by then; `key` names the time of its end."""
    ended = time_in(record, key)
    return ended is not None and ended <= at


def incident(step: Record) -> Record | None:
    """Return an incident as this transition left it; None if the transition cannot be read."""
    try:
        found = Record.from_json(step.body["snapshot"])
        return replace(found, body={**found.body, "state": step.body["to_state"]})
    except UNREADABLE:
        return None


def allocation(record: Record, at: datetime) -> Record:
    """Return an allocation as of then: still held, if it ended later."""
    if over(record, "ended_at", at):
        return record
    body = {key: value for key, value in record.body.items() if key != "exit_code"}
    return replace(record, body={**body, "ended_at": None})


_LATER = frozenset({"ended_at", "exit_code", "reason"})
_STARTED = frozenset({"started_at", "nodes", "numbers"})


def job(record: Record, at: datetime) -> Record:
    """Return a job as of then: waiting, running or ended."""
    if over(record, "ended_at", at):
        return record
    running = over(record, "started_at", at)
    hidden = _LATER if running else _LATER | _STARTED
    body = {key: value for key, value in record.body.items() if key not in hidden}
    return replace(record, body={**body, "state": "RUNNING" if running else "PENDING"})


def notice(record: Record, at: datetime) -> bool:
    """Return whether the notice had been decided, or sent, by then; one that is still due does not count."""
    sent = time_in(record, "sent_at")
    waits = record.body.get("state") == "due"
    return record.at <= at and not waits and (sent is None or sent <= at)


def inventory(record: Record, setups: Sequence[Record], at: datetime) -> Record | None:
    """Return a node's inventory with the versions of that time; None before the node was first seen.

    `setups` are all setups of the node, oldest first. The parts are those of its last inventory.
    """
    before = [one for one in setups if one.at <= at]
    if setups and not before:
        return None
    if record.at <= at:
        return record
    ran_on: Mapping[str, object] = before[-1].body if before else {}
    known = {name: ran_on[name] for name in _VERSIONS if name in ran_on}
    lost = record.body.get("missing") or {}
    missing = {uuid: since for uuid, since in lost.items() if since <= to_text(at)}
    body = {**record.body, **known, "missing": missing}
    if body.get("driverless_since") and not over(record, "driverless_since", at):
        body |= {"driverless_since": None, "driver_state": "loaded"}
    return replace(record, at=at, body=body)


_VERSIONS = (Attribute.DRIVER.value, Attribute.KERNEL.value)


def counted(record: Record, at: datetime) -> bool:
    """Return whether the span that a record counts was over by then."""
    lengths = {RecordKind.USAGE: BUCKET, RecordKind.WASTE: timedelta(hours=1)}
    length = lengths.get(record.kind) or _LENGTHS.get(str(record.body.get("state")))
    return length is not None and record.at + length <= at
