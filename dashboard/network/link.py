"""A link's own page, as trees of elements: what is known of it, and both of its ends side by side."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpuvigil.clock import moment as time_of
from gpuvigil.model import SIMULATED_CLUSTER, SWITCH_DEVICE, Subject, SwitchPort
from gpuvigil.numbers_in_words import natural
from gpuvigil.web import page_links

from ..layout.job_links import nodes
from ..layout.tree import Node, each, el, wide
from ..lists.links import AVERAGES
from ..lists.network import Network
from ..lists.one_link import End, Link, is_slow, port_speed

_ALL = el("p", el("a", "All links", href=page_links.NETWORK))
_MOST_PORTS = 256
_ONE_END = "The other end is not known: run lldpd on the host, or have gpuvigil read the switches."


def page(found: Network, asked: str, now: datetime) -> Sequence[Node]:
    """Return the page of the link at the port with this subject key, or a text that there is none."""
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
            _fills(found, link),
            el("section", *(_end(it, now) for it in link.ends), class_="ends"),
            el("p", AVERAGES, class_="sub") if any(map(_is_measured, link.ends)) else None,
            _far(link),
            _ports(found, link),
            _ALL,
        )
    )


def _answer(link: Link) -> Node:
    """Return the open incidents about the link, worst first."""
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
                f" ({it.label})" if it.label and _is_switch(link.ends[0].subject) else None,
                f", since {time_of(it.since)}; ",
                *nodes(it.impact.text, it.subject.cluster, it.impact.holders, it.impact.users),
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


def _fills(found: Network, link: Link) -> Node | None:
    """Return which job fills the link, if one does: no fault, but what its communication waits for."""
    for end in link.ends:
        port = end.subject
        name = port.cluster, port.node, port.device or "", port.port or ""
        if (job := found.filled.get(name)) is not None:
            load = found.links.load[found.links.names.index(name)]
            said = f"{job} fills this link: {load:.0f} % of its speed. That is no fault; the job communicates as fast as the link lets it."
            return el("p", *nodes(said, port.cluster, [str(job)]), key="fills")
    return None


def _end(end: End, now: datetime) -> Node:
    port = end.subject
    is_switch = port.device == SWITCH_DEVICE
    where = (
        page_links.switch_page(port.cluster, port.node)
        if is_switch
        else page_links.subject_page(port, now - timedelta(hours=1), now)
    )
    title = end.name if _is_switch(port) else el("a", end.name, href=where)
    rows = (el("div", el("dt", name), el("dd", value), key=name) for name, value in end.facts)
    return el(
        "section",
        el("h2", title, el("small", " switch" if is_switch else " host")),
        el("dl", *rows, class_="facts") if end.facts else el("p", "Nothing was measured."),
        key=port.key,
    )


def _far(link: Link) -> Node | None:
    lone = len(link.ends) == 1 and not _is_switch(link.ends[0].subject)
    return el("p", _ONE_END) if lone else None


def _is_measured(end: End) -> bool:
    """Return whether a host's port has numbers of its own; those of a switch say their span."""
    return end.subject.device != SWITCH_DEVICE and bool(end.facts)


def _is_switch(subject: Subject) -> bool:
    """Return whether the subject is a whole switch, which is its port 0."""
    return subject.device == SWITCH_DEVICE and subject.port == "0"


def _ports(found: Network, link: Link) -> Node | None:
    """Return each port of a switch with what is at its other end."""
    switch = link.ends[0].subject
    if not _is_switch(switch) or found.known is None:
        return None
    told = found.known.switches[switch.cluster, switch.node]
    ports = sorted((it for it in told.ports if it.id != switch.port), key=lambda it: natural(it.id))
    lines = (
        el(
            "tr",
            el("td", el("a", it.id, href=page_links.link_page(replace(switch, port=it.id)))),
            el("td", "up" if it.up else "down", class_=None if it.up else "apart"),
            el("td", port_speed(it) or "–", class_="apart" if is_slow(it) else None),
            el("td", *_at_the_end(switch.cluster, it)),
            key=it.id,
        )
        for it in ports[:_MOST_PORTS]
    )
    head = (el("th", name, scope="col") for name in ("Port", "State", "Speed", "Other end"))
    up = sum(it.up for it in ports)
    return el(
        "section",
        el("h2", "Ports", el("small", f" {up:,} of {len(ports):,} up")),
        wide(el("table", el("thead", el("tr", *head)), el("tbody", *lines)), "Ports"),
        key="ports",
    )


def _at_the_end(cluster: str, port: SwitchPort) -> Sequence[Node]:
    if port.at_switch:
        far = f" port {port.peer_id}" if port.peer_id else ""
        return el("a", port.peer, href=page_links.switch_page(cluster, port.peer)), far
    if port.host is None:
        return ("–",)
    node, device = port.host
    return el("a", node, href=page_links.node_page(cluster, node)), f" {device}"
