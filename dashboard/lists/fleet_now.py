"""The fleet at one moment, as the pages show it, asked for once."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuvigil.config import AnalyzerSettings
from gpuvigil.hub_client import Hub
from gpuvigil.model import Allocation, Inventory, Subject
from gpuvigil.schedulers.jobs import Jobs, filled, jobs_since

from ..data.hub_queries import load, numbers
from ..data.snapshot import Snapshot
from ..data.views import FleetView, fleet_view
from ..model.cluster import ClusterView
from ..model.facts import Facts
from ..model.newest_rows import CELL_FIELDS

# A job whose end its node did not tell is still held against it for so long.
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The view, and the allocations behind it by GPU."""

    view: FleetView
    allocations: dict[tuple[str, str, str], tuple[Allocation, ...]]
    clusters: tuple[ClusterView, ...]  # those that were asked for and have nodes, real ones first
    jobs: Jobs = field(default_factory=dict)  # as far as a scheduler is asked
    inventories: tuple[Inventory, ...] = ()

    @property
    def now(self) -> datetime:
        return self.view.now

    def of(self, gpu: Subject) -> tuple[Allocation, ...]:
        """Who holds a GPU now."""
        return self.allocations.get((gpu.cluster, gpu.node, gpu.gpu or ""), ())


def look(hub: Hub, settings: AnalyzerSettings, cluster: str | None = None) -> Moment:
    """HubUnavailable, HubRefused or StoreError when the hub or the store does not answer.

    Who was told of each incident is a question for each, and nobody asks it here.
    """
    book = load(hub, messages=False)
    first = Facts(
        now=datetime.now().astimezone(), silent_after_seconds=settings.silent_after_seconds
    )
    facts, _ = numbers(hub, book.onto(first), CELL_FIELDS)
    return with_jobs(moment_of(facts, settings, cluster), jobs_since(hub, None, facts.now - _DAY))


def on_pages(hub: Hub, snapshot: Snapshot, settings: AnalyzerSettings) -> Moment:
    """As all pages show it now: the hub is asked for jobs alone.

    Before there is a first view it is asked for everything. Raises as `look` does.
    """
    view = snapshot.view()
    if not view.clusters:
        return look(hub, settings)
    moment = _moment(view, snapshot.allocations(), snapshot.inventories().values(), None)
    return with_jobs(moment, jobs_since(hub, None, view.now - _DAY))


def with_jobs(moment: Moment, jobs: Jobs) -> Moment:
    """The moment with what a scheduler's controller says of its jobs."""
    told = {
        gpu: tuple(filled(one, jobs) for one in held) for gpu, held in moment.allocations.items()
    }
    return replace(moment, allocations=told, jobs=jobs)


def moment_of(facts: Facts, settings: AnalyzerSettings, cluster: str | None = None) -> Moment:
    """What is shown of `facts`."""
    view = fleet_view(facts, settings, facts.now)
    return _moment(view, facts.allocations, facts.inventories, cluster)


def _moment(
    view: FleetView,
    allocations: Iterable[Allocation],
    inventories: Iterable[Inventory],
    cluster: str | None,
) -> Moment:
    held: dict[tuple[str, str, str], tuple[Allocation, ...]] = {}
    for one in allocations:
        key = one.subject.cluster, one.subject.node, one.subject.gpu or ""
        held[key] = (*held.get(key, ()), one)
    chosen = [one for one in view.clusters if cluster in {None, one.name}]
    return Moment(
        view=view,
        inventories=tuple(inventories),
        allocations=held,
        clusters=tuple(sorted(chosen, key=lambda one: (one.simulated, one.name))),
    )
