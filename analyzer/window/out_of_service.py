"""Which nodes are out of service on purpose, as their schedulers say: what is told of them waits.

Only what a person or an autoscaler wants counts. What Slurm itself or a health check drains is taken
out because of a fault, and nobody may know of it yet. Where it cannot be told whose wish it is, what
shows before and soon after may be its reason, and does not wait; what comes later does.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuvigil.model import Incident, OutOfService, ScheduledNode, Scheduler, Subject
from gpuvigil.schedulers.out_of_service import (
    DELETED,
    RUN_ON,
    SPEAKS_FOR,
    USUAL,
    Checks,
    may_be_ill,
    name_of,
    taken_out,
)

# A node that goes may still send a body or two.
_LAST_WORDS = timedelta(minutes=10)
# Health checks run every few minutes, and schedulers are asked every minute.
_ITS_REASON = timedelta(minutes=5)
# A node that was deleted for so long is retired: it may have been deleted by mistake.
_RETIRED_AFTER = timedelta(days=1)
# A node that was deleted, of which no collector is heard and no incident stands, is forgotten.
_FORGOTTEN = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """Why nodes are out of service, by cluster and short name.

    `unsure`: clusters of which nothing is known just now, so that what was held stays held.
    `doubted`: since when those are known to be out that may be because of a fault. `at`: when this
    is asked; `held_for`: how long a critical is held on those.
    """

    why: Mapping[tuple[str, str], OutOfService] = field(default_factory=dict)
    doubted: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    unsure: frozenset[str] = frozenset()
    # Nodes that their scheduler does not hear, and when it said so.
    unheard: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    at: datetime | None = None
    held_for: timedelta = USUAL.held_for

    def __bool__(self) -> bool:
        return bool(self.why or self.unsure)

    def reason(
        self,
        nodes: Iterable[Subject],
        before: OutOfService | None = None,
        raised: datetime | None = None,
        stops_jobs: bool = False,
        critical: bool = False,
    ) -> OutOfService | None:
        """Why what is about all these nodes need not be told now, None when it must be.

        `before`: why it was not told until now. `raised`: when it was found, which may be the
        reason why a node is out; what is held already stays so. `stops_jobs`: it does now, which
        people must hear of where jobs were to go on to their end. `critical`: what is, is not held
        for good where nobody is known to have taken the node.
        """
        said: OutOfService | None = None
        for node in nodes:
            why = self.why.get(name_of(node), before if node.cluster in self.unsure else None)
            doubted = self.doubted.get(name_of(node))
            if doubted is not None and raised is not None and not before:
                why = why if raised > doubted + _ITS_REASON else None
            if doubted is not None and critical and self._is_long(raised):
                why = None
            if why is None or (stops_jobs and why.state in RUN_ON):
                return None
            said = said or why
        return said

    def _is_long(self, raised: datetime | None) -> bool:
        return raised is not None and self.at is not None and self.at - raised > self.held_for

    def is_unheard(self, node: Subject, since: datetime) -> bool:
        """Whether its scheduler said after `since` that it does not hear it either."""
        said = self.unheard.get(name_of(node))
        return said is not None and said > since

    def is_gone(self, node: Subject) -> bool:
        """Whether it was deleted, and did not come back."""
        return _is_deleted(self.why.get(name_of(node)))


NOBODY = Away()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """Why nodes are out of service, by name, when one scheduler answered last."""

    at: datetime
    why: Mapping[tuple[str, str], OutOfService]
    doubted: Mapping[tuple[str, str], datetime] = field(default_factory=dict)  # since when


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the schedulers of all clusters said last; each new record makes a new one."""

    newest: Mapping[str, Scheduler] = field(default_factory=dict)  # by who told it
    answered: Mapping[str, _Known] = field(default_factory=dict)
    # Nodes that were deleted, and since when: their scheduler forgets them, and they are not back.
    gone: Mapping[Subject, datetime] = field(default_factory=dict)
    checks: Checks = USUAL

    def with_record(self, said: Scheduler) -> "Told":
        """After one more word of a scheduler; an older one than the last changes nothing."""
        key = said.told_by.key
        last = self.newest.get(key)
        if last is not None and last.at > said.at:
            return self
        answered, gone = self.answered, self.gone
        if said.nodes is not None:
            known = _Known(at=said.at, why={}) if key not in answered else answered[key]
            reasons = {
                name_of(_subject(said, one)): taken_out(one, self.checks) for one in said.nodes
            }
            why = {name: reason for name, reason in reasons.items() if reason is not None}
            ill = {name_of(_subject(said, one)) for one in said.nodes if may_be_ill(one)}
            doubted = ill & why.keys()
            since = {name: known.doubted.get(name, said.at) for name in doubted}
            answered = {**answered, key: _Known(at=said.at, why=why, doubted=since)}
            here = {_subject(said, one) for one in said.nodes if "DELETED" not in one.states}
            left = {_subject(said, one) for one in said.nodes} - here
            # One that was deleted before may have come back meanwhile, and goes now.
            anew = {n for n in left if not _is_deleted(known.why.get(name_of(n)))}
            gone = {node: at for node, at in gone.items() if node not in here}
            gone |= dict.fromkeys(anew | (left - gone.keys()), said.at)
        newest = {**self.newest, key: said}
        return replace(self, newest=newest, answered=answered, gone=gone)

    def with_held(self, held: Iterable[Incident]) -> "Told":
        """After a restart: of nodes that were deleted long ago only what is held tells."""
        gone = {i.subject.of_node(): i.updated_at for i in held if _is_deleted(i.out_of_service)}
        return replace(self, gone={**gone, **self.gone})

    def without(self, now: datetime, known: Collection[str]) -> "Told":
        """Without nodes that were deleted long ago; `known`: those that somebody still speaks of."""
        old = {n for n, at in self.gone.items() if now - at > _FORGOTTEN and n.key not in known}
        if not old:
            return self
        return replace(self, gone={n: at for n, at in self.gone.items() if n not in old})

    def left(self, now: datetime) -> Mapping[tuple[str, str], datetime]:
        """The names of nodes that were deleted a day ago, and after when none is heard that left."""
        return {
            name_of(node): at + _LAST_WORDS
            for node, at in self.gone.items()
            if now - at >= _RETIRED_AFTER
        }

    def away(self, now: datetime, heard: Mapping[str, datetime]) -> Away:
        """Who is away at `now`; `heard`: when each node, by its key, was last heard of."""
        why = {
            name_of(node): DELETED
            for node, at in self.gone.items()
            if not _is_back(node, at, heard)
        }
        unsure: set[str] = set()
        doubted: dict[tuple[str, str], datetime] = {}
        unheard: dict[tuple[str, str], datetime] = {}
        for key, said in self.newest.items():
            known = self.answered.get(key)
            times = [at for at in (said.answered_at, known.at if known else None) if at is not None]
            if now - max(times, default=said.at) > SPEAKS_FOR:
                continue
            unheard |= {name_of(node): said.at for node in _unheard(said)}
            if known is None:
                unsure.add(said.told_by.cluster)
            else:
                why |= known.why
                doubted |= known.doubted
        held_for = self.checks.held_for
        return Away(
            why=why,
            doubted=doubted,
            unsure=frozenset(unsure),
            unheard=unheard,
            at=now,
            held_for=held_for,
        )


def why_held(
    away: Away,
    old: Incident | None,
    subject: Subject,
    members: Collection[str],
    raised: datetime,
    urgency: tuple[bool, bool],
) -> OutOfService | None:
    """Why nobody is told of an incident: all its nodes are out of service; else None."""
    before = None if old is None else old.out_of_service
    # Most nodes are in service.
    if not (away or before) or not away.reason([subject.of_node()], before, raised, *urgency):
        return None
    keys = {*members, *(() if old is None else old.members)}
    nodes = sorted({subject.of_node(), *(Subject.parse(key).of_node() for key in keys)})
    return away.reason(nodes, before, raised, *urgency)


def _is_deleted(why: OutOfService | None) -> bool:
    return why is not None and why.state == DELETED.state


def _is_back(node: Subject, at: datetime, heard: Mapping[str, datetime]) -> bool:
    last = heard.get(node.key)
    return last is not None and last > at + _LAST_WORDS


def _unheard(said: Scheduler) -> list[Subject]:
    """Nodes whose daemon does not answer Slurm: `*` behind the state, after SlurmdTimeout."""
    return [_subject(said, one) for one in said.nodes or () if "NOT_RESPONDING" in one.states]


def _subject(said: Scheduler, node: ScheduledNode) -> Subject:
    return Subject(cluster=said.told_by.cluster, node=node.name)
