"""What was learned of each GPU's heat outlives the analyzer."""

import json
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from analyzer.analysis import Analysis, Reading
from analyzer.detectors.gpu_hot import DETECTOR
from analyzer.incidents.book import Book
from analyzer.jobs.kept_heat import records, restored
from analyzer.window.index import Index
from analyzer.window.usual_heat import LEVELS, NO_USUAL_HEAT, UsualHeat
from gpuvigil.clock import micros
from gpuvigil.model import SELFTEST_CLUSTER, Record, RecordKind, Subject

from .scene import NOON, gpu
from .test_usual_heat import SETTINGS, fleet

NOTHING = [0.0] * len(LEVELS)


def known(*gpus: Subject) -> UsualHeat:
    """The first is 0 K beyond its peers, the next 1.111 K."""
    count = (len(gpus), len(LEVELS))
    return UsualHeat(
        index=Index(gpus),
        kelvin=np.arange(len(gpus))[:, None] * np.full(count, 1.111),
        looks=np.full(count, 7.0),
        at=NOON,
    )


def through_the_hub(heat: UsualHeat) -> list[Record]:
    return [Record.from_json(json.loads(json.dumps(it.to_json()))) for it in records(heat)]


def test_it_is_one_record_for_a_node_and_comes_back_whole() -> None:
    gpus = (gpu(2, 0), gpu(1, 1), gpu(1, 0))
    kept = through_the_hub(known(*gpus))
    assert [(it.id, it.subject, it.version) for it in kept] == [
        (node.key, node.key, micros(NOON)) for node in (gpus[0].of_node(), gpus[1].of_node())
    ]
    later = replace(kept[0], at=NOON + timedelta(hours=1))
    heat = restored([later, *kept[1:]])
    assert heat.index.subjects == gpus
    assert heat.kelvin[:, 0].tolist() == [0.0, 1.11, 2.22]
    assert (heat.looks == 7.0).all()
    assert heat.at == later.at


def test_of_nothing_nothing_is_kept_nor_of_a_selftest() -> None:
    assert records(NO_USUAL_HEAT) == []
    assert restored([]) is NO_USUAL_HEAT
    assert records(known(gpu(cluster=SELFTEST_CLUSTER))) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"levels": [0.0, 0.5], "gpus": {"GPU-1-0": [NOTHING, NOTHING]}},
        {"levels": LEVELS, "gpus": {"GPU-1-0": [NOTHING, [1.0]]}},
        {"levels": LEVELS, "gpus": {"GPU-1-0": [["warm", *NOTHING[1:]], NOTHING]}},
    ],
)
def test_what_another_version_wrote_is_learned_anew(body: dict[str, object]) -> None:
    mine, other = through_the_hub(known(gpu(2), gpu(1)))
    assert restored([replace(other, body=body), mine]).index.subjects == (gpu(2),)


def told(usual: UsualHeat, *courses: tuple[float, dict[Subject, float]]) -> tuple[int, UsualHeat]:
    """How many incidents an analyzer opens that starts with this, and what it has learned then."""
    analysis = Analysis(SETTINGS, (DETECTOR,))
    inventories = [one.to_record() for one in fleet({}).inventories]
    analysis.start(inventories, Book(), usual_heat=usual)
    for hours, warmer in courses:
        scene = fleet(warmer, hours=hours)
        rows = scene.window((DETECTOR,)).rows
        analysis.look(Reading(now=scene.now, rows=rows, heard=scene.heard, listening_since=NOON))
    # The hub's records are read anew while it runs: what it has learned since is newer.
    analysis.start(inventories, Book(), usual_heat=NO_USUAL_HEAT)
    written = [r for unit in analysis.to_write() for r in unit]
    return sum(r.kind is RecordKind.INCIDENT for r in written), analysis.usual_heat


@pytest.mark.medium
def test_a_gpu_that_creeps_over_a_restart_is_told_by_what_it_was_before() -> None:
    _, learned = told(NO_USUAL_HEAT, (0.0, {}), (0.2, {}), (0.4, {}))
    creeps = [(hours, {gpu(): 12.0}) for hours in (8.0, 8.01)]
    kept = restored(through_the_hub(learned))
    assert told(kept, *creeps)[1].looks.max() == 4.0
    assert told(NO_USUAL_HEAT, *creeps)[1].looks.max() == 1.0
