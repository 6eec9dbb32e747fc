"""Links between switches that are down: one finding for those that share a switch and went at once."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from gpuvigil.faults import Fault
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import SWITCH_DEVICE, Evidence, Finding, Severity, Subject
from gpuvigil.topology.link_names import switch_link_name

from ..window.window import Window
from . import fabric, fabric_links
from .claims import in_words_of
from .crossing import crossing
from .fabric_links import CableTrouble
from .port_groups import joined

_ONE, _SEVERAL, _CUT_OFF = (
    CONDITIONS[key] for key in ("uplink_down", "uplinks_down", "leaf_cut_off")
)
# A fabric is read once a minute, its switches one after the other.
_AT_ONCE = timedelta(minutes=2)
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class _Known:
    """An active incident about such links."""

    subject: Subject
    links: frozenset[Subject]


def cables_down(window: Window, fault: Fault) -> Iterator[Finding]:
    """Yield one finding of `fault` per cause: a cable, or what several cables share.

    Each cable to a host without a collector gets its own.
    """
    troubles = sorted(
        fabric_links.cables_without_link(window), key=lambda it: (it.since, it.subject)
    )
    between = [it for it in troubles if it.cable.at_switches]
    yield from (_of_host(it, fault) for it in troubles if not it.cable.at_switches)
    known = _stood(window, fault)
    for group in _together(between, known):
        yield _finding(window, group, known, fault)


def _of_host(trouble: CableTrouble, fault: Fault) -> Finding:
    return Finding(
        fault=fault.key,
        subject=trouble.subject,
        severity=fault.severity,
        since=trouble.since,
        evidence=trouble.evidence,
        detector=fault.detector,
        action=fault.action,
        source=fault.source,
        own_limit=fault.own_limit,
    )


def _stood(window: Window, fault: Fault) -> list[_Known]:
    return [
        _Known(it.subject, frozenset({it.subject, *map(Subject.parse, it.members)}))
        for it in window.recent_incidents
        if it.fault == fault.key and not it.resolved_at and it.subject.device == SWITCH_DEVICE
    ]


def _together(
    troubles: Sequence[CableTrouble], known: Sequence[_Known]
) -> Iterator[Sequence[CableTrouble]]:
    """Return groups that share a switch and went within two minutes, or are one incident already."""
    runs: dict[int, int] = {}
    begun = None
    for number, it in enumerate(troubles):
        if begun is None or it.since - troubles[begun].since > _AT_ONCE:
            begun = number
        runs[id(it)] = begun

    def ties(it: CableTrouble) -> Iterator[object]:
        cluster, names = it.cable.between
        yield from ((cluster, name, runs[id(it)]) for name in sorted(names))
        yield from (one.subject for one in known if it.subject in one.links)

    return iter(joined(troubles, ties))


def _finding(
    window: Window, group: Sequence[CableTrouble], known: Iterable[_Known], fault: Fault
) -> Finding:
    links = {it.subject for it in group}
    stands = next((it for it in known if not links.isdisjoint(it.links)), None)
    first = group[0]
    subject = first.subject if stands is None else stands.subject
    others = tuple(sorted((links | (stands.links if stands else set())) - {subject}))
    row, evidence = _ONE, first.evidence
    if others:
        row, evidence = _SEVERAL, tuple(_of_several(window, group))
    found = replace(
        _of_host(first, fault),
        subject=subject,
        members=others,
        since=first.since,
        evidence=evidence,
    )
    severity = row.severity
    if _cut_off(window, group) and crossing(window, found).jobs:
        row, severity = _CUT_OFF, Severity.CRITICAL
    return in_words_of(replace(found, severity=severity), row)


def _of_several(window: Window, group: Sequence[CableTrouble]) -> Iterator[Evidence]:
    yield from (it for it in group[0].evidence if it.name == group[0].evidence[0].name)
    shown = [switch_link_name(it.cable.near.name, it.cable.far) for it in group[:_SHOWN]]
    more = f" and {len(group) - _SHOWN} more" if len(group) > _SHOWN else ""
    yield Evidence(name="links down", value=f"{', '.join(shown)}{more}")
    every, up = _counted(window)
    for place in sorted({it for trouble in group for it in _ends(trouble)})[:_SHOWN]:
        yield Evidence(
            name=f"links of {place[1]} to other switches that are up",
            value=f"{up[place]} of {every[place]}",
        )


def _ends(trouble: CableTrouble) -> Iterator[tuple[str, str]]:
    cluster, names = trouble.cable.between
    yield from ((cluster, name) for name in names)


def _counted(window: Window) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Count each switch's links to other switches, all and those up, by cluster and switch."""
    every, up = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for cable in fabric.cables(window):
        if cable.at_switches:
            cluster, names = cable.between
            for name in names:
                every[cluster, name] += 1
                up[cluster, name] += all(end.port.up for end in cable.ends)
    return every, up


def _cut_off(window: Window, group: Sequence[CableTrouble]) -> bool:
    """Tell whether a switch with hosts has no link to another switch any more."""
    _, up = _counted(window)
    alone = {place for it in group for place in _ends(it) if not up[place]}
    with_hosts = {
        (it.subject.cluster, it.subject.node)
        for it in fabric.answering(window).values()
        if fabric.plugged_hosts(window, it)
    }
    return not alone.isdisjoint(with_hosts)
