"""Draw the page of silences: active and scheduled ones, a form for a new one, a button to end each."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import streamlit as st

from gpuvigil.clock import SystemClock, duration, from_text, moment
from gpuvigil.errors import ConfigError, HubError
from gpuvigil.hub_client import Hub
from gpuvigil.matching.matchers import LABELS
from gpuvigil.matching.silences import made, new_id
from gpuvigil.model import RecordKind, Silence, readable
from gpuvigil.numbers_in_words import counted
from gpuvigil.web.markup import joined, tag

from ..components import style
from ..data import live
from ..layout import own_name, panels
from ..layout.tree import Node, el, show
from ..layout.typed_text import cleaned

LONGEST_REASON, LONGEST_MATCHERS = 500, 2_000
# The most expired silences that are shown.
MOST_OVER = 20
_KEY = "silences"
_PAST = "Not known for the past: when a silence was to end before somebody changed that. Each has its last end."
_SPANS = {"30 min": 30, "1 h": 60, "4 h": 240, "1 day": 1_440, "7 days": 10_080, "30 days": 43_200}


def draw() -> None:
    """Draw the whole page; the list refreshes, while the form stays as it is being filled in."""
    style("incidents")
    st.fragment(_live, run_every=live.refresh_seconds())()
    if live.shared().may_change:
        _form()


def _live() -> None:
    view = live.current().view()
    try:
        said = live.shared().questions.ask(_KEY, known, live.refresh_seconds())
    except HubError as error:
        title = tag("h1", "Silences", class_="gv-page")
        unknown = panels.notes([live.unanswered("What is silenced is not known", error)])
        st.html(joined(title, panels.warnings(view), unknown))
        return
    now = view.now
    then = [] if live.shared().at is None else [_PAST]
    active, over = sorted_out(said.value, now)
    amount = tag("small", f"{len(active)} active or scheduled")
    st.html(
        joined(
            tag("h1", "Silences ", amount, class_="gv-page"),
            panels.warnings(view),
            panels.notes([*live.outdated("what is silenced is", said), *then]),
        )
    )
    for one in active:
        left, right = st.columns([8, 1], vertical_alignment="center")
        with left:
            show(f"silence-{one.id}", row(one, now))
        if live.shared().may_change:
            right.button(
                "End", key=f"end-{one.id}", help=f"End {one.id} now", on_click=_end, args=(one,)
            )
    wrong = st.session_state.get("silence-wrong-end")
    show(
        "silences-over",
        el("div", wrong, class_="wrong", role="alert") if wrong else None,
        None if active else el("p", "Nothing is silenced.", class_="empty"),
        _folded(over, now),
    )


def known(hub: Hub) -> tuple[Silence, ...]:
    """Return all silences that the hub has."""
    return tuple(readable(hub.records(RecordKind.SILENCE), Silence.from_record))


def sorted_out(
    found: Iterable[Silence], now: datetime
) -> tuple[Sequence[Silence], Sequence[Silence]]:
    """Return active and scheduled silences, next to end first, and expired ones, last ended first."""
    by_end = sorted(found, key=lambda one: (one.ends_at, one.id))
    active = [one for one in by_end if not one.is_over(now)]
    return active, [one for one in reversed(by_end) if one.is_over(now)]


def row(one: Silence, now: datetime) -> Node:
    """Return one silence: what, when, who and why."""
    if one.ends_at <= one.starts_at:
        when = "cancelled before it began"
    elif one.ends_at <= now:
        when = f"expired {moment(one.ends_at)}"
    elif one.holds(now):
        when = f"until {moment(one.ends_at)}, for {duration(one.ends_at - now)} more"
    else:
        when = f"from {moment(one.starts_at)} to {moment(one.ends_at)}"
    return el(
        "p",
        el("code", " ".join(one.matchers)),
        f" {when}. {one.by}: {one.reason} ",
        el("small", one.id),
        class_="silence",
    )


def _folded(over: Sequence[Silence], now: datetime) -> Node | None:
    if not over:
        return None
    summary = el("summary", f"{counted(len(over), 'silence')} over")
    return el("details", summary, *(row(one, now) for one in over[:MOST_OVER]), key="over")


def _form() -> None:
    state = st.session_state
    form = state.setdefault("silence-form", new_id())  # its ID: sent twice, it stays one silence
    for name, most in (("matchers", LONGEST_MATCHERS), ("reason", LONGEST_REASON)):
        # A link from an incident fills these in.
        state.setdefault(f"{name}-{form}", st.query_params.get(name, "")[:most])
    with st.form("silence", border=True):
        st.text_area(
            "One matcher per line; all must match",
            key=f"matchers-{form}",
            placeholder='node="n1"\nfault=~"port_.*"',
            help=f"Labels: {', '.join(LABELS)}",
            max_chars=LONGEST_MATCHERS,
            height=80,
        )
        (why,) = own_name.row(f"by-{form}", 3, width=1)
        why.text_input("Why", key=f"reason-{form}", max_chars=LONGEST_REASON)
        begins, span, send = st.columns([2, 2, 1], vertical_alignment="bottom")
        begins.text_input(
            "From (UTC, empty: now)", key=f"starts-{form}", placeholder="2026-11-30T08:00:00Z"
        )
        span.selectbox("For", list(_SPANS), index=2, key=f"span-{form}")
        send.form_submit_button("Silence", on_click=_send, args=(form,), width="stretch")
    wrong = state.get("silence-wrong")
    show("silence-sent", el("div", wrong, class_="wrong", role="alert") if wrong else None)


def _send(form: str) -> None:
    """Write what the form holds; if that fails, the text stays in the form, with the reason."""
    state, now = st.session_state, SystemClock().now()
    try:
        silence = made(
            [text for text in state[f"matchers-{form}"].splitlines() if text.strip()],
            own_name.typed(f"by-{form}"),
            cleaned(state[f"reason-{form}"], LONGEST_REASON),
            begins(state[f"starts-{form}"], now),
            timedelta(minutes=_SPANS[state[f"span-{form}"]]),
            now,
            id_=form,
        )
    except ConfigError as error:
        state["silence-wrong"] = f"Not silenced: {error}."
        return
    state["silence-wrong"] = _written(silence)
    if not state["silence-wrong"]:
        own_name.keep(silence.by)
        state["silence-form"] = new_id()


def begins(text: str, now: datetime) -> datetime:
    """Return when the silence begins; ConfigError if the text is not a time or the time is past."""
    if not text.strip():
        return now
    try:
        starts_at = from_text(text.strip())
    except ValueError:
        raise ConfigError(f"{text!r} is not a time like 2026-11-30T08:00:00Z") from None
    if starts_at < now:
        raise ConfigError(f"{text} is in the past")
    return starts_at


def _end(silence: Silence) -> None:
    st.session_state["silence-wrong-end"] = _written(silence.ended(SystemClock().now()))


def _written(silence: Silence) -> str:
    """Write the silence; return the error, or "" on success."""
    questions = live.shared().questions
    try:
        questions.call(lambda hub: hub.write_records([silence.to_record()]))
    except HubError as error:
        return f"Not saved: {error}. Send it again."
    questions.forget(_KEY)
    return ""
