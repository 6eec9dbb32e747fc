"""Draw the page of jobs: thin glue between the snapshot, the hub and Streamlit."""

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from accounting.cost.example import of_clusters
from accounting.cost.money import Prices
from gpuvigil.config import Config
from gpuvigil.errors import HubError
from gpuvigil.hub_client import Hub
from gpuvigil.model import Holder
from gpuvigil.web.markup import joined, tag

from ..components import style
from ..data import live
from ..data.questions import CachedAnswer
from ..data.snapshot import Snapshot
from ..layout import panels
from ..layout.tree import show
from ..lists.job_board import Board, board, failures
from ..lists.job_losses import Reliability
from ..lists.jobs import Fleet, running
from ..lists.not_reporting import with_silence
from .drawing import page
from .filters import Filters

# How long answers stay fresh for all sessions, as they need minutes of every GPU and port from the store.
FRESH_SECONDS, FAILURES_FRESH_SECONDS = 20.0, 300.0
# The page shows at once; missing answers come with a refresh.
FIRST_SECONDS, PATIENCE_SECONDS = 0.6, 0.1


def draw() -> None:
    """Draw the whole page, which refreshes as one."""
    style("incidents")
    st.fragment(_live, run_every=live.refresh_seconds())()


def fleet(snapshot: Snapshot, only: Holder | None = None) -> Fleet:
    """Return the current allocations, of all holders or `only` one, without asking the hub."""
    view = snapshot.view()
    return Fleet(
        now=view.now,
        allocations=[one for one in snapshot.allocations() if only in {None, one.holder}],
        inventories=snapshot.inventories().values(),
        incidents=[one.incident for one in view.attention],
    )


def jobs(
    shared: live.Shared, only: Holder | None = None, first_seconds: float = FIRST_SECONDS
) -> tuple[Board, list[str]]:
    """Return the hub's last answer on jobs, and notes about that answer.

    Before the first answer, return what is known without measurements, of all jobs or `only` one.
    """
    snapshot, config = shared.snapshot, shared.config
    try:
        said: CachedAnswer = shared.questions.ask(
            "jobs",
            lambda hub: _asked(hub, snapshot, config),
            FRESH_SECONDS,
            patience_seconds=PATIENCE_SECONDS,
            first_seconds=first_seconds,
        )
        found, notes = said.value, live.outdated("everything below is", said)
    except HubError as error:
        now = fleet(snapshot, only)
        without = running(now, None, _prices(config, now))
        found = Board(now=now.now, running=without, over=())
        notes = [live.unanswered("What bounds each job is not known yet", error)]
    reliability, more = _failures(shared)
    # The answer may be older than the silence of nodes that the page's warnings already show.
    heard = with_silence(found.running, snapshot.view().clusters)
    return replace(found, running=heard, reliability=reliability), [*notes, *more]


def _failures(shared: live.Shared) -> tuple[Sequence[Reliability], list[str]]:
    """Return what failures cost in a month, which is asked for rarely, and notes about that answer."""
    if not shared.sees_all_jobs:
        return (), []  # from some jobs alone the failure rate is not known
    try:
        said: CachedAnswer = shared.questions.ask(
            "job failures",
            lambda hub: failures(hub, fleet(shared.snapshot)),
            FAILURES_FRESH_SECONDS,
            patience_seconds=PATIENCE_SECONDS,
            first_seconds=PATIENCE_SECONDS,
        )
    except HubError as error:
        return (), [live.unanswered("What failures cost is not known yet", error)]
    return said.value, live.outdated("what failures cost is", said)


def _asked(hub: Hub, snapshot: Snapshot, config: Config) -> Board:
    now = fleet(snapshot)
    return board(hub, now, _prices(config, now))


def _prices(config: Config, of: Fleet) -> Prices:
    return of_clusters(config.cost, (one.subject.cluster for one in of.allocations))


def _live() -> None:
    title = tag(
        "h1", "Jobs ", tag("small", "what bounds each, what it would lose"), class_="gv-page"
    )
    view, shared = live.current().view(), live.shared()
    found, notes = jobs(shared)
    st.html(joined(title, panels.warnings(view), panels.notes(notes)))
    asked = Filters.of(st.query_params.to_dict())
    shown = of_clusters(shared.config.cost, (one.cluster for one in found.running))
    show("jobs", *page(found, asked, shown))
