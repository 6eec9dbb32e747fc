"""The story of one incident, as trees of elements."""

from collections.abc import Sequence
from datetime import datetime

from accounting.hardware import similar_incidents as similar
from accounting.hardware.incident_steps import Moment, span
from accounting.hardware.node_changes import LOOKED_BACK, Changed
from gpuvigil.clock import duration, moment, to_text
from gpuvigil.faults import FAULTS
from gpuvigil.model import Evidence, Incident, with_kind
from gpuvigil.numbers_in_words import capitalized, counted
from gpuvigil.web import page_links

from ..layout.job_links import nodes
from ..layout.tree import Node, each, el, fold
from ..model.incident_place import link_end
from ..model.short_label import short_label
from .closing import silence_link
from .covers import MOST_PLACES, Covered
from .filters import Filters
from .hub_queries import Similar, Story
from .messages import Channel, Message
from .named_places import NamedPlaces
from .story import Assignment, AssignmentState, covered_by, whose

MOST_EVIDENCE, MOST_CHANGES, MOST_STEPS, MOST_OTHERS = 7, 5, 6, 3


def head(
    story: Story, hands: Assignment, asked: Filters, places: NamedPlaces, now: datetime
) -> Node:
    """Return the head: what happened, to whom, what to do, and who has it."""
    one = story.incident
    look = "over" if hands.state is AssignmentState.OVER else one.severity.value
    return el(
        "header",
        el(
            "div",
            el("span", one.severity.value, class_=f"badge {look}"),
            el("span", one.state, class_="badge state"),
            el("span", "simulated", class_="badge simulated") if one.simulated else None,
            el("span", span(one, now), class_="sub"),
            el("a", "All incidents", href=asked.set(incident="").href, class_="close"),
            class_="badges",
        ),
        el(
            "h2",
            one.title,
            el("small", short_label(one) or place(one)),
            key=one.id,
            tabindex="-1",
            arrives="1",
        ),
        _paragraph(one, places),
        _covered(story),
        _out_of_service(one),
        el("p", el("b", "Do now: "), one.action, class_="action")
        if one.action and one.resolved_at is None
        else None,
        el(
            "p",
            hands.text,
            " ",
            None
            if hands.state is AssignmentState.OVER
            else el("a", "Silence…", href=silence_link(one), class_="silence-link"),
            class_=f"hands {hands.state.name.lower()}",
            role="status",
        ),
        class_=f"story-head {look}",
    )


def _paragraph(one: Incident, places: NamedPlaces) -> Node:
    """Return a paragraph on where it is, the first evidence, and whose work it affects."""
    first = next((item for item in one.evidence if not item.detail), None)
    return el(
        "p",
        # Every port and node is listed under what it covers.
        el("a", short_label(one) or place(one), href=places.page),
        f" ({one.gpus})" if one.gpus else None,
        f" of {with_kind('cluster', one.subject.cluster)}. ",
        *(places.linked(f"{capitalized(first.text)}. ") if first else ()),
        el("b", *nodes(whose(one), one.subject.cluster, one.impact.holders, one.impact.users)),
        ". ",
        el("a", "The fleet at that time", href=page_links.overview_at(one.since)),
        class_="impact",
    )


def place(one: Incident) -> str:
    """Return the name of what it is about: a rack, a switch, a node, a GPU or a port."""
    if one.label:
        return one.label
    return one.group.label if one.group is not None else one.subject.key


def _covered(story: Story) -> Node | None:
    cause = covered_by(story)
    if not cause:
        return None
    return el(
        "p",
        el("b", "Covered by another incident: "),
        cause,
        ". The fault itself may still be there.",
    )


def _out_of_service(one: Incident) -> Node | None:
    if one.out_of_service is None or one.resolved_at is not None:
        return None
    return el("p", el("b", "No alerts while it is out of service: "), one.out_of_service.reason)


def facts(
    story: Story, moments: tuple[Moment, ...], changes: Sequence[Changed], places: NamedPlaces
) -> list[Node]:
    """Return evidence, earlier changes, and timeline."""
    return each((_evidence(story.incident, places), _changed(changes), _timeline(moments)))


def beside(
    story: Story,
    places: Sequence[Covered],
    past: Similar,
    channels: tuple[Channel, ...],
    asked: Filters,
    now: datetime,
) -> list[Node]:
    """Return what it covers, what helped before, the messages, and other incidents."""
    one = story.incident
    return each(
        (
            _covers(one, places, now),
            _similar(past, asked, now),
            _messages(channels),
            _others(story, asked, now),
            _names(one),
        )
    )


def _evidence(one: Incident, places: NamedPlaces) -> Node:
    """Return every fact with its limit and peers; details are folded."""
    first = [item for item in one.evidence if not item.detail][:MOST_EVIDENCE]
    rest = [item for item in one.evidence if item not in first]
    nothing = el("p", "No evidence was recorded.", class_="empty")
    folded = (
        el("details", el("summary", f"{len(rest)} more"), _table(rest, places), key="details")
        if rest
        else None
    )
    source = el("p", _rule(one), class_="sub") if one.source else None
    shown = _table(first, places) if first else None if rest else nothing
    amount = counted(len(one.evidence), "fact") if one.evidence else "none"
    return fold("Evidence", amount, shown, folded, source, key="evidence")


def _rule(one: Incident) -> str:
    whose = " (this limit is gpuvigil's own, not a vendor's)" if one.own_limit else ""
    row = FAULTS.get(one.fault)
    confidence = f". Confidence: {row.confidence.value}" if row is not None else ""
    return f"Rule: {one.source}{whose}{confidence}"


def _table(items: Sequence[Evidence], places: NamedPlaces) -> Node:
    """Return the facts as a table without empty columns."""
    columns = ["What", "Measured"]
    columns += ["Normal"] if any(item.limit for item in items) else []
    columns += ["Peers"] if any(item.peers for item in items) else []
    return el(
        "table",
        el("thead", el("tr", *(el("th", name, scope="col") for name in columns))),
        el("tbody", *(_fact(item, columns, places) for item in items)),
        class_="evidence",
    )


def _fact(item: Evidence, columns: list[str], places: NamedPlaces) -> Node:
    cells = {"Measured": item.value, "Normal": item.limit or "–", "Peers": item.peers or "–"}
    shown = (el("td", *places.linked(text)) for name, text in cells.items() if name in columns)
    return el("tr", el("th", *places.linked(item.name), scope="row"), *shown)


def _changed(changes: Sequence[Changed]) -> Node:
    """Return what changed on its node, old and new."""
    days = f"{LOOKED_BACK.days} days before it"
    if not changes:
        nothing = "No change of driver, firmware, kernel or hardware of the node is known."
        return fold(
            "What changed",
            f"nothing known, {days}",
            el("p", nothing, class_="empty"),
            key="changed",
        )
    rows = (
        el(
            "tr",
            el("td", el("time", moment(one.at), datetime=to_text(one.at))),
            el("th", one.what, scope="row"),
            el("td", f"{one.old} → ", el("b", one.new)),
            key=f"{to_text(one.at)} {one.what}",
        )
        for one in changes[:MOST_CHANGES]
    )
    table = el("table", el("tbody", *rows), class_="evidence")
    return fold("What changed", f"{len(changes)} in {days}", table, key="changed")


def _covers(one: Incident, places: Sequence[Covered], now: datetime) -> Node:
    until = link_end(one, now)
    shown = [
        el(
            "li",
            el("a", it.node.node, href=page_links.around(it.node, one.since, until)),
            *_parts(it, one.since, until),
            key=it.node.key,
        )
        for it in places[:MOST_PLACES]
    ]
    more = len(places) - len(shown)
    hidden = [el("li", text) for text in one.covers]
    folded = (
        el(
            "details",
            el(
                "summary",
                f"Explains {counted(len(hidden), 'other finding')}, not alerted separately",
            ),
            el("ul", *hidden),
            key="hidden",
        )
        if hidden
        else None
    )
    return fold(
        "What it covers",
        counted(len(places), "place"),
        el("ul", *shown, class_="members"),
        el("p", f"and {more} more", class_="sub") if more else None,
        folded,
        key="covers",
    )


def _parts(it: Covered, since: datetime, until: datetime) -> Sequence[Node]:
    """Return a node's covered parts; a single one is a link to its page."""
    if not it.parts:
        return ()
    if it.only is None:
        return (f" {it.parts}",)
    return " ", el("a", it.parts, href=page_links.around(it.only, since, until))


def _similar(past: Similar, asked: Filters, now: datetime) -> Node:
    if not past.shown:
        none = f"none in {similar.LOOKED_BACK.days} days"
        said = "not known: the hub does not answer" if past.unknown else none
        return fold("Similar before", said, key="similar")
    rows = [
        el(
            "li",
            el("a", f"{it.incident.since:%d %b}", href=asked.set(incident=it.incident.id).href),
            f" {place(it.incident)}" + (" (here)" if it.same_subject else ""),
            el(
                "div",
                it.what_helped or "what helped was not noted",
                f"; {similar.outcome(it, now)}",
                class_="sub",
            ),
            key=it.incident.id,
        )
        for it in past.shown
    ]
    said = similar.summary(past.shown, past.amount)
    return fold("Similar before", said, el("ul", *rows, class_="others"), key="similar")


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
    old = rows[:-MOST_STEPS]
    folded = (
        el(
            "details",
            el("summary", counted(len(old), "earlier step")),
            el("ol", *old, class_="timeline"),
            key="earlier",
        )
        if old
        else None
    )
    shown = el("ol", *rows[-MOST_STEPS:], class_="timeline", key="steps")
    return fold("What happened", counted(len(rows), "step"), folded, shown, key="timeline")


def _messages(channels: tuple[Channel, ...]) -> Node:
    if not channels:
        nothing = el("p", "No message is due yet.", class_="empty")
        return fold("Messages", "none yet", nothing, key="messages")
    states = [message.state for one in channels for message in one.messages]
    sent, dead = states.count("sent"), states.count("dead")
    return fold(
        "Messages",
        f"{sent} sent, {dead} given up",
        el("ul", *(el("li", _line(one)) for one in channels)),
        el(
            "details",
            el("summary", "Each decision and its reason"),
            *map(_channel, channels),
            key="decisions",
        ),
        key="messages",
    )


def _line(one: Channel) -> str:
    return f"{one.name}: {one.summary}" if one.summary else one.name


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
            *(el("div", line) for line in one.lines),
        )
        if one.lines
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
        for it in ranked[:MOST_OTHERS]
    ]
    more = len(ranked) - len(rows)
    node = story.incident.subject.node
    everything = Filters(node=node, cluster=story.incident.subject.cluster, last="30d").href
    link = el("a", f"{counted(more, 'more incident')} of {node}", href=everything) if more else None
    return fold(
        f"Other incidents on {node}",
        str(len(ranked)),
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
    return el("details", el("summary", "Names"), el("dl", *pairs), key="names")
