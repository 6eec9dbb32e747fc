"""A page with a single answer that is asked for now and then and shared by all sessions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import streamlit as st

from gpuvigil.config import Config
from gpuvigil.errors import HubError
from gpuvigil.hub_client import Hub
from gpuvigil.web.markup import joined, tag

from ..components import style
from ..data import live
from ..data.snapshot import Snapshot
from . import panels
from .tree import Node, show

FIRST_SECONDS = 20.0
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPage(Generic[_T]):
    """The question of a page, its titles, and how its answer is drawn.

    `ask` is called at most once in `fresh_seconds`; it raises HubError or StoreError without an answer.
    """

    key: str
    title: str
    about: str
    unknown: str  # text without an answer, as "Who serves is not known"
    ask: Callable[[Hub, Snapshot, Config], _T]
    shown: Callable[[_T], Sequence[Node | None]]
    fresh_seconds: float


def draw(page: AskedPage[_T]) -> None:
    """Draw the whole page, which refreshes as one."""

    def renewed() -> None:
        _live(page)

    style("incidents")
    st.fragment(renewed, run_every=5 * live.refresh_seconds())()


def _live(page: AskedPage[_T]) -> None:
    title = tag("h1", f"{page.title} ", tag("small", page.about), class_="gv-page")
    snapshot, config = live.current(), live.shared().config
    view = snapshot.view()
    try:
        said = live.shared().questions.ask(
            page.key,
            lambda hub: page.ask(hub, snapshot, config),
            page.fresh_seconds,
            first_seconds=FIRST_SECONDS,
        )
    except HubError as error:
        unknown = panels.notes([live.unanswered(page.unknown, error)])
        st.html(joined(title, panels.warnings(view), unknown))
        return
    late = live.outdated("everything below is", said)
    st.html(joined(title, panels.warnings(view), panels.notes(late)))
    show(page.key, *page.shown(said.value))
