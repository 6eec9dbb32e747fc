"""NVLink faults on several nodes of one domain are one incident of the domain."""

import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.nvlink_domain import DETECTOR, broken_domains
from gpuvigil.faults.affected import affected_keys
from gpuvigil.model import EventKind, Finding, Incident, Severity, Subject

from .scene import NOON, Scene, allocation, event, gpu, healthy, node
from .test_breaker import Watch

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
CLUSTER = "5e3b0c1d-2f4a-5b6c-7d8e-9fa0b1c2d3e4"
DOWN, RECOVERED = {"nvlink_links_up": 17}, {"nvlink_recovery_errors": 3}
TITLE = "NVLink faults on several nodes of one NVLink domain"


def in_domain(scene: Scene, cliques: dict[int, int | None]) -> Scene:
    """The GPUs of these nodes, each in this clique of one cluster; None is in no domain."""
    inventories = []
    for one in scene.inventories:
        clique = cliques.get(int(one.subject.node[5:]))
        cluster = None if clique is None else CLUSTER
        gpus = [replace(it, fabric_cluster=cluster, fabric_clique=clique) for it in one.gpus]
        inventories.append(replace(one, gpus=tuple(gpus), rack=f"r{clique}"))
    return replace(scene, inventories=tuple(inventories))


def eight(seconds: float = 60) -> Scene:
    """Nodes 1 to 4 are one clique, 5 to 7 another one of the same cluster, and 8 is in none."""
    cliques: dict[int, int | None] = {n: 1 if n < 5 else 2 for n in range(1, 8)}
    return in_domain(healthy(nodes=8, seconds=seconds), {**cliques, 8: None})


EIGHT = eight()


def bad(scene: Scene, *gpus: Subject, **fields: float) -> Scene:
    for one in gpus:
        scene = scene.changed(one, fields or DOWN)
    return scene


def find(scene: Scene) -> list[Finding]:
    return broken_domains(scene.window())


def told(finding: Finding) -> dict[str, str]:
    return {item.name: item.value for item in finding.evidence}


def test_two_nodes_of_a_domain_are_a_finding_of_the_domain() -> None:
    scene = EIGHT.changed(gpu(3, 1), RECOVERED, 15)
    (found,) = find(bad(scene, gpu(2), gpu(3)))
    assert (found.fault, found.subject) == ("nvlink_domain", node(1))
    assert found.members == (gpu(2), gpu(3), gpu(3, 1))
    assert found.group is not None
    assert found.group.label == f"NVLink domain {CLUSTER}.1"


@pytest.mark.parametrize(("number", "expected"), [(1, 0), (2, 1)])
def test_two_nodes_are_several(number: int, expected: int) -> None:
    assert len(find(bad(EIGHT, *(gpu(n) for n in range(1, number + 1))))) == expected


def test_several_gpus_of_one_node_stay_with_their_node() -> None:
    assert find(EIGHT.changed(gpu(1), RECOVERED, 15).changed(gpu(1, 1), RECOVERED, 15)) == []


def test_nodes_of_another_clique_are_not_drawn_in() -> None:
    assert find(bad(EIGHT, gpu(4), gpu(5))) == []
    (found,) = find(bad(EIGHT, gpu(3), gpu(4), gpu(5)))
    assert found.members == (gpu(3), gpu(4))


@pytest.mark.medium
def test_a_domain_all_of_whose_gpus_fail_takes_time_in_proportion() -> None:
    """As where every node of a cluster names the same domain: no moment is compared with all others."""
    seconds = []
    for nodes in (100, 1600):
        scene = healthy(nodes=nodes, seconds=30).without(lambda it: it.subject.kind != "gpu")
        last = max(it.at for it in scene.samples)
        failing = tuple(
            replace(it, fields={**it.fields, **RECOVERED}) if it.at == last else it
            for it in scene.samples
        )
        scene = in_domain(replace(scene, samples=failing), dict.fromkeys(range(1, nodes + 1), 1))
        window, took = scene.window((DETECTOR,)), []
        for _ in range(3):
            began = time.process_time()
            (found,) = broken_domains(replace(window))
            took.append(time.process_time() - began)
            assert len(found.members) == 2 * nodes
        seconds.append(min(took))
    assert seconds[1] < 48 * seconds[0]  # sixteen times as many; it was a hundred times as long


def test_nodes_without_a_domain_have_none() -> None:
    assert find(bad(in_domain(EIGHT, {}), gpu(1), gpu(2), gpu(3))) == []


def test_each_domain_speaks_for_itself() -> None:
    found = find(bad(EIGHT, gpu(1), gpu(2), gpu(5), gpu(6)))
    assert [one.subject for one in found] == [node(1), node(5)]
    assert len({one.fingerprint for one in found}) == 2


def test_a_gpu_that_has_not_joined_is_where_all_others_of_its_node_are() -> None:
    scene = bad(EIGHT, gpu(1), gpu(2))
    first, *others = scene.inventories
    outside = replace(first.gpus[0], fabric_cluster=None, fabric_clique=None)
    scene = replace(scene, inventories=(replace(first, gpus=(outside, *first.gpus[1:])), *others))
    (found,) = find(scene)
    assert found.members == (gpu(1), gpu(2))


def test_a_fabric_that_is_down_and_an_xid_are_signs_as_well() -> None:
    long = eight(400)
    scene = long.changed(gpu(2), {"fabric_state": 2})
    scene = scene.with_events(event(EventKind.XID, gpu(3), NOON - 5 * SECOND, 74))
    (found,) = find(scene)
    assert (found.severity, found.members) == (Severity.CRITICAL, (gpu(2), gpu(3)))
    memory = long.changed(gpu(2), {"fabric_state": 2})
    memory = memory.with_events(event(EventKind.XID, gpu(3), NOON - 5 * SECOND, 95))
    assert find(memory) == []  # that is no NVLink's


def tray(scene: Scene, nodes: Iterable[int], seconds: float, up: int = 16) -> Scene:
    """A switch tray that these nodes share is gone, and with it two links of each GPU."""
    for number in nodes:
        for index in range(2):
            scene = scene.changed(gpu(number, index), {"nvlink_links_up": up}, seconds)
    return scene


LONG = eight(400)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("nodes", "seconds", "up", "found"),
    [
        (range(1, 5), 65, 17, 1),
        (range(1, 5), 65, 18, 0),  # not fewer
        (range(1, 2), 65, 16, 0),  # one node
        (range(1, 5), 35, 16, 0),  # not all the last minute
        (range(1, 5), 1000, 16, 0),  # never had more: so it is built
    ],
)
def test_a_switch_that_takes_a_link_of_every_gpu_is_told_by_their_own_past(
    nodes: range, seconds: float, up: int, found: int
) -> None:
    assert len(find(tray(LONG, nodes, seconds, up))) == found


def test_gpus_that_somebody_cuts_into_mig_devices_have_lost_nothing() -> None:
    assert find(in_all(tray(LONG, range(1, 5), 65), mig_mode=1)) == []


@pytest.mark.parametrize(("minutes", "found"), [(9.9, 0), (10.1, 1)])
def test_links_that_come_up_after_a_boot_are_no_loss(minutes: float, found: int) -> None:
    boots = [event(EventKind.BOOT, node(n), NOON - minutes * MINUTE) for n in (1, 2)]
    assert len(find(tray(LONG, (1, 2), 65).with_events(*boots))) == found


def test_what_nobody_need_act_on_is_no_sign() -> None:
    everywhere = eight(400)
    for number in range(1, 9):
        for index in range(2):
            everywhere = everywhere.changed(gpu(number, index), {"fabric_state": 2})
    assert find(everywhere) == []  # nobody has set up a fabric here


def test_it_says_how_many_nodes_what_and_whose_jobs_are_inside() -> None:
    held = (
        allocation(gpu(1), "job 1042"),
        allocation(gpu(4), "job 7", "bob"),
        allocation(gpu(5), "job 99", "eve"),
    )
    (found,) = find(replace(bad(EIGHT, gpu(2), gpu(3)), allocations=held))
    assert told(found) == {
        "nodes": "2 of the domain's 4: node-2, node-3",
        "what": "2 x GPU has fewer NVLinks up than its peers",
        "racks": "r1",
        "jobs in the domain": "job 7 of bob, job 1042 of alice",
    }
    (found,) = find(bad(EIGHT, gpu(2), gpu(3)))
    assert told(found)["jobs in the domain"] == "none"


# --- incidents --------------------------------------------------------------------------------------


def active(watch: Watch) -> list[tuple[str, str]]:
    return [(one.fault, one.label) for one in watch.active()]


OF_DOMAIN = ("nvlink_domain", f"NVLink domain {CLUSTER}.1")


def confirmed(watch: Watch, scene: Scene, after: timedelta = timedelta()) -> timedelta:
    """After the two looks that one which is not certain takes."""
    watch.look(after, scene)
    watch.look(after + 10 * SECOND, scene)
    return after + 20 * SECOND


def test_one_domain_one_incident_with_the_jobs_that_wait() -> None:
    held = [allocation(gpu(n, i), "job 1042") for n in (1, 2, 3) for i in (0, 1)]
    watch = Watch(EIGHT)
    for its in held:
        watch.analysis.ingest(its.to_record())
    scene = replace(bad(EIGHT, gpu(2), gpu(3)), allocations=tuple(held))
    confirmed(watch, scene)
    (one,) = watch.active()
    assert (one.fault, one.label, one.title) == (*OF_DOMAIN, TITLE)
    assert set(one.members) == {node(1).key, gpu(2).key, gpu(3).key}
    assert one.impact.holders == ("job 1042",)
    assert one.impact.text == (
        "job 1042 of alice: 6 GPUs on 3 nodes may suffer from this NVLink domain"
    )


@pytest.mark.medium
@pytest.mark.parametrize(("numbers", "others"), [((2, 3), []), ((1, 3), [node(1).key])])
def test_the_node_that_it_is_named_by_is_hit_only_where_its_gpus_are(
    numbers: tuple[int, int], others: list[str]
) -> None:
    watch = Watch(EIGHT)
    confirmed(watch, bad(EIGHT, *map(gpu, numbers)))
    (one,) = watch.active()
    assert one.subject == node(1)
    assert sorted(affected_keys(one)) == sorted([*others, *(gpu(n).key for n in numbers)])


def test_a_single_gpu_stays_a_gpus_incident() -> None:
    watch = Watch(EIGHT)
    confirmed(watch, bad(EIGHT, gpu(2)))
    assert active(watch) == [("gpu_nvlink", "node-2 GPU 0")]


@pytest.mark.medium
@pytest.mark.parametrize(("minutes", "together"), [(4.6, True), (5.1, False)])
def test_what_was_raised_within_five_minutes_is_one(minutes: float, together: bool) -> None:
    watch = Watch(EIGHT)
    confirmed(watch, bad(EIGHT, gpu(2)))
    confirmed(watch, bad(EIGHT, gpu(2), gpu(3)), minutes * MINUTE)
    apart = [("gpu_nvlink", "node-2 GPU 0"), ("gpu_nvlink", "node-3 GPU 0")]
    assert active(watch) == ([OF_DOMAIN] if together else apart)


@pytest.mark.medium
def test_what_was_told_before_stays_apart_while_others_of_its_domain_fail() -> None:
    watch = Watch(EIGHT)
    confirmed(watch, bad(EIGHT, gpu(2)))
    later = bad(EIGHT, gpu(2), gpu(3), gpu(4))
    confirmed(watch, later, 10 * MINUTE)
    assert sorted(active(watch)) == [("gpu_nvlink", "node-2 GPU 0"), OF_DOMAIN]
    confirmed(watch, later, 30 * MINUTE)
    assert sorted(active(watch)) == [("gpu_nvlink", "node-2 GPU 0"), OF_DOMAIN]


def test_an_xid_that_was_told_at_once_is_covered_by_its_domain() -> None:
    watch = Watch(EIGHT)
    watch.hear(EventKind.XID, gpu(2), SECOND, 74)
    watch.hear(EventKind.XID, gpu(3), 2 * SECOND, 74)
    assert [one.fault for one in watch.active()] == ["gpu_xid", "gpu_xid"]
    watch.look(10 * SECOND)
    (one,) = watch.active()
    assert (one.fault, one.label, one.severity) == (*OF_DOMAIN, Severity.CRITICAL)
    # What comes on one of its GPUs is no news, nor does a look at one node end it.
    assert watch.hear(EventKind.XID, gpu(2), 12 * SECOND, 74) == []
    assert [one.fault for one in watch.active()] == ["nvlink_domain"]


def test_another_fault_of_its_gpus_and_links_of_other_domains_are_told_beside_it() -> None:
    watch = Watch(EIGHT)
    scene = bad(EIGHT, gpu(2), gpu(3), gpu(5)).changed(gpu(2), {**DOWN, "remap_failure": 1})
    confirmed(watch, scene)
    assert sorted(active(watch)) == [
        ("gpu_memory", "node-2 GPU 0"),
        ("gpu_nvlink", "node-5 GPU 0"),
        OF_DOMAIN,
    ]


@pytest.mark.medium
def test_it_ends_with_its_links_and_goes_back_to_the_gpu_that_is_left() -> None:
    watch = Watch(EIGHT)
    at = confirmed(watch, bad(EIGHT, gpu(2), gpu(3)))
    for _ in range(12):
        at = confirmed(watch, bad(EIGHT, gpu(3)), at)
    assert active(watch) == [("gpu_nvlink", "node-3 GPU 0")]
    for _ in range(12):
        at = confirmed(watch, EIGHT, at)
    assert active(watch) == []


@pytest.mark.medium
def test_a_lost_tray_stands_for_as_long_as_links_are_lacking() -> None:
    expected = in_all(LONG, nvlink_links_expected=18)
    watch = Watch(expected)
    at = confirmed(watch, tray(expected, range(1, 5), 65))
    assert active(watch) == [OF_DOMAIN]
    for _ in range(12):  # within the trend span, nothing but two links less was ever seen
        at = confirmed(watch, tray(expected, range(1, 5), 1000), at)
    assert active(watch) == [OF_DOMAIN]
    for _ in range(12):
        at = confirmed(
            watch, tray(expected, (2,), 1000), at
        )  # one node alone is none of the domain's
    assert active(watch) == []


def in_all(scene: Scene, **fields: int) -> Scene:
    gpus = {sample.subject for sample in scene.samples if sample.subject.kind == "gpu"}
    for one in sorted(gpus):
        scene = scene.changed(one, fields)
    return scene


@pytest.mark.medium
def test_a_third_node_joins_without_a_message_of_its_own() -> None:
    watch = Watch(EIGHT)
    at = confirmed(watch, bad(EIGHT, gpu(2), gpu(3)))
    at = confirmed(watch, bad(EIGHT, gpu(2), gpu(3), gpu(4)), at + 20 * MINUTE)
    assert active(watch) == [OF_DOMAIN]
    (one,) = watch.active()
    assert gpu(4).key in one.members
    assert isinstance(one, Incident)


def test_half_of_a_cluster_that_is_one_domain_is_that_domain() -> None:
    whole = in_domain(healthy(nodes=8, seconds=60), dict.fromkeys(range(1, 9), 1))
    watch = Watch(whole)
    confirmed(watch, bad(whole, *(gpu(n) for n in range(1, 8))))
    assert active(watch) == [OF_DOMAIN]
