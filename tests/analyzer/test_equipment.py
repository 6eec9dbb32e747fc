"""What the site's Prometheus says about power and cooling becomes a fault of the node, or one of the rack."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.host_sensors import failing_parts, would_show
from analyzer.window.window import Window
from gpuvigil.model import Finding, Group, GroupKind, Subject
from gpuvigil.model.equipment import Equipment, FailedPart, PartKind, rack_subject

from .scene import NOON, healthy, incident, node

MINUTE = timedelta(minutes=1)


def part(kind: PartKind, minutes: int = 3, name: str = "PSU2", said: str = "state 3") -> FailedPart:
    return FailedPart(kind=kind, name=name, said=said, since=NOON - minutes * MINUTE)


def window(*told: Equipment, racks: Sequence[str] = ("r1", "r1", "r2")) -> Window:
    scene = healthy(nodes=len(racks))
    placed = tuple(
        replace(it, rack=rack) for it, rack in zip(scene.inventories, racks, strict=True)
    )
    seen = replace(scene, inventories=placed).window()
    return replace(seen, equipment={it.subject.key: it for it in told})


def of(subject: Subject, *parts: FailedPart, minutes: int = 0) -> Equipment:
    return Equipment(subject=subject, at=NOON - minutes * MINUTE, failed=parts)


def told(found: Sequence[Finding]) -> list[tuple[str, Subject, str]]:
    return [(it.fault, it.subject, it.condition) for it in found]


@pytest.mark.parametrize(
    ("kind", "fault", "condition"),
    [
        (PartKind.POWER_SUPPLY, "host_power", ""),
        (PartKind.FAN, "host_fan", ""),
        (PartKind.POWER_FEED, "host_power", "feed_failed"),
        (PartKind.COOLANT, "host_fan", "coolant"),
    ],
)
def test_a_failed_part_of_a_node_is_named(kind: PartKind, fault: str, condition: str) -> None:
    (found,) = failing_parts(window(of(node(), part(kind))))
    assert told([found]) == [(fault, node(), condition)]
    assert found.evidence[0].text == f"{kind.value} PSU2: state 3, says the site's Prometheus"
    assert (found.since, found.members, found.group) == (NOON - 3 * MINUTE, (), None)


def test_a_rack_is_one_matter_with_its_nodes() -> None:
    (found,) = failing_parts(window(of(rack_subject("c", "R1"), part(PartKind.POWER_FEED))))
    assert told([found]) == [("host_power", node(1), "feed_failed")]
    assert found.members == (node(1), node(2))
    assert found.group == Group(GroupKind.RACK, "R1")
    assert found.evidence[1].text == "nodes of rack R1: node-1, node-2"


@pytest.mark.parametrize(
    "one",
    [
        of(node(), part(PartKind.FAN, minutes=0)),  # nobody looked a second time
        of(node(), part(PartKind.FAN, minutes=30), minutes=15),  # nobody looks any more
        of(node()),
        of(node(7), part(PartKind.FAN)),  # no collector reports that node
        of(rack_subject("c", "r9"), part(PartKind.COOLANT)),
    ],
)
def test_what_is_new_old_well_or_elsewhere_is_not_told(one: Equipment) -> None:
    assert failing_parts(window(one)) == []


@pytest.mark.parametrize("name", ["node-1.example.org", "NODE-1"])
def test_a_node_goes_by_its_name_with_and_without_a_domain(name: str) -> None:
    one = of(Subject(cluster="c", node=name), part(PartKind.FAN))
    assert told(failing_parts(window(one))) == [("host_fan", node(), "")]


def test_parts_of_one_node_are_one_matter_for_each_fault() -> None:
    one = of(
        node(),
        part(PartKind.FAN, name="FAN1"),
        part(PartKind.POWER_FEED),
        part(PartKind.POWER_SUPPLY),
    )
    found = {it.fault: it for it in failing_parts(window(one))}
    assert set(found) == {"host_fan", "host_power"}
    assert found["host_power"].condition == ""
    assert len(found["host_power"].evidence) == 2


def test_an_incident_is_not_over_because_nobody_reads_its_part_any_more() -> None:
    (found,) = failing_parts(window(of(node(), part(PartKind.FAN))))
    stands = incident(found.fault, found.subject)
    assert would_show(window(of(node(), part(PartKind.FAN, 60), minutes=20)), stands) is False
    for seen in (window(of(node(), part(PartKind.FAN))), window(of(node(), minutes=20)), window()):
        assert would_show(seen, stands) is True


def test_a_racks_incident_ends_though_its_first_node_is_down() -> None:
    (found,) = failing_parts(window(of(rack_subject("c", "r1"), part(PartKind.COOLANT))))
    stands = incident(found.fault, found.subject, group=found.group)
    well = window(of(rack_subject("c", "r1")))
    down = replace(well, rows={})
    assert would_show(down, stands) is True
    assert would_show(down, replace(stands, group=None)) is False


def test_what_the_kernel_says_of_a_node_is_one_matter_with_it() -> None:
    scene = healthy(nodes=2).changed(node(), {"fans_failed": 1})
    seen = replace(
        scene.window(), equipment={node().key: of(node(), part(PartKind.FAN, name="FAN1"))}
    )
    (found,) = failing_parts(seen)
    assert [it.name for it in found.evidence] == ["fans failed", "fan FAN1"]
