"""Records to silence an incident, hand it over, or close it as a false alarm; pure."""

import hashlib
import re
from datetime import datetime, timedelta
from urllib.parse import urlencode

from gpuvigil.matching.matchers import Matcher, labels_of
from gpuvigil.matching.silences import made
from gpuvigil.model import Acknowledgement, Incident, Opinion, Record, Silence
from gpuvigil.web.page_links import SILENCES

# A rule that is wrong about a place is seldom right about it a day later, but it is not muted for ever.
MUTED = timedelta(days=7)
FALSE = "closed as false"
# The most places of a kind that a silence names; with more it names this incident instead.
_MOST_NAMED = 8
# As long as the silence that a message's link offers; it ends within the shift.
SILENCED = timedelta(hours=4)
_PLACES = ("node", "gpu", "device", "port")


def matchers(incident: Incident) -> list[str]:
    """Return matchers of a silence for exactly this fault at this place."""
    labels = labels_of(incident)
    if any(len(labels[name]) > _MOST_NAMED for name in _PLACES):
        return [str(Matcher(label="incident", operator="=", value=incident.id))]
    named: list[tuple[str, tuple[str, ...]]] = [
        ("fault", (incident.fault,)),
        ("cluster", (incident.subject.cluster,)),
    ]
    named += [(name, tuple(labels[name])) for name in _PLACES if labels[name]]
    return [str(_matcher(name, values)) for name, values in named]


def _matcher(label: str, values: tuple[str, ...]) -> Matcher:
    if len(values) == 1:
        return Matcher(label=label, operator="=", value=values[0])
    return Matcher(label=label, operator="=~", value="|".join(map(re.escape, values)))


def silence_link(incident: Incident) -> str:
    """Return a link to the page of silences with its form filled in."""
    reason = f"{incident.title}, {incident.label or incident.subject.key}"
    query = {"matchers": "\n".join(matchers(incident)), "reason": reason[:300]}
    return f"{SILENCES}?{urlencode(query)}"


def silenced(incident: Incident, by: str, at: datetime, form: str) -> Silence:
    """Return a silence for this fault at this place for some hours; sent twice by a form, it stays one."""
    reason = f"{incident.title}, {incident.label or incident.subject.key}"
    id_ = f"s-{_digest(incident.id, form)[:8]}"
    return made(matchers(incident), by, reason[:300], at, SILENCED, at, id_=id_)


def handed_over(incident: Incident, by: str, to: str, note: str, at: datetime) -> Acknowledgement:
    """Return the record by which `by` hands the incident to `to`; it also counts as an acknowledgement."""
    return Acknowledgement(
        id=_id(incident, "to", by, to, note),
        incident=incident.id,
        subject=incident.subject,
        by=by,
        note=note,
        at=at,
        to=to,
    )


def false_alarm(incident: Incident, by: str, note: str, at: datetime) -> list[Record]:
    """Return the records of a false alarm: a vote against the rule, a history entry, and a silence here."""
    said = f"{FALSE}; muted for {MUTED.days} days" + (f": {note}" if note else "")
    silence = made(
        matchers(incident),
        by,
        f"false alarm: {incident.title}",
        at,
        MUTED,
        at,
        id_=f"s-{_digest(incident.id, FALSE)[:8]}",
    )
    opinion = Opinion.given(incident, by, useful=False, at=at)
    taken = Acknowledgement(
        id=_id(incident, FALSE, by, note),
        incident=incident.id,
        subject=incident.subject,
        by=by,
        note=said,
        at=at,
    )
    return [opinion.to_record(), taken.to_record(), silence.to_record()]


def _id(incident: Incident, *parts: str) -> str:
    return f"{incident.id}:{_digest(incident.id, *parts)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
