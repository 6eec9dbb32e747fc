"""The fleet at one moment as the pages show it, asked for once."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuvigil.config import AnalyzerSettings
from gpuvigil.hub_client import Hub
from gpuvigil.model import Allocation, Inventory, Subject
from gpuvigil.schedulers.jobs import Jobs, jobs_since, with_job_details

from ..data.hub_queries import load, numbers
from ..data.snapshot import Snapshot
from ..data.views import FleetView, fleet_view
from ..model.cluster import ClusterView
from ..model.facts import Facts
from ..model.newest_rows import CELL_FIELDS

# How far back ended jobs are read, for allocations whose end their node has not reported.
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetNow:
    """The view of the fleet, and the allocations behind it by GPU."""

    view: FleetView
    allocations: dict[tuple[str, str, str], tuple[Allocation, ...]]
    clusters: tuple[ClusterView, ...]  # the requested ones, real ones first
    jobs: Jobs = field(default_factory=dict)  # jobs of the clusters whose scheduler is asked
    inventories: tuple[Inventory, ...] = ()

    @property
    def now(self) -> datetime:
        return self.view.now

    def of(self, gpu: Subject) -> tuple[Allocation, ...]:
        """Return the current allocations of a GPU."""
        return self.allocations.get((gpu.cluster, gpu.node, gpu.gpu or ""), ())


def fetch(hub: Hub, settings: AnalyzerSettings, cluster: str | None = None) -> FleetNow:
    """Ask for the fleet now; HubUnavailable, HubRefused or StoreError if the hub or the store does not answer.

    The notices of incidents are not read, since they would take one query for each incident.
    """
    book = load(hub, messages=False)
    first = Facts(
        now=datetime.now().astimezone(), silent_after_seconds=settings.silent_after_seconds
    )
    facts, _ = numbers(hub, book.onto(first), CELL_FIELDS)
    return with_jobs(moment_of(facts, settings, cluster), jobs_since(hub, None, facts.now - _DAY))


def on_pages(hub: Hub, snapshot: Snapshot, settings: AnalyzerSettings) -> FleetNow:
    """Return the fleet as all pages show it now; only jobs are asked for.

    Before the first view, everything is asked for. Raises the errors of `look`.
    """
    view = snapshot.view()
    if not view.clusters:
        return fetch(hub, settings)
    moment = _moment(view, snapshot.allocations(), snapshot.inventories().values(), None)
    return with_jobs(moment, jobs_since(hub, None, view.now - _DAY))


def with_jobs(moment: FleetNow, jobs: Jobs) -> FleetNow:
    """Return the moment with allocations completed by what the scheduler's controller says of the jobs."""
    told = {
        gpu: tuple(with_job_details(one, jobs) for one in held)
        for gpu, held in moment.allocations.items()
    }
    return replace(moment, allocations=told, jobs=jobs)


def moment_of(facts: Facts, settings: AnalyzerSettings, cluster: str | None = None) -> FleetNow:
    """Return what is shown of `facts`, of all clusters or one."""
    view = fleet_view(facts, settings, facts.now)
    return _moment(view, facts.allocations, facts.inventories, cluster)


def _moment(
    view: FleetView,
    allocations: Iterable[Allocation],
    inventories: Iterable[Inventory],
    cluster: str | None,
) -> FleetNow:
    held: dict[tuple[str, str, str], tuple[Allocation, ...]] = {}
    for one in allocations:
        key = one.subject.cluster, one.subject.node, one.subject.gpu or ""
        held[key] = (*held.get(key, ()), one)
    chosen = [one for one in view.clusters if cluster in {None, one.name}]
    return FleetNow(
        view=view,
        inventories=tuple(inventories),
        allocations=held,
        clusters=tuple(sorted(chosen, key=lambda one: (one.simulated, one.name))),
    )
