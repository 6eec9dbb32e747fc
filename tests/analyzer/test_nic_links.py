"""A network card whose PCIe link trained down and starves its port."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.port_degraded import DETECTOR
from gpuvigil.model import (
    Beside,
    EventKind,
    Finding,
    Inventory,
    Nic,
    PcieLink,
    PortIdentity,
    Severity,
    Subject,
)

from .scene import Scene, allocation, gpu, healthy, incident, port, told
from .test_breaker import Watch
from .test_nvlink_domain import active, confirmed

SECOND = timedelta(seconds=1)
GEN5, GEN4 = PcieLink(lanes=16, gigatransfers=32.0), PcieLink(lanes=16, gigatransfers=16.0)
NARROW = PcieLink(lanes=4, gigatransfers=16.0)
RATE = 400_000_000_000
ADDRESSES = ("00000000:1B:00.0", "00000000:3B:00.0")


def card(
    link: PcieLink = GEN5, best: PcieLink = GEN5, device: str = "mlx5_0", model: str = "15b3:1021"
) -> Nic:
    """Behind one switch with the first GPU of its node."""
    return Nic(
        address="0000:19:00.0" if device == "mlx5_0" else "0000:5b:00.0",
        devices=(device,),
        model=model,
        link=link,
        best=best,
        beside=Beside.SWITCH,
        gpus=("0000:1b:00.0",),
    )


def with_cards(scene: Scene, cards: Mapping[int, Iterable[Nic]]) -> Scene:
    """By the node's number; the others have a card that is as it should be."""

    def fitted(one: Inventory) -> Inventory:
        number = int(one.subject.node[5:])
        gpus = (replace(g, pci_address=a) for g, a in zip(one.gpus, ADDRESSES, strict=True))
        nics = tuple(cards.get(number, (card(),)))
        return replace(one, gpus=tuple(gpus), nics=nics)

    return replace(scene, inventories=tuple(map(fitted, scene.inventories)))


FOUR = healthy(nodes=4, seconds=120)


def find(scene: Scene) -> list[Finding]:
    return DETECTOR.find(scene.window((DETECTOR,)))


def test_it_says_from_what_to_what_what_that_leaves_and_whose_jobs_are_beside_it() -> None:
    jobs = (allocation(gpu(), "job 7"), allocation(gpu(2), "job 7"))
    held = (*jobs, allocation(gpu(1, 1), "job 9", "bob"))
    (found,) = find(replace(with_cards(FOUR, {1: (card(NARROW),)}), allocations=held))
    assert (found.fault, found.subject, found.condition) == (
        "port_degraded",
        port(),
        "pcie_starved",
    )
    assert told(found) == (
        "warning; PCIe link: x4 Gen4 (limit x16 Gen5, peers x16 Gen5);"
        " PCIe leaves: 63 Gb/s for a port of 400 Gb/s; card: 0000:19:00.0 (15b3:1021);"
        " GPUs beside it: 1 GPU (GPU 0) behind the same PCIe switch; their jobs: job 7 of alice"
    )
    assert found.members == (gpu(),)
    assert found.title == "PCIe link of a network card is slower than its port"
    assert find(with_cards(FOUR, {})) == []


@pytest.mark.parametrize(
    ("rate", "found"), [(63_015_384_615, 0), (63_015_384_616, 1), (None, 0), (0, 0)]
)
def test_a_port_starves_where_it_brings_more_than_its_card_gets_through(
    rate: int | None, found: int
) -> None:
    scene = with_cards(FOUR, {1: (card(NARROW),)})
    for number in range(1, 5):
        scene = scene.changed(port(number), {"speed_bits_per_second": rate})
    assert len(find(scene)) == found


@pytest.mark.parametrize(
    ("fields", "seconds"), [({"up": 0}, 1000.0), ({"up": 0}, 15.0), ({"up": None}, 1000.0)]
)
def test_a_port_without_a_link_starves_of_nothing(fields: dict[str, int], seconds: float) -> None:
    scene = with_cards(FOUR, {1: (card(NARROW),)})
    assert find(scene.changed(port(), fields, seconds)) == []


@pytest.mark.parametrize("link", [GEN4, PcieLink(lanes=8, gigatransfers=32.0)])
def test_half_of_the_lanes_or_of_the_speed_is_too_little_for_400(link: PcieLink) -> None:
    (found,) = find(with_cards(FOUR, {1: (card(link),)}))
    assert "PCIe leaves: 252 Gb/s for a port of 400 Gb/s" in told(found)


def test_a_card_in_a_slot_that_can_do_no_more_is_as_it_is_built() -> None:
    assert find(with_cards(FOUR, {1: (card(GEN4, GEN4),)})) == []


@pytest.mark.parametrize(("slow", "found"), [(1, 1), (2, 2), (3, 0)])
def test_what_most_of_its_name_have_is_how_they_are_built(slow: int, found: int) -> None:
    """Of six nodes each card has five others of its name: more than half of these must have more."""
    six = healthy(nodes=6, seconds=120)
    slots = {number: (card(NARROW),) for number in range(1, slow + 1)}
    if slow == 3:
        slots[4] = (card(NARROW),)
    assert len(find(with_cards(six, slots))) == found


def test_half_of_the_peers_are_not_most() -> None:
    five = healthy(nodes=5, seconds=120)
    slots = {number: (card(NARROW),) for number in (1, 2, 3)}
    # Of four others two have more, of which half is no more than half; the others see two of four.
    assert find(with_cards(five, slots)) == []


@pytest.mark.medium
@pytest.mark.parametrize("share", [1.0, 0.4])
def test_a_fleet_whose_cards_are_all_degraded_takes_time_in_proportion(share: float) -> None:
    """As where a BIOS caps all slots: of thousands of cards none is compared with each of the others."""
    windows = []
    for nodes in (1000, 8000):
        capped = {number: (card(GEN4),) for number in range(1, int(share * nodes) + 1)}
        scene = with_cards(healthy(nodes=nodes, seconds=30), capped)
        scene = scene.without(lambda sample: sample.subject.kind != "port")
        windows.append((scene.window((DETECTOR,)), 0 if share == 1.0 else len(capped)))
    seconds: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(3):  # in turns, so that neither finds what it remembers of itself
        for size, (window, count) in enumerate(windows):
            fresh = replace(window)
            began = time.process_time()
            assert len(DETECTOR.find(fresh)) == count
            seconds[size].append(time.process_time() - began)
    assert min(seconds[1]) < 24 * min(seconds[0])  # eight times as many; it was sixty times as long


def two_cards(link: PcieLink, other: Nic) -> Scene:
    return with_cards(healthy(nodes=1, seconds=120), {1: (card(link), other)})


def test_where_no_other_nodes_tell_the_nodes_own_cards_do() -> None:
    assert len(find(two_cards(NARROW, card(device="mlx5_1")))) == 1
    # Alone, with another model beside it, or with one that has no more: nobody knows.
    assert find(with_cards(healthy(nodes=1, seconds=120), {1: (card(NARROW),)})) == []
    assert find(two_cards(NARROW, card(device="mlx5_1", model="15b3:101b"))) == []
    assert find(two_cards(NARROW, card(NARROW, device="mlx5_1"))) == []


@pytest.mark.parametrize(("others", "found"), [(2, 1), (3, 0)])
def test_three_nodes_with_such_a_card_say_more_than_what_is_beside_it(
    others: int, found: int
) -> None:
    """A storage card in a slot of four lanes, beside one for computing in a slot of sixteen."""
    scene = healthy(nodes=others + 1, seconds=120)
    beside = [card(device=f"mlx5_{number}") for number in range(1, 5)]
    every = {number: (card(NARROW),) for number in range(2, others + 2)}
    assert len(find(with_cards(scene, {**every, 1: (card(NARROW), *beside)}))) == found


def test_a_management_port_is_a_note_and_where_no_gpu_is_near_that_is_said() -> None:
    far = replace(card(NARROW), beside=None, gpus=())
    scene = with_cards(FOUR, {1: (far,)})
    first, *rest = scene.inventories
    ports = tuple(replace(it, role="management") for it in first.ports)
    (found,) = find(replace(scene, inventories=(replace(first, ports=ports), *rest)))
    assert found.severity is Severity.INFO
    assert told(found).endswith("GPUs beside it: not known")
    assert found.members == ()


def test_a_link_that_is_slow_itself_is_told_as_that() -> None:
    scene = with_cards(FOUR, {1: (card(NARROW),)})
    (found,) = find(scene.changed(port(), {"speed_bits_per_second": RATE // 2}, 65))
    assert found.condition == ""


def test_it_is_over_when_the_port_is_up_and_the_card_says_so() -> None:
    known = incident("port_degraded", port(), condition="pcie_starved")

    def shows(scene: Scene) -> bool | None:
        assert DETECTOR.would_show is not None
        return DETECTOR.would_show(scene.window((DETECTOR,)), known)

    assert shows(with_cards(FOUR, {}))
    assert shows(with_cards(FOUR, {}).changed(port(), {"up": 0})) is False
    assert shows(FOUR) is False  # nobody tells of the card any more
    assert shows(Scene()) is False


def test_a_port_on_a_card_of_two_is_told_for_each() -> None:
    twin = PortIdentity(device="mlx5_9", port="1", kind="infiniband", role="fabric", was_up=True)
    scene = with_cards(FOUR, {1: (replace(card(NARROW), devices=("mlx5_0", "mlx5_9")),)})
    first, *rest = scene.inventories
    scene = replace(scene, inventories=(replace(first, ports=(*first.ports, twin)), *rest))
    other = replace(port(), device="mlx5_9")
    more = tuple(replace(s, subject=other) for s in scene.samples if s.subject == port())
    found = find(replace(scene, samples=(*scene.samples, *more)))
    assert [it.subject for it in found] == [port(), other]


def test_one_incident_with_the_jobs_beside_the_card_and_nothing_that_follows_from_it() -> None:
    jobs = (allocation(gpu(), "job 7"), allocation(gpu(2), "job 7"))
    held = (*jobs, allocation(gpu(1, 1), "job 9", "bob"))
    scene = replace(
        with_cards(healthy(nodes=8, seconds=400), {1: (card(NARROW),)}), allocations=held
    )
    scene = scene.rising(port(), "transmit_pause_microseconds", 300_000.0)
    watch = Watch(scene)
    for one in held:
        watch.analysis.ingest(one.to_record())
    confirmed(watch, scene)
    assert active(watch) == [("port_degraded", "node-1 mlx5_0")]
    (incident_,) = watch.active()
    assert incident_.members == (port().key,)
    assert incident_.impact.holders == ("job 7",)
    assert incident_.impact.text == "job 7 of alice: 2 GPUs on 2 nodes may suffer from this port"
    assert any("Host cannot keep up" in covered for covered in incident_.covers)


def test_gpus_that_are_lost_beside_it_are_incidents_of_their_own() -> None:
    watch = Watch(with_cards(healthy(nodes=8, seconds=120), {1: (card(NARROW),)}))
    confirmed(watch, watch.scene)
    watch.hear(EventKind.GPU_LOST, gpu(), 30 * SECOND)
    subjects: set[Subject] = {one.subject for one in watch.active()}
    assert subjects == {gpu(), port()}
