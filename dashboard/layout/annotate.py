"""A folded form to annotate what was done to a cluster or some of its nodes, which charts then show."""

from datetime import datetime

import streamlit as st

from gpuvigil.clock import SystemClock, from_text
from gpuvigil.errors import ConfigError, HubError
from gpuvigil.hostlist import expand
from gpuvigil.matching.annotations import checked, new_id
from gpuvigil.model.annotation import Annotation

from ..data import live
from . import own_name
from .tree import el, show
from .typed_text import cleaned

LONGEST_NOTE, LONGEST_NODES = 300, 2_000
_TIME = "2026-11-30T08:00:00Z"
_LAST = "annotated"  # the session's last annotation, which can be taken back


def form(cluster: str, nodes: str = "") -> None:
    """Draw the form, with these nodes filled in; nothing for people without the right to write."""
    if not live.shared().may_change:
        return
    state = st.session_state
    # The annotation's ID is made before sending, so that sent twice it stays one.
    place = f"annotation {cluster} {nodes}"
    id_ = state.setdefault(place, new_id())
    state.setdefault(f"nodes-{id_}", nodes)
    with st.expander("Annotate a deploy, a roll-out or maintenance"):
        with st.form("annotation", border=False):
            what, where = own_name.row(f"by-{id_}", 4, 3)
            what.text_input("What was done", key=f"note-{id_}", max_chars=LONGEST_NOTE)
            where.text_input(
                "Nodes (empty: the whole cluster)",
                key=f"nodes-{id_}",
                placeholder="n1,n[3-8]",
                max_chars=LONGEST_NODES,
            )
            begin, end, send = st.columns([3, 3, 1], vertical_alignment="bottom")
            begin.text_input("From (UTC, empty: now)", key=f"at-{id_}", placeholder=_TIME)
            end.text_input("To (UTC, empty: one moment)", key=f"until-{id_}", placeholder=_TIME)
            send.form_submit_button(
                "Annotate", on_click=_send, args=(place, id_, cluster), width="stretch"
            )
        _outcome()


def _outcome() -> None:
    state = st.session_state
    if wrong := state.get("annotation-wrong"):
        show("annotation-said", el("div", wrong, class_="wrong", role="alert"))
    elif said := state.get(_LAST):
        show("annotation-said", el("p", f"Annotated: {said.note}", class_="empty", role="status"))
        st.button("Take it back", key=f"undo-{said.id}", on_click=_undo, args=(said,))


def _send(place: str, id_: str, cluster: str) -> None:
    """Write what the form holds; if that fails, the text stays in the form, with the reason."""
    state, now = st.session_state, SystemClock().now()
    try:
        said = checked(_typed(id_, cluster, now), _known())
    except ConfigError as error:
        state["annotation-wrong"] = f"Not annotated: {error}."
        return
    state["annotation-wrong"] = _written(said)
    if not state["annotation-wrong"]:
        own_name.keep(said.by)
        state[_LAST], state[place] = said, new_id()


def _typed(id_: str, cluster: str, now: datetime) -> Annotation:
    """Return the annotation in the form; ConfigError if a time cannot be parsed."""
    state = st.session_state
    nodes = expand(cleaned(state[f"nodes-{id_}"], LONGEST_NODES).replace(" ", ""))
    return Annotation(
        id=id_,
        cluster=cluster,
        note=cleaned(state[f"note-{id_}"], LONGEST_NOTE),
        by=own_name.typed(f"by-{id_}"),
        at=moment_of(state[f"at-{id_}"]) or now,
        until=moment_of(state[f"until-{id_}"]),
        nodes=tuple(dict.fromkeys(filter(None, nodes))),
    )


def moment_of(text: str) -> datetime | None:
    """Parse a time; None for an empty text, ConfigError for anything else."""
    if not text.strip():
        return None
    try:
        return from_text(text.strip())
    except ValueError:
        raise ConfigError(f"{text!r} is not a time like {_TIME}") from None


def _known() -> set[tuple[str, str]]:
    view = live.current().view()
    return {(one.name, node.node) for one in view.clusters for node in one.layout.nodes}


def _undo(annotation: Annotation) -> None:
    state = st.session_state
    state["annotation-wrong"] = _written(annotation.without())
    if not state["annotation-wrong"]:
        del state[_LAST]


def _written(annotation: Annotation) -> str:
    """Write the annotation; return the error, or "" on success."""
    questions = live.shared().questions
    try:
        questions.call(lambda hub: hub.write_records([annotation.to_record()]))
    except HubError as error:
        return f"Not saved: {error}. Send it again."
    questions.forget(("done", annotation.cluster))  # the overview's question
    return ""
