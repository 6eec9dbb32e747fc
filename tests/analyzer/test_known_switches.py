"""What is found about a leaf goes on as the incident of the first of its ports that was told."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.correlation.causes import hides, merged
from analyzer.correlation.known_switches import first_port
from analyzer.correlation.observation import Candidate, Observation
from analyzer.incidents.book import Book, advance
from gpuvigil.faults import FAULTS
from gpuvigil.lifecycle import Patience
from gpuvigil.model import Finding, Impact, Incident, fingerprint

from .scene import NOON, incident, port
from .test_hides import told
from .test_merged import stood, switch

LEAF, PORT = "switch_congested", "port_congested"
FULL = switch(2, 3, fault=LEAF)
MINUTE = timedelta(minutes=1)


def first(number: int, fault: str = PORT, **more: Any) -> Incident:
    return replace(incident(fault, port(number)), **more)


def joined(
    active: Sequence[Incident],
    found: Sequence[Finding] = (FULL,),
    believed: Collection[str] = (FULL.fingerprint,),
    over: Sequence[Incident] = (),
) -> Finding:
    leaf, *_ = merged(found, {it.fingerprint: it for it in active}, believed, over)
    return leaf


@pytest.mark.parametrize(
    ("active", "named"),
    [
        # Of several the one that was told first.
        ([first(2, since=NOON), first(3, since=NOON - MINUTE)], 3),
        ([first(3, since=NOON - MINUTE), first(2, since=NOON)], 3),
        ([first(2, condition="drops")], 2),
        # One with a reason of its own, another one's, and what another detector told.
        ([first(2, condition="shaped")], None),
        ([first(2, condition="slow_link")], None),
        # One whose own link is lost by now.
        ([first(2, condition="port_down")], None),
        ([first(4)], None),
        ([first(2, fault="port_errors")], None),
        ([replace(first(2), fault="of_a_later_version")], None),
    ],
)
def test_the_first_of_its_ports_that_was_told_without_a_reason_of_its_own(
    active: Sequence[Incident], named: int | None
) -> None:
    known = first_port(FULL, active)
    assert (None if known is None else known.subject) == (None if named is None else port(named))


def test_a_leaf_goes_on_as_its_first_port_once_it_was_seen_twice() -> None:
    known = first(3)
    leaf = joined([known])
    assert (leaf.fault, leaf.subject, leaf.members) == (LEAF, port(3), (port(2),))
    assert leaf.fingerprint == known.fingerprint != fingerprint(LEAF, port(3))
    assert joined([known], believed=()) == FULL
    certain = replace(FULL, certain=True)
    assert joined([known], [certain], ()).fingerprint == known.fingerprint
    # It is no consequence of itself; another port's incident is.
    assert not hides(leaf, known)
    assert hides(leaf, first(2))


def test_a_leaf_that_stands_keeps_its_own_name() -> None:
    known = stood(4, 3, fault=LEAF)
    assert joined([first(3), known]).fingerprint == known.fingerprint
    # What goes on as a port's goes on so, whichever of its ports is the first now.
    grown = replace(stood(3, 2, fault=LEAF), fingerprint=fingerprint(PORT, port(3)))
    assert joined([grown], believed=()).fingerprint == grown.fingerprint
    assert joined([stood(2, 3, fault=LEAF)]).fingerprint == FULL.fingerprint


def test_a_port_that_stands_comes_before_a_leaf_that_is_over() -> None:
    over = replace(stood(4, 3, fault=LEAF), resolved_at=NOON)
    assert joined([first(3)], over=[over]).fingerprint == first(3).fingerprint
    assert joined([], over=[over]).fingerprint == over.fingerprint


def test_a_leaf_has_its_own_name_where_its_first_port_is_found_for_another_reason() -> None:
    shaped = told(PORT, port(3), condition="shaped")
    assert {it.fingerprint for it in merged([FULL, shaped], {first(3).fingerprint: first(3)}, [FULL.fingerprint])} == {FULL.fingerprint, shaped.fingerprint}  # fmt: skip


def test_a_lost_leaf_is_no_port_that_was_told_to_be_down() -> None:
    lost = switch(2, 3)
    down = first(3, fault="port_down")
    assert joined([down], [lost], [lost.fingerprint]) == lost


def test_the_incident_is_the_leaf_s_from_then_on_and_the_port_s_again_where_it_comes_back_as_that() -> (
    None
):
    alone, leaf = told(PORT, port(3), certain=True), replace(FULL, certain=True)
    leaf = joined([first(3)], [leaf])
    book, said = Book(), list[tuple[str, str, int]]()
    for minute, one in enumerate([alone, leaf, None, None, None, alone]):
        made = {} if one is None else {one.fingerprint: _candidate(one)}
        now = NOON + minute * MINUTE
        seen = Observation(candidates=made)
        book, _ = advance(book, seen, now, Patience(clear=MINUTE))
        said += [(it.fault, it.id, len(it.members)) for it in book.active()]
    faults, names, sizes = zip(*said, strict=True)
    assert faults == (PORT, LEAF, LEAF, PORT)
    assert sizes == (1, 2, 2, 1)
    assert len(set(names)) == 1


def _candidate(one: Finding) -> Candidate:
    members = sorted({one.subject.key, *(it.key for it in one.members)})
    return Candidate(
        finding=one,
        severity=one.severity,
        title=FAULTS[one.fault].title,
        label="",
        impact=Impact(),
        members=tuple(members),
        covers=(),
    )
