"""`gpuvigil kubernetes`: watches one cluster from one place, and tells the hub whose its pods are."""

import threading
from argparse import Namespace
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from itertools import islice

from gpuvigil.clock import Clock, SystemClock
from gpuvigil.config import Config, KubernetesSettings, startup
from gpuvigil.errors import HubRefused, HubUnavailable
from gpuvigil.hub_client import Hub
from gpuvigil.hub_client.tls import trust
from gpuvigil.log import Log
from gpuvigil.model import (
    Allocation,
    AllocationState,
    Job,
    Record,
    RecordKind,
    ScheduledNode,
    Scheduler,
    Subject,
)
from gpuvigil.model.record import readable
from gpuvigil.schedulers.kubernetes_api import (
    ApiError,
    ApiServer,
    Unauthorized,
    api_server,
    api_url,
)
from gpuvigil.schedulers.node_turns import NodeTurns

from ..scheduler_token import scheduler_token
from . import objects
from .cluster_state import AllocationBook, JobBook, Labels, NodeBook, Owned, alive
from .mirror import NOT_ASKED, Copy, Mirror
from .objects import Pod
from .workloads import Workloads

log = Log("kubernetes")

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
_NAME = "kubernetes"  # whoever of several pods watches, its records are of one place
_ROUND_SECONDS = 5.0
_SETTLE_SECONDS = 0.5  # changes come in crowds
_REPORT_SECONDS = 60.0
_REST_SECONDS = 2.0
_OPEN = ("PENDING", "RUNNING")
_MOST = 100_000
_AT_ONCE = 500  # records of one request
_UNKNOWN_TOKEN = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class Watcher:
    """One cluster: its copies, its books, and what the hub is still to be told."""

    def __init__(
        self, cluster: str, settings: KubernetesSettings, api: ApiServer, clock: Clock
    ) -> None:
        self._told_by = Subject(cluster=cluster, node=_NAME)
        self._labels = Labels.of(settings)
        self._clock = clock
        self.changed = threading.Event()
        self.pods: Mirror[Pod] = Mirror(api, PODS, objects.pod, self.changed.set)
        self.nodes: Mirror[ScheduledNode] = Mirror(api, NODES, objects.node, self.changed.set)
        self._workloads = Workloads(api)
        self._jobs = JobBook(self._told_by, self._labels)
        self._scheduled = NodeBook()
        self._turns = NodeTurns()
        self._allocations = AllocationBook(cluster, self._labels)
        self._lock = threading.Lock()
        self._received: list[Allocation] = []
        self._last: Scheduler | None = None
        self._last_sent = 0.0  # monotonic
        self._unknown: set[str] = set()  # uids of pods whose workload is not known yet

    def resume(self, jobs: Iterable[Job], reports: Iterable[Scheduler] = ()) -> None:
        """Take up the jobs that had not ended when a watcher last ran, and what it said last of the nodes."""
        for before in reports:
            if before.told_by == self._told_by:
                self._turns.resume(before, self._clock.now())
        ours = [job for job in jobs if job.told_by == self._told_by]
        self._jobs = JobBook(self._told_by, self._labels, ours)
        self._allocations = AllocationBook(self._told_by.cluster, self._labels, ours)

    def add_allocations(self, allocations: Iterable[Allocation]) -> None:
        """What the hub has got; from any thread."""
        with self._lock:
            self._received += allocations
        self.changed.set()

    def pending_records(self) -> tuple[Record, ...]:
        """What the hub is to be told now."""
        now = self._clock.now()
        with self._lock:
            heard, self._received = self._received, []
        for allocation in heard:
            self._allocations.add(allocation)
        pods, nodes = self.pods.copy(), self.nodes.copy()
        why = pods.why or nodes.why
        if why == NOT_ASKED:
            return ()  # in a moment more is known
        records: list[Record] = []
        if not why:
            try:
                owned, unknown = self._owned(pods)
            except Unauthorized as error:
                why = str(error)
            else:
                records += [job.to_record() for job in self._jobs.update(owned, now, unknown)]
                given = self._allocations.update(owned, now)
                records += [allocation.to_record() for allocation in given]
        return (*records, *self._scheduler(why, pods, nodes))

    def _owned(self, pods: Copy[Pod]) -> tuple[list[Owned], set[str]]:
        """Pods with their workloads, and the namespaces of those whose workload is not known yet."""
        self._workloads.begin()
        owned, unknown, why = list[Owned](), dict[str, Pod](), ""
        for pod in alive(pods.objects):
            try:
                owned.append(Owned(pod, self._workloads.of(pod)))
            except Unauthorized:
                raise
            except ApiError as error:
                unknown[pod.uid], why = pod, str(error)
        news = [pod.full_name for uid, pod in unknown.items() if uid not in self._unknown]
        if news:
            log.warning("pods' workloads are not known yet", pod=news[0], count=len(news), why=why)
        self._unknown = set(unknown)
        self._workloads.forget_unused()
        return owned, {pod.namespace for pod in unknown.values()}

    def _scheduler(
        self, why: str, pods: Copy[Pod], nodes: Copy[ScheduledNode]
    ) -> tuple[Record, ...]:
        """When it changes, and every minute."""
        now, last = self._clock.now(), self._last
        answered = now if not why else last.answered_at if last is not None else None
        told: tuple[ScheduledNode, ...] | None = None
        left: tuple[ScheduledNode, ...] = ()
        if not why:
            here = self._scheduled.update(nodes.objects.values(), pods.objects.values(), now)
            told, left = self._turns.update(here, now)
        said = Scheduler(
            told_by=self._told_by, at=now, why=why, answered_at=answered, nodes=told, left=left
        )
        if (
            last is not None
            and (last.why, last.nodes) == (why, told)
            and self._clock.monotonic() - self._last_sent < _REPORT_SECONDS
        ):
            return ()
        self._last, self._last_sent = said, self._clock.monotonic()
        return (said.to_record(),)


def _follow(hub: Hub, watcher: Watcher, stop: threading.Event) -> None:
    """Hear of every allocation; from the beginning again after the hub was away."""
    held, ended = [AllocationState.HELD.value], [AllocationState.ENDED.value]
    kind, sequence = RecordKind.ALLOCATION, -1
    while not stop.is_set():
        try:
            if sequence < 0:
                sequence = hub.changes(-1, {kind}).sequence
                for states in (held, ended):
                    watcher.add_allocations(_read(hub.records(kind, states=states, limit=_MOST)))
            found = hub.changes(sequence, {kind})
            sequence = found.sequence
            watcher.add_allocations(_read(found.records))
        except (HubUnavailable, HubRefused):
            sequence = -1
            stop.wait(_REST_SECONDS)


def _read(records: Iterable[Record]) -> list[Allocation]:
    return list(readable(records, Allocation.from_record))


def _run(config: Config, _: Namespace, stop: threading.Event) -> None:
    settings, clock = config.kubernetes, SystemClock()
    cluster, before = config.collector.cluster, config.hub.service_token_file
    token = scheduler_token(config.hub, cluster, "kubernetes", before)
    hubs = [Hub(config.hub.url, token.read, trust=trust(config.hub)) for _ in range(2)]
    api = api_server(settings)
    watcher = Watcher(cluster, settings, api, clock)
    log.info("watching", cluster=cluster, api=api_url(settings))
    for name, run, arguments in (
        ("pods", watcher.pods.run, (stop,)),
        ("nodes", watcher.nodes.run, (stop,)),
        ("allocations", _follow, (hubs[1], watcher, stop)),
    ):
        threading.Thread(target=run, args=arguments, name=name, daemon=True).start()
    _ship(hubs[0], watcher, stop, token.todo)


def _ship(hub: Hub, watcher: Watcher, stop: threading.Event, token_todo: str) -> None:
    """Keep telling the hub; while it is away what is newest of each record waits."""
    waiting: dict[str, Record] = {}
    resumed, away = False, ""
    while not stop.is_set():
        try:
            if not resumed:
                found = hub.records(RecordKind.JOB, states=_OPEN, limit=_MOST)
                watcher.resume(readable(found, Job.from_record), _last_reports(hub))
                resumed = True
            waiting |= {record.id: record for record in watcher.pending_records()}
            if waiting:
                write(hub, waiting)
            if away:
                log.info("the hub is there again")
            away = ""
        except (HubUnavailable, HubRefused) as error:
            if not away:
                refused = isinstance(error, HubRefused) and error.status in _UNKNOWN_TOKEN
                todo = {"todo": token_todo} if refused else {}
                log.warning("the hub cannot be told", why=str(error), **todo)
            away = str(error)
            stop.wait(_REST_SECONDS)
        watcher.changed.wait(_ROUND_SECONDS)
        stop.wait(_SETTLE_SECONDS)
        watcher.changed.clear()


def _last_reports(hub: Hub) -> Iterable[Scheduler]:
    """What was said last of the nodes; a hub that is older lets no scheduler's token read it."""
    try:
        return readable(hub.records(RecordKind.SCHEDULER), Scheduler.from_record)
    except HubRefused:
        return ()


def write(hub: Hub, waiting: dict[str, Record]) -> None:
    """Write what waits and take it out, part by part; a record that the hub refuses is dropped and said.

    HubUnavailable, and HubRefused that is no record's fault: what is left still waits.
    """
    refused: dict[str, HubRefused] = {}
    try:
        while waiting:
            _write(hub, tuple(islice(waiting.values(), _AT_ONCE)), waiting, refused)
    finally:
        for first, error in islice(refused.items(), 1):
            log.warning(
                "the hub refuses records: dropped", count=len(refused), first=first, why=str(error)
            )


def _write(
    hub: Hub, part: Sequence[Record], waiting: dict[str, Record], refused: dict[str, HubRefused]
) -> None:
    """All of a part or, since the hub keeps all or none, its halves until who is at fault is alone."""
    try:
        hub.write_records(part)
    except HubRefused as error:
        if not _is_of_a_record(error):
            raise
        if len(part) > 1:
            half = len(part) // 2
            _write(hub, part[:half], waiting, refused)
            _write(hub, part[half:], waiting, refused)
            return
        refused[part[0].id] = error
    for record in part:
        del waiting[record.id]


def _is_of_a_record(error: HubRefused) -> bool:
    """Any other refusal may pass: a token that rotates, a proxy that is set up wrongly."""
    too_large = error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE  # whoever on the way says so
    return too_large or (error.status == HTTPStatus.BAD_REQUEST and bool(error.details))


def main(arguments: Sequence[str]) -> int:
    """Watch until SIGTERM; returns the exit code."""
    parser = startup.parser("kubernetes", "Watch a Kubernetes cluster from one place.")
    return startup.run_service(parser, arguments, _run)
