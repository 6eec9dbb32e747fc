"""Inventories made of what a Prometheus has."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from analyzer.jobs.prometheus_inventory import changed_hands, inventories, renewed
from gpuvigil.model import Allocation, Holder, Inventory, Subject, job_holder, pod_holder

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)


def row(**more: Any) -> dict[str, Any]:
    times = {"samples": 3, "first_at": NOON - MINUTE, "last_at": NOON}
    return {"cluster": "c", "node": "n1", **times, **more}


def gpu(uuid: str, index: int | None) -> dict[str, Any]:
    return row(uuid=uuid, model="H100", index_last=index)


def port(device: str, up: int) -> dict[str, Any]:
    return row(device=device, port="1", kind="infiniband", role="fabric", up_last=up)


def found(*gpus: dict[str, Any], ports: tuple[dict[str, Any], ...] = ()) -> Inventory:
    (one,) = inventories(gpus, ports, [row(load_average_last=1.0)], NOON).values()
    return one


def test_a_node_has_what_is_told_of_it_in_the_order_of_the_indices() -> None:
    one = found(gpu("GPU-b", 1), gpu("GPU-a", 0), ports=(port("mlx5_0", 1),))
    assert [it.uuid for it in one.gpus] == ["GPU-a", "GPU-b"]
    assert (one.driver_state, one.tick_seconds, one.collected) == ("loaded", 30.0, False)
    assert [it.was_up for it in one.ports] == [True]


def test_a_node_without_a_gpu_has_no_driver() -> None:
    assert found().driver_state == "no driver"
    assert inventories([], [], [], NOON) == {}


def test_what_has_not_changed_is_not_written_again() -> None:
    one = found(gpu("GPU-a", 0), ports=(port("mlx5_0", 1),))
    assert renewed(None, one) == one
    kept = Inventory.from_record(one.to_record())
    assert renewed(kept, replace(one, at=NOON + MINUTE)) is None


def test_once_a_day_it_is_said_that_a_node_is_still_there() -> None:
    one = found(gpu("GPU-a", 0))
    tomorrow = replace(one, at=NOON + 24 * 60 * MINUTE)
    assert renewed(one, tomorrow) == tomorrow


def test_a_gpu_that_falls_silent_stays_until_another_one_is_in_its_place() -> None:
    both = found(gpu("GPU-a", 0), gpu("GPU-b", 1))
    assert renewed(both, found(gpu("GPU-a", 0))) is None
    swapped = renewed(both, found(gpu("GPU-a", 0), gpu("GPU-c", 1)))
    assert swapped is not None
    assert [it.uuid for it in swapped.gpus] == ["GPU-a", "GPU-c"]


def test_a_port_that_was_up_once_stays_one_that_was() -> None:
    up, down = (found(ports=(port("mlx5_0", state),)) for state in (1, 0))
    assert renewed(up, down) is None
    again = renewed(down, up)
    assert again is not None
    assert again.ports[0].was_up


def test_what_a_collector_has_written_is_left_alone() -> None:
    one = found(gpu("GPU-a", 0))
    assert renewed(replace(one, boot="b1", version="0.1.0"), found(gpu("GPU-z", 0))) is None


GPU = Subject(cluster="c", node="n1", gpu="GPU-a")
JOB = job_holder(1042), None
POD = pod_holder("training/llama-0"), "training/llama-0"


def held(*named: tuple[Holder, str | None], at: datetime = NOON) -> list[Allocation]:
    return changed_hands({GPU: named}, (), {}, at)


def test_who_is_named_holds_the_gpu_from_the_look_that_found_it() -> None:
    job, pod = held(JOB, POD)
    assert (job.subject, job.holder, job.started_at, job.ended_at) == (GPU, JOB[0], NOON, None)
    assert (pod.holder, pod.pod, pod.account) == (*POD, "training")


def test_who_is_still_named_is_not_written_again() -> None:
    assert changed_hands({GPU: {JOB}}, held(JOB), {GPU: NOON}, NOON + MINUTE) == []


def test_who_is_named_no_more_has_let_go_and_the_next_one_holds_it() -> None:
    over, new = changed_hands({GPU: {POD}}, held(JOB), {GPU: NOON}, NOON + MINUTE)
    assert (str(over.holder), over.started_at, over.ended_at) == ("job 1042", NOON, NOON + MINUTE)
    assert (new.holder, new.started_at) == (POD[0], NOON + MINUTE)


def test_of_a_gpu_that_is_silent_nobody_lets_go() -> None:
    assert changed_hands({}, held(JOB), {GPU: NOON}, NOON + MINUTE) == []


def test_who_is_there_at_the_first_look_or_after_a_gap_began_before() -> None:
    assert [one.began_before for one in held(JOB)] == [True]
    for gap, before in ((2 * MINUTE, False), (2 * MINUTE + MINUTE / 60, True)):
        (one,) = changed_hands({GPU: {JOB}}, (), {GPU: NOON}, NOON + gap)
        assert (one.started_at, one.began_before) == (NOON + gap, before)
    (late,) = changed_hands({GPU: {JOB}}, (), {GPU: NOON}, NOON - MINUTE)
    assert late.began_before
