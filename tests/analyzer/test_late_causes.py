"""A cause that is known only after its sign was told goes on as the sign's incident."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.correlation.correlate import observe
from analyzer.correlation.late_causes import with_late_causes
from gpuvigil.model import Evidence, Finding, Incident, Severity

from .scene import NOON, healthy, incident, node, port
from .test_book import Keeper
from .test_grown_links import by_name, finding

SECOND = timedelta(seconds=1)
SLOWER, DOWN = finding("port_degraded"), finding("port_down")


def of_node(fault: str, **more: Any) -> Finding:
    return finding(fault, node(), **more)


SUPPLY = of_node("host_power", evidence=(Evidence(name="power supplies failed", value="1"),))
BRAKE = of_node(
    "gpu_power",
    condition="power_brake",
    severity=Severity.CRITICAL,
    evidence=(Evidence(name="power brake", value="4 min"),),
)
BRAKED = replace(incident("gpu_power", node()), condition="power_brake")


@pytest.mark.parametrize("fault", ["port_down", "port_flapping"])
@pytest.mark.parametrize("is_over", [False, True])
def test_a_lost_link_that_comes_up_slower_goes_on(fault: str, is_over: bool) -> None:
    lost = incident(fault, port())
    stands, over = ({}, [replace(lost, resolved_at=NOON)]) if is_over else (by_name(lost), [])
    (one,) = with_late_causes([SLOWER], stands, over)
    assert (one.fault, one.fingerprint, one.action) == (
        "port_degraded",
        lost.fingerprint,
        SLOWER.action,
    )
    assert one.condition == "port_degraded"
    # And so it does once it is called so.
    known = replace(lost, fault="port_degraded")
    assert with_late_causes([SLOWER], by_name(known), []) == [one]


def test_a_link_that_is_down_is_not_slower_and_one_that_stands_keeps_its_incident() -> None:
    lost, own = incident("port_down", port()), incident("port_degraded", port())
    assert with_late_causes([SLOWER, DOWN], by_name(lost), []) == [SLOWER, DOWN]
    assert with_late_causes([SLOWER], by_name(lost, own), []) == [SLOWER]
    assert with_late_causes([SLOWER], by_name(lost), [own]) == [SLOWER]
    assert with_late_causes([SLOWER], by_name(incident("port_down", port(2))), []) == [SLOWER]
    assert with_late_causes([SLOWER], by_name(incident("port_errors", port())), []) == [SLOWER]
    assert with_late_causes([SLOWER], {}, []) == [SLOWER]


def test_a_brake_whose_supply_turns_out_to_have_failed_goes_on_as_grave_as_it_was() -> None:
    (one,) = with_late_causes([BRAKE, SUPPLY], by_name(BRAKED), [])
    assert (one.fault, one.fingerprint) == ("host_power", BRAKED.fingerprint)
    assert (one.severity, one.action) == (Severity.CRITICAL, SUPPLY.action)
    assert one.evidence == (*SUPPLY.evidence, *BRAKE.evidence)
    (alone,) = with_late_causes([SUPPLY], {}, [replace(BRAKED, resolved_at=NOON)])
    assert (alone.fingerprint, alone.severity) == (BRAKED.fingerprint, Severity.WARNING)


@pytest.mark.parametrize(
    "other",
    [
        replace(BRAKED, condition="node_power_limit"),
        replace(BRAKED, severity=Severity.INFO),
        replace(BRAKED, members=(node().key, node(2).key)),  # of the rack's feed
        incident("gpu_power", node(2)),
        incident("gpu_hot", node()),
    ],
)
def test_what_a_supply_has_nothing_to_do_with_is_left_alone(other: Incident) -> None:
    assert with_late_causes([SUPPLY], by_name(other), []) == [SUPPLY]


def test_the_book_says_it_in_the_words_of_the_cause_and_then_again_of_the_sign() -> None:
    """A supply that fails for a while: one incident, whatever of the two is seen."""
    keeper, window, names = Keeper(), healthy(nodes=2).window(), set[str]()
    for found, fault in (
        ([BRAKE], "gpu_power"),
        ([BRAKE, SUPPLY], "host_power"),
        ([SUPPLY], "host_power"),
        ([BRAKE], "gpu_power"),
    ):
        for _ in range(2):
            believed = {one.fingerprint for one in found}
            keeper.look(observe(window, found, keeper.book.active(), believed))
        (one,) = keeper.book.active()
        assert (one.fault, one.severity) == (fault, Severity.CRITICAL)
        names.add(one.id)
    assert len(names) == 1


def test_silence_is_no_late_cause() -> None:
    silent = of_node("node_silent")
    assert with_late_causes([silent], by_name(BRAKED), []) == [silent]


# --- a full disk ----------------------------------------------------------------------------------

SPOOL, FULL = of_node("host_disk"), of_node("host_space", severity=Severity.WARNING)
NEARLY = of_node("host_space", severity=Severity.INFO)


def told(*looks: tuple[Finding, ...]) -> tuple[Keeper, list[Incident]]:
    """What becomes of these, each seen at two looks; incidents that ended are known."""
    keeper, scene = Keeper(), healthy(nodes=2)
    for found in looks:
        for _ in range(2):
            over = tuple(
                one.incident
                for one in keeper.book.entries.values()
                if one.incident.resolved_at is not None
            )
            window = replace(scene, recent_incidents=over).window()
            active, believed = keeper.book.active(), keeper.book.believed(new_rows=True)
            keeper.look(observe(window, found, active, believed), 20 * SECOND)
    return keeper, [Incident.from_record(one) for one in keeper.incidents.values()]


def test_a_spool_that_fails_before_its_disk_is_read_as_full_is_one_incident_of_the_disk() -> None:
    keeper, incidents = told((SPOOL,), (SPOOL, FULL), (FULL,), (SPOOL, FULL))
    (one,) = incidents
    assert (one.fault, one.severity, one.subject) == ("host_space", Severity.WARNING, node())
    assert (one.title, one.action) == ("File system is nearly full", FULL.action)
    assert keeper.signals().count("confirmed") == 1
    # The incident ends with both.
    keeper, incidents = told((SPOOL,), (SPOOL, FULL), (), ())
    assert [one.state for one in incidents] == ["resolved"]
    assert set(keeper.signals()) == {"confirmed", "changed", "cleared"}


@pytest.mark.parametrize(("seconds", "incidents"), [(-600, 1), (300, 2)])
def test_what_a_full_disk_made_its_collector_drop_is_no_incident_once_there_is_room(
    seconds: int, incidents: int
) -> None:
    dropped = replace(SPOOL, since=NOON + seconds * SECOND)
    _, found = told((FULL,), (FULL, dropped), (dropped,), (dropped,), (dropped,))
    assert len(found) == incidents
    assert {one.fault for one in found if one.resolved_at is None} == (
        {"host_disk"} if incidents == 2 else set()
    )


def test_a_file_system_that_was_nearly_full_before_gives_its_note_up() -> None:
    _, incidents = told((NEARLY,), (NEARLY, SPOOL), (FULL, SPOOL))
    of = {one.fault: one for one in incidents if one.resolved_at is None}
    assert set(of) == {"host_space"}
    assert of["host_space"].fingerprint == SPOOL.fingerprint
    assert of["host_space"].covers == ()
    (note,) = (one for one in incidents if one.resolved_at is not None)
    assert (note.severity, note.covered_by) == (Severity.INFO, SPOOL.fingerprint)
    # Some room is there again: it is still the same problem.
    _, incidents = told((SPOOL,), (FULL, SPOOL), (NEARLY, SPOOL), (NEARLY,))
    assert len(incidents) == 1


def test_a_file_system_that_is_only_nearly_full_need_not_be_the_spool_s() -> None:
    _, incidents = told((SPOOL,), (SPOOL, NEARLY))
    assert {(one.fault, one.severity) for one in incidents} == {
        ("host_disk", Severity.WARNING),
        ("host_space", Severity.INFO),
    }
    elsewhere = replace(FULL, subject=node(2))
    _, incidents = told((SPOOL,), (SPOOL, elsewhere))
    assert len(incidents) == 2
