"""Of a job whose nodes are read unlike each other, GPUs are compared with those of their node."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analyzer.detectors.gpu_slow import slow_gpus
from analyzer.evidence.read_alike import groups_of, read_alike
from gpuvigil.model import Subject

from .scene import SETTINGS, Scene, gpu, healthy, in_one_job

FAR = replace(SETTINGS, steady_seconds=100.0, trend_seconds=400.0)
NODES = (1, 2, 3)
GPUS = [gpu(number, index) for number in NODES for index in range(4)]
QUIET = healthy(nodes=3, gpus=4)
LESS: dict[str, Any] = {"power_watts": 520.0}


def told(slow: Iterable[Subject], nodes: Iterable[int] = (), every: int = 3) -> list[Subject]:
    """Return who is told of a job of three nodes, of which these lack every third line, or as many as it says."""
    scene, rare = QUIET, {gpu(number, index) for number in nodes for index in range(4)}
    for subject in slow:
        scene = scene.changed(subject, LESS, 105)
    scene = in_one_job(scene, GPUS, lost=0.1, seconds=105)
    times = sorted({s.at for s in scene.samples}, reverse=True)
    lost = set(times[1::every])
    kept = tuple(s for s in scene.samples if s.subject not in rare or s.at not in lost)
    return [it.subject for it in slow_gpus(replace(scene, samples=kept, settings=FAR).window())]


@pytest.mark.parametrize("number", NODES)
def test_a_slow_gpu_of_a_node_that_is_read_less_often_is_told(number: int) -> None:
    assert told([gpu(number, 2)], nodes=(2,)) == [gpu(number, 2)]


def test_of_such_nodes_several_may_be_slow_or_all_of_one_and_a_role_on_each_is_no_fault() -> None:
    assert told([gpu(1, 0), gpu(2, 0)], nodes=(2,)) == [gpu(1, 0), gpu(2, 0)]
    assert told([gpu(1, 0), gpu(2, 0), gpu(3, 0)], nodes=(2,)) == []
    # All GPUs of a node are as its middle one.
    assert told(GPUS[4:8], nodes=(2,)) == []


def test_a_node_with_too_few_lines_is_not_judged() -> None:
    """Five lines in the span of 100 s."""
    assert told([gpu(2, 2)], nodes=(2,), every=2) == [gpu(2, 2)]

    def rarely(scene: Scene) -> Scene:
        times = sorted({s.at for s in scene.samples}, reverse=True)
        rare = {gpu(2, index) for index in range(4)}
        kept = [s for s in scene.samples if s.subject not in rare or s.at in set(times[::3])]
        return replace(scene, samples=tuple(kept), settings=FAR)

    scene = in_one_job(QUIET.changed(gpu(2, 2), LESS, 105), GPUS, lost=0.1, seconds=105)
    assert slow_gpus(rarely(scene).window()) == []


def test_one_gpu_with_other_lines_does_not_part_its_node_from_the_job() -> None:
    job, node = np.full(8, 7), np.repeat([0, 1], 4)
    known = np.ones(8, dtype=bool)
    lines = np.array([60.0] * 7 + [50.0])
    group = groups_of(job, node, known, [lines])
    assert len(set(group.tolist())) == 1
    assert read_alike(group, known, [lines]).tolist() == [True] * 7 + [False]
    lines[4:] = 50.0
    group = groups_of(job, node, known, [lines, lines])
    assert len(set(group[:4].tolist())) == len(set(group[4:].tolist())) == 1
    assert read_alike(group, known, [lines]).all()
