"""The simulated cluster is believable, and the same for the same settings."""

from collections import Counter
from datetime import datetime, timezone

from gpuvigil.metrics import GPU, NODE, PORT
from simulator.cluster import FINE_TUNING, NOTEBOOK, SERVING, TRAINING, Cluster, allocations, build
from simulator.model import NO_WORK, Fields, gpu_fields, port_fields, work

NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)
SIXTEEN = build(16, 8, 1)


def fields(cluster: Cluster, node: int, gpu: int, elapsed_seconds: float) -> Fields:
    held = cluster.nodes[node].slots[gpu]
    done = NO_WORK if held is None else work(held, elapsed_seconds)
    return gpu_fields(cluster.nodes[node], gpu, done, elapsed_seconds, int(elapsed_seconds))


def number(value: float | int | bool | str | None) -> float:
    assert isinstance(value, int | float)
    return float(value)


def test_of_sixteen_nodes_seven_tenths_compute_and_an_eighth_is_held_idle() -> None:
    held = Counter(
        None if slot is None else slot.workload.command
        for node in SIXTEEN.nodes
        for slot in node.slots
    )
    active = sum(held[kind.command] for kind in (TRAINING, FINE_TUNING, SERVING))
    assert (active, held[NOTEBOOK.command], held[None]) == (90, 15, 23)


def test_some_jobs_span_nodes_and_some_nodes_are_free_as_a_whole() -> None:
    widths = {len({node for node, _ in slot.places}) for slot in SIXTEEN.slots}
    assert {1, 2, 4} <= widths
    assert any(all(slot is None for slot in node.slots) for node in SIXTEEN.nodes)


def test_the_first_large_job_is_1042_of_alice() -> None:
    first = SIXTEEN.nodes[3].slots[5]
    assert first is not None
    given = allocations(SIXTEEN, first, 0, NOON)
    assert {(str(a.holder), a.user) for a in given} == {("job 1042", "alice")}
    assert len(given) == 32
    assert all(a.started_at < NOON for a in given)


def test_no_gpu_is_held_twice_in_any_size_of_cluster() -> None:
    for nodes in (1, 2, 3, 5, 9, 16, 23, 40):
        cluster = build(nodes, 8, 7)
        places = Counter(place for slot in cluster.slots for place in slot.places)
        assert set(places.values()) <= {1}
        assert set(places) <= {(node, gpu) for node in range(nodes) for gpu in range(8)}
        assert 0.6 * nodes * 8 <= len(places) < nodes * 8


def test_the_same_seed_gives_the_same_cluster_and_the_same_numbers() -> None:
    again = build(16, 8, 1)
    assert again == SIXTEEN
    assert fields(again, 3, 5, 1234.5) == fields(SIXTEEN, 3, 5, 1234.5)
    assert build(16, 8, 2) != SIXTEEN


def test_every_gpu_is_another_one_even_in_a_large_cluster() -> None:
    large = build(200, 8, 1)
    uuids = {gpu.uuid for node in large.nodes for gpu in node.gpus}
    assert len(uuids) == 1600


def test_eight_nodes_share_a_rack() -> None:
    racks = Counter(node.rack for node in SIXTEEN.nodes)
    assert racks == {"rack-01": 8, "rack-02": 8}


def test_numbers_stay_within_what_an_h100_can_do() -> None:
    for gpu in range(8):
        for elapsed_seconds in range(0, 7200, 31):
            for node in (0, 9, 11, 15):
                row = fields(SIXTEEN, node, gpu, elapsed_seconds)
                assert 0 <= number(row["utilization_percent"]) <= 100
                assert 60 <= number(row["power_watts"]) <= 700
                assert 28 <= number(row["temperature_celsius"]) <= 75
                assert 345e6 <= number(row["sm_clock_hertz"]) <= 1980e6
                assert number(row["memory_used_bytes"]) < number(row["memory_total_bytes"])


def test_a_held_notebook_computes_nothing_and_a_training_gpu_is_busy() -> None:
    notebook = next(slot for slot in SIXTEEN.slots if slot.workload is NOTEBOOK)
    ((node, gpu),) = notebook.places
    idle, busy = fields(SIXTEEN, node, gpu, 600.0), fields(SIXTEEN, 0, 0, 600.0)
    assert (idle["utilization_percent"], idle["compute_processes"]) == (0, 1)
    assert number(busy["utilization_percent"]) > 85
    assert number(busy["power_watts"]) > 500
    assert number(idle["power_watts"]) < 200


def test_energy_is_the_integral_of_power() -> None:
    steps = range(3600, 4200)
    powers = [number(fields(SIXTEEN, 1, 2, step)["power_watts"]) for step in steps]
    start, end = (fields(SIXTEEN, 1, 2, at)["energy_joules"] for at in (3600, 4200))
    assert abs(number(end) - number(start) - sum(powers)) < 0.01 * sum(powers)


def test_counters_never_step_back() -> None:
    row = fields(SIXTEEN, 9, 3, 0.0)
    counters = [m.name for m in GPU.metrics if m.kind.value == "counter" and m.name in row]
    assert "energy_joules" in counters
    before = fields(SIXTEEN, 9, 3, 0.0)
    for elapsed_seconds in range(1, 4000, 7):
        now = fields(SIXTEEN, 9, 3, elapsed_seconds)
        assert all(number(now[name]) >= number(before[name]) for name in counters)
        before = now


def test_every_number_is_in_the_catalogue() -> None:
    row = fields(SIXTEEN, 0, 0, 60.0)
    known = {m.name: m.integer for m in GPU.metrics}
    assert set(row) <= set(known)
    assert all(isinstance(value, int) is known[name] for name, value in row.items())
    ports = {m.name for m in PORT.metrics}
    assert all(set(port_fields(port, 1e9, 60.0)) <= ports for port in SIXTEEN.nodes[0].ports)
    assert NODE.metrics


def test_jobs_follow_each_other_without_a_gap() -> None:
    slot = SIXTEEN.slots[0]
    change = slot.started_seconds(1)
    assert (slot.run(change - 0.1), slot.run(change), slot.started_seconds(0) < 0) == (0, 1, True)
    assert not {a.id for a in allocations(SIXTEEN, slot, 0, NOON)} & {
        a.id for a in allocations(SIXTEEN, slot, 1, NOON)
    }


def test_each_rank_of_a_training_tells_its_own_work_and_when_it_was_saved() -> None:
    slot = next(slot for slot in SIXTEEN.slots if slot.workload.step_seconds)
    said = [fields(SIXTEEN, node, gpu, 600.0) for node, gpu in slot.places]
    assert [one["rank"] for one in said] == list(range(len(slot.places)))
    for one in said:
        own, waits = number(one["step_own_seconds"]), number(one["step_input_seconds"])
        assert own + waits < number(one["step_seconds"])
        assert 0.0 <= number(one["checkpoint_age_seconds"]) < 1800.0
    notebook = next(slot for slot in SIXTEEN.slots if slot.workload is NOTEBOOK)
    assert "rank" not in fields(SIXTEEN, *notebook.places[0], 600.0)
