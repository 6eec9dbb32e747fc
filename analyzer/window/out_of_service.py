"""Which nodes their schedulers say are out of service on purpose: nobody is notified of their incidents.

Only the wish of a person or an autoscaler counts. A node that Slurm itself or a health check drains
is out because of a fault, which nobody may know of yet. Where it is unclear whose wish it is, an
incident from before or soon after may be the reason, and people are notified of it, but not of later ones.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuvigil.model import Incident, OutOfService, ScheduledNode, Scheduler, Subject
from gpuvigil.schedulers.out_of_service import (
    DELETED,
    NOT_RESPONDING,
    RUN_ON,
    SPEAKS_FOR,
    USUAL,
    Checks,
    may_be_ill,
    name_of,
    taken_out,
)

# A node that is going away may still send a body or two.
_LAST_WORDS = timedelta(minutes=10)
# Slurm sets a node down that did not answer for this long (SlurmdTimeout), and Kubernetes takes its pods away
# (tolerationSeconds of node.kubernetes.io/unreachable).
_SET_DOWN = timedelta(minutes=5)
# Health checks run every few minutes, and schedulers are asked every minute.
_ITS_REASON = timedelta(minutes=5)
# A deleted node is retired only after this long, as it may have been deleted by mistake.
_RETIRED_AFTER = timedelta(days=1)
# After this long a deleted node is forgotten, if its collector is not heard and no incident stands.
_FORGOTTEN = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """Why nodes are out of service, by cluster and short name.

    `unsure`: clusters of which nothing is known just now, so that incidents stay as they were.
    `doubted`: nodes that may be out because of a fault, and since when they are known to be out.
    `at`: the time of this state. `unnotified_for`: nobody is notified of a critical incident on those for so long.
    """

    why: Mapping[tuple[str, str], OutOfService] = field(default_factory=dict)
    doubted: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    unsure: frozenset[str] = frozenset()
    # Nodes that do not answer their scheduler. A silence that began after this time is another one.
    unheard: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    at: datetime | None = None
    unnotified_for: timedelta = USUAL.unnotified_for

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
        """Return why nobody is notified of an incident about all these nodes, None when people must be.

        `before`: why nobody was until now. `raised`: when it was found; a fault found before or soon
        after a node went out may be the reason, and people are notified unless nobody was so far.
        `stops_jobs`: it does so now, which people must hear of where jobs were to run to their end.
        `critical`: people hear of it in the end where nobody is known to have taken the node out.
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
        return raised is not None and self.at is not None and self.at - raised > self.unnotified_for

    def is_unheard(self, node: Subject, since: datetime) -> bool:
        """Tell whether the node's scheduler does not hear it either, since it fell silent at `since`."""
        before = self.unheard.get(name_of(node))
        return before is not None and before > since

    def is_gone(self, node: Subject) -> bool:
        """Tell whether the node was deleted and did not come back."""
        return _is_deleted(self.why.get(name_of(node)))


NOBODY = Away()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """One scheduler's last answer: why nodes are out of service, by cluster and short name."""

    at: datetime
    why: Mapping[tuple[str, str], OutOfService]
    doubted: Mapping[tuple[str, str], datetime] = field(default_factory=dict)  # since when


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerReports:
    """The last word of the schedulers of all clusters; each new record makes a new object."""

    newest: Mapping[str, Scheduler] = field(default_factory=dict)  # by the key of who told it
    answered: Mapping[str, _Known] = field(default_factory=dict)
    # Deleted nodes that did not come back, and since when; their scheduler forgets them.
    gone: Mapping[Subject, datetime] = field(default_factory=dict)
    checks: Checks = USUAL

    def with_record(self, report: Scheduler) -> "SchedulerReports":
        """Return the state after one more record; one older than its scheduler's last is ignored."""
        key = report.told_by.key
        last = self.newest.get(key)
        if last is not None and last.at > report.at:
            return self
        answered, gone = self.answered, self.gone
        if report.nodes is not None:
            known = _Known(at=report.at, why={}) if key not in answered else answered[key]
            reasons = {
                name_of(_subject(report, one)): taken_out(one, self.checks) for one in report.nodes
            }
            why = {name: reason for name, reason in reasons.items() if reason is not None}
            ill = {name_of(_subject(report, one)) for one in report.nodes if may_be_ill(one)}
            doubted = ill & why.keys()
            since = {name: known.doubted.get(name, report.at) for name in doubted}
            answered = {**answered, key: _Known(at=report.at, why=why, doubted=since)}
            here = {_subject(report, one) for one in report.nodes if "DELETED" not in one.states}
            left = {_subject(report, one) for one in report.nodes} - here
            # A node that was deleted before may have come back meanwhile, and is deleted anew.
            anew = {n for n in left if not _is_deleted(known.why.get(name_of(n)))}
            gone = {node: at for node, at in gone.items() if node not in here}
            gone |= dict.fromkeys(anew | (left - gone.keys()), report.at)
        newest = {**self.newest, key: report}
        return replace(self, newest=newest, answered=answered, gone=gone)

    def with_deleted(self, active: Iterable[Incident]) -> "SchedulerReports":
        """Add the deleted nodes of incidents: after a restart nothing else knows of old ones."""
        gone = {i.subject.of_node(): i.updated_at for i in active if _is_deleted(i.out_of_service)}
        return replace(self, gone={**gone, **self.gone})

    def without(self, now: datetime, known: Collection[str]) -> "SchedulerReports":
        """Forget nodes deleted long ago, except those in `known`: keys that are heard or told of."""
        old = {n for n, at in self.gone.items() if now - at > _FORGOTTEN and n.key not in known}
        if not old:
            return self
        return replace(self, gone={n: at for n, at in self.gone.items() if n not in old})

    def left(self, now: datetime) -> Mapping[tuple[str, str], datetime]:
        """Return nodes deleted a day ago, by name, with the last time one that left may be heard."""
        return {
            name_of(node): at + _LAST_WORDS
            for node, at in self.gone.items()
            if now - at >= _RETIRED_AFTER
        }

    def away(self, now: datetime, last_seen: Mapping[str, datetime]) -> Away:
        """Return which nodes are out of service at `now`; `last_seen`: by key, when it was last heard."""
        why = {
            name_of(node): DELETED
            for node, at in self.gone.items()
            if not _is_back(node, at, last_seen)
        }
        unsure: set[str] = set()
        doubted: dict[tuple[str, str], datetime] = {}
        unheard: dict[tuple[str, str], datetime] = {}
        for key, said in self.newest.items():
            known = self.answered.get(key)
            times = [at for at in (said.answered_at, known.at if known else None) if at is not None]
            if now - max(times, default=said.at) > SPEAKS_FOR:
                continue
            unheard |= {name_of(_subject(said, one)): at for one, at in _unheard(said)}
            if known is None:
                unsure.add(said.told_by.cluster)
            else:
                why |= known.why
                doubted |= known.doubted
        return Away(
            why=why,
            doubted=doubted,
            unsure=frozenset(unsure),
            unheard=unheard,
            at=now,
            unnotified_for=self.checks.unnotified_for,
        )


def why_out_of_service(
    away: Away,
    old: Incident | None,
    subject: Subject,
    members: Collection[str],
    raised: datetime,
    urgency: tuple[bool, bool],
) -> OutOfService | None:
    """Return why all nodes of an incident are out of service on purpose; None where one is not."""
    before = None if old is None else old.out_of_service
    # Most nodes are in service.
    if not (away or before) or not away.reason([subject.of_node()], before, raised, *urgency):
        return None
    keys = {*members, *(() if old is None else old.members)}
    nodes = sorted({subject.of_node(), *(Subject.parse(key).of_node() for key in keys)})
    return away.reason(nodes, before, raised, *urgency)


def _is_deleted(why: OutOfService | None) -> bool:
    return why is not None and why.state == DELETED.state


def _is_back(node: Subject, at: datetime, last_seen: Mapping[str, datetime]) -> bool:
    last = last_seen.get(node.key)
    return last is not None and last > at + _LAST_WORDS


def _unheard(report: Scheduler) -> list[tuple[ScheduledNode, datetime]]:
    """Return nodes that do not answer their scheduler, and before when the silence it means began.

    A word about a node that is not set down as well may mean a pause, as a late node's does: it counts where
    it comes long enough after the node was last heard.
    """
    nodes = [one for one in report.nodes or () if NOT_RESPONDING in one.states]
    return [
        (one, report.at - (timedelta(0) if "DOWN" in one.states else _SET_DOWN)) for one in nodes
    ]


def _subject(report: Scheduler, node: ScheduledNode) -> Subject:
    return Subject(cluster=report.told_by.cluster, node=node.name)
