"""Whether an incident of heat that stands would show now if it were there, and when it is over."""

from datetime import datetime, timedelta

import numpy as np

from gpuvigil.model import Incident, Subject

from ..window.rows import Rows
from ..window.window import Span, Window
from .heat import (
    LIMIT,
    NODE_GPUS,
    WATTS,
    WORKING_SHARE,
    WORKING_WATTS,
    Heat,
    is_awake,
    told_by_their_nodes,
    works,
)
from .heat_blame import AGAINST
from .heat_limits import PAST, USUAL, still_hot
from .own_past import own_past_of

# The name of evidence by the driver's counters of slowdowns.
SLOWED = "slowed down by heat"
# What began with 5 K or more is over once a GPU has become so much cooler at its power.
_COOLER_KELVIN, _LAPSE = 4.0, timedelta(hours=24)


def says_whether_hot(window: Window, incident: Incident) -> bool | None:
    """Whether a standing incident of heat would show; None where its node's lines are enough.

    The counters of slowdowns tell at any load of several GPUs, whose air is warm also at rest; of
    one they tell while it works: a GPU that rests is not slowed down. What was held against its own
    past or its peers shows only where it can be held against peers now, or where it became cooler.
    """
    told = {item.name for item in incident.evidence if item.peers}
    told |= {item.name for item in incident.evidence} & {SLOWED, PAST, USUAL}
    rows = window.get("gpu", Span.STEADY)
    if told == {SLOWED}:
        return _is_at_work(window, incident.subject)
    numbers = _rows_of(rows, incident) if len(rows) else []
    if not numbers:
        return False
    if np.isnan(rows.values(WATTS.column)[numbers]).all():
        return None
    if PAST in told and _became_cooler(window, numbers):
        return True
    of, than = AGAINST[1] if USUAL in told else AGAINST[2]
    found = of(window)
    shows = _shows(rows, found, numbers, incident, than)
    return shows and not still_hot(window, found, numbers, incident, than)


def _became_cooler(window: Window, numbers: list[int]) -> bool:
    """Whether half of these GPUs are cooler by now than half an hour ago, at their power."""
    past = own_past_of(window)
    known = past.lately[numbers][np.isfinite(past.sure[numbers])]
    return bool(len(known) and np.median(known) <= -_COOLER_KELVIN)


def _shows(rows: Rows, found: Heat, numbers: list[int], incident: Incident, than: str) -> bool:
    """Whether it can be told now: not while the load changes, and of a heatsink not at rest.

    Of several GPUs half must tell. One whose power nobody reads is never held against peers.
    """
    seen = np.isfinite(found.kelvin[numbers])
    if incident.subject.kind == "gpu":
        at_any_load = incident.condition == "cooling" or than == USUAL
        told = told_by_their_nodes(rows, found)
        shows = is_awake(rows) if at_any_load else works(rows) & told
        return bool(seen.all() and shows[numbers].all())
    return int(seen.sum()) >= max(min(NODE_GPUS, len(numbers)), 0.5 * len(numbers))


def lapsed(window: Window, incident: Incident) -> datetime | None:
    """When one that rests on its own past was last seen, where that is long ago.

    Half an hour after the change nothing of it shows any more, unless peers tell.
    """
    by_past = any(item.name == PAST for item in incident.evidence)
    is_long_ago = window.now - incident.updated_at >= _LAPSE
    return incident.updated_at if by_past and is_long_ago else None


def _is_at_work(window: Window, subject: Subject) -> bool | None:
    """Whether a GPU draws power enough to become hot; None of a node, and where nobody reads it."""
    row = window.get("gpu", Span.RECENT).get(subject) if subject.kind == "gpu" else None
    watts = None if row is None else row[WATTS.column]
    if row is None or watts is None:
        return None
    long = window.get("gpu", Span.STEADY).get(subject)
    limit = None if long is None else long[LIMIT.column]
    return bool(watts >= (WORKING_WATTS if limit is None else WORKING_SHARE * limit))


def _rows_of(rows: Rows, incident: Incident) -> list[int]:
    """The rows of the GPUs that it is about: of a node those that it names and that are still there,
    else all of its nodes.
    """
    gpu = incident.subject.kind == "gpu"
    members = {incident.subject, *(() if gpu else map(Subject.parse, incident.members))}
    named = [rows.index.number(member) for member in sorted(members) if member.kind == "gpu"]
    found = [number for number in named if number is not None]
    if found or gpu:
        return found
    hosts = {member.of_node() for member in members}
    return [n for host in sorted(hosts) for n in rows.index.of_node(host).tolist()]
