"""A fault changes what sensors read, and nothing else."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from gpuvigil.lineprotocol import Line, Value, parse
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import EventKind, Subject
from simulator.cluster import build
from simulator.faults import KINDS, InjectedFault
from simulator.sensors import Moment, NodeSensors, events

NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)
NODE = build(4, 8, 1).nodes[0]
SENSORS = NodeSensors(NODE)


def at(elapsed_seconds: float) -> Moment:
    return Moment(origin=NOON, elapsed_seconds=elapsed_seconds, tick=int(elapsed_seconds))


def fault(name: str, elapsed_seconds: float = 100.0, **place: int | str) -> InjectedFault:
    started = NOON + timedelta(seconds=elapsed_seconds)
    given = InjectedFault(name=name, node=NODE.subject.node, at=started)
    return replace(given, **place)  # type: ignore[arg-type]  # only gpu, device and port are given


def cleared(given: InjectedFault, elapsed_seconds: float) -> InjectedFault:
    return replace(given, cleared_at=NOON + timedelta(seconds=elapsed_seconds))


def read(elapsed_seconds: float, *faults: InjectedFault) -> list[Line]:
    body = SENSORS.body(at(elapsed_seconds), faults)
    assert body is not None
    parsed = parse(body.encode())
    assert not parsed.refused
    return parsed.lines


def gpu(elapsed_seconds: float, index: int, *faults: InjectedFault) -> dict[str, Value]:
    rows = [dict(line.fields) for line in read(elapsed_seconds, *faults)]
    (row,) = (row for row in rows if row.get("index") == index)
    return row


def port(elapsed_seconds: float, *faults: InjectedFault) -> dict[str, Value]:
    lines = read(elapsed_seconds, *faults)
    (row,) = (dict(line.fields) for line in lines if dict(line.tags).get("device") == "mlx5_0")
    return row


def host(elapsed_seconds: float, *faults: InjectedFault) -> dict[str, Value]:
    (row,) = (
        dict(line.fields) for line in read(elapsed_seconds, *faults) if line.measurement == "node"
    )
    return row


def told(given: InjectedFault, until: float, after: float = 0.0) -> list[tuple[EventKind, float]]:
    found = events(NODE, given, at(after).at, at(until).at)
    return [(event.kind, (event.at - NOON).total_seconds()) for event in found]


def number(value: Value) -> float:
    assert isinstance(value, int | float)
    return float(value)


def test_a_body_has_a_line_per_gpu_and_port_and_one_for_the_node() -> None:
    lines = read(60.0)
    assert [line.measurement for line in lines] == ["gpu"] * 8 + ["port"] * 3 + ["node"]
    for line in lines:
        measurement = MEASUREMENTS[line.measurement]
        assert {key for key, _ in line.tags} == set(measurement.tags)
        assert {key for key, _ in line.fields} <= {m.name for m in measurement.metrics}
        assert line.at_ns == int(at(60.0).at.timestamp()) * 1_000_000_000


def test_a_lost_gpu_says_so_and_its_neighbours_answer() -> None:
    lost = fault("xid79", gpu=5)
    assert gpu(101.0, 5, lost) == {"up": 0, "unmeasured_reason": 3, "index": 5}
    assert gpu(101.0, 4, lost)["up"] == 1
    assert host(101.0, lost)["gpus_answering"] == 7
    assert gpu(99.0, 5, lost)["up"] == 1


def test_a_lost_gpu_comes_back_with_its_counters_where_they_stopped() -> None:
    lost = cleared(fault("gpu-lost", gpu=5), 400.0)
    before, after = gpu(100.0, 5), gpu(400.0, 5, lost)
    assert after["nvlink_receive_bytes"] == before["nvlink_receive_bytes"]
    later = gpu(401.0, 5, lost)
    assert number(later["nvlink_receive_bytes"]) > number(after["nvlink_receive_bytes"])


def test_overlapping_stops_are_counted_once() -> None:
    stops = (cleared(fault("idle", gpu=1), 300.0), cleared(fault("gpu-lost", 200.0, gpu=1), 400.0))
    assert gpu(400.0, 1, *stops)["nvlink_receive_bytes"] == gpu(100.0, 1)["nvlink_receive_bytes"]


def test_xid_79_is_told_with_the_loss_and_the_cure() -> None:
    lost = cleared(fault("xid79", gpu=5), 400.0)
    assert told(lost, 100.0) == [(EventKind.XID, 100.0), (EventKind.GPU_LOST, 100.0)]
    assert told(lost, 500.0, after=100.0) == [
        (EventKind.GPU_BACK, 400.0),
        (EventKind.GPU_RESET, 400.0),
    ]
    first = events(NODE, lost, NOON, at(100.0).at)[0]
    assert (first.xid, first.subject.gpu) == (79, NODE.gpus[5].uuid)


def test_an_event_keeps_its_id_however_often_it_is_asked_for() -> None:
    lost = fault("xid79", gpu=5)
    ids = [event.id for event in events(NODE, lost, NOON, at(100.0).at)]
    assert ids == [event.id for event in events(NODE, cleared(lost, 200.0), NOON, at(150.0).at)]
    assert len(set(ids)) == 2


def test_every_xid_is_told_and_cured_by_a_reset() -> None:
    for name in ("xid48", "xid94", "xid95", "xid119", "xid31", "xid13"):
        given = cleared(fault(name, gpu=0), 200.0)
        assert told(given, 300.0) == [(EventKind.XID, 100.0), (EventKind.GPU_RESET, 200.0)]
        assert gpu(150.0, 0, given)["ecc_uncorrected_errors"] == KINDS[name].uncorrected_errors


def test_a_hung_gpu_has_no_numbers_and_no_state_of_its_own() -> None:
    hung = fault("gpu-hang", gpu=2)
    assert gpu(101.0, 2, hung) == {"unmeasured_reason": 4, "index": 2}
    assert (host(101.0, hung)["driver_answering"], host(101.0, hung)["gpus_answering"]) == (1, 7)
    assert told(cleared(hung, 200.0), 300.0) == [
        (EventKind.DRIVER_SILENT, 100.0),
        (EventKind.DRIVER_BACK, 200.0),
    ]


def test_a_hung_driver_silences_all_gpus_and_the_ports_go_on() -> None:
    hung = fault("driver-hang")
    assert all(gpu(130.0, index, hung)["unmeasured_reason"] == 4 for index in range(8))
    row = host(130.0, hung)
    assert (row["driver_answering"], row["driver_silent_seconds"]) == (0, 30.0)
    assert port(130.0, hung)["up"] == 1
    (event,) = events(NODE, hung, NOON, at(130.0).at)
    assert event.subject == Subject(cluster="simulated", node="sim-000")


def test_a_silent_node_sends_nothing() -> None:
    silent = cleared(fault("node-silent"), 200.0)
    assert SENSORS.body(at(150.0), [silent]) is None
    assert SENSORS.body(at(200.0), [silent]) is not None
    assert told(silent, 300.0) == []


def test_an_idle_gpu_is_still_held() -> None:
    idle = fault("idle", gpu=3)
    row = gpu(101.0, 3, idle)
    assert (row["utilization_percent"], row["compute_processes"]) == (0, 1)
    assert row["memory_used_bytes"] == gpu(101.0, 3)["memory_used_bytes"]


def test_a_port_goes_down_and_comes_back() -> None:
    down = cleared(fault("port-down", device="mlx5_0", port="1"), 200.0)
    row = port(150.0, down)
    assert (row["up"], row["physical_state"], row["link_downed"]) == (0, 2, 1)
    assert "speed_bits_per_second" not in row
    assert number(row["receive_bytes"]) - number(port(100.0)["receive_bytes"]) < 50 * 100_000
    assert port(201.0, down)["up"] == 1
    assert told(down, 300.0) == [(EventKind.PORT_DOWN, 100.0), (EventKind.PORT_UP, 200.0)]


def test_a_port_that_stays_up_is_slower_and_counts_and_keeps_what_it_counted() -> None:
    slow = cleared(fault("port-slow", device="mlx5_0", port="1"), 200.0)
    speeds = [port(t, slow)["speed_bits_per_second"] for t in (99.0, 150.0, 201.0)]
    assert [number(it) / 1e9 for it in speeds] == [400.0, 100.0, 400.0]
    assert [port(t, slow)["width_lanes"] for t in (99.0, 150.0)] == [4, 1]
    lossy = cleared(fault("packet-loss", device="mlx5_0", port="1"), 200.0)
    before, during, after = (number(port(t, lossy)["retransmits"]) for t in (99.0, 150.0, 300.0))
    assert (during - before, after - before) == (200 * 50, 200 * 100)
    assert [port(t, lossy)[name] for t in (150.0,) for name in ("up", "link_downed")] == [1, 0]
    assert told(lossy, 300.0) == []


def test_a_flapping_port_goes_down_again_and_again_and_ends_up() -> None:
    flapping = cleared(fault("port-flap", device="mlx5_0", port="1"), 113.0)
    assert told(flapping, 200.0) == [
        (EventKind.PORT_DOWN, 100.0),
        (EventKind.PORT_UP, 102.0),
        (EventKind.PORT_DOWN, 106.0),
        (EventKind.PORT_UP, 108.0),
        (EventKind.PORT_DOWN, 112.0),
        (EventKind.PORT_UP, 113.0),
    ]
    assert [port(t, flapping)["up"] for t in (101.0, 103.0, 112.5, 114.0)] == [0, 1, 0, 1]
    assert port(114.0, flapping)["link_downed"] == 3


def test_events_of_a_span_are_neither_lost_nor_told_twice() -> None:
    flapping = fault("port-flap", device="mlx5_0", port="1")
    whole = told(flapping, 160.0)
    pieces = [
        piece for start in range(90, 160) for piece in told(flapping, start + 1.0, float(start))
    ]
    assert pieces == whole


def test_a_gpu_that_overheats_is_slowed_down_and_its_counter_keeps_it() -> None:
    hot = cleared(fault("heat", gpu=1), 130.0)
    before, during, after = (gpu(t, 1, hot) for t in (90.0, 120.0, 200.0))
    assert (before["temperature_celsius"], during["temperature_celsius"]) == (
        gpu(90.0, 1)["temperature_celsius"],
        92,
    )
    assert during["sm_clock_hertz"] == int(float(gpu(120.0, 1)["sm_clock_hertz"]) / 2)
    assert during["clock_event_reasons"] == 0x48
    slowed = [one["hardware_thermal_slowdown_seconds"] for one in (before, during, after)]
    assert slowed == [0.0, 20.0, 30.0]
    assert after["temperature_celsius"] == gpu(200.0, 1)["temperature_celsius"]
    assert gpu(120.0, 0, hot) == gpu(120.0, 0)


def test_a_link_counts_an_error_a_second_and_keeps_them() -> None:
    bad = cleared(fault("nvlink-errors", gpu=1), 130.0)
    counted = [gpu(t, 1, bad)["nvlink_crc_errors"] for t in (99.0, 100.5, 101.0, 120.0, 200.0)]
    assert counted == [0, 0, 1, 20, 30]
    assert gpu(120.0, 1, bad)["nvlink_worst_link"] == 3
    assert gpu(120.0, 0, bad) == gpu(120.0, 0)


def test_a_slow_rank_works_longer_and_its_job_s_steps_do() -> None:
    slow = cleared(fault("slow-rank", gpu=1), 130.0)
    before, during, after = (
        [gpu(t, index, slow) for index in range(8)] for t in (99.0, 120.0, 200.0)
    )
    assert before == [gpu(99.0, index) for index in range(8)]
    own = [number(one["step_own_seconds"]) for one in before]
    # What it worked at first is its own; the others wait as much longer.
    late = [number(it["step_own_seconds"]) - usual for it, usual in zip(during, own, strict=True)]
    assert late == [0.0, pytest.approx(own[1] / 3.0, abs=0.001), *[0.0] * 6]
    assert [it["step_own_first_seconds"] for it in during] == own
    for it, usual in zip(during, before, strict=True):
        longer = number(it["step_seconds"]) - number(usual["step_seconds"])
        assert longer == pytest.approx(own[1] / 3.0, rel=0.02)
        assert number(it["step_age_seconds"]) < number(it["step_p99_seconds"])
    # It is over, and the job goes on to say that its steps do.
    assert [it["step_own_seconds"] for it in after] == own
    assert all("step_age_seconds" in it for it in after)


def test_a_gpu_without_a_training_has_no_rank_that_is_slow() -> None:
    other = build(4, 8, 1).nodes[3]
    slow = replace(fault("slow-rank", gpu=1), node=other.subject.node)
    body = NodeSensors(other).body(at(120.0), [slow])
    assert body is not None
    assert "step_" not in body


LARGE = build(16, 8, 1)  # its first training has ranks on four nodes


def rank(node: int, index: int, elapsed_seconds: float, *faults: InjectedFault) -> dict[str, Value]:
    body = NodeSensors(LARGE.nodes[node]).body(at(elapsed_seconds), faults)
    assert body is not None
    rows = [dict(line.fields) for line in parse(body.encode()).lines]
    (row,) = (row for row in rows if row.get("index") == index)
    return row


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *((name, {"gpu": 5}) for name in ("xid79", "gpu-lost", "gpu-hang", "xid48", "xid119")),
        ("driver-hang", {}),
        ("port-down", {"device": "mlx5_0", "port": "1"}),
    ],
)
def test_the_other_ranks_of_a_training_wait_for_one_that_cannot_work(
    name: str, place: dict[str, Any]
) -> None:
    held = cleared(fault(name, **place), 400.0)
    before, soon, late, after = (rank(3, 0, t, held) for t in (100.0, 101.0, 399.0, 800.0))
    assert [it["step"] for it in (before, soon, late)] == [before["step"]] * 3
    # It goes on with what it had, at its old pace, and is behind by as long as it waited.
    assert number(after["step"]) - number(late["step"]) == pytest.approx(400.0 / 6.4, abs=1.0)
    assert number(rank(3, 0, 800.0)["step"]) - number(after["step"]) == pytest.approx(
        300.0 / 6.4, abs=1.0
    )
    # It spins: fully used, at the power of a GPU at rest, and moves nothing.
    assert (late["utilization_percent"], late["memory_utilization_percent"]) == (100, 1)
    assert number(late["power_watts"]) < 0.25 * number(late["power_limit_watts"])
    assert late["nvlink_receive_bytes"] == soon["nvlink_receive_bytes"]
    assert number(rank(3, 0, 399.0)["power_watts"]) > 500.0
    # Nothing is saved meanwhile.
    saved = number(late["checkpoint_age_seconds"]) - number(soon["checkpoint_age_seconds"])
    assert saved == pytest.approx(298.0)


def test_ports_of_a_training_that_waits_carry_nothing_of_it() -> None:
    lost = fault("xid79", gpu=5)
    body = [NodeSensors(LARGE.nodes[2]).body(at(t), [lost]) for t in (100.0, 200.0)]
    moved = [
        number(dict(line.fields)["transmit_bytes"])
        for one in body
        for line in parse((one or "").encode()).lines
        if dict(line.tags).get("device") == "mlx5_1"
    ]
    assert moved[1] - moved[0] < 20e6  # what storage and the fabric itself have to say


def test_one_node_talks_to_itself_without_a_port_and_no_training_through_the_management_s() -> None:
    down = fault("port-down", device="mlx5_0", port="1")
    assert gpu(200.0, 4, down) == gpu(200.0, 4)
    management = fault("port-down", device="eno1", port="1")
    assert rank(3, 0, 200.0, management)["step"] == rank(3, 0, 200.0)["step"]


@pytest.mark.parametrize("name", ["xid31", "heat", "nvlink-errors", "idle"])
def test_a_training_goes_on_beside_what_holds_nobody_up(name: str) -> None:
    assert rank(3, 0, 200.0, fault(name, gpu=5)) == rank(3, 0, 200.0)


def test_a_job_on_other_nodes_and_one_that_is_no_training_go_on() -> None:
    lost = fault("xid79", gpu=5)
    assert rank(4, 0, 200.0, lost) == rank(4, 0, 200.0)
    served = next(
        (node, index)
        for node, one in enumerate(LARGE.nodes)
        for index, slot in enumerate(one.slots)
        if slot is not None and not slot.workload.step_seconds and slot.workload.load
    )
    broken = replace(fault("xid48", gpu=served[1]), node=LARGE.nodes[served[0]].subject.node)
    row, well = (rank(*served, 200.0, *them) for them in ((broken,), ()))
    assert row["utilization_percent"] == well["utilization_percent"]


def test_a_slow_rank_makes_the_whole_training_slower_on_its_other_nodes_too() -> None:
    slow = fault("slow-rank", gpu=5)
    before, later = (rank(3, 0, t, slow) for t in (100.0, 1_000.0))
    length = number(later["step_seconds"])
    assert length == pytest.approx(6.4 * (1.0 + 0.55 / 3.0), rel=0.01)
    made = number(later["step"]) - number(before["step"])
    assert made == pytest.approx(900.0 / length, rel=0.02)
    assert later["step_own_seconds"] == before["step_own_seconds"]


def test_a_gpu_that_was_made_idle_does_not_spin_for_another_one() -> None:
    rests, lost = fault("idle", gpu=1), fault("gpu-lost", gpu=5)
    assert gpu(200.0, 1, rests, lost)["utilization_percent"] == 0
    assert gpu(200.0, 2, rests, lost)["utilization_percent"] == 100
