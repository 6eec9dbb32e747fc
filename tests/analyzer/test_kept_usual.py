"""What was learned of each GPU outlives the analyzer."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from analyzer.analysis import Analysis, Reading
from analyzer.detectors.gpu_hot import DETECTOR
from analyzer.evidence.usual_heat import HEAT
from analyzer.incidents.book import Book
from analyzer.jobs.kept_usual import records, restored
from analyzer.window.index import Index
from analyzer.window.usual import Usual
from gpuvigil.clock import micros
from gpuvigil.model import SELFTEST_CLUSTER, Record, RecordKind, Subject

from .scene import NOON, gpu
from .test_usual_heat import SETTINGS, fleet

NOTHING = [0.0] * HEAT.levels


def known(*gpus: Subject, levels: int = HEAT.levels) -> Usual:
    """The first is 0 beyond its peers, the next 1.1111."""
    count = (len(gpus), levels)
    return Usual(
        index=Index(gpus),
        beyond=np.arange(len(gpus))[:, None] * np.full(count, 1.11111),
        looks=np.full(count, 7.0),
        at=NOON,
    )


def through_the_hub(usual: Mapping[str, Usual]) -> list[Record]:
    return [Record.from_json(json.loads(json.dumps(it.to_json()))) for it in records(usual)]


def test_it_is_one_record_for_a_node_and_comes_back_whole() -> None:
    gpus = (gpu(2, 0), gpu(1, 1), gpu(1, 0))
    kept = through_the_hub({"heat": known(*gpus), "draws": known(*gpus[:2], levels=1)})
    assert [(it.id, it.subject, it.version) for it in kept] == [
        (node.key, node.key, micros(NOON)) for node in (gpus[0].of_node(), gpus[1].of_node())
    ]
    later = replace(kept[0], at=NOON + timedelta(hours=1))
    usual = restored([later, *kept[1:]])
    assert usual["heat"].index.subjects == gpus
    assert usual["heat"].beyond[:, 0].tolist() == [0.0, 1.1111, 2.2222]
    assert (usual["heat"].looks == 7.0).all()
    assert {of.at for of in usual.values()} == {later.at}
    assert usual["draws"].index.subjects == gpus[:2]
    assert usual["draws"].beyond.tolist() == [[0.0], [1.1111]]


def test_of_nothing_nothing_is_kept_nor_of_a_selftest() -> None:
    assert records({}) == []
    assert records({"heat": replace(known(gpu()), at=None)}) == []
    assert restored([]) == {}
    assert records({"heat": known(gpu(cluster=SELFTEST_CLUSTER))}) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"heat": {}},
        {"heat": {"GPU-1-0": [["warm", *NOTHING[1:]], NOTHING]}},
        {"heat": {"GPU-1-0": [NOTHING]}},
        {"levels": [0.0, 0.5]},
    ],
)
def test_what_another_version_wrote_is_learned_anew(body: dict[str, object]) -> None:
    mine, other = through_the_hub({"heat": known(gpu(2), gpu(1))})
    assert restored([replace(other, body=body), mine])["heat"].index.subjects == (gpu(2),)


def test_of_unlike_levels_nothing_is_believed() -> None:
    mine, other = through_the_hub({"heat": known(gpu(2), gpu(1))})
    body = {"heat": {"GPU-1-0": [[0.0], [7.0]]}}
    assert restored([replace(other, body=body), mine]) == {}


def told(
    usual: Mapping[str, Usual], *courses: tuple[float, dict[Subject, float]]
) -> tuple[int, Mapping[str, Usual]]:
    """How many incidents an analyzer opens that starts with this, and what it has learned then."""
    analysis = Analysis(SETTINGS, (DETECTOR,))
    inventories = [one.to_record() for one in fleet({}).inventories]
    analysis.start(inventories, Book(), usual=usual)
    for hours, warmer in courses:
        scene = fleet(warmer, hours=hours)
        rows = scene.window((DETECTOR,)).rows
        analysis.run_pass(
            Reading(now=scene.now, rows=rows, last_seen=scene.heard, listening_since=NOON)
        )
    # The hub's records are read anew while it runs: what it has learned since is newer.
    analysis.start(inventories, Book())
    written = [r for unit in analysis.to_write() for r in unit]
    return sum(r.kind is RecordKind.INCIDENT for r in written), analysis.usual


@pytest.mark.medium
def test_a_gpu_that_creeps_over_a_restart_is_told_by_what_it_was_before() -> None:
    _, learned = told({}, (0.0, {}), (0.2, {}), (0.4, {}))
    creeps = [(hours, {gpu(): 12.0}) for hours in (8.0, 8.01)]
    kept = restored(through_the_hub(learned))
    assert told(kept, *creeps)[1]["heat"].looks.max() == 4.0
    assert told({}, *creeps)[1]["heat"].looks.max() == 1.0


def test_what_was_kept_with_other_levels_is_learned_anew() -> None:
    _, learned = told({"heat": known(gpu(), levels=2)}, (0.0, {}))
    assert learned["heat"].beyond.shape[1] == HEAT.levels
    assert learned["heat"].looks.max() == 1.0
