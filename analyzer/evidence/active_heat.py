"""Whether an active incident of heat would show now if it were there, and when it is over."""

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
    comparable_in_node,
    is_awake,
    works,
)
from .heat_blame import AGAINST
from .heat_limits import PAST, USUAL, still_hot
from .own_past import own_past_of

# The name of evidence by the driver's counters of slowdowns.
SLOWED = "slowed down by heat"
# Heat that began with 5 K or more is over once a GPU has become this much cooler at its power, and not
# while it is this much hotter than before.
_APART_KELVIN, _LAPSE = 4.0, timedelta(hours=24)


def would_show_heat(window: Window, incident: Incident) -> bool | None:
    """Tell whether an active incident of heat would show; None if its node's lines are enough.

    For several GPUs, whose air is warm also at rest, the counters of slowdowns tell at any load;
    for a single one only while it works, as a GPU at rest is not slowed down. Heat found against
    the past or peers shows only if it can be compared with peers now, or became less.
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
    by_past = _shows_by_past(window, numbers) if PAST in told else None
    if by_past is not None:
        return by_past
    # Powers that became known in no other air tell nothing of a rack or node, where its peers may.
    usual = AGAINST[1:2] if USUAL in told else ()
    peers = AGAINST[2:] if not usual or incident.subject.kind == "node" else ()
    for of, than in (*usual, *peers):
        found = of(window)
        if _shows(rows, found, numbers, incident, than):
            return not still_hot(window, found, numbers, incident, than)
    return False


def _shows_by_past(window: Window, numbers: list[int]) -> bool | None:
    """Tell whether half of these GPUs are cooler than half an hour ago at their power; None if they are as warm.

    False while half of them are hotter, by a lower bound: that is not over, however cool it is for their peers.
    """
    past = own_past_of(window)
    lately = past.lately[numbers]
    sure, known = lately[np.isfinite(past.sure[numbers])], lately[np.isfinite(lately)]
    if len(sure) and np.median(sure) <= -_APART_KELVIN:
        return True
    return False if len(known) and np.median(known) >= _APART_KELVIN else None


def _shows(rows: Rows, found: Heat, numbers: list[int], incident: Incident, than: str) -> bool:
    """Tell whether an incident's heat can be measured now.

    It cannot while the load changes, nor at rest for a heatsink. Of several GPUs half must be
    known. A GPU without power readings is never compared with peers.
    """
    seen = np.isfinite(found.kelvin[numbers])
    if incident.subject.kind == "gpu":
        at_any_load = incident.condition == "cooling" or than == USUAL
        told = comparable_in_node(rows, found)
        shows = is_awake(rows) if at_any_load else works(rows) & told
        return bool(seen.all() and shows[numbers].all())
    return int(seen.sum()) >= max(min(NODE_GPUS, len(numbers)), 0.5 * len(numbers))


def lapsed(window: Window, incident: Incident) -> datetime | None:
    """Return when an incident that rests on its GPU's past was last seen, if long ago, else None.

    Half an hour after the change it does not show any more, unless peers tell.
    """
    by_past = any(item.name == PAST for item in incident.evidence)
    is_long_ago = window.now - incident.updated_at >= _LAPSE
    return incident.updated_at if by_past and is_long_ago else None


def _is_at_work(window: Window, subject: Subject) -> bool | None:
    """Tell whether a GPU draws enough power to become hot; None for a node, or without readings."""
    row = window.get("gpu", Span.RECENT).get(subject) if subject.kind == "gpu" else None
    watts = None if row is None else row[WATTS.column]
    if row is None or watts is None:
        return None
    long = window.get("gpu", Span.STEADY).get(subject)
    limit = None if long is None else long[LIMIT.column]
    return bool(watts >= (WORKING_WATTS if limit is None else WORKING_SHARE * limit))


def _rows_of(rows: Rows, incident: Incident) -> list[int]:
    """Return the rows of the GPUs that an incident is about: for a node those that it names and that
    are still there, else all of its nodes.
    """
    gpu = incident.subject.kind == "gpu"
    members = {incident.subject, *(() if gpu else map(Subject.parse, incident.members))}
    named = [rows.index.number(member) for member in sorted(members) if member.kind == "gpu"]
    found = [number for number in named if number is not None]
    if found or gpu:
        return found
    hosts = {member.of_node() for member in members}
    return [n for host in sorted(hosts) for n in rows.index.of_node(host).tolist()]
