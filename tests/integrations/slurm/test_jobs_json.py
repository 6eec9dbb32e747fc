"""Slurm's answers, in the forms of several versions.

`*-22.05.8.*` were written by a real Slurm; the others after the published schemas and manual pages.
"""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.model import Job, Record, Subject
from integrations.slurm import counts, jobs_columns, jobs_json, nodes

OUTPUTS = Path(__file__).with_name("outputs")
TOLD_BY = Subject(cluster="c", node="login")
NOW = datetime(2026, 11, 22, tzinfo=timezone.utc)


def jobs(version: str) -> dict[str, Job]:
    text = (OUTPUTS / f"squeue-{version}.json").read_text()
    return {job.number: job for job in jobs_json.read(text, TOLD_BY, NOW)}


def test_a_real_22_05_tells_jobs_of_every_way_to_ask() -> None:
    told = jobs("22.05.8")
    assert {number: job.gpus for number, job in told.items()} == {
        "1": 3,
        "2": 2,
        "3": 1,
        "4": 2,
        "5": 1,
        "6": 8,
        "7": 1,
        "8": 1,
        "9": 1,
        "10": 1,
    }
    assert (told["1"].numbers, told["4"].numbers) == ({"n1": (0, 1, 2)}, {"n1": (6, 7)})
    assert [told[number].exit_code for number in ("2", "3", "1")] == ["3:0", "0:9", None]
    assert (told["8"].array, told["5"].array, told["1"].array) == ("5_1", "5_4", None)
    assert (told["6"].state, told["6"].reason, told["6"].started_at) == (
        "PENDING",
        "Resources",
        None,
    )
    assert (told["1"].limit_seconds, told["6"].limit_seconds) == (300, None)
    assert told["7"].name == "x?y"  # a line break in a job's name
    assert told["1"].state == "RUNNING"  # whatever its name says


def test_numbers_as_objects_of_23_02() -> None:
    running, late = jobs("23.02").values()
    assert running.numbers == {"gpu01": tuple(range(8)), "gpu02": tuple(range(8))}
    assert (running.gpus, running.array, running.account, running.qos) == (
        16,
        "900_7",
        "physics",
        "normal",
    )
    assert (late.state, late.exit_code, late.limit_seconds) == ("TIMEOUT", "0:15", 3600)
    assert late.ended_at is not None
    assert late.started_at is not None
    assert late.ended_at - late.started_at == timedelta(hours=1)


def test_states_as_lists_and_exit_codes_as_words_of_23_11() -> None:
    told = jobs("23.11")
    assert set(told) == {"1201", "1202", "1203", "1204"}  # one has no GPU
    assert (told["1201"].gpus, told["1201"].array, told["1201"].limit_seconds) == (
        16,
        "1201_[3-9%2]",
        None,
    )
    assert (told["1202"].state, told["1202"].exit_code) == ("FAILED", "3:0")
    assert (told["1203"].state, told["1203"].exit_code) == ("OUT_OF_MEMORY", "0:9")
    assert (told["1204"].gpus, told["1204"].numbers) == (2, {"gpu05": (0, 3)})


@pytest.mark.parametrize("version", ["22.05.8", "23.02", "23.11"])
def test_a_job_survives_its_record(version: str) -> None:
    for job in jobs(version).values():
        record = json.loads(json.dumps(job.to_record().to_json()))
        assert Job.from_record(Record.from_json(record)) == job


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"jobs": null}',
        '{"jobs": [], "errors": [{"error": "Unable to contact slurm controller"}]}',
    ],
)
def test_an_answer_that_is_none_is_not_an_empty_cluster(text: str) -> None:
    with pytest.raises(jobs_json.UnreadableError):
        jobs_json.read(text, TOLD_BY, NOW)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda v: (
            st.lists(v, max_size=3)
            | st.dictionaries(
                st.sampled_from(["set", "number", "return_code", "signal", "id"]), v, max_size=4
            )
        ),
        max_leaves=6,
    )
)
def test_no_value_in_an_unexpected_place_takes_the_others_down(odd: object) -> None:
    said = json.loads((OUTPUTS / "squeue-22.05.8.json").read_text())["jobs"][0]
    for key in (
        "job_id",
        "exit_code",
        "time_limit",
        "gres_detail",
        "nodes",
        "array_task_id",
        "submit_time",
    ):
        found = jobs_json.read(json.dumps({"jobs": [{**said, key: odd}, said]}), TOLD_BY, NOW)
        assert found[-1].number == "1"


def test_columns_say_the_same_where_there_is_no_json() -> None:
    values = {
        "JobID": "17",
        "ArrayJobID": "15",
        "ArrayTaskID": "2",
        "UserName": "ann",
        "Account": "physics",
    }
    values |= {
        "Partition": "gpu",
        "QOS": "(null)",
        "State": "FAILED",
        "exit_code": "768",
        "Reason": "NonZeroExitCode",
    }
    values |= {
        "NumNodes": "2",
        "NumTasks": "4",
        "TimeLimit": "1-02:03:00",
        "SubmitTime": "1700000000",
    }
    values |= {
        "StartTime": "1700000060",
        "EndTime": "1700000100",
        "tres-per-node": "gres:gpu:4",
        "NodeList": "n[1-2]",
    }
    values |= {"tres-alloc": "cpu=4,node=2,billing=4"}
    line = "".join(
        values.get(name, "N/A").ljust(width) for name, width in jobs_columns.COLUMNS.items()
    )
    (job,) = jobs_columns.read(line + "\n", TOLD_BY, NOW)
    assert (job.number, job.array, job.gpus, job.nodes, job.exit_code) == (
        "17",
        "15_2",
        8,
        ("n1", "n2"),
        "3:0",
    )
    assert (job.limit_seconds, job.qos, job.name) == (26 * 3600 + 180, None, None)
    with pytest.raises(jobs_json.UnreadableError):
        jobs_columns.read("slurm_load_jobs error: Unable to contact slurm controller", TOLD_BY, NOW)


def test_nodes_and_why_they_do_not_work() -> None:
    works, drained = nodes.read((OUTPUTS / "nodes-22.05.8.txt").read_text())
    assert (works.states, works.gpus, works.gpus_used, nodes.is_odd(works)) == (
        ("MIXED",),
        8,
        5,
        False,
    )
    assert (drained.states, nodes.is_odd(drained)) == (("MIXED", "DRAIN"), True)
    assert drained.reason == "gpu 3 xid 79 [root@2026-11-22T05:52:59]"
    planned, down, full = nodes.read((OUTPUTS / "nodes-24.05.txt").read_text())
    assert (planned.gpus, planned.gpus_used) == (8, 4)
    assert down.states == ("DOWN", "DRAIN", "NOT_RESPONDING")
    assert down.reason == "Not responding State=IDLE xid=79 [slurm@2026-11-01T10:00:00]"
    assert (down.gpus_used, full.gpus, full.gpus_used) == (0, 4, 4)
    for text in ("", "slurm_load_node error: Unable to contact slurm controller (connect failure)"):
        with pytest.raises(jobs_json.UnreadableError):
            nodes.read(text)


def test_the_time_of_a_reason_is_one_that_people_and_pages_read() -> None:
    """As a 22.05.8 printed it with SLURM_TIME_FORMAT=%s, with which Slurm is asked."""
    line = "NodeName=gpu-002 State=IDLE+DRAIN Reason={} [root@1796081403] Comment=x"
    (node,) = nodes.read(line.format("fan noise"))
    assert node.reason == "fan noise [root@2026-11-30T23:30:03Z]"
    (node,) = nodes.read(line.format("ask bob@1234567890]"))
    assert node.reason == "ask bob@1234567890] [root@2026-11-30T23:30:03Z]"


@pytest.mark.parametrize(
    ("text", "gpus", "indexes"),
    [
        ("gpu:h200:4(IDX:0-3)", 4, (0, 1, 2, 3)),
        ("gpu:(null):4(IDX:0-3,5)", 4, (0, 1, 2, 3, 5)),
        ("gpu:2(IDX:0,7)", 2, (0, 7)),
        ("gpu:tesla:2(IDX:0,3),gpu:kepler:1(IDX:5)", 3, (0, 3, 5)),
        ("gpu:a100_3g.20gb:2(IDX:0,3),gpu:a100_1g.5gb:1(IDX:9)", 3, (0, 3, 9)),
        ("gres:gpu:2", 2, ()),
        ("gres/gpu:h200=4", 4, ()),
        ("cpu=4,mem=1M,node=1,billing=4,gres/gpu=4,gres/gpu:h200=4", 4, ()),
        ("gpu", 1, ()),
        ("gpu:h200:8(S:0-1)", 8, ()),
        ("gpu:h200:0(IDX:N/A)", 0, ()),
        ("shard:12(2/16,0/16,10/16)", None, (0, 2)),
        ("license:2,craynetwork:4", None, ()),
        ("cpu=4,mem=1500G", None, ()),
        ("", None, ()),
    ],
)
def test_the_ways_to_write_gpus(text: str, gpus: int | None, indexes: tuple[int, ...]) -> None:
    assert counts.gpus(text) == gpus
    assert counts.indexes(text) == indexes


@given(st.text("gpu:(nul)/=,IDX0123456789-KM.", max_size=40))
def test_no_text_breaks_the_count(text: str) -> None:
    found = counts.gpus(text)
    assert found is None or found >= 0
    assert len(counts.indexes(text)) < 4096
