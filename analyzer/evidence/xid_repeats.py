"""When a program's Xid comes back on one GPU more often than its users' programs explain.

Programs have bugs, and short jobs of many users on one GPU show them there. So the count on a GPU
is compared with what the same users' jobs show elsewhere in the cluster.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from accounting.chance import at_least
from gpuvigil.model import Allocation, Event, EventKind, Evidence, Subject

from ..window.holdings import holder_key
from ..window.window import Window

EXCEPTION, PAGE_FAULT = 13, 31
# A GPU's processor is named by its GPC and TPC: an H100 has 66 of them (NVIDIA H100 architecture, 132
# SMs), so an exception falls on one of so many places, a page fault on the GPU.
PLACES: Mapping[int, int] = {EXCEPTION: 66, PAGE_FAULT: 1}
# NVIDIA's catalogue: an Xid that comes back within a day is no longer the program's. It gives no
# number of programs; fewer users than these mean nothing, however rarely theirs fail.
_DAY, _LEAST = timedelta(hours=24), {EXCEPTION: 2, PAGE_FAULT: 4}
# Among all GPUs of a cluster, chance may cause it at most once in a hundred days.
_BY_CHANCE = 0.01
# Until a cluster has shown its own rate, one job in fifty is taken to fail like that; this counts
# as much as `_OF_CLUSTER` jobs, and the cluster's rate as `_OF_USER` of a user's jobs.
_USUAL, _OF_CLUSTER, _OF_USER = 0.02, 20.0, 10.0
# The end of a job may be recorded before its Xid.
END = timedelta(minutes=5)
_PLACE = re.compile(r"GPC (\d+), TPC (\d+)")
_Hit = tuple[Subject, str, str]  # a GPU, a user, and a job of theirs


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """How many users' jobs hit one GPU, or a part of it, within a day, and how likely that is."""

    users: int
    expected: float  # users, by how often their jobs are hit elsewhere
    chance: float  # that any GPU of the cluster is hit by so many

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return (
            Evidence(
                name="users with it in 24 h",
                value=str(self.users),
                limit=f"{self.expected:.2g} expected by their jobs elsewhere",
            ),
            Evidence(name="by chance on any GPU", value=f"{self.chance:.1g} times a day"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    """The hits of one code in a day's jobs of one cluster."""

    sizes: Mapping[str, int]  # GPUs, by job
    jobs: Mapping[str, int]  # by user
    hits: Mapping[str, int]  # by user: how many GPUs of their jobs were hit
    gpus: int


def repeats(window: Window, gpu: Subject, code: int) -> Repeats | None:
    """Return what speaks against a program as the cause of 13 or 31; None while it may be."""
    if code not in PLACES:
        return None
    held = _runs(window, gpu)
    own = [event for event in _of_code(window, gpu.of_node(), code) if event.subject == gpu]
    places: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for event in own:
        one, place = _held_at(held, event.at), _place(event)
        if one is not None and place is not None:
            places[place].add(_user(one))
    users = max(map(len, places.values()), default=0)
    if users < _LEAST[code]:
        return None
    cluster = (window.whole or window).once(_cluster, (gpu.cluster, code))
    expected = _expected(gpu, held, cluster, own) / PLACES[code]
    chance = at_least(users, expected) * cluster.gpus * PLACES[code]
    found = Repeats(users=users, expected=expected, chance=chance)
    return found if chance < _BY_CHANCE else None


def _expected(
    gpu: Subject, held: Sequence[Allocation], cluster: _Cluster, own: Iterable[Event]
) -> float:
    """Return the expected number of users hit on this GPU, from how often their jobs are elsewhere.

    In a job of many GPUs each of them is hit accordingly less often.
    """
    here = Counter(user for _, user, _ in _hits(own, {gpu.key: held}))
    elsewhere = sum(cluster.hits.values()) - sum(here.values())
    rate = (elsewhere + _USUAL * _OF_CLUSTER) / (sum(cluster.jobs.values()) + _OF_CLUSTER)
    share: dict[str, float] = defaultdict(float)
    for job, user in {(holder_key(a), _user(a)) for a in held}:
        share[user] += 1.0 / cluster.sizes[job]
    expected = 0.0
    for user, jobs in share.items():
        hits = cluster.hits.get(user, 0) - here[user]
        of_user = (hits + rate * _OF_USER) / (cluster.jobs[user] + _OF_USER)
        expected += -math.expm1(-of_user * jobs)
    return expected


def _cluster(window: Window, asked: tuple[str, int]) -> _Cluster:
    name, code = asked
    gpus = {key: held for key in window.allocations if (held := _of(window, key, name))}
    sizes = Counter(key for held in gpus.values() for key in {holder_key(a) for a in held})
    users = {holder_key(a): _user(a) for held in gpus.values() for a in held}
    events = [
        event
        for key in window.events
        if key.startswith(f"{name}/")
        for event in _of_code(window, Subject.parse(key), code)
    ]
    return _Cluster(
        sizes=sizes,
        jobs=Counter(users.values()),
        hits=Counter(user for _, user, _ in _hits(events, gpus)),
        gpus=len(gpus),
    )


def _of(window: Window, key: str, cluster: str) -> list[Allocation]:
    """Return a day's allocations of a GPU if it is in the cluster, else none."""
    return _runs(window, Subject.parse(key)) if key.startswith(f"{cluster}/") else []


def _runs(window: Window, gpu: Subject) -> list[Allocation]:
    day = window.now - _DAY
    held = window.allocations.get(gpu.key, ())
    return [a for a in held if a.ended_at is None or a.ended_at > day]


def _hits(events: Iterable[Event], held: Mapping[str, Iterable[Allocation]]) -> set[_Hit]:
    """Return the GPUs hit, with user and job; each GPU of a job counts once."""
    told = ((event, _held_at(held.get(event.subject.key, ()), event.at)) for event in events)
    return {(e.subject, _user(one), holder_key(one)) for e, one in told if one is not None}


def _of_code(window: Window, node: Subject, code: int) -> Iterable[Event]:
    xids = window.node_events(node, EventKind.XID)
    return (e for e in xids if e.xid == code and window.now - e.at < _DAY)


def _place(event: Event) -> tuple[str, ...] | None:
    """Return the part of the GPU that counts for the event's code, None if an exception names none."""
    if event.xid == PAGE_FAULT:
        return ()
    found = _PLACE.search(event.message)
    return None if found is None else found.groups()


def _held_at(held: Iterable[Allocation], at: datetime) -> Allocation | None:
    """Return the allocation that held a GPU at a time, None without one."""
    fits = (
        a for a in held if a.started_at <= at and (a.ended_at is None or at <= a.ended_at + END)
    )
    return next(fits, None)


def _user(allocation: Allocation) -> str:
    """Return the user of an allocation: jobs of one user may be one program, started again."""
    return allocation.user or str(allocation.holder)
