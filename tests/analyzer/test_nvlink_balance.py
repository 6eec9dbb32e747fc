"""A GPU that sends far less over NVLink than its job's others, while its job goes slower."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.correlation.causes import hides
from analyzer.detectors.gpu_nvlink import DETECTOR
from gpuvigil.model import Finding, Severity, Subject

from .scene import NOON, SETTINGS, Scene, allocation, gpu, healthy, in_one_job, incident, told

FAR = replace(SETTINGS, steady_seconds=100.0, trend_seconds=400.0)
EIGHT = replace(healthy(nodes=1, gpus=8, seconds=500), settings=FAR)
GPUS = [gpu(1, index) for index in range(8)]
RATE, TURN = 1e9, 105.0
HALF = 0.5


def sending(
    scene: Scene, now: Mapping[Subject, float], before: Mapping[Subject, float] | None = None
) -> Scene:
    """What each sends of what the others do, and sent until the job slowed down."""
    past = before or {}
    for one in sorted({sample.subject for sample in scene.samples if sample.subject.kind == "gpu"}):
        scene = scene.changed(one, {"nvlink_transmit_bytes": 10**12})
        was, is_now = RATE * past.get(one, 1.0), RATE * now.get(one, 1.0)
        scene = scene.turned(one, "nvlink_transmit_bytes", was, is_now, TURN)
    return scene


def job(
    now: Mapping[Subject, float],
    before: Mapping[Subject, float] | None = None,
    lost: float = 0.2,
    scene: Scene = EIGHT,
) -> Scene:
    """One job on the node that moves less since a while; what is sent falls with it."""
    sent = {one: (1.0 - lost) * now.get(one, 1.0) for one in GPUS}
    return in_one_job(sending(scene, sent, before), GPUS, lost=lost, seconds=TURN)


def find(scene: Scene) -> list[Finding]:
    return DETECTOR.find(scene.window((DETECTOR,)))


def test_one_that_sends_half_of_its_peers_is_noted_with_what_its_job_lost() -> None:
    (found,) = find(job({gpu(): 0.4}))
    assert (found.subject, found.condition) == (gpu(), "nvlink_uneven")
    assert found.severity is Severity.INFO
    assert told(found) == (
        "info; sent over NVLink: 40 % of what its peers send for the same received (limit over 50 %);"
        " its job: job 7 gets 20 % less done than in the 5 min before (limit 3 %)"
    )
    assert find(job({})) == []


@pytest.mark.parametrize(("share", "count"), [(0.51, 0), (0.49, 1)])
def test_half_is_far_less(share: float, count: int) -> None:
    assert len(find(job({gpu(): share}))) == count


@pytest.mark.parametrize(("lost", "count"), [(0.02, 0), (0.04, 1), (0.32, 1), (0.34, 0)])
def test_its_job_lost_some_pace_and_does_not_do_something_else(lost: float, count: int) -> None:
    assert len(find(job({gpu(): 0.4}, lost=lost))) == count


@pytest.mark.parametrize(
    "scene",
    [
        job({gpu(): 0.4}, {gpu(): 0.4}),  # it always did: it has another role
        job({gpu(): 0.4, gpu(1, 1): 0.4}),  # two do
        job({gpu(): 0.4, gpu(1, 5): 1.2}),  # uneven work
        job({gpu(): 0.4}, {gpu(1, 5): 0.8}),  # uneven before
        job({gpu(): 2.5}),  # it sends more
        job(dict.fromkeys(GPUS, 0.4)),  # all do
        job({gpu(): 0.4}).changed(
            gpu(1, 3), {"nvlink_transmit_bytes": None}
        ),  # nobody knows of one
        job({gpu(): 0.4}).changed(gpu(), {"nvlink_receive_bytes": None}),
        replace(job({gpu(): 0.4}), allocations=()),  # no job
        sending(job({}), {gpu(): 0.0}),  # it sends nothing at all
    ],
)
def test_ragged_work_and_what_is_not_known_are_left_alone(scene: Scene) -> None:
    assert find(scene) == []


@pytest.mark.medium
@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.floats(0.2, 2.0), min_size=8, max_size=8),
    st.lists(st.floats(0.2, 2.0), min_size=8, max_size=8),
    st.floats(0.03, 0.33),
)
def test_stages_and_experts_are_never_blamed(
    now: list[float], before: list[float], lost: float
) -> None:
    """Each sends as it likes, but for one at least that is unlike the others, and always was."""
    before[1], before[2] = 0.5, 1.5
    assert (
        find(job(dict(zip(GPUS, now, strict=True)), dict(zip(GPUS, before, strict=True)), lost))
        == []
    )


@pytest.mark.parametrize(("more", "count"), [(1.09, 1), (1.13, 0)])
def test_it_receives_as_its_peers_do(more: float, count: int) -> None:
    scene = job({gpu(): 0.4})
    samples = (
        replace(
            sample,
            fields={
                **sample.fields,
                "nvlink_receive_bytes": int(sample.fields["nvlink_receive_bytes"] * more),
                "nvlink_transmit_bytes": sample.fields["nvlink_transmit_bytes"],
            },
        )
        if sample.subject == gpu()
        else sample
        for sample in scene.samples
    )
    assert len(find(replace(scene, samples=tuple(samples)))) == count


@pytest.mark.parametrize(("gpus", "count"), [(3, 0), (4, 1)])
def test_four_gpus_of_a_node_tell(gpus: int, count: int) -> None:
    scene = job({gpu(): 0.4})
    held = tuple(one for one in scene.allocations if one.subject in GPUS[:gpus])
    assert len(find(replace(scene, allocations=held))) == count


def test_it_is_still_so_in_the_last_minute() -> None:
    scene = job({gpu(): 0.1})
    back = scene.turned(gpu(), "nvlink_transmit_bytes", 0.0, 1.2 * RATE, 65)
    assert find(back) == []


def test_it_is_over_when_it_sends_as_its_peers_do_and_a_job_shows_it() -> None:
    known = incident("gpu_nvlink", gpu(), condition="nvlink_uneven")

    def shows(scene: Scene, which: str = "nvlink_uneven") -> bool | None:
        assert DETECTOR.would_show is not None
        return DETECTOR.would_show(scene.window((DETECTOR,)), replace(known, condition=which))

    assert shows(job({})) is True
    assert shows(job({gpu(): 0.4}, {gpu(): 0.4})) is False
    assert shows(replace(job({}), allocations=())) is False
    assert shows(Scene()) is False
    assert shows(Scene(), "nvlink_down") is None  # its lines are enough


@pytest.mark.parametrize(("hours", "over"), [(23.9, False), (24.1, True)])
def test_a_day_after_it_was_last_seen_it_is_nobodys_knowledge(hours: float, over: bool) -> None:
    old = incident("gpu_nvlink", gpu(), condition="nvlink_uneven")
    old = replace(old, updated_at=NOON - timedelta(hours=hours))
    window = EIGHT.window((DETECTOR,))
    assert DETECTOR.lapsed is not None
    assert DETECTOR.lapsed(window, old) == (old.updated_at if over else None)
    assert DETECTOR.lapsed(window, replace(old, condition="nvlink_crc")) is None


def test_errors_and_lost_links_say_what_they_cost_the_job() -> None:
    scene = job({}).changed(gpu(), {"nvlink_links_up": 16})
    (found,) = find(scene)
    assert found.severity is Severity.WARNING
    assert told(found) == (
        "warning; NVLinks up: 16 (peers 18);"
        " its job: job 7 gets 20 % less done than in the 5 min before (limit 3 %)"
    )
    (alone,) = find(EIGHT.changed(gpu(), {"nvlink_links_up": 16}))
    assert told(alone) == "warning; NVLinks up: 16 (peers 18)"
    process = tuple(allocation(one, "pid 7") for one in GPUS)
    (found,) = find(replace(scene, allocations=process))
    assert told(found) == "warning; NVLinks up: 16 (peers 18)"


@pytest.mark.parametrize(("share", "hidden"), [(0.4, False), (1.0, True)])
def test_a_note_is_no_reason_why_a_gpu_is_slow_and_lost_links_are(
    share: float, hidden: bool
) -> None:
    scene = job({gpu(): share})
    (cause,) = find(scene if share < 1.0 else scene.changed(gpu(), {"nvlink_links_up": 16}))
    assert hides(cause, incident("gpu_slow", gpu())) is hidden
