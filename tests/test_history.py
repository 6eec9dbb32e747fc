"""The written past of the simulated cluster: what the figures and the pictures stand on."""

from collections import defaultdict
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.history import Target, write
from benchmarks.past import Past, begin, faults, held
from gpuvigil.model import Allocation, RecordKind
from gpuvigil.store.hub import HubStore
from simulator.player import Story
from tests.servers import HubProcess

ORIGIN = datetime(2026, 11, 14, tzinfo=timezone.utc)
WEEK = timedelta(days=7)


def a_past(nodes: int) -> Past:
    return Past(nodes=nodes, seed=1, origin=ORIGIN, tick_seconds=60.0, faults=())


def test_jobs_of_the_past_follow_each_other_without_a_gap() -> None:
    of_gpu: dict[str, list[Allocation]] = defaultdict(list)
    for record in held(a_past(16).cluster(), ORIGIN, ORIGIN + WEEK):
        of_gpu[record.subject].append(Allocation.from_record(record))
    assert any(len(jobs) > 2 for jobs in of_gpu.values())
    for jobs in of_gpu.values():
        assert jobs[0].started_at < ORIGIN
        assert jobs[-1].ended_at is None
        for job, following in pairwise(jobs):
            assert job.ended_at == following.started_at


@pytest.mark.parametrize("nodes", [4, 16, 125])
def test_whatever_went_wrong_in_the_past_is_over(nodes: int) -> None:
    names = {node.subject.node for node in a_past(nodes).cluster().nodes}
    for fault in faults(nodes, ORIGIN, WEEK):
        assert fault.node in names
        assert fault.cleared_at is not None
        assert ORIGIN < fault.at < fault.cleared_at < ORIGIN + WEEK


@pytest.mark.server
def test_a_past_is_in_the_hub_with_its_gap_and_the_simulator_goes_on_with_it(
    tmp_path: Path,
) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        past = begin(8, timedelta(hours=1), tick_seconds=30.0)
        target = Target(url=hub.url, token_file=hub.collector_token_file)
        done = write(past, target, processes=1, simulator=tmp_path / "simulator")
        client = hub.hub()
        table = HubStore(client).window("gpu", [], past.origin, done.until)
        lines = dict.fromkeys(range(8), 0)
        for row in table.to_pylist():
            lines[int(row["node"].removeprefix("sim-"))] += row["samples"]
        whole = done.gpu_rows // 8
        assert lines == {**dict.fromkeys(range(8), whole), 5: lines[5]}
        assert 0 < lines[5] < whole
        written = client.records(RecordKind.ALLOCATION, states=["held"])
    story = Story.read(tmp_path / "simulator/spool/story.json")
    assert story is not None
    assert story.held().keys() == {record.id for record in written}
    with pytest.raises(ValueError, match="a past cannot be put before it"):
        write(past, target, processes=1, simulator=tmp_path / "simulator")
