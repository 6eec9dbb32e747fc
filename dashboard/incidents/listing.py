"""The list of incidents: open ones, ended ones, and how many there are of each kind; pure."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain

from gpuvigil.faults import FAULTS
from gpuvigil.lifecycle import State
from gpuvigil.model import Incident, Severity
from gpuvigil.numbers_in_words import counted, natural

from ..data.attention import Attention
from ..model.fold import Fold, folds, rows
from ..model.incident_place import node_names
from .filters import Filters

MOST_SHOWN = 200
MOST_NODES = 6
# A longer title, in characters, is not used as the name of a filter.
LONGEST_CHIP = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One incident in the list."""

    id: str
    title: str
    label: str
    severity: Severity
    state: str
    fault: str
    cluster: str
    nodes: tuple[str, ...]  # every one that it covers
    simulated: bool
    since: datetime
    ended_at: datetime | None
    impact: str
    taken_by: str
    text: str  # all texts that a search looks at, in lower case
    holders: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    out_of_service: str = ""  # why its nodes are, so that nobody is notified
    item: Attention | None = None  # only for open ones

    @property
    def delivery(self) -> tuple[str, ...]:
        """A line per channel on the delivery status, for open incidents."""
        channels = self.item.delivery if self.item else ()
        return tuple(f"{one.channel}: {one.text}" for one in channels)

    @property
    def is_open(self) -> bool:
        return self.ended_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One value of a filter, with the number of incidents that it would show."""

    name: str
    value: str
    count: int
    chosen: bool
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What the list shows; `more` ended incidents that match the filters are not shown."""

    open_rows: tuple[Entry, ...]  # of each fold only the first
    past: tuple[Entry, ...]
    real: int  # open ones that match, shown or not, without simulated ones
    simulated: int
    left: tuple[int, int]  # real and simulated open ones that are not shown
    folds: Mapping[str, Fold]  # by the IDs of the incidents in them
    more: int
    choices: dict[str, tuple[Choice, ...]]
    filters: Filters


def entry(incident: Incident, item: Attention | None = None) -> Entry:
    """Return an incident's entry in the list; `item` is given for open ones."""
    label = incident.label or incident.subject.key
    impact, out = incident.impact, incident.out_of_service
    nodes = node_names(incident.subject, incident.members)
    why_out = "" if out is None else out.reason
    said = (
        incident.title,
        label,
        incident.subject.key,
        incident.fault,
        incident.id,
        incident.acknowledged_by,
        why_out,
        *nodes,
        *impact.holders,
        *impact.users,
    )
    return Entry(
        id=incident.id,
        title=incident.title,
        label=label,
        severity=incident.severity,
        state=incident.state,
        fault=incident.fault,
        cluster=incident.subject.cluster,
        nodes=nodes,
        simulated=incident.simulated,
        since=incident.since,
        ended_at=incident.resolved_at,
        impact=impact.text
        or (f"{counted(impact.gpus, 'GPU')} blocked" if impact.gpus else "no GPU is blocked"),
        taken_by=incident.acknowledged_by,
        text="\n".join(said).casefold(),
        holders=impact.holders,
        users=impact.users,
        out_of_service=why_out if incident.resolved_at is None else "",
        item=item,
    )


def open_entry(item: Attention) -> Entry:
    """Return an open incident's entry, with who was told of it."""
    return entry(item.incident, item)


SHOWS: dict[str, tuple[str, Callable[[Entry], bool]]] = {
    "": ("All", lambda _: True),
    "active": ("Open", lambda one: one.is_open),
    "open": ("Not acknowledged", lambda one: one.is_open and one.state != State.ACKNOWLEDGED.value),
    "acknowledged": ("Acknowledged", lambda one: one.state == State.ACKNOWLEDGED.value),
    "flapping": ("Flapping", lambda one: one.state == State.FLAPPING.value),
    "past": ("Resolved", lambda one: not one.is_open),
}


def listing(open_entries: Sequence[Entry], past: Iterable[Entry], filters: Filters) -> Listing:
    """Return the list: open ones in the given order, then ended ones, newest end first.

    Each filter's counts are of the incidents that pass all other filters. Real ones come before simulated ones.
    Who looks for a fault, a node or a text gets every incident in a row of its own.
    """
    known = {one.id for one in open_entries}
    over = sorted(
        (one for one in past if one.id not in known and one.ended_at is not None),
        key=lambda one: (one.simulated, -_seconds(one.ended_at), one.id),
    )
    everything = [*open_entries, *over]
    fitting = _fitting(everything, filters)
    stand = [one for one in fitting if one.is_open]
    past = [one for one in fitting if not one.is_open]
    looks = filters.fault or filters.node or filters.q
    found = {} if looks else folds(one.item.incident for one in stand if one.item is not None)
    shown = rows(stand, found)
    left = [it for one in shown[MOST_SHOWN:] for it in _all_of(one, found)]
    return Listing(
        open_rows=tuple(shown[:MOST_SHOWN]),
        past=tuple(past[:MOST_SHOWN]),
        real=sum(not one.simulated for one in stand),
        simulated=sum(one.simulated for one in stand),
        left=(sum(not it.simulated for it in left), sum(it.simulated for it in left)),
        folds=found,
        more=len(past[MOST_SHOWN:]),
        choices=_choices(everything, filters),
        filters=filters,
    )


def _all_of(one: Entry, found: Mapping[str, Fold]) -> Sequence[Entry | Incident]:
    return found[one.id].incidents if one.id in found else (one,)


def _seconds(at: datetime | None) -> float:
    return 0.0 if at is None else at.timestamp()


_PARTS: dict[str, Callable[[Entry], Collection[str]]] = {
    "severity": lambda one: (one.severity.value,),
    "fault": lambda one: (one.fault,),
    "cluster": lambda one: (one.cluster,),
    "node": lambda one: one.nodes,
}


def _fitting(everything: Sequence[Entry], filters: Filters, leaving_out: str = "") -> list[Entry]:
    """Return the entries that pass all filters except the one named `leaving_out`."""
    found: Iterable[Entry] = everything
    for name, test in _tests(filters):
        if name != leaving_out:
            found = filter(test, found)
    return list(found)


def _tests(filters: Filters) -> Iterator[tuple[str, Callable[[Entry], bool]]]:
    """Yield name and test of each filter that is set; mostly none is, which keeps long lists fast."""
    if filters.show in SHOWS and filters.show:
        yield "show", SHOWS[filters.show][1]
    for name, part in _PARTS.items():
        if wanted := getattr(filters, name):
            yield name, partial(_has, part, wanted)
    if words := filters.q.casefold().split():
        yield "q", lambda one: all(word in one.text for word in words)


def _has(part: Callable[[Entry], Collection[str]], wanted: str, one: Entry) -> bool:
    return wanted in part(one)


def _choices(everything: Sequence[Entry], filters: Filters) -> dict[str, tuple[Choice, ...]]:
    shows = _fitting(everything, filters, "show")
    found = {
        "show": tuple(
            _choice("show", name, value, sum(map(test, shows)), filters)
            for value, (name, test) in SHOWS.items()
        )
    }
    for name, part in _PARTS.items():
        fitting = _fitting(everything, filters, name)
        counts = Counter(chain.from_iterable(map(part, fitting)))
        chosen = getattr(filters, name)
        if chosen:
            counts.setdefault(chosen, 0)
        # A filter with a single value is not offered.
        values = _order(name, counts, chosen) if len(counts) > 1 or chosen else []
        found[name] = tuple(
            _choice(name, _name(name, value, everything), value, counts[value], filters)
            for value in values
        )
    return found


def _order(name: str, counts: Counter[str], chosen: str) -> list[str]:
    if name == "severity":
        return sorted(counts, key=lambda it: [*map(str, _SEVERITIES), it].index(it))
    if name == "node":
        # Only the nodes with most incidents; the search finds the others.
        return sorted(counts, key=lambda it: (it != chosen, -counts[it], natural(it)))[:MOST_NODES]
    return sorted(counts, key=lambda it: (-counts[it], natural(it)))


_SEVERITIES = [severity.value for severity in Severity]


def _choice(name: str, label: str, value: str, count: int, filters: Filters) -> Choice:
    """Return a choice whose link sets the filter, or clears it if it is already set."""
    chosen = getattr(filters, name) == value
    wanted = filters.set(**{name: "" if chosen else value})
    return Choice(name=label, value=value, count=count, chosen=chosen, href=wanted.href)


def _name(name: str, value: str, everything: Iterable[Entry]) -> str:
    """Return a value's name; for a fault the title of its incidents, if they all have the same."""
    if name != "fault" or value not in FAULTS:
        return value
    titles = {one.title for one in everything if one.fault == value}
    own = titles.pop() if len(titles) == 1 else ""
    return own if 0 < len(own) <= LONGEST_CHIP else FAULTS[value].title
