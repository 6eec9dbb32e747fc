"""A bad link that is lost goes on as one incident, and what it then explains."""

from dataclasses import replace
from typing import Any

import pytest

from analyzer.correlation.causes import hides
from analyzer.correlation.grown_links import grown
from analyzer.correlation.halted_jobs import halts_job
from gpuvigil.faults import FAULTS
from gpuvigil.model import Evidence, Finding, Incident, Subject

from .scene import NOON, incident, node, port

END = Subject(cluster="c", node="leaf1", device="switch", port="40")


def finding(fault: str, subject: Subject | None = None, **more: Any) -> Finding:
    row = FAULTS[fault]
    made = Finding(
        fault=fault, subject=subject or port(), severity=row.severity, since=NOON, evidence=(),
        detector=row.detector, action=row.action, source=row.source, own_limit=row.own_limit,
    )  # fmt: skip
    return replace(made, **more)


def by_name(*them: Incident) -> dict[str, Incident]:
    return {it.fingerprint: it for it in them}


ERRORS, DOWN = incident("port_errors", port()), finding("port_down")


@pytest.mark.parametrize("fault", ["port_errors", "port_degraded", "port_packet_loss"])
def test_a_lost_link_goes_on_as_what_was_bad(fault: str) -> None:
    bad = incident(fault, port())
    (one,) = grown([finding(fault), DOWN], by_name(bad))
    assert (one.fingerprint, one.condition) == (bad.fingerprint, "port_down")
    assert (one.title, one.action) == ("Network port is down", DOWN.action)


def test_what_stands_for_itself_or_elsewhere_is_left_alone() -> None:
    both = [finding("port_errors"), DOWN]
    own = incident("port_down", port())
    for stands in (by_name(own), by_name(own, ERRORS), {}):
        assert grown(both, stands) == both
    for other in (incident("port_errors", port(2)), incident("port_ecn", port())):
        assert grown(both, by_name(other)) == both
    shared = replace(
        incident("port_packet_loss", port()), members=(port().key, port(2).key, port(3).key)
    )
    assert grown([DOWN], by_name(shared)) == [DOWN]


def test_flaps_say_more_than_that_it_is_down_now() -> None:
    (one,) = grown([DOWN, finding("port_flapping")], by_name(ERRORS))
    assert (one.fault, one.condition) == ("port_errors", "port_flapping")


def test_a_cable_that_its_switch_told_of_goes_on_by_that_end() -> None:
    known = replace(incident("port_errors", END), members=(END.key, port().key))
    (one,) = grown([DOWN], by_name(known))
    assert (one.fingerprint, one.members) == (known.fingerprint, (port(),))


def test_a_link_that_grew_explains_and_halts_as_one_that_is_down() -> None:
    (one,) = grown([DOWN], by_name(ERRORS))
    assert hides(one, finding("port_degraded"))
    assert hides(finding("switch_down", port(3), members=(port(),)), one)
    assert not hides(one, ERRORS)
    assert halts_job(one)
    assert not halts_job(finding("port_errors"))
    assert not hides(one, finding("port_degraded", node()))


HOT = finding("port_module", evidence=(Evidence(name="module", value="81 °C"),))


@pytest.mark.parametrize("fault", ["port_errors", "port_degraded"])
def test_a_bad_link_whose_module_turns_out_to_be_to_blame_goes_on(fault: str) -> None:
    bad = incident(fault, port())
    (one,) = grown([finding(fault), HOT], by_name(bad))
    assert (one.fingerprint, one.condition) == (bad.fingerprint, "port_module")
    assert (one.title, one.action) == ("Transceiver is too hot or broken", HOT.action)
    assert hides(one, finding("port_packet_loss"))
    assert not hides(one, bad)


@pytest.mark.parametrize("fault", ["port_congested", "port_packet_loss", "port_slow_receiver"])
def test_what_waits_for_others_is_no_beginning_of_a_hot_module(fault: str) -> None:
    assert grown([HOT], by_name(incident(fault, port()))) == [HOT]


def test_a_module_that_stands_keeps_its_incident() -> None:
    both = by_name(ERRORS, incident("port_module", port()))
    assert grown([finding("port_errors"), HOT], both) == [finding("port_errors"), HOT]


@pytest.mark.parametrize("fault", ["port_errors", "port_module"])
def test_a_lost_link_says_what_is_known_of_its_module(fault: str) -> None:
    stands = incident(fault, port())
    (one,) = grown([DOWN, HOT], by_name(stands))
    assert (one.fingerprint, one.condition) == (stands.fingerprint, "port_down")
    assert (one.title, one.action) == ("Network port is down", HOT.action)
    assert one.evidence == HOT.evidence
    assert halts_job(one)


def test_a_lost_link_explains_what_its_module_tells() -> None:
    assert hides(DOWN, HOT)
    assert hides(finding("port_flapping"), HOT)
    assert hides(finding("port_flapping"), finding("port_errors"))
    assert not hides(HOT, DOWN)
    assert not hides(DOWN, finding("port_module", port(2)))
