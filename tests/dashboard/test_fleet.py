import json
import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.data.fleet_map import encoded
from dashboard.fleet import Fleet, clusters, silent_nodes
from dashboard.model.cluster import Cell, ClusterView, DisplayState
from dashboard.model.facts import Facts, RecordCache
from dashboard.model.newest_rows import gpu_table, port_table
from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS
from gpuvigil.faults.affected import affected_keys
from gpuvigil.faults.gpu_states import NO_PROCESSES, NO_UTILIZATION, gpu_state
from gpuvigil.model import (
    SWITCH_DEVICE,
    GpuState,
    Retirement,
    ScheduledNode,
    Scheduler,
    Severity,
    Subject,
    Unmeasured,
)
from gpuvigil.numbers_in_words import percent, watts

from .scene import (
    LONG_AGO,
    NOON,
    allocation,
    busy_fleet,
    gpu,
    heard,
    incident,
    inventory,
    node,
    port,
    port_row,
    pulses,
    row,
)

pytestmark = pytest.mark.slow


def only(facts: Facts) -> ClusterView:
    (view,) = clusters(facts)
    return view


def cell(facts: Facts, index: int = 0) -> Cell:
    return only(facts).cells[index]


def one_gpu(**values: Any) -> Facts:
    facts = busy_fleet([node()], gpus=1)
    return replace(facts, gpus=gpu_table([row(gpu(0), 0, **values)]))


@st.composite
def fleets(draw: st.DrawFn) -> Facts:
    """Fleets of two clusters in which anything may be missing, late, lost or held."""
    nodes = [node(f"n{i}", cluster) for cluster in ("simulated", "real") for i in range(3)]
    rows, holders, told = [], [], {}
    for one in nodes:
        if draw(st.booleans()):
            told[one.cluster, one.node] = draw(st.sampled_from([NOON, LONG_AGO]))
        for index in range(draw(st.integers(0, 3))):
            subject = gpu(index, one)
            if draw(st.booleans()):
                holders.append(allocation(subject))
            values = {
                "up": draw(st.sampled_from([1, 1, 0, None])),
                "unmeasured_reason": draw(st.sampled_from([None, 1, 3, 4])),
                "utilization_percent": draw(st.sampled_from([None, 0, 55])),
                "compute_processes": draw(st.sampled_from([None, 0, 1])),
                "power_watts": draw(st.sampled_from([None, 100.0])),
            }
            rows.append(row(subject, index, draw(st.sampled_from([NOON, LONG_AGO])), **values))
    kept = [inventory(one, draw(st.integers(0, 3))) for one in nodes if draw(st.booleans())]
    return Facts(
        now=NOON,
        gpus=gpu_table(rows),
        last_seen=told,
        inventories=tuple(kept),
        allocations=tuple(holders),
    )


@given(fleets())
def test_counts_add_up_to_the_number_of_gpus(facts: Facts) -> None:
    for view in clusters(facts):
        cells, numbers = view.cells, view.strip
        assert sum(numbers.looks.values()) == numbers.gpus == len(cells)
        assert len({one.subject for one in cells}) == len(cells)
        assert numbers.held <= numbers.known <= numbers.gpus
        assert numbers.known == sum(one.held is not None for one in cells)
        active = sum(one.state is GpuState.ACTIVE and one.held is None for one in cells)
        assert numbers.known == numbers.gpus - numbers.looks[DisplayState.UNKNOWN] - active


@given(fleets())
def test_simulated_and_real_are_never_summed(facts: Facts) -> None:
    views = clusters(facts)
    assert len({view.name for view in views}) == len(views)
    for view in views:
        assert {one.subject.cluster for one in view.cells} <= {view.name}
        assert {one.subject.cluster for one in view.ports} <= {view.name}
        alone = clusters(
            replace(
                facts,
                gpus=facts.gpus.filter(pc.field("cluster") == view.name),
                last_seen={k: v for k, v in facts.last_seen.items() if k[0] == view.name},
                inventories=tuple(i for i in facts.inventories if i.subject.cluster == view.name),
            )
        )
        (other,) = alone
        assert (other.cells, tuple(other.ports)) == (view.cells, tuple(view.ports))
        assert other.strip == view.strip


@given(fleets())
def test_what_is_unknown_is_never_free_idle_or_zero(facts: Facts) -> None:
    for view in clusters(facts):
        for one in view.cells:
            assert (one.state is GpuState.UNKNOWN) == (one.look is DisplayState.UNKNOWN)
            if one.state is GpuState.UNKNOWN:
                assert one.held is None
                assert one.reason
                # Those of a GPU that answers, and of which only the holder is unknown, are measured.
                if one.reason not in {NO_PROCESSES, NO_UTILIZATION}:
                    assert (
                        one.utilization_percent
                        is one.power_watts
                        is one.temperature_celsius
                        is None
                    )


@given(fleets())
def test_the_power_is_of_those_that_were_measured(facts: Facts) -> None:
    for view in clusters(facts):
        measured = [c.power_watts for c in view.cells if c.power_watts is not None]
        assert view.strip.power_measured == len(measured)
        assert (view.strip.power_watts is None) == (not measured)
        assert math.isclose(view.strip.power_watts or 0, sum(measured))


def test_nothing_measured_is_a_dash_and_not_0() -> None:
    numbers = only(Facts(now=NOON, inventories=(inventory(node()),))).strip
    assert numbers.held_percent is None
    assert numbers.used_percent is None
    assert numbers.power_watts is None
    assert percent(numbers.held_percent) == "–"


def test_shares_are_of_the_gpus_whose_state_is_known() -> None:
    facts = busy_fleet([node("a"), node("b")])
    numbers = only(
        replace(facts, last_seen={**facts.last_seen, ("simulated", "b"): LONG_AGO})
    ).strip
    assert (numbers.gpus, numbers.known, numbers.held_percent) == (16, 8, 100.0)
    assert numbers.looks[DisplayState.UNKNOWN] == 8


def said(states: str, reason: str | None = "dust [ann@2026]", age: timedelta = timedelta()) -> Any:
    """What the scheduler of the simulated cluster says of its first node."""
    told = ScheduledNode(name="sim-001", states=tuple(states.split()), reason=reason)
    watcher = Subject(cluster="simulated", node="slurm")
    return (Scheduler(told_by=watcher, at=NOON - age, nodes=(told,)),)


def test_a_free_gpu_of_a_drained_node_is_out_of_service_and_neither_free_nor_failing() -> None:
    rows = [row(gpu(0)), row(gpu(1), 1, utilization_percent=0, compute_processes=0)]
    facts = replace(busy_fleet([node()], gpus=2), gpus=gpu_table(rows), allocations=())
    assert [one.look for one in only(facts).cells] == [DisplayState.ACTIVE, DisplayState.FREE]
    view = only(replace(facts, schedulers=said("MIXED DRAIN")))
    busy, idle = view.cells
    assert (busy.look, idle.look) == (DisplayState.ACTIVE, DisplayState.OUT)
    assert (idle.state, idle.reason) == (GpuState.UNAVAILABLE, "drained: dust [ann@2026]")
    assert (view.strip.gpus, view.strip.in_service) == (2, 1)
    assert only(facts).strip.in_service == 2
    # In service again, or said too long ago to be believed.
    for words in (said("MIXED"), said("MIXED DRAIN", age=timedelta(hours=1, seconds=1))):
        assert only(replace(facts, schedulers=words)).cells[1].look is DisplayState.FREE
    old = said("MIXED DRAIN", age=timedelta(hours=1))
    assert only(replace(facts, schedulers=old)).cells[1].look is DisplayState.OUT


def test_a_gpu_that_counts_as_unavailable_is_not_in_service_though_it_computes() -> None:
    facts = busy_fleet([node()], gpus=2)
    for severity, failed in ((Severity.CRITICAL, 1), (Severity.WARNING, 0)):
        hot = incident("gpu_hot", gpu(0), severity)
        strip = only(replace(facts, incidents=(hot,))).strip
        assert (strip.looks[DisplayState.FAILED], strip.in_service) == (failed, 2 - failed)


def test_a_scheduler_that_does_not_answer_takes_nothing_back() -> None:
    book = RecordCache()
    (drained,) = said("IDLE DRAIN")
    silent = replace(drained, at=NOON + timedelta(minutes=1), why="away", nodes=None)
    book.apply([drained.to_record(), silent.to_record()])
    assert book.onto(Facts(now=NOON)).schedulers == (drained,)
    back = replace(drained, at=NOON + timedelta(minutes=2), nodes=())
    book.apply([back.to_record()])
    assert book.onto(Facts(now=NOON)).schedulers == (back,)


def test_a_silent_node_that_its_scheduler_set_down_is_out_of_service() -> None:
    facts = replace(busy_fleet([node()]), last_seen={("simulated", "sim-001"): LONG_AGO})
    assert (only(facts).strip.looks[DisplayState.UNKNOWN], only(facts).strip.in_service) == (8, 0)
    view = only(replace(facts, schedulers=said("DOWN", "Not responding [slurm@2026]")))
    assert (view.strip.looks[DisplayState.OUT], view.strip.in_service) == (8, 0)


def test_a_gpu_with_a_critical_fault_of_its_own_is_failing_on_a_drained_node_too() -> None:
    rows = [row(gpu(0), up=0, unmeasured_reason=Unmeasured.LOST), row(gpu(1), 1)]
    facts = replace(
        busy_fleet([node()], gpus=2),
        gpus=gpu_table(rows),
        schedulers=said("IDLE DRAIN"),
        incidents=(incident("gpu_lost", gpu(0), Severity.CRITICAL),),
    )
    assert only(facts).cells[0].look is DisplayState.FAILED


def test_a_gpu_of_the_inventory_without_a_row_is_unknown() -> None:
    view = only(replace(busy_fleet([node()]), gpus=gpu_table()))
    assert view.strip.looks[DisplayState.UNKNOWN] == 8
    assert view.cells[0].reason == "no data since 12:00:00 UTC on 31 Jan"


def test_a_row_that_lags_behind_its_node_is_no_data() -> None:
    facts = busy_fleet([node()], gpus=2)
    late = row(gpu(1), 1, LONG_AGO)
    view = only(replace(facts, gpus=gpu_table([*facts.gpus.to_pylist()[:1], late])))
    assert [one.look for one in view.cells] == [DisplayState.ACTIVE, DisplayState.UNKNOWN]
    assert view.cells[1].reason == "no data since 11:59:00 UTC on 31 Jan"


def test_a_node_with_a_wrong_clock_is_not_silent() -> None:
    facts = busy_fleet([node()], gpus=1)
    view = only(replace(facts, gpus=gpu_table([row(gpu(0), 0, NOON + timedelta(hours=3))])))
    assert view.cells[0].look is DisplayState.ACTIVE
    assert not view.silent_nodes


def test_a_node_is_silent_after_three_of_its_ticks() -> None:
    facts = busy_fleet([node()])
    slow = replace(facts, inventories=(inventory(node(), tick_seconds=30.0),))
    ago = {("simulated", "sim-001"): NOON - timedelta(seconds=60)}
    assert only(replace(facts, last_seen=ago)).silent_nodes
    assert not only(replace(slow, last_seen=ago)).silent_nodes


@pytest.mark.parametrize(("seconds", "silent"), [(30.0, 0), (30.1, 1)])
def test_a_node_stops_reporting_when_the_analyzer_says_so(seconds: float, silent: int) -> None:
    facts = busy_fleet([node()])
    ago = {("simulated", "sim-001"): NOON - timedelta(seconds=seconds)}
    assert len(only(replace(facts, last_seen=ago)).silent_nodes) == silent
    longer = replace(facts, last_seen=ago, silent_after_seconds=60.0)
    assert not only(longer).silent_nodes


def silent_for(age: timedelta, one: Subject, **values: Any) -> list[str]:
    """The nodes on the page when one that has an inventory was last heard so long ago."""
    gone = heard([one], NOON - age)
    facts = replace(busy_fleet([one]), gpus=gpu_table(), last_seen=gone, **values)
    return [node.name for view in clusters(facts) for node in view.nodes]


def test_a_dead_node_stays_on_the_overview_however_long_it_is_dead() -> None:
    real, played = node("n", "real"), node("sim-001")
    listening = NOON - timedelta(days=400)
    for age in (timedelta(hours=25), timedelta(days=300)):
        assert silent_for(age, real, listening_since=listening) == ["n"]
        assert silent_for(age, played, listening_since=listening) == ["sim-001"]


def test_a_node_stays_while_an_incident_stands_whatever_else_is_known_of_it() -> None:
    played = node("sim-001")
    stands = (incident("node_silent", played, Severity.WARNING),)
    told = {"inventories": (), "last_seen": {}, "gpus": gpu_table()}
    facts = replace(busy_fleet([node("sim-002")]), **told, incidents=stands)
    assert [one.name for view in clusters(facts) for one in view.nodes] == ["sim-001"]


def test_a_switch_of_which_an_incident_stands_is_no_node() -> None:
    switch = replace(node("leaf-07"), device=SWITCH_DEVICE, port="11")
    facts = replace(
        busy_fleet([node("sim-002")]), incidents=(incident("port_down", switch, Severity.WARNING),)
    )
    assert [one.name for view in clusters(facts) for one in view.nodes] == ["sim-002"]


def test_a_node_that_somebody_retired_is_gone_until_it_is_heard_again() -> None:
    real, hour = node("n", "real"), timedelta(hours=1)
    before, after = (
        Retirement(node=real, by="ann", note="sold", at=NOON - ago) for ago in (hour / 2, 2 * hour)
    )
    assert silent_for(hour, real, inventories=(), retirements=(before,)) == []
    assert silent_for(hour, real, inventories=(), retirements=(after,)) == ["n"]


def test_an_earlier_simulation_is_gone_ten_minutes_after_its_last_body() -> None:
    played = node("sim-001")
    for age, shown in ((600, ["sim-001"]), (601, [])):
        found = silent_for(timedelta(seconds=age), played, inventories=(), listening_since=NOON)
        assert found == shown


def test_a_lost_gpu_is_failed_and_keeps_its_index_and_holder() -> None:
    lost = row(
        gpu(0),
        up=0,
        unmeasured_reason=Unmeasured.LOST,
        utilization_percent=None,
        compute_processes=None,
        power_watts=None,
    )
    facts = replace(
        busy_fleet([node()], 1),
        gpus=gpu_table([{**lost, "index": None}]),
        allocations=(allocation(gpu(0)),),
    )
    one = cell(facts)
    assert (one.look, one.index, one.holder, one.held) == (
        DisplayState.FAILED,
        0,
        "pid 7 (ann)",
        True,
    )
    assert one.power_watts is None


def test_a_gpu_that_works_with_a_fault_of_its_own_is_degraded() -> None:
    facts = replace(one_gpu(), incidents=(incident("gpu_xid", gpu(0), Severity.WARNING),))
    assert (cell(facts).look, cell(facts).state) == (DisplayState.DEGRADED, GpuState.ACTIVE)


def test_a_gpu_that_works_with_a_critical_fault_of_its_own_is_failing() -> None:
    facts = replace(one_gpu(), incidents=(incident("gpu_memory", gpu(0), Severity.CRITICAL),))
    assert (cell(facts).look, cell(facts).state) == (DisplayState.FAILED, GpuState.ACTIVE)
    silent = replace(facts, last_seen=heard([node()], LONG_AGO))
    assert (cell(silent).look, cell(silent).state) == (DisplayState.FAILED, GpuState.UNKNOWN)
    hangs = replace(one_gpu(), incidents=(incident("gpu_silent", gpu(0), Severity.CRITICAL),))
    assert (cell(hangs).look, cell(hangs).hung) == (DisplayState.UNKNOWN, "gpu_silent")
    of_node = replace(one_gpu(), incidents=(incident("host_disk", node(), Severity.CRITICAL),))
    assert cell(of_node).look is DisplayState.ACTIVE


@pytest.mark.parametrize(("seconds", "silent"), [(80.0, 0), (80.1, 1)])
def test_a_node_that_the_analyzer_waits_for_has_not_stopped_on_pages_either(
    seconds: float, silent: int
) -> None:
    ago = {("simulated", "sim-001"): NOON - timedelta(seconds=seconds)}
    waits = {"waited_for": {node().key: 80.0}}
    analyzer, alerts = pulses()
    facts = replace(busy_fleet([node()]), last_seen=ago)
    waiting = replace(facts, pulses=(replace(analyzer, body=waits), alerts))
    assert len(only(waiting).silent_nodes) == len(silent_nodes(waiting)) == silent
    assert only(facts).silent_nodes


def test_a_page_without_rows_says_when_its_nodes_were_heard() -> None:
    facts = replace(busy_fleet([node()]), gpus=gpu_table(), last_seen=heard([node()], LONG_AGO))
    assert only(facts).rows_at == LONG_AGO
    assert only(busy_fleet([node()])).rows_at == NOON


def test_a_critical_xid_makes_a_gpu_fail() -> None:
    facts = replace(one_gpu(), incidents=(incident("gpu_xid", gpu(0), Severity.CRITICAL),))
    assert cell(facts).look is DisplayState.FAILED


def test_an_idle_incident_is_no_defect() -> None:
    found = incident("gpu_idle_held", gpu(0), Severity.INFO)
    facts = replace(one_gpu(utilization_percent=0), incidents=(found,))
    assert cell(facts).look is DisplayState.IDLE


def test_a_silent_driver_makes_the_gpus_of_its_node_unknown() -> None:
    found = incident("driver_silent", node(), Severity.CRITICAL)
    view = only(replace(busy_fleet([node()]), incidents=(found,)))
    assert view.strip.looks[DisplayState.UNKNOWN] == 8
    assert view.cells[0].reason == "NVIDIA driver does not answer"


def test_a_member_that_cannot_be_read_hides_nothing_else() -> None:
    found = replace(incident("gpu_lost", gpu(0), Severity.CRITICAL), members=("a/b/c", ""))
    assert cell(replace(one_gpu(), incidents=(found,))).look is DisplayState.FAILED


def test_a_gpu_that_many_hold_names_the_first_and_how_many_more() -> None:
    holders = (allocation(gpu(0)), allocation(gpu(0), "pid 8", None))
    assert cell(replace(one_gpu(), allocations=holders)).holder == "pid 7 (ann) +1"


def test_held_and_free_are_told_apart_without_allocations() -> None:
    held = one_gpu(utilization_percent=0, compute_processes=1)
    free = one_gpu(utilization_percent=0, compute_processes=0)
    assert (cell(held).look, cell(free).look) == (DisplayState.IDLE, DisplayState.FREE)


def test_a_link_finds_a_gpu_by_index_and_by_uuid() -> None:
    view = only(busy_fleet([node()]))
    by_index, by_uuid = view.find("sim-001", "5"), view.find("sim-001", gpu(5).gpu or "")
    assert by_index is not None
    assert by_index == by_uuid
    assert by_index.subject == gpu(5)
    assert view.find("sim-001", "99") is None


def test_nodes_are_drawn_by_rack_or_alone_or_in_runs() -> None:
    few = [node(f"n{i}") for i in (1, 2, 10)]
    assert [block.label for block in only(busy_fleet(few)).blocks] == ["n1", "n2", "n10"]
    racked = tuple(inventory(one, rack=f"rack {i}") for i, one in zip((10, 2, 2), few, strict=True))
    view = only(replace(busy_fleet(few), inventories=racked))
    assert [(b.label, len(b.nodes)) for b in view.blocks] == [("rack 2", 2), ("rack 10", 1)]
    assert [block[2:] for block in json.loads(view.layout.blocks_json)] == [["rack 2"], ["rack 10"]]
    partly = only(replace(busy_fleet(few), inventories=racked[:1]))
    assert [block[2:] for block in json.loads(partly.layout.blocks_json)] == [[], ["rack 10"]]
    many = only(busy_fleet([node(f"n{i}") for i in range(100)], gpus=1))
    assert many.blocks[0].label == "n0 … n15"
    assert sum(len(block.nodes) for block in many.blocks) == 100


def test_a_machine_without_gpus_has_no_map_and_says_why() -> None:
    here = Subject(cluster="local", node="bench")
    facts = Facts(
        now=NOON,
        inventories=(inventory(here, gpus=0, driver_state="no driver"),),
        last_seen=heard([here]),
    )
    view = only(facts)
    assert (view.strip.gpus, view.blocks, view.drivers) == (0, (), ("no driver",))
    assert [one.name for one in view.nodes] == ["bench"]


def test_a_port_is_up_down_never_connected_or_unknown() -> None:
    ports = (port("eth0", True), port("eth1", True), port("eth2", False), port("eth3", True))
    rows = (port_row(node(), "eth0", 1), port_row(node(), "eth1", 0), port_row(node(), "eth2", 0))
    facts = Facts(
        now=NOON,
        ports=port_table(rows),
        last_seen=heard([node()]),
        inventories=(inventory(node(), gpus=0, ports=ports),),
    )
    assert [p.word for p in only(facts).ports] == ["up", "down", "never connected", "unknown"]
    assert only(facts).ports[1].speed_bits_per_second is None
    silent = replace(facts, last_seen=heard([node()], LONG_AGO))
    assert {p.word for p in only(silent).ports} == {"unknown"}


def test_power_is_written_in_the_unit_that_reads_best() -> None:
    assert [watts(w) for w in (42.0, 36_900.0, 4_055_000.0)] == ["42 W", "36.9 kW", "4,055 kW"]


_SEVERITIES = st.sampled_from(list(Severity))
_NUMBERS_SAID = {
    "up": st.sampled_from([None, 0, 1, 1, 1, 2]),
    "unmeasured_reason": st.sampled_from([None, None, *Unmeasured, 99]),
    "utilization_percent": st.sampled_from([None, 0, 1, 55, 100]),
    "compute_processes": st.sampled_from([None, 0, 2]),
    "index": st.sampled_from([None, 0, 1, 7, 300]),
    "power_watts": st.sampled_from([None, 0.0, 499.5]),
}


@st.composite
def troubles(draw: st.DrawFn) -> Facts:
    """Fleets in which on top of `fleets` every fault may stand on GPUs and nodes, in any severity."""
    facts, drawn = draw(fleets()), []
    nodes = [node(f"n{i}", cluster) for cluster in ("simulated", "real") for i in range(3)]
    rows = [{**one, **draw(st.fixed_dictionaries(_NUMBERS_SAID))} for one in facts.gpus.to_pylist()]
    subjects = st.sampled_from([*nodes, *(gpu(i, one) for one in nodes for i in range(3))])
    for fault in draw(st.lists(st.sampled_from(sorted(FAULTS)), max_size=8)):
        about, member = draw(subjects), draw(subjects)
        one = incident(fault, about, draw(_SEVERITIES))
        drawn.append(replace(one, members=(about.key, member.key)))
    return replace(facts, gpus=gpu_table(rows), incidents=tuple(drawn))


def by_the_rules(facts: Facts, one: Cell) -> tuple[GpuState, str]:
    """State and reason of one GPU, asked for it alone and written as simply as can be."""
    here = one.subject.of_node()
    rows = [r for r in facts.gpus.to_pylist() if (r["cluster"], r["node"]) == here_name(here)]
    mine = [r for r in rows if r["uuid"] == one.subject.gpu]
    ticks = [i.tick_seconds for i in facts.inventories if i.subject == here]
    patience = timedelta(seconds=max(30.0, 3 * (ticks[0] if ticks else 10.0)))
    newest = max((r["at"] for r in rows), default=LONG_AGO)
    heard_at = facts.last_seen.get(here_name(here), newest if rows else None)
    silent = heard_at is None or facts.now - heard_at > patience
    young = bool(mine) and not silent and mine[-1]["at"] >= newest - patience
    faults: dict[str, Severity] = {}
    for about in (here, one.subject):
        for found in facts.incidents:
            if about.key in affected_keys(found):
                faults[found.fault] = found.severity
    held = any(a.subject == one.subject for a in facts.allocations)
    state, reason = gpu_state(mine[-1] if young else None, held=held, faults=faults)
    since = mine[-1]["at"] if mine else heard_at
    if not young and state is GpuState.UNKNOWN and since is not None:
        reason += f" since {moment(since)}"
    return state, reason


def here_name(of: Subject) -> tuple[str, str]:
    return of.cluster, of.node


@given(troubles())
def test_every_gpu_is_in_the_state_that_the_rules_give_it_alone(facts: Facts) -> None:
    for view in clusters(facts):
        for one in view.cells:
            assert (one.state, one.reason) == by_the_rules(facts, one)


@given(troubles())
def test_the_silent_nodes_are_those_that_the_clusters_show_as_silent(facts: Facts) -> None:
    shown = {node.subject for view in clusters(facts) for node in view.silent_nodes}
    assert silent_nodes(facts) == shown


@settings(deadline=None, max_examples=25)
@given(troubles(), troubles())
def test_what_is_kept_from_earlier_moments_changes_nothing(one: Facts, other: Facts) -> None:
    fleet = Fleet()
    moments = (
        one,
        replace(one, now=NOON + timedelta(seconds=20)),
        replace(one, incidents=other.incidents),
        replace(one, allocations=other.allocations),
        replace(one, gpus=other.gpus),
        replace(other, inventories=one.inventories),
        replace(other, allocations=one.allocations),
    )
    for facts in moments:
        for kept, fresh in zip(fleet.clusters(facts), clusters(facts), strict=True):
            assert (kept.name, kept.cells) == (fresh.name, fresh.cells)
            assert (kept.strip, tuple(kept.ports)) == (fresh.strip, tuple(fresh.ports))
            assert encoded(kept) == encoded(fresh)


def test_a_gpu_without_numbers_says_since_when() -> None:
    since = moment(NOON - timedelta(hours=2))
    away = {"utilization_percent": None, "unmeasured_seconds": 7200.2}
    lost = cell(one_gpu(up=0, unmeasured_reason=int(Unmeasured.LOST), **away))
    assert (lost.state, lost.reason) == (GpuState.UNAVAILABLE, f"missing: lost since {since}")
    silent = cell(one_gpu(up=None, unmeasured_reason=int(Unmeasured.DRIVER_NOT_ANSWERING), **away))
    assert silent.state is GpuState.UNKNOWN
    assert silent.reason == f"driver not answering since {since}"
    released = int(Unmeasured.RELEASED_FOR_MAINTENANCE)
    away_on_purpose = cell(one_gpu(up=None, unmeasured_reason=released, **away))
    assert away_on_purpose.state is GpuState.UNAVAILABLE
    assert away_on_purpose.reason == f"released for maintenance since {since}"


def test_of_a_gpu_that_computes_it_is_unknown_whether_it_is_held_where_processes_are_not() -> None:
    blind = one_gpu(utilization_percent=98.0, compute_processes=None)
    strip = only(blind).strip
    assert cell(blind).held is None
    assert (strip.known, strip.unattributed, strip.held_percent) == (0, 1, None)
    nobody = one_gpu(utilization_percent=98.0, compute_processes=0)
    assert (cell(nobody).held, only(nobody).strip.held_percent) == (False, 0)


def test_a_gpu_of_which_only_the_processes_are_unknown_has_its_other_numbers() -> None:
    blind = one_gpu(utilization_percent=0.0, compute_processes=None, power_watts=71.0)
    assert (cell(blind).state, cell(blind).power_watts) == (GpuState.UNKNOWN, 71.0)
    assert (only(blind).strip.power_measured, only(blind).strip.power_watts) == (1, 71.0)
    hung = int(Unmeasured.DRIVER_NOT_ANSWERING)
    silent = one_gpu(up=None, unmeasured_reason=hung, utilization_percent=None, power_watts=71.0)
    assert cell(silent).power_watts is None


def test_where_only_held_gpus_are_known_there_is_no_share() -> None:
    facts = busy_fleet([node()], gpus=2)
    rows = [row(gpu(n), n, utilization_percent=98.0, compute_processes=None) for n in range(2)]
    some = replace(facts, gpus=gpu_table(rows), allocations=(allocation(gpu(0)),))
    assert (only(some).strip.held, only(some).strip.held_percent) == (1, None)
    both = replace(some, allocations=(allocation(gpu(0)), allocation(gpu(1))))
    assert only(both).strip.held_percent == 100
