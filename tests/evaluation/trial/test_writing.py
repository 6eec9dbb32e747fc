"""Who holds a GPU, what happened to it, and which step is taken, at the limits."""

from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from evaluation.recordings.derived import HELD_BYTES
from evaluation.trial.asking import Span
from evaluation.trial.gathering import CollectedMetrics, TargetValues
from evaluation.trial.judging import settings_for
from evaluation.trial.questions import XID_FIELD, missing, names_of
from evaluation.trial.writing import write
from gpuvigil.store.exporter_names import DCGM

SPAN = Span(start=1_700_000_000 // 3600 * 3600, step=300, count=12)
TAGS = ("site", "gpu-a", "GPU-1", "H100")
NOBODY, JOB, POD = {"gpu": "0"}, {"gpu": "0", "hpc_job": "7"}, {"pod": "p", "namespace": "n"}


def gathered(told: TargetValues) -> CollectedMetrics:
    return CollectedMetrics(
        fast=SPAN,
        slow=SPAN,
        targets=[told],
        present_metrics=names_of(),
        missing=(),
        notes=[],
        nodes={},
    )


def told(memory: float | None, runs: list[tuple[int, int, dict[str, str]]]) -> TargetValues:
    found = TargetValues(exporter=DCGM)
    found.rows[TAGS] = np.ones(SPAN.count, bool)
    found.labels[TAGS] = NOBODY
    found.holders[TAGS] += runs
    found.values[TAGS]["utilization_percent"] = np.zeros(SPAN.count)
    if memory is not None:
        found.values[TAGS]["memory_used_bytes"] = np.full(SPAN.count, memory)
    return found


def processes(directory: Path) -> list[int | None]:
    table = pyarrow.parquet.read_table(directory / "gpu-1.parquet")
    if "compute_processes" not in table.column_names:
        return []
    return sorted(set(table["compute_processes"].to_pylist()))


@pytest.mark.parametrize(("memory", "held"), [(HELD_BYTES - 1, [0]), (HELD_BYTES, [1]), (None, [])])
def test_memory_says_whether_somebody_holds_it(
    memory: float | None, held: list[int], tmp_path: Path
) -> None:
    write(gathered(told(memory, [(0, 11, NOBODY)])), tmp_path)
    assert processes(tmp_path) == held


def test_without_a_label_a_gpu_is_free_where_its_neighbours_have_one(tmp_path: Path) -> None:
    write(gathered(told(None, [(0, 3, JOB), (4, 11, NOBODY)])), tmp_path)
    assert processes(tmp_path) == [0]
    (line,) = (tmp_path / "jobs.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert "job 7" in line
    assert line.endswith(",1")


def test_of_two_holders_the_one_that_came_later_counts(tmp_path: Path) -> None:
    write(gathered(told(None, [(0, 6, JOB), (5, 11, POD)])), tmp_path)
    first, second = (tmp_path / "jobs.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert first.split(",")[5] == second.split(",")[4]  # the one ends where the other begins
    assert "pod n/p" in second


@pytest.mark.parametrize(
    ("codes", "seen"), [([0, 0, 48], ["48"]), ([48, 48, 48], []), ([48, 0, 48], ["48"])]
)
def test_an_xid_is_seen_when_the_last_one_changes(
    codes: list[float], seen: list[str], tmp_path: Path
) -> None:
    one = told(None, [(0, 11, NOBODY)])
    grid = np.full(SPAN.count, np.nan)
    grid[: len(codes)] = codes
    one.values[TAGS][XID_FIELD] = grid
    write(gathered(one), tmp_path)
    file = tmp_path / "events.csv"
    lines = file.read_text(encoding="utf-8").splitlines()[1:] if file.exists() else []
    assert [line.split(",")[5] for line in lines] == seen


def test_spans_of_rules_are_whole_passes_and_hold_a_few_values() -> None:
    fine, coarse = settings_for(60.0), settings_for(1800.0)
    assert (fine.tick_seconds, fine.idle_after_seconds, fine.window_seconds) == (300, 1800, 300)
    assert (coarse.tick_seconds, coarse.idle_after_seconds) == (1800, 5400)
    assert coarse.underused_after_seconds == 7200


def test_a_metric_under_its_older_name_is_not_missing() -> None:
    old = {*names_of()} - {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS"}
    assert not list(missing(old))
    assert [it for _, it in missing(old - {"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"})] == [
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
    ]
