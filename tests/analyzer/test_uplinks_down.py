"""Links between switches that go down: one cable, several at once, all of a leaf; and whose jobs cross them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.correlation.correlate import observe
from analyzer.detectors.port_down import broken_ports
from analyzer.detectors.switch_down import switches_down
from analyzer.window.window import Window
from gpuvigil.model import Finding, Incident, Severity

from .scene import NOON, allocation, gpu, healthy, incident
from .test_fabric import DAY, MINUTE, Fabric, a_port, a_switch, down, of

SECOND = timedelta(seconds=1)


def fabric() -> Fabric:
    """Hosts 1 and 2 are at leaf 1, 3 and 4 at leaf 2; each leaf has a cable to each of two spines."""
    leaves = {
        f"leaf{leaf}": a_switch(
            f"leaf{leaf}",
            *(a_port(n, f"node-{n} mlx5_0") for n in (2 * leaf - 1, 2 * leaf)),
            *(a_port(20 + spine, f"spine{spine}", leaf) for spine in (1, 2)),
        )
        for leaf in (1, 2)
    }
    spines = {
        f"spine{spine}": a_switch(
            f"spine{spine}", *(a_port(leaf, f"leaf{leaf}", 20 + spine) for leaf in (1, 2))
        )
        for spine in (1, 2)
    }
    return leaves | spines


def cut(*ends: tuple[str, int], apart: timedelta = timedelta(0)) -> Fabric:
    those = fabric()
    for number, (leaf, spine) in enumerate(ends):
        since = NOON - 5 * MINUTE + number * apart
        those = down(those, leaf, 20 + spine, since)
        those = down(those, f"spine{spine}", int(leaf[4:]), since)
    return those


def window(those: Fabric, *jobs: Sequence[int], stood: Sequence[Incident] = ()) -> Window:
    """`jobs`: each runs on these hosts."""
    held = [
        allocation(gpu(number), f"job {name}")
        for name, numbers in enumerate(jobs, 1)
        for number in numbers
    ]
    seen = replace(healthy(nodes=4), allocations=tuple(held)).window()
    switches = {it.subject.key: it for it in those.values()}
    return replace(seen, switches=switches, recent_incidents=tuple(stood))


def ends(it: Finding) -> list[str]:
    return sorted(f"{one.node} {one.port}" for one in (it.subject, *it.members))


def told(seen: Window, found: Finding) -> tuple[str, str]:
    (one,) = observe(seen, [found], (), {found.fingerprint}).candidates.values()
    return one.label, one.impact.text


ALL_OF_LEAF = (("leaf1", 1), ("leaf1", 2))


@pytest.mark.parametrize(("seconds", "told"), [(120, 1), (121, 2)])
def test_links_of_one_switch_that_go_within_two_minutes_are_one_matter(
    seconds: int, told: int
) -> None:
    assert len(broken_ports(window(cut(*ALL_OF_LEAF, apart=seconds * SECOND)))) == told


def test_links_without_a_switch_in_common_are_each_their_own() -> None:
    found = broken_ports(window(cut(("leaf1", 1), ("leaf2", 2))))
    assert [ends(it) for it in found] == [["leaf1 21"], ["leaf2 22"]]
    assert {it.condition for it in found} == {"uplink_down"}


def test_several_links_of_a_spine_say_which_and_what_is_left() -> None:
    seen = window(cut(("leaf1", 1), ("leaf2", 1)), (1, 2, 3))
    (it,) = broken_ports(seen)
    assert (it.severity, it.condition, ends(it)) == (
        Severity.WARNING, "uplinks_down", ["leaf1 21", "leaf2 21"],
    )  # fmt: skip
    assert of(it)["links down"] == "leaf1 port 21 → spine1 port 1, leaf2 port 21 → spine1 port 2"
    assert of(it)["links of spine1 to other switches that are up"] == "0 of 2"
    assert told(seen, it) == (
        "2 links of spine1 (to leaf1, leaf2)",
        "job 1 of alice may be slower (3 GPUs on 3 nodes)",
    )


@pytest.mark.parametrize(
    ("jobs", "severity", "condition"),
    [
        (((1, 2),), Severity.WARNING, "uplinks_down"),
        (((1, 3),), Severity.CRITICAL, "leaf_cut_off"),
    ],
)
def test_a_leaf_without_any_link_left_is_critical_where_a_job_needs_one(
    jobs: Sequence[Sequence[int]], severity: Severity, condition: str
) -> None:
    (it,) = broken_ports(window(cut(*ALL_OF_LEAF), *jobs))
    assert (it.severity, it.condition) == (severity, condition)
    (one,) = broken_ports(window(cut(ALL_OF_LEAF[0]), *jobs))
    assert (one.severity, one.condition) == (Severity.WARNING, "uplink_down")


def test_what_stands_keeps_its_name_while_links_join_it_and_come_back() -> None:
    end = fabric()["leaf1"].port_subject(22)
    known = incident("port_down", end)
    (it,) = broken_ports(window(cut(*ALL_OF_LEAF, apart=4 * MINUTE), stood=[known]))[1:]
    assert ends(it) == ["leaf1 22"]
    both = replace(known, members=(end.key, fabric()["leaf1"].port_subject(21).key))
    (it,) = broken_ports(window(cut(ALL_OF_LEAF[0]), stood=[both]))
    assert (it.subject, it.condition) == (end, "uplinks_down")
    (it,) = broken_ports(window(cut(ALL_OF_LEAF[0]), stood=[replace(both, resolved_at=NOON)]))
    assert it.subject != end


def test_a_spine_that_is_lost_says_what_each_leaf_lost_and_whose_jobs_cross() -> None:
    those = fabric()
    those["spine1"] = replace(those["spine1"], lost_at=NOON - 2 * MINUTE)
    seen = window(those, (1, 2), (2, 3, 4))
    (it,) = switches_down(seen)
    assert of(it)["links to other switches lost"] == "leaf1 1 of 2, leaf2 1 of 2"
    assert told(seen, it) == ("spine1", "job 2 of alice may be slower (3 GPUs on 3 nodes)")
    (one,) = observe(seen, [it], (), {it.fingerprint}).candidates.values()
    assert one.impact.jobs_across == 1
    assert told(window(those, (1, 2)), it)[1] == "no job runs across these switches now"
    unread = replace(window(those, (2, 3)), inventories={})
    assert told(unread, it)[1] == "whose jobs go over it is not known"


def test_a_cable_that_went_long_ago_is_one_matter_with_none_of_today() -> None:
    those = down(cut(ALL_OF_LEAF[1]), "leaf1", 21, NOON - DAY)
    assert len(broken_ports(window(those))) == len(ALL_OF_LEAF)
