"""What bounded a job over a window, by rows as a store gives them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from accounting.jobs.bound import Bound
from dashboard.device.grid import grid
from dashboard.device.window import Window
from dashboard.jobs.bounds_strip import shares, strip
from dashboard.jobs.held_up import with_held_up
from dashboard.jobs.over_time import (
    GPU_FIELDS,
    HELD_UP,
    HOST_FIELDS,
    PORT_FIELDS,
    OverTime,
    Run,
    charts,
    checkpoints,
    marks,
    over_time,
    runs,
)
from dashboard.lists.jobs import JobNow
from gpuvigil.clock import to_ns
from gpuvigil.lineprotocol import encode
from gpuvigil.model import Holder, Incident, Severity, Subject
from gpuvigil.store.memory import MemoryStore
from gpuvigil.web import page_links
from tests.dashboard.scene import NOON, gpu, incident, node

NODE = node("n-1", "prod")
MINE = [gpu(0, NODE), gpu(1, NODE)]
KEYS = [subject.key for subject in MINE]
JOB = JobNow(
    cluster="prod",
    holder=Holder.parse("job 7"),
    user="ann",
    name=None,
    partition=None,
    account=None,
    started_at=NOON - timedelta(minutes=10),
    began_before=False,
    gpus=MINE,
    nodes=["n-1"],
    record=None,
)
STEP, MINUTES = timedelta(seconds=60), 10
START = NOON - timedelta(minutes=MINUTES)
WINDOW = Window(start=START, end=NOON, live=True)
COMPUTES = {"utilization_percent": 99, "sm_activity_percent": 90.0, "step_seconds": 2.0}


def line(of: Subject, at_second: int, fields: Mapping[str, float]) -> str:
    tags = {"cluster": of.cluster, "node": of.node, "uuid": of.gpu or "", "model": "H100"}
    return encode("gpu", tags, fields, to_ns(START + timedelta(seconds=at_second))) or ""


def told() -> OverTime:
    """Computes for four minutes, waits for input for three, and tells nothing for the rest; a checkpoint in the second."""
    store = MemoryStore()
    lines = []
    for second in range(0, 420, 10):
        waits = second >= 240
        age = 500.0 + second if second < 90 else second - 90.0
        fields = {
            **COMPUTES,
            "step": second // 2,
            "step_own_seconds": 0.5 if waits else 1.9,
            "step_input_seconds": 1.4 if waits else 0.0,
            "checkpoint_age_seconds": age,
            "job_disk_write_bytes": second * 10**8,
        }
        lines += [line(one, second, fields) for one in MINE]
        port = {
            "cluster": "prod", "node": "n-1", "device": "mlx5_0", "port": "1", "kind": "roce",
            "role": "fabric",
        }  # fmt: skip
        moved = {
            "up": 1,
            "speed_bits_per_second": 8 * 10**9,
            "receive_bytes": second * 10**8,
            "transmit_bytes": second * 2 * 10**8,
        }
        at, host = to_ns(START + timedelta(seconds=second)), {"cluster": "prod", "node": "n-1"}
        lines.append(encode("port", port, moved, at) or "")
        stored = {"shared_write_bytes": second * 3 * 10**8, "disk_read_bytes": second * 10**6}
        lines.append(encode("node", host, stored, at) or "")
    store.write("\n".join(lines).encode())
    onto, where = grid(START, NOON, STEP), {"cluster": "prod", "node": "n-1"}
    return over_time(
        onto,
        ["n-1"],
        [store.series("gpu", GPU_FIELDS, where, (onto.start, NOON), STEP)],
        [store.series("port", PORT_FIELDS, where, (onto.start, NOON), STEP)],
        [store.series("node", HOST_FIELDS, where, (onto.start, NOON), STEP)],
    )


def test_it_is_decided_for_each_step_and_what_was_not_measured_is_a_gap() -> None:
    found = runs(told(), JOB)
    assert [(one.bound, (one.end - one.start) // STEP) for one in found] == [
        (Bound.COMPUTE, 4),
        (Bound.INPUT, 3),
    ]
    (most, share), (second, _) = shares(found)
    assert (most, second) == (Bound.COMPUTE, Bound.INPUT)
    assert share == pytest.approx(4 / 7)
    later = runs(told(), replace(JOB, started_at=START + 2 * STEP))
    assert later[0].start == START + 2 * STEP
    assert not runs(told(), replace(JOB, gpus=[gpu(5, NODE)]))


@pytest.mark.parametrize(
    ("written", "bound"), [(50_000_001, Bound.CHECKPOINT), (49_999_999, Bound.UNKNOWN)]
)
def test_what_a_node_writes_while_its_gpus_idle_is_a_checkpoint_over_time_too(
    written: int, bound: Bound
) -> None:
    store, tags = MemoryStore(), {"cluster": "prod", "node": "n-1"}
    for second in range(0, 600, 10):
        at = to_ns(START + timedelta(seconds=second))
        lines = [line(one, second, {"utilization_percent": 50}) for one in MINE]
        lines.append(encode("node", tags, {"shared_write_bytes": second * written}, at) or "")
        store.write("\n".join(lines).encode())
    onto, span = grid(START, NOON, STEP), (START, NOON)
    gpus = store.series("gpu", GPU_FIELDS, tags, span, STEP)
    hosts = store.series("node", HOST_FIELDS, tags, span, STEP)
    found = over_time(onto, ["n-1"], [gpus], [], [hosts])
    assert runs(found, JOB)[-1].bound is bound
    # Who has the node with others does not write what they write.
    assert runs(found, replace(JOB, with_others=["n-1"]))[-1].bound is Bound.UNKNOWN


def test_who_shares_a_gpu_cannot_be_told_over_time_either_and_a_server_waits() -> None:
    (run,) = runs(told(), replace(JOB, shared=True))
    assert (run.bound, "it shares GPUs" in run.text) == (Bound.UNKNOWN, True)
    idle = {"utilization_percent": 0.0, "step_phase": 2.0}
    (run,) = runs(steps_of_seconds(4.0, **idle), JOB)
    assert run.bound is Bound.NOTHING
    (run,) = runs(steps_of_seconds(4.0, **idle), replace(JOB, on_call=True))
    assert (run.bound, "its users" in run.text) == (Bound.ON_CALL, True)


def steps_of_seconds(length: float, **values: float) -> OverTime:
    """Half of the time no step is made, and its ranks are at a checkpoint all of it; points are 30 s apart."""
    store, apart = MemoryStore(), timedelta(seconds=30)
    store.write(
        "\n".join(
            line(
                one,
                second,
                {
                    **COMPUTES,
                    "step": int(second / length / 2.0),
                    "step_seconds": length,
                    "step_phase": 3,
                    **values,
                },
            )
            for second in range(0, 600, 10)
            for one in MINE
        ).encode()
    )
    onto, where = grid(START, NOON, apart), {"cluster": "prod", "node": "n-1"}
    gpus = store.series("gpu", GPU_FIELDS, where, (onto.start, NOON), apart)
    return over_time(onto, ["n-1"], [gpus], [], [])


@pytest.mark.medium
@pytest.mark.parametrize("length", [1.0, 10.0, 25.0])
def test_steps_are_counted_over_as_many_points_as_it_takes(length: float) -> None:
    assert runs(steps_of_seconds(length), JOB)[-1].bound is Bound.CHECKPOINT
    assert runs(steps_of_seconds(40.0), JOB)[-1].bound is Bound.COMPUTE


def test_checkpoints_are_where_the_age_of_the_last_one_falls() -> None:
    (written,) = checkpoints(told(), KEYS)
    assert abs(written - (START + timedelta(seconds=90))) < timedelta(seconds=30)
    first, second = marks([written, NOON])
    assert (first.label, second.label) == ("checkpoint", "")


def test_charts_tell_steps_activity_and_what_a_node_moves() -> None:
    steps, activity, network, storage = charts(told(), KEYS)
    assert [one.name for one in steps.curves] == [
        "slowest rank's own work",
        "step, median of ranks",
    ]
    assert np.nanmax(activity.curves[-1].values) == 90.0
    sent, received = network.curves
    assert network.unit == "MB/s"
    assert np.nanmedian(sent.values) == pytest.approx(200.0)
    assert np.nanmedian(received.values) == pytest.approx(100.0)
    assert [np.nanmedian(one.values) for one in storage.curves] == pytest.approx([1.0, 300.0])
    # Of a node that it has with others, what its own control group counts.
    beside = charts(told(), KEYS, with_others=["n-1"])[-1]
    assert np.nanmedian(beside.curves[-1].values) == pytest.approx(100.0)
    assert not np.isfinite(beside.curves[0].values).any()
    empty = over_time(grid(START, NOON, STEP), ["n-1"], [], [], [])
    assert not any(one.measured for one in charts(empty, KEYS))
    assert not checkpoints(empty, KEYS)


def test_a_week_ago_is_a_faint_line_only_where_something_was_measured() -> None:
    then = told()
    empty = over_time(grid(START, NOON, STEP), ["n-1"], [], [], [])
    for one, plain in zip(charts(told(), KEYS, then), charts(told(), KEYS), strict=True):
        assert one.curves[0].look == "before"
        assert np.array_equal(one.curves[0].values, plain.curves[-1].values, equal_nan=True)
        assert [it.name for it in one.curves[1:]] == [it.name for it in plain.curves]
    looks = [it.look for one in charts(told(), KEYS, empty) for it in one.curves]
    assert "before" not in looks


def test_the_bar_names_what_is_wide_enough_and_says_all_in_words() -> None:
    said = json.dumps(strip(runs(told(), JOB), WINDOW, "by all its GPUs"))
    assert '"input data"' in said
    assert "What bounded it, of the time: compute 57 %, input data 43 %" in said
    assert "swatch compute" in said
    assert "swatch input" in said
    assert "swatch memory" not in said
    assert '"class": "input"' in said
    assert "Nothing was measured" in json.dumps(strip([], WINDOW, ""))


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def lost(begin: float, end: float | None = None, **more: Any) -> Incident:
    """Minutes after the window's begin."""
    one = replace(incident("gpu_lost", MINE[0], Severity.CRITICAL), title="GPU fell off the bus")
    over = None if end is None else START + minutes(end)
    return replace(one, since=START + minutes(begin), resolved_at=over, **more)


def held(*stood: Incident, job: JobNow = JOB) -> list[tuple[str, float, float]]:
    """What bounded it, each from and to how many minutes after the window's begin."""
    between = Run(start=START, end=NOON, bound=Bound.BETWEEN_NODES, text="waits")
    found = with_held_up([between], stood, job, WINDOW, NOON)
    return [
        (one.word, (one.start - START) / minutes(1), (one.end - START) / minutes(1))
        for one in found
    ]


def test_the_time_that_an_incident_took_from_it_is_no_communication() -> None:
    talks = "communication between nodes"
    assert held() == [(talks, 0, 10)]
    assert held(lost(3, 5)) == [(talks, 0, 3), (HELD_UP, 3, 5), (talks, 5, 10)]
    assert held(lost(7)) == [(talks, 0, 7), (HELD_UP, 7, 10)]
    assert held(lost(-30, 2)) == [(HELD_UP, 0, 2), (talks, 2, 10)]
    assert held(lost(-30, -2)) == [(talks, 0, 10)]
    # Of two the second has what the first left.
    both = held(lost(2, 6), lost(4, 8, id="second"), lost(5, 5.5, id="third"))
    assert both == [(talks, 0, 2), (HELD_UP, 2, 6), (HELD_UP, 6, 8), (talks, 8, 10)]
    later = replace(JOB, started_at=START + minutes(4))
    assert held(lost(3, 5), job=later)[1] == (HELD_UP, 4, 5)


def test_what_does_not_keep_it_from_its_work_leaves_what_bounded_it() -> None:
    whole = [("communication between nodes", 0, 10)]
    assert held(lost(3, severity=Severity.INFO)) == whole
    assert held(replace(lost(3), subject=gpu(5, NODE), members=())) == whole
    assert held(replace(lost(3), subject=gpu(0, node("n-9", "prod")), members=())) == whole
    silent = replace(lost(3), fault="node_silent", subject=NODE, members=())
    assert held(silent) == whole
    assert held(replace(silent, condition="dead"))[1:] == [(HELD_UP, 3, 10)]


def test_what_held_it_up_is_a_colour_of_its_own_and_leads_to_its_incident() -> None:
    stood = [lost(number, number + 0.5, id=f"id{number}") for number in range(4, 9)]
    found = with_held_up(runs(told(), JOB), stood, JOB, WINDOW, NOON)
    said = json.dumps(strip(found, WINDOW, "by all its GPUs"))
    assert '"class": "held"' in said
    assert "swatch held" in said
    assert "held up by an incident 31 %" in said
    assert f'"href": "{page_links.incident_page("id8")}"' in said
    assert '" and 2 more."' in said
    assert "Held up by" not in json.dumps(strip(runs(told(), JOB), WINDOW, ""))
    nothing = with_held_up([], [lost(3)], JOB, WINDOW, NOON)
    assert [one.word for one in nothing] == [HELD_UP]
