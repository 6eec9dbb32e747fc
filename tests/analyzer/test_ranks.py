"""Which of a hung job's ranks are said to hold the others up, and where they are."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.correlation.all_detectors import DETECTORS
from analyzer.detectors.gpu_hung import DETECTOR, hung_jobs
from gpuvigil.model import (
    MOST_RANKS,
    Collective,
    Event,
    EventKind,
    Finding,
    RankState,
    RankStatus,
    Severity,
    Source,
    spans,
)

from .scene import NOON, Scene, allocation, event, gpu, healthy, node

STALLED = {"step_age_seconds": 300.0, "step_p99_seconds": 2.0, "step_phase": 2}
NODES = 3


def hung(*events: Event, fields: dict[str, Any] | None = None) -> Scene:
    """Job 7 on both GPUs of three nodes, whose steps stopped five minutes ago."""
    gpus = [gpu(number, index) for number in range(1, NODES + 1) for index in range(2)]
    scene = healthy(nodes=NODES, seconds=60.0)
    scene = replace(scene, allocations=tuple(allocation(one, "job 7") for one in gpus))
    for one in gpus:
        scene = scene.changed(one, STALLED if fields is None else fields)
    return scene.with_events(*events)


def found(scene: Scene) -> Finding:
    (it,) = hung_jobs(scene.window((DETECTOR,)))
    return it


def said(scene: Scene) -> str:
    first = found(scene).evidence[0]
    return first.value if first.name == "ranks" else ""


def tells(number: int, *them: Collective, ago: float = 30.0, source: Source = Source.RAS) -> Event:
    """What the collector of a node heard of job 7."""
    at = NOON - timedelta(seconds=ago)
    ones = tuple(replace(it, by=source, holder=it.holder or "job 7") for it in them)
    return replace(event(EventKind.COLLECTIVE, node(number), at), collectives=ones)


def looked(stand: RankState, ranks: Iterable[RankStatus] = (), **more: Any) -> Collective:
    """Of six ranks, two on each node."""
    ranks = tuple(ranks)
    more = {"size": 6, "count": len(ranks), "operation": "AllReduce", "entered": 4711, **more}
    return Collective(by=Source.RAS, holder="", stand=stand, ranks=ranks, **more)


def at(rank: int, stand: RankState = RankState.BEHIND, **more: Any) -> RankStatus:
    more = {"host": f"10.0.0.{1 + rank // 2}", "device": rank % 2, "reached": 4710, **more}
    return RankStatus(rank=rank, stand=stand, **more)


def test_a_rank_is_named_with_the_gpu_that_its_own_node_says() -> None:
    """Node 2's own collector knows its GPU, whatever number it has in its container."""
    other = looked(RankState.BEHIND, [at(3)], hosts=("10.0.0.1",))
    own = looked(RankState.BEHIND, [at(3, gpu="GPU-2-0")], hosts=("10.0.0.2",))
    it = found(hung(tells(1, other), tells(2, own)))
    who = "rank 3 (node-2 GPU 0)"
    assert it.evidence[0].text == (
        f"ranks: {who} never entered AllReduce 4711, last entered 4710, by NCCL's RAS"
    )
    assert it.action.startswith(f"Look at {who} first: its process, GPU and node. Ask the job's")
    assert (it.severity, it.certain, it.condition) == (Severity.WARNING, True, "ranks")
    assert it.subject == found(hung()).subject


def test_of_a_node_that_tells_its_address_the_gpu_is_known_by_its_number() -> None:
    it = hung(
        tells(1, looked(RankState.BEHIND, [at(3)])),
        tells(2, looked(RankState.TOGETHER, hosts=("10.0.0.2",))),
    )
    assert said(it).startswith("rank 3 (node-2 GPU 1) never")
    elsewhere = hung(tells(1, looked(RankState.BEHIND, [at(3, device=9)], hosts=("10.0.0.2",))))
    assert said(elsewhere).startswith("rank 3 (node-1) never")


def test_the_one_node_that_says_nothing_is_the_one_whose_address_nobody_has() -> None:
    told = looked(RankState.DEAD, [at(4, RankState.DEAD), at(5, RankState.DEAD)])
    events = [tells(n, replace(told, hosts=(f"10.0.0.{n}",))) for n in (1, 2)]
    assert said(hung(*events)).startswith(
        "2 of 6 ranks (4 (node-3 GPU 0), 5 (node-3 GPU 1)) are dead"
    )
    # Of two such nodes nobody knows which it is.
    assert said(hung(events[0])).startswith("2 of 6 ranks (4 (10.0.0.3), 5 (10.0.0.3)) are dead")


def test_a_node_that_did_not_ask_is_known_by_the_addresses_of_its_ports() -> None:
    scene = hung(tells(1, looked(RankState.BEHIND, [at(3)], hosts=("10.0.0.1",))))
    inventories = [
        replace(
            it,
            ports=(
                replace(it.ports[0], addresses=(f"10.0.0.{it.subject.node[-1]}",)),
                *it.ports[1:],
            ),
        )
        for it in scene.inventories
    ]
    assert said(scene).startswith("rank 3 (10.0.0.2) never")
    assert said(replace(scene, inventories=tuple(inventories))).startswith("rank 3 (node-2 GPU 1)")


def test_an_address_that_two_nodes_have_is_nobody_s() -> None:
    told = looked(RankState.DEAD, [at(0, RankState.DEAD)], hosts=("10.0.0.1",))
    assert said(hung(tells(1, told), tells(2, told))).startswith("rank 0 (10.0.0.1) is dead")


@pytest.mark.parametrize(
    ("stand", "words"),
    [
        (RankState.DEAD, "rank 0 (node-1 GPU 0) is dead"),
        (RankState.UNREACHABLE, "rank 0 (node-1 GPU 0) is unreachable from the other ranks"),
        (RankState.FAILED, "rank 0 (node-1 GPU 0) is reporting an NCCL error"),
        (
            RankState.DIFFERENT,
            "rank 0 (node-1 GPU 0) called another collective than the other ranks",
        ),
    ],
)
def test_what_is_wrong_with_a_rank_is_said(stand: RankState, words: str) -> None:
    it = found(hung(tells(1, looked(stand, [at(0, stand)], hosts=("10.0.0.1",)))))
    assert it.evidence[0].value.startswith(words)
    assert it.condition == "ranks"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (looked(RankState.TOGETHER), "all 6 ranks stand at the same collective: stalled or idle"),
        (looked(RankState.SILENT), "the job's own process does not answer on node-1"),
        (looked(RankState.STARTING, [at(0)]), "rank 0 (10.0.0.1) is still creating a communicator"),
    ],
)
def test_where_nobody_is_to_blame_the_finding_stays_as_it_was(told: Collective, words: str) -> None:
    it, before = found(hung(tells(1, told))), found(hung())
    assert it.evidence[0].value == f"{words}, by NCCL's RAS"
    assert replace(it, evidence=it.evidence[1:]) == before


@pytest.mark.parametrize(("count", "names"), [(3, True), (4, False)])
def test_most_of_the_ranks_are_not_to_blame(count: int, names: bool) -> None:
    it = found(hung(tells(1, looked(RankState.BEHIND, [at(n) for n in range(count)]))))
    assert (it.condition == "ranks") is names


def test_the_gravest_that_any_node_heard_is_told() -> None:
    behind, dead = (
        looked(RankState.BEHIND, [at(1)]),
        looked(RankState.DEAD, [at(5, RankState.DEAD)]),
    )
    assert "is dead" in said(hung(tells(1, behind), tells(2, dead)))


@pytest.mark.parametrize(("ago", "counts"), [(309.0, True), (311.0, False)])
def test_what_was_heard_before_the_job_stalled_says_nothing(ago: float, counts: bool) -> None:
    """Its line is ten seconds old, and says 300."""
    assert bool(said(hung(tells(1, looked(RankState.BEHIND, [at(1)]), ago=ago)))) is counts


def test_of_a_node_the_last_word_counts_and_of_another_job_none() -> None:
    behind, fine = looked(RankState.BEHIND, [at(1)]), looked(RankState.TOGETHER)
    assert "stalled or idle" in said(hung(tells(1, behind, ago=60.0), tells(1, fine)))
    assert said(hung(tells(1, replace(behind, holder="job 8")))) == ""


def test_a_node_may_call_the_job_by_the_name_of_its_pod() -> None:
    behind = replace(looked(RankState.BEHIND, [at(1)]), holder="pod team/worker-2")
    scene = hung(tells(2, behind))
    assert said(scene) == ""
    pods = tuple(
        replace(a, pod=f"team/worker-{a.subject.node.rpartition('-')[2]}")
        for a in scene.allocations
    )
    assert said(replace(scene, allocations=pods)).startswith("rank 1")


def test_what_only_spins_becomes_a_warning_where_somebody_is_missing() -> None:
    spins = {
        "utilization_percent": 100,
        "memory_utilization_percent": 0,
        "power_watts": 130.0,
        "power_limit_watts": 700.0,
        "nvlink_receive_bytes": 0,
        "pcie_receive_bytes_per_second": 0.0,
        "spin_seconds": 120.0,
        "longest_spin_seconds": 0.0,
    }
    before = replace(healthy(nodes=NODES, seconds=120.0), allocations=hung().allocations)
    for one in hung().allocations:
        before = before.changed(one.subject, spins)
    assert found(before).severity is Severity.INFO
    behind = before.with_events(tells(1, looked(RankState.BEHIND, [at(1)]), ago=100.0))
    assert (found(behind).severity, found(behind).certain) == (Severity.WARNING, True)
    together = before.with_events(tells(1, looked(RankState.TOGETHER)))
    assert (found(together).severity, found(together).certain) == (Severity.INFO, False)


@pytest.mark.medium
def test_an_event_alone_is_no_finding() -> None:
    moving = hung(tells(1, looked(RankState.DEAD, [at(1)])), fields={})
    assert [it for d in DETECTORS for it in d.find(moving.window())] == []


# --- PyTorch's dumps, of a rank each -----------------------------------------------------------------


def dump(ranks: dict[int, int], *, left: Iterable[int] = (), **more: Any) -> Collective:
    """How far ranks are in a group; those in `left` wait for nobody."""
    left = set(left)
    stands = [
        RankStatus(
            rank=n, stand=RankState.TOGETHER if n in left else RankState.WAITING, reached=reached
        )
        for n, reached in ranks.items()
    ]
    more = {"size": 6, "group": "0", "operation": "all_reduce", **more}
    entered = max(ranks.values())
    here = {n for n, reached in ranks.items() if reached == entered}
    return Collective(
        by=Source.FLIGHT_RECORDER,
        holder="job 7",
        stand=RankState.WAITING,
        ranks=tuple(sorted(stands, key=lambda it: (it.reached or 0, it.rank))[:MOST_RANKS]),
        entered=entered,
        waiting=spans(here - left),
        left=spans(here & left),
        late=spans(ranks.keys() - here),
        count=len(stands),
        **more,
    )


def dumps(number: int, *them: Collective) -> Event:
    return tells(number, *them, source=Source.FLIGHT_RECORDER)


def test_dumps_of_several_nodes_name_who_never_came() -> None:
    events = [dumps(1, dump({0: 9, 1: 9})), dumps(2, dump({2: 9, 3: 8}, left=[3]))]
    it = found(hung(*events, dumps(3, dump({4: 9, 5: 9}))))
    assert it.evidence[0].value == (
        "rank 3 (node-2) never entered all_reduce 9, last entered 8, by PyTorch's Flight Recorder"
    )
    assert it.condition == "ranks"


def test_dumps_that_all_wait_in_one_place_say_that_it_is_stalled() -> None:
    events = [dumps(n, dump({2 * n - 2: 9, 2 * n - 1: 9})) for n in (1, 2, 3)]
    it = found(hung(*events))
    assert it.evidence[0].value.startswith("all 6 ranks entered all_reduce 9, and none has left it")
    assert it.condition == "no_steps"


def absent(ago: float, nodes: int = NODES) -> str:
    """Rank 5 of node 3 wrote no dump; the others wait."""
    ranks = ({0: 9, 1: 9}, {2: 9, 3: 9}, {4: 9})[:nodes]
    events = [
        tells(number, dump(them), ago=ago, source=Source.FLIGHT_RECORDER)
        for number, them in enumerate(ranks, 1)
    ]
    return said(hung(*events))


def test_a_rank_without_a_dump_is_named_once_all_others_are_known_to_wait() -> None:
    assert absent(60.0) == (
        "rank 5 wrote no dump, and the other 5 wait in all_reduce 9, by PyTorch's Flight Recorder"
    )
    assert absent(59.0) == ""
    assert absent(60.0, nodes=2) == ""


def test_no_rank_is_named_for_its_missing_dump_while_others_have_not_entered_or_have_left() -> None:
    for last in (dump({4: 8}), dump({4: 9}, left=[4])):
        events = [
            tells(number, them, ago=90.0, source=Source.FLIGHT_RECORDER)
            for number, them in enumerate((dump({0: 9, 1: 9}), dump({2: 9, 3: 9}), last), 1)
        ]
        assert "no dump" not in said(hung(*events))


def test_without_the_dumps_of_some_nothing_is_known_of_them() -> None:
    it = hung(dumps(1, dump({0: 9, 1: 9})))
    assert said(it) == ""


def test_a_rank_that_waits_in_a_small_group_is_not_blamed_in_the_large_one() -> None:
    world = dump({0: 9, 1: 9, 2: 9, 3: 9, 4: 8, 5: 8}, left=[4, 5])
    pair = dump({4: 7, 5: 6}, left=[5], group="1", size=2)
    assert said(hung(dumps(3, world, pair))).startswith(
        "rank 5 (node-3) never entered all_reduce 7"
    )


def test_of_a_rank_whose_dump_lies_on_every_node_the_node_is_not_known() -> None:
    whole = dump({0: 9, 1: 9, 2: 9, 3: 8, 4: 9, 5: 9}, left=[3])
    assert said(hung(dumps(1, whole), dumps(2, whole))).startswith("rank 3 never entered")


@pytest.mark.parametrize("size", [MOST_RANKS, MOST_RANKS + 1, 2 * MOST_RANKS])
def test_of_more_ranks_than_are_named_all_are_judged(size: int) -> None:
    """In a directory that nodes share each tells all of them."""
    whole = dump(dict.fromkeys(range(size), 9), size=size)
    assert said(hung(dumps(1, whole), dumps(2, whole))).startswith(f"all {size} ranks entered")
    but_one = dump(dict.fromkeys(range(size - 1), 9), size=size)
    assert said(hung(dumps(1, but_one), dumps(2, but_one))) == ""


@pytest.mark.parametrize("late", [1, MOST_RANKS - 1, MOST_RANKS, MOST_RANKS + 1, 200])
def test_as_many_as_are_named_may_be_late(late: int) -> None:
    whole = dump({n: 8 if n % 5 == 0 and n < 5 * late else 9 for n in range(1024)}, size=1024)
    words = said(hung(dumps(1, whole), dumps(2, whole)))
    who = f"{late} of 1024 ranks (0, 5, 10, 15, ...)" if late > 1 else "rank 0"
    assert words.startswith(f"{who} never entered all_reduce 9")


def test_who_came_later_by_another_node_s_look_is_not_late() -> None:
    before, after = dump({0: 9, 1: 8, 2: 8}, size=3), dump({0: 9, 1: 9, 2: 8}, size=3)
    assert said(hung(dumps(1, before), dumps(2, after))).startswith("rank 2 never entered")


def test_nccl_and_pytorch_that_agree_are_both_named() -> None:
    by_ras = tells(1, looked(RankState.TOGETHER))
    by_dumps = [dumps(n, dump({2 * n - 2: 9, 2 * n - 1: 9})) for n in (1, 2, 3)]
    assert said(hung(by_ras, *by_dumps)).endswith("by PyTorch's Flight Recorder and NCCL's RAS")


# --- NCCL Inspector, of jobs that go on --------------------------------------------------------------


def test_who_is_waited_for_says_nothing_of_a_job_that_hangs() -> None:
    first = looked(RankState.FIRST, [at(1, RankState.FIRST)])
    assert said(hung(tells(1, first, source=Source.INSPECTOR))) == ""
