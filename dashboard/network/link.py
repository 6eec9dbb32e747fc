"""A link's own page, as trees: what is told of it, and both of its ends side by side."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from gpuvigil.clock import moment as time_of
from gpuvigil.model import SIMULATED_CLUSTER, SWITCH_DEVICE, Subject
from gpuvigil.web import page_links

from ..layout.job_links import nodes
from ..layout.tree import Node, each, el
from ..lists.network import Network
from ..lists.one_link import End, Link

_ALL = el("p", el("a", "All links", href=page_links.NETWORK))
_ONE_END = "The other end is not known: run lldpd on the host, or have gpuvigil read the switches."


def page(found: Network, asked: str, now: datetime) -> Sequence[Node]:
    """The link at the port that a subject's key names, or that there is none."""
    try:
        link = found.known.link(Subject.parse(asked), found.findings) if found.known else None
    except ValueError:
        link = None
    if link is None:
        return [
            el(
                "section",
                el("h2", "No such link"),
                el("p", "No collector reports this port now."),
                _ALL,
            )
        ]
    return each(
        (
            _answer(link),
            el("section", *(_end(it, now) for it in link.ends), class_="ends"),
            _far(link),
            _ALL,
        )
    )


def _answer(link: Link) -> Node:
    """What stands about it, the gravest first."""
    simulated = link.ends[0].subject.cluster == SIMULATED_CLUSTER
    badge = el("span", "SIMULATED: no real hardware", class_="badge simulated")
    kind = link.findings[0].severity.value if link.findings else "good"
    return el(
        "section",
        el("h2", link.name, *([" ", badge] if simulated else [])),
        *(
            el(
                "p",
                el("a", it.title, href=page_links.incident_page(it.id)),
                f", since {time_of(it.since)}; ",
                *nodes(it.impact.text, it.subject.cluster, it.impact.holders),
                ". ",
                el("b", "Do now: "),
                it.action,
                key=it.id,
            )
            for it in link.findings
        ),
        el("p", "No finding.") if not link.findings else None,
        class_=f"story-head {kind}",
        key="answer",
    )


def _end(end: End, now: datetime) -> Node:
    port = end.subject
    is_switch = port.device == SWITCH_DEVICE
    where = None if is_switch else page_links.subject_page(port, now - timedelta(hours=1), now)
    title = end.name if where is None else el("a", end.name, href=where)
    rows = (el("div", el("dt", name), el("dd", value), key=name) for name, value in end.facts)
    return el(
        "section",
        el("h2", title, el("small", " switch" if is_switch else " host")),
        el("dl", *rows, class_="facts") if end.facts else el("p", "Nothing was measured."),
        key=port.key,
    )


def _far(link: Link) -> Node | None:
    is_switch_itself = link.ends[0].subject.port == "0"
    return el("p", _ONE_END) if len(link.ends) == 1 and not is_switch_itself else None
