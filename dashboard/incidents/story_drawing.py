"""The story of one incident, as a tree."""

from datetime import datetime, timedelta

from gpuvigil.clock import duration, moment, to_text
from gpuvigil.model import Evidence, Incident, Subject
from gpuvigil.numbers_in_words import counted
from gpuvigil.web import page_links

from ..layout.job_links import nodes
from ..layout.tree import Node, each, el
from .filters import Filters
from .hub_queries import Story
from .messages import Channel, Message
from .story import Hands, Moment, Taken, covered_by, span, whose

MOST_MEMBERS = 24
# The end of a link's window moves in steps, so that the link stays the same while one reads.
_STEP_SECONDS = 300


def head(story: Story, hands: Hands, asked: Filters, now: datetime) -> Node:
    """What it is, whose, since when, what to do, and who has it."""
    one = story.incident
    look = "over" if hands.taken is Taken.OVER else one.severity.value
    until = one.resolved_at or _stepped(now)
    return el(
        "header",
        el(
            "div",
            el("span", one.severity.value, class_=f"badge {look}"),
            el("span", one.state, class_="badge state"),
            el("span", "simulated", class_="badge simulated") if one.simulated else None,
            el("a", "Close", href=asked.set(incident="").href, class_="close"),
            class_="badges",
        ),
        el("h2", one.title, key=one.id, tabindex="-1", arrives="1"),
        el(
            "p",
            el(
                "a",
                one.label or one.subject.key,
                href=page_links.around(one.subject, one.since, until),
            ),
            f" · cluster {one.subject.cluster}",
            f" · {one.gpus}" if one.gpus else None,
        ),
        el("p", *nodes(whose(one), one.subject.cluster, one.impact.holders), class_="impact"),
        el("p", span(one, now), class_="sub"),
        _covered(story),
        _held(one),
        el("p", el("b", "Do now: "), one.action, class_="action")
        if one.action and one.resolved_at is None
        else None,
        el("p", hands.text, class_=f"hands {hands.taken.name.lower()}", role="status"),
        class_="story-head",
    )


def _covered(story: Story) -> Node | None:
    cause = covered_by(story)
    if not cause:
        return None
    return el("p", el("b", "Told with another incident: "), cause, ". It may well be there still.")


def _held(one: Incident) -> Node | None:
    if not one.held or one.resolved_at is not None:
        return None
    return el("p", el("b", "No alerts while it is out of service: "), one.held)


def body(
    story: Story,
    channels: tuple[Channel, ...],
    moments: tuple[Moment, ...],
    asked: Filters,
    now: datetime,
) -> list[Node]:
    """Why it is believed, what happened, who was told what, and what else there is."""
    one = story.incident
    return each(
        (
            _evidence(one),
            _covers(one),
            _timeline(moments),
            _messages(channels),
            _others(story, asked, now),
            _names(one),
        )
    )


def _evidence(one: Incident) -> Node:
    """Every number with what it was held against; no column that would be empty."""
    columns = ["What", "Measured"]
    columns += ["Normal"] if any(item.limit for item in one.evidence) else []
    columns += ["Peers"] if any(item.peers for item in one.evidence) else []
    table = el(
        "table",
        el("thead", el("tr", *(el("th", name, scope="col") for name in columns))),
        el("tbody", *(_fact(item, columns) for item in one.evidence)),
        class_="evidence",
    )
    nothing = el("p", "No evidence was written down.", class_="empty")
    source = el("p", f"Rule from: {one.source}", class_="sub") if one.source else None
    shown = table if one.evidence else nothing
    return el("section", el("h3", "Evidence"), shown, source, key="evidence")


def _fact(item: Evidence, columns: list[str]) -> Node:
    cells = {"Measured": item.value, "Normal": item.limit or "–", "Peers": item.peers or "–"}
    shown = (el("td", text) for name, text in cells.items() if name in columns)
    return el("tr", el("th", item.name, scope="row"), *shown)


def _covers(one: Incident) -> Node | None:
    others = [key for key in one.members if key != one.subject.key]
    if not one.covers and not others:
        return None
    hidden = [el("li", text) for text in one.covers]
    members = [el("li", _subject(key)) for key in others[:MOST_MEMBERS]]
    more = len(others) - len(members)
    return el(
        "section",
        el("h3", "What it covers"),
        el("p", "Explained by this incident, not alerted separately:") if hidden else None,
        el("ul", *hidden) if hidden else None,
        el("p", f"It is about {counted(len(others), 'more place')}:") if members else None,
        el("ul", *members, class_="members") if members else None,
        el("p", f"and {more} more", class_="sub") if more else None,
        key="covers",
    )


def _subject(key: str) -> str:
    try:
        subject = Subject.parse(key)
    except ValueError:
        return key
    parts = (subject.node, subject.gpu, subject.device, subject.port)
    return " ".join(part for part in parts if part)


def _timeline(moments: tuple[Moment, ...]) -> Node:
    rows = [
        el(
            "li",
            el("time", moment(one.at), datetime=to_text(one.at)),
            el("div", el("b", one.title), el("div", one.text, class_="text")),
            class_=one.kind,
            key=f"{to_text(one.at)} {one.title}",
        )
        for one in moments
    ]
    return el(
        "section", el("h3", "What happened"), el("ol", *rows, class_="timeline"), key="timeline"
    )


def _messages(channels: tuple[Channel, ...]) -> Node:
    if not channels:
        nothing = el("p", "Nothing was decided about messages yet.", class_="empty")
        return el("section", el("h3", "Messages"), nothing, key="messages")
    return el("section", el("h3", "Messages"), *map(_channel, channels), key="messages")


def _channel(one: Channel) -> Node:
    return el(
        "div",
        el("h4", one.name, el("small", one.summary)),
        el("ol", *map(_message, one.messages), class_="messages"),
        class_="channel",
        key=one.name,
    )


def _message(one: Message) -> Node:
    about = f"step {one.number}, {one.step}"
    title = f"{one.word}: {one.about}" if one.state in {"sent", "due", "dead"} else one.word
    named = el("code", one.verdict) if one.verdict else None
    said = (
        el(
            "details",
            el("summary", "What was known then"),
            *(el("div", line) for line in one.said),
        )
        if one.said
        else None
    )
    return el(
        "li",
        el("time", moment(one.at), datetime=to_text(one.at)),
        el(
            "div",
            el(
                "div",
                el("span", title, class_=f"badge {one.state}"),
                el("span", about, class_="sub"),
            ),
            el("div", one.reason, " ", named),
            *(el("div", text, class_="sub") for text in one.details),
            said,
        ),
        key=one.id,
    )


def _others(story: Story, asked: Filters, now: datetime) -> Node | None:
    own = story.incident.subject.key
    ranked = sorted(
        story.others,
        key=lambda it: (
            it.subject.key != own,
            it.resolved_at is not None,
            -it.updated_at.timestamp(),
        ),
    )
    if not ranked:
        return None
    rows = [
        el(
            "li",
            el("a", it.title, href=asked.set(incident=it.id).href),
            " ",
            el("span", it.label or it.subject.key, class_="where"),
            el("div", f"{it.severity.value}, {it.state}, {_ago(it, now)}", class_="sub"),
            key=it.id,
        )
        for it in ranked[:10]
    ]
    more = len(ranked) - len(rows)
    node = story.incident.subject.node
    everything = Filters(node=node, cluster=story.incident.subject.cluster, last="30d").href
    link = el("a", f"{counted(more, 'more incident')} of {node}", href=everything) if more else None
    return el(
        "section",
        el("h3", f"Other incidents on {node}"),
        el("ul", *rows, class_="others"),
        link,
        key="others",
    )


def _ago(one: Incident, now: datetime) -> str:
    if one.resolved_at is None:
        return f"for {duration(now - one.since)}"
    return f"ended {duration(now - one.resolved_at)} ago, lasted {duration(one.resolved_at - one.since)}"


def _names(one: Incident) -> Node:
    rows = (("Subject", one.subject.key), ("Fault", one.fault), ("Incident", one.id))
    pairs = [node for name, value in rows for node in (el("dt", name), el("dd", value))]
    return el("section", el("h3", "Names"), el("dl", *pairs), key="names")


def _stepped(now: datetime) -> datetime:
    return now + timedelta(seconds=_STEP_SECONDS - now.timestamp() % _STEP_SECONDS)
