"""Findings that are one matter are one, in the graver's words and under the name that stands."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.correlation.causes import merged
from gpuvigil.model import Evidence, Finding, Incident, Severity, Subject

from .scene import NOON, gpu, incident, node, port
from .test_hides import told

MINUTE = timedelta(minutes=1)
INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL


def one_of(found: Sequence[Finding], *active: Incident) -> list[Finding]:
    return merged(found, {it.fingerprint: it for it in active})


# --- an Xid and the state that it speaks of -------------------------------------------------------

STATE = told("gpu_memory", gpu(), severity=WARNING, title="state", condition="remap_failure")
XID = told("gpu_xid", gpu(), severity=WARNING, title="xid", xid=48)


@pytest.mark.parametrize("field", ["certain", "late", "confined"])
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("xid", [False, True])
def test_what_both_say_is_certain_by_either_and_late_and_confined_by_both(
    field: str, state: bool, xid: bool
) -> None:
    first: dict[str, Any] = {field: state}
    second: dict[str, Any] = {field: xid}
    (both,) = one_of([replace(STATE, **first), replace(XID, **second)])
    assert getattr(both, field) is (state or xid if field == "certain" else state and xid)


@pytest.mark.parametrize(
    ("state", "xid", "title"),
    [
        (WARNING, WARNING, "state"),
        (WARNING, CRITICAL, "xid"),
        (CRITICAL, WARNING, "state"),
        (INFO, WARNING, "xid"),
    ],
)
@pytest.mark.parametrize("certain", [False, True])
def test_the_graver_speaks_first_and_both_began_with_the_earlier(
    state: Severity, xid: Severity, title: str, certain: bool
) -> None:
    said = [(Evidence(name="n", value=name),) for name in ("state", "xid")]
    for before in (MINUTE, -MINUTE):
        found = [
            replace(STATE, severity=state, evidence=said[0], since=NOON),
            replace(XID, severity=xid, evidence=said[1], since=NOON - before, certain=certain),
        ]
        (both,) = one_of(found)
        assert both.fault == ("gpu_xid" if certain else "gpu_memory")
        assert (both.title, both.since) == (title, min(NOON, NOON - before))
        assert (both.xid, both.condition) == (
            (48, "") if title == "xid" else (None, "remap_failure")
        )
        assert [it.value for it in both.evidence] == sorted(["state", "xid"], key=title.__ne__)


@pytest.mark.parametrize(
    ("spoke_of", "stands", "goes_on_as"),
    [
        (48, (), "gpu_memory"),
        (94, (), "gpu_xid"),
        (None, (), "gpu_xid"),
        (48, (incident("gpu_xid", gpu()),), "gpu_xid"),
    ],
)
def test_an_xid_whose_state_is_over_goes_on_as_the_incident_that_spoke_of_it(
    spoke_of: int | None, stands: tuple[Incident, ...], goes_on_as: str
) -> None:
    state = replace(incident("gpu_memory", gpu()), xid=spoke_of)
    (one,) = one_of([XID], state, *stands)
    assert (one.fault, one.title, one.xid) == (goes_on_as, "xid", 48)
    # Of another GPU nothing was told.
    (other,) = one_of([XID], replace(incident("gpu_memory", gpu(1, 1)), xid=spoke_of))
    assert other.fault == "gpu_xid"


def test_a_counter_that_has_grown_says_less_than_an_xid() -> None:
    counted = replace(STATE, condition="uncorrected_growth")
    assert [it.title for it in one_of([counted, XID])] == ["xid"]
    assert [it.title for it in one_of([replace(counted, severity=CRITICAL), XID])] == ["state"]


@pytest.mark.parametrize(
    ("stands", "certain", "name"),
    [
        ((), False, "gpu_memory"),
        ((), True, "gpu_xid"),
        (("gpu_memory",), True, "gpu_memory"),
        (("gpu_xid",), False, "gpu_xid"),
        (("gpu_memory", "gpu_xid"), False, "gpu_xid"),
    ],
)
def test_what_stands_keeps_its_name(stands: Sequence[str], certain: bool, name: str) -> None:
    active = [incident(fault, gpu()) for fault in stands]
    (both,) = one_of([STATE, replace(XID, certain=certain)], *active)
    assert both.fault == name


def test_each_gpus_xid_is_held_against_its_own_state() -> None:
    alone = told("gpu_xid", gpu(1, 1), xid=48)
    foreign = told("gpu_xid", gpu(1, 2), xid=31)
    found = one_of([alone, XID, STATE, foreign])
    assert {(it.fault, it.subject) for it in found} == {
        ("gpu_xid", gpu(1, 1)),
        ("gpu_memory", gpu()),
        ("gpu_xid", gpu(1, 2)),
    }


@pytest.mark.parametrize(
    ("event", "known", "in_known_words"),
    [
        ({}, {}, True),
        ({"severity": WARNING}, {}, False),
        ({}, {"severity": WARNING}, False),
        ({}, {"xid": 48}, False),
        ({}, {"subject": gpu(1, 1)}, False),
    ],
)
def test_a_critical_xid_goes_on_in_the_words_of_the_critical_state_that_is_not_read_now(
    event: Mapping[str, Any], known: Mapping[str, Any], in_known_words: bool
) -> None:
    words = {"title": "known", "condition": "sram_threshold", "action": "Replace it."}
    subject = known.get("subject", gpu())
    old = replace(incident("gpu_xid", subject), **{"severity": CRITICAL, **words, **known})
    old = replace(old, source="known", own_limit=True)
    (said,) = one_of([replace(XID, **{"severity": CRITICAL, **event})], old)
    assert (said.title == "known") is in_known_words
    assert (said.xid, said.own_limit) == ((None, True) if in_known_words else (48, False))
    assert (said.source, said.action == "Replace it.") == (
        ("known", True) if in_known_words else ("", False)
    )


# --- a switch under the name that stands ----------------------------------------------------------


def switch(first: int, *more: int, fault: str = "switch_down") -> Finding:
    return told(fault, port(first), *map(port, more))


def stood(first: int, *more: int, fault: str = "switch_down") -> Incident:
    members = tuple(port(number).key for number in (first, *more))
    return replace(incident(fault, port(first)), members=members)


def names(found: Sequence[Finding]) -> list[tuple[str, Subject, tuple[Subject, ...]]]:
    return sorted((it.fault, it.subject, tuple(it.members)) for it in found)


@pytest.mark.parametrize(
    ("found", "active", "as_what"),
    [
        # Whichever of its ports are down now.
        ([switch(2, 3, 4)], [stood(1, 2, 3)], [switch(1, 2, 3, 4)]),
        ([switch(1, 2, 9)], [stood(1, 2, 3)], [switch(1, 2, 9)]),
        ([switch(4, 5)], [stood(1, 2, 3)], [switch(4, 5)]),
        # Of two groups the larger goes on as it.
        ([switch(2, 8), switch(3, 4, 5)], [stood(1, 2, 3)], [switch(1, 3, 4, 5), switch(2, 8)]),
        ([switch(1, 8), switch(2, 3, 4)], [stood(1, 2, 3)], [switch(1, 8), switch(2, 3, 4)]),
        # Of two that stand, the one with more of its ports.
        ([switch(4, 5, 6)], [stood(1, 4), stood(2, 5, 6)], [switch(2, 4, 5, 6)]),
        ([switch(4, 5, 6)], [stood(2, 5, 6), stood(1, 4)], [switch(2, 4, 5, 6)]),
        (
            [switch(4, 5, 6), switch(7, 8)],
            [stood(1, 4, 5), stood(7, 8)],
            [switch(1, 4, 5, 6), switch(7, 8)],
        ),
        (
            [switch(7, 8, 9, 10), switch(4, 5)],
            [stood(1, 4, 5), stood(7, 8)],
            [switch(1, 4, 5), switch(7, 8, 9, 10)],
        ),
        (
            [switch(11, 12, 13, 14), switch(4, 5)],
            [stood(1, 4, 5)],
            [switch(1, 4, 5), switch(11, 12, 13, 14)],
        ),
        # What is about one port, and what is no switch, has a name of its own.
        ([switch(2, 3)], [replace(stood(1), members=(port(1).key,))], [switch(2, 3)]),
        ([switch(2, 3)], [stood(1, 2, 3, fault="port_down")], [switch(2, 3)]),
        (
            [told("gpu_power", node(2), gpu(2), gpu(3), gpu(4)), switch(2, 3)],
            [stood(1, 2, 3)],
            [told("gpu_power", node(2), gpu(2), gpu(3), gpu(4)), switch(1, 2, 3)],
        ),
        ([told("port_down", port(2))], [stood(1, 2, 3)], [told("port_down", port(2))]),
    ],
)
def test_a_switch_goes_on_under_the_name_by_which_it_stands(
    found: Sequence[Finding], active: Sequence[Incident], as_what: Sequence[Finding]
) -> None:
    assert names(one_of(found, *active)) == names(as_what)


@pytest.mark.parametrize(
    ("active", "over", "named"),
    [
        ((), (stood(1, 2, 3),), 1),
        # Nothing of it, or another matter.
        ((), (stood(1, 4),), 2),
        ((), (stood(1, 2, 3, fault="switch_congested"),), 2),
        # What stands comes first, though less of it is the same.
        ((stood(5, 3),), (stood(1, 2, 3),), 5),
    ],
)
def test_a_switch_comes_back_under_the_name_that_it_had(
    active: Sequence[Incident], over: Sequence[Incident], named: int
) -> None:
    ended = [replace(it, resolved_at=NOON) for it in over]
    (one,) = merged([switch(2, 3)], {it.fingerprint: it for it in active}, (), ended)
    assert one.subject == port(named)
    assert port(2) in {one.subject, *one.members}
