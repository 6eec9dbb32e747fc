"""What whoever reads the fleet's switches tells of faults: at both ends, in the units of the real reader."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import pytest

from gpuvigil.model import Switch, SwitchPort
from simulator.fleet import Block, FaultOrder, Fleet, FleetSettings, build
from simulator.fleet.kinds import KINDS, OF_SWITCHES
from simulator.fleet.model import WorldSettings
from simulator.fleet.switch_life import LOOK_ALIKES
from simulator.fleet.world import world
from tests.simulator.fleet import runs

START, SECONDS = 900.0, 900.0
QUIET = FleetSettings(
    seed=11, nodes=3, days=1 / 24, gpus_per_node=2, life=False, switches=True, demand=0.2
)
SENDING = replace(QUIET, demand=0.9, workloads=("data parallel",))  # one job, on all nodes
ORDER = FaultOrder(kind="", node=1, start_seconds=START, seconds=SECONDS)
LEAF, UPLINK, DOWNLINK = "leaf-01-1", 33, 2


def playing(order: FaultOrder, settings: FleetSettings = QUIET) -> tuple[Fleet, list[Switch]]:
    fleet = build(replace(settings, faults=(order,)))
    return fleet, told(fleet.blocks(tick_seconds=60.0, block_seconds=1200.0))


def told(blocks: Iterable[Block]) -> list[Switch]:
    return [switch for block in blocks for switch in block.switches]


def during(switches: Iterable[Switch], name: str) -> Switch:
    """The last word about a switch before the fault ends."""
    end = QUIET.start.timestamp() + START + SECONDS
    *_, last = (it for it in switches if it.subject.node == name and it.at.timestamp() < end)
    return last


def port(switch: Switch, number: int) -> SwitchPort:
    return next(it for it in switch.ports if it.number == number)


def gained(found: SwitchPort, name: str) -> int:
    return (getattr(found.counts[-1], name) or 0) - (getattr(found.counts[0], name) or 0)


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["bad uplink", "slow uplink", "uplink down"])
def test_a_cable_between_switches_is_bad_at_both_ends_and_at_no_host(kind: str) -> None:
    fleet, said = playing(replace(ORDER, kind=kind, port=1, uplink=0, magnitude=0.5))
    [truth] = fleet.truths()
    assert (truth.subject.node, truth.subject.port) == (LEAF, str(UPLINK))
    [far] = truth.also
    for end in (truth.subject, far):
        found = port(during(said, end.node), int(end.port or 0))
        assert found.up == (kind != "uplink down")
        slow = found.up and found.bits_per_second != found.best_bits_per_second
        assert slow == (kind == "slow uplink")
        assert (gained(found, "symbol_errors") > 20) == (kind == "bad uplink")
    ports = runs.whole(fleet.blocks(tick_seconds=60.0), "port")
    assert ports.equals(runs.whole(build(QUIET).blocks(tick_seconds=60.0), "port"))


@pytest.mark.medium
def test_a_lost_spine_does_not_answer_and_leaves_have_no_link_to_it() -> None:
    fleet, said = playing(replace(ORDER, kind="spine lost", spine=2))
    [truth] = fleet.truths()
    assert during(said, "spine-3").lost_at is not None
    down = {(LEAF, str(it.number)) for it in during(said, LEAF).ports if not it.up}
    assert len(down) == 4
    assert down < {(it.node, it.port) for it in truth.affected}
    assert truth.also == ()


@pytest.mark.medium
@pytest.mark.parametrize(
    ("kind", "size"),
    [("port down", None), ("slow link", 0.25), ("bad cable", 1.0), ("hot module", 80.0)],
)
def test_a_hosts_link_shows_at_its_leaf_too(kind: str, size: float | None) -> None:
    fleet, said = playing(replace(ORDER, kind=kind, port=1, magnitude=size))
    [truth] = fleet.truths()
    assert [(it.node, it.port) for it in truth.also] == [(LEAF, str(DOWNLINK))]
    found = port(during(said, LEAF), DOWNLINK)
    assert found.peer == "sim-00001 mlx5_1"
    assert found.up == (kind != "port down")
    slow = found.up and found.bits_per_second != found.best_bits_per_second
    assert slow == (kind == "slow link")
    assert (gained(found, "symbol_errors") > 0) == (kind == "bad cable")


@pytest.mark.medium
def test_a_lost_leaf_does_not_answer() -> None:
    fleet, said = playing(replace(ORDER, kind="leaf down", port=1))
    [truth] = fleet.truths()
    assert during(said, LEAF).lost_at is not None
    assert (truth.group, [it.node for it in truth.also]) == (LEAF, [LEAF])


@pytest.mark.medium
def test_a_machine_without_power_has_no_link_and_a_dead_collector_has_one() -> None:
    for kind, up in (("dead node", False), ("dead collector", True)):
        _, said = playing(replace(ORDER, kind=kind))
        assert port(during(said, LEAF), DOWNLINK).up == up


@pytest.mark.medium
@pytest.mark.parametrize("roce", [0.0, 1.0])
def test_a_full_leaf_drops_where_its_switches_count_that(roce: float) -> None:
    ethernet = replace(SENDING, world=WorldSettings(roce_fleets=roce), days=1 / 30)
    fleet, said = playing(replace(ORDER, kind="congestion", port=1, magnitude=0.5), ethernet)
    group = fleet.truths()[0].group
    assert group is not None
    counts = port(during(said, group), UPLINK).counts[-1]
    assert counts.transmit_discards is None if roce == 0.0 else (counts.transmit_discards or 0) > 0


@pytest.mark.parametrize(("settings", "hidden"), [(SENDING, False), (QUIET, True)])
def test_a_leaf_over_which_no_job_sends_is_not_congested(
    settings: FleetSettings, hidden: bool
) -> None:
    order = replace(ORDER, kind="congestion", port=1, magnitude=0.5)
    fleet = build(replace(settings, faults=(order,)))
    assert any(job.sends(2) for job in fleet.plan.jobs) is not hidden
    assert fleet.truths()[0].hidden is hidden
    assert bool(fleet.plan.changes) is not hidden


@cache
def busy_life() -> Fleet:
    settings = world(3, nodes=3, days=1.0, gpus_per_node=2, demand=0.1, switches=True,
                     faults_per_1000_node_days=0.0, settings=WorldSettings(look_alikes=4.0))  # fmt: skip
    return build(settings)


def test_what_looks_like_a_fault_of_switches_is_none() -> None:
    kinds = {one.kind for one in busy_life().happenings()}
    assert kinds >= set(LOOK_ALIKES)
    assert busy_life().truths() == []
    assert all(set(it.like) <= {*KINDS, *OF_SWITCHES} for it in LOOK_ALIKES.values())


def test_nobody_tells_of_switches_that_nobody_reads() -> None:
    assert told(build(replace(QUIET, switches=False)).blocks(tick_seconds=60.0)) == []
    with pytest.raises(ValueError, match="is no fault"):
        playing(replace(ORDER, kind="spine lost", spine=0), replace(QUIET, switches=False))


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (replace(ORDER, kind="spine lost"), "needs a spine"),
        (replace(ORDER, kind="bad uplink", port=0), "needs a uplink"),
        (replace(ORDER, kind="bad uplink", uplink=0), "needs a port"),
    ],
)
def test_a_place_between_switches_is_asked_for(order: FaultOrder, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build(replace(QUIET, faults=(order,)))


@pytest.mark.medium
def test_what_switches_tell_does_not_depend_on_where_a_run_is_cut() -> None:
    order = replace(ORDER, kind="bad uplink", port=0, uplink=1)
    fleet = build(replace(QUIET, faults=(order,)))
    [whole, pieces] = [
        [it.to_record().to_json() for it in told(fleet.blocks(block_seconds=size))]
        for size in (3600.0, 600.0)
    ]
    assert whole == pieces
