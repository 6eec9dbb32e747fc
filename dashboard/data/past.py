"""The fleet at a moment of the past: the moment that an address asks for, and a snapshot of it."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from gpuvigil.clock import from_text
from gpuvigil.config import Config
from gpuvigil.errors import HubError
from gpuvigil.hub_client import Hub
from gpuvigil.metrics import GPU
from gpuvigil.model import Allocation, GpuIdentity, Inventory, Subject
from gpuvigil.store.external import store_of

from ..fleet import Fleet
from ..model.facts import Facts
from ..model.newest_rows import CELL_FIELDS, Row
from .freshness import unanswered
from .hub_queries import ARRIVAL, load, numbers
from .past_hub import Moment, PastHub
from .questions import FIRST_SECONDS, PATIENCE_SECONDS, CachedAnswer, QueryCache
from .snapshot import DrawnView, Snapshot
from .views import FleetView, fleet_view

# The past no longer changes, except for data that arrives late from a spool.
FRESH_SECONDS = 600.0
# How often a page asks again for an answer that took longer than it waited.
REFRESH_SECONDS = 5.0
# Nothing can be shown before the first answer, which takes some seconds for a large fleet.
FIRST_ANSWER_SECONDS = 20.0
# A more recent moment counts as now, since its rows may still be on their way.
LEAST_AGE = timedelta(seconds=30)
# The last row of a GPU that is up is not older than this.
_LINE_AGE = timedelta(minutes=2)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedMoment:
    """The moment that an address asks for, None for now, and what is wrong with the address."""

    at: datetime | None = None
    wrong: str = ""


def requested_moment(text: str, now: datetime, kept: timedelta) -> RequestedMoment:
    """Return the moment that an address's text asks for; `kept` is how long records are kept."""
    if not text:
        return RequestedMoment()
    try:
        at = from_text(text).replace(microsecond=0)
    except ValueError:
        said = "at must be a time like 2026-01-31T12:00:00Z"
        return RequestedMoment(wrong=f"The link's time cannot be read: {said}. This is now.")
    if at > now:
        return RequestedMoment(wrong="The link's time lies in the future. This is now.")
    if at < now - kept:
        days = f"{kept / timedelta(days=1):.0f} days"
        return RequestedMoment(
            wrong=f"The link's time is older than what is kept, {days}. This is now."
        )
    return RequestedMoment(at=at if now - at >= LEAST_AGE else None)


class PastQueryCache(QueryCache):
    """Questions about the past: answers stay fresh for long, as nothing changes any more."""

    def __init__(self, behind: QueryCache) -> None:
        self._behind = behind

    def ask(
        self,
        key: Hashable,
        ask: Callable[[Hub], _T],
        fresh_seconds: float,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        first_seconds: float = FIRST_SECONDS,
    ) -> CachedAnswer:
        """See `QueryCache.ask`."""
        return self._behind.ask(
            key,
            ask,
            max(fresh_seconds, FRESH_SECONDS),
            patience_seconds=patience_seconds,
            # Giving up earlier and asking again would bring no answer sooner.
            first_seconds=max(first_seconds, FIRST_SECONDS),
        )

    def forget(self, key: Hashable) -> None:
        """See `QueryCache.forget`."""
        self._behind.forget(key)

    def call(self, ask: Callable[[Hub], _T]) -> _T:
        """See `QueryCache.tell`; HubRefused for whatever is written."""
        return self._behind.call(ask)

    def close(self) -> None:
        """See `QueryCache.close`."""
        self._behind.close()


def query_cache_of(behind: QueryCache, at: datetime) -> PastQueryCache:
    """Return questions to the hub as it was at that moment."""
    known = Moment(at)
    return PastQueryCache(behind.wrapped_by(lambda hub: PastHub(hub, known)))


class PastSnapshot(Snapshot):
    """The fleet at a moment of the past, asked for once."""

    def __init__(self, questions: QueryCache, config: Config, at: datetime) -> None:
        self.refresh_seconds = REFRESH_SECONDS
        self._questions = questions
        self._config = config
        self._at = at

    def drawn(self, *, complete: bool = False) -> DrawnView:
        """See `Snapshot.drawn`."""
        try:
            said = self._questions.ask(
                "past", self._asked, FRESH_SECONDS, first_seconds=FIRST_ANSWER_SECONDS
            )
        except HubError as error:
            view = self.view_of(Facts(now=self._at, past=True), self._at, Fleet())
            why = unanswered("How it was is not known yet", error)
            return DrawnView(view=replace(view, warnings=(why,)), gpus=None, complete=False, at=0.0)
        found: DrawnView = said.value
        return found

    def _asked(self, hub: Hub) -> DrawnView:
        first = Facts(
            now=self._at,
            past=True,
            silent_after_seconds=self._config.analyzer.silent_after_seconds,
        )
        facts, gpus = numbers(hub, load(hub).onto(first), CELL_FIELDS)
        view = self.view_of(facts, self._at, Fleet())
        if isinstance(hub, PastHub):
            view = replace(view, warnings=(*view.warnings, *hub.cut))
        if not facts.last_seen and not gpus.num_rows:
            # Warnings about silent nodes would be wrong: nobody knows which ones were silent.
            days = f"{self._config.hub.telemetry_days:g} days"
            why = (
                f"No measurements of this time: none were recorded, or they are older than {days}."
            )
            view = replace(view, warnings=(f"{why} Incidents and other records are shown.",))
        return DrawnView(view=view, gpus=gpus, complete=True, at=0.0, facts=facts)

    def as_it_is(self, drawn: DrawnView, view: FleetView) -> FleetView:
        """Return the view unchanged, as the past does not grow old."""
        return view

    def view_of(self, facts: Facts, now: datetime, fleet: Fleet) -> FleetView:
        """See `Snapshot.view_of`."""
        return fleet_view(facts, self._config.analyzer, now, fleet)

    def silence(self) -> str | None:
        """Return None, since each answer says itself how old it is."""
        return None

    def silent_seconds(self) -> float | None:
        """See `silence`."""
        return None

    def details(self, subject: Subject) -> Row | None:
        """See `Snapshot.details`: the GPU's last row up to that moment."""
        fields = tuple(metric.name for metric in GPU.metrics)
        where = {"cluster": subject.cluster, "node": subject.node, "uuid": subject.gpu or ""}
        span = self._at - _LINE_AGE, self._at + ARRIVAL

        def last(hub: Hub) -> Row | None:
            lines = store_of(hub).series(GPU.name, fields, where, span, timedelta(milliseconds=1))
            rows: list[Row] = lines.slice(max(lines.num_rows - 1, 0), 1).to_pylist()
            return rows[0] if rows else None

        try:
            said = self._questions.ask(("details", subject.key), last, FRESH_SECONDS)
        except HubError:
            return None
        found: Row | None = said.value
        return found

    def identity(self, subject: Subject) -> GpuIdentity | None:
        """See `Snapshot.identity`."""
        inventory = self.inventories().get(subject.of_node())
        gpus = inventory.gpus if inventory else ()
        return next((gpu for gpu in gpus if gpu.uuid == subject.gpu), None)

    def inventories(self) -> Mapping[Subject, Inventory]:
        """See `Snapshot.inventories`."""
        facts = self.drawn().facts
        return {} if facts is None else {one.subject: one for one in facts.inventories}

    def allocations(self) -> tuple[Allocation, ...]:
        """See `Snapshot.allocations`."""
        facts = self.drawn().facts
        return () if facts is None else facts.allocations

    def start(self) -> None:
        """Do nothing, as there is nothing to follow."""

    def stop(self) -> None:
        """See `start`."""
