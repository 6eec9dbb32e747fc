"""What people get wrong in a recording, and the one line that says so."""

import gzip
from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from evaluation.recordings.kernel_lines import Forms, split
from evaluation.recordings.play import CAUSES
from evaluation.recordings.problems import BadRecording
from evaluation.recordings.recording import Recording, read
from evaluation.recordings.records import is_host_of
from evaluation.recordings.units import misfit

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HEAD = "at,node,index,uuid,power_watts,temperature_celsius,utilization_percent\n"


def text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def gpus(node: str = "gpu-01", minutes: int = 4) -> str:
    return "".join(
        f"{text(NOON + timedelta(minutes=n))},{node},{gpu},GPU-{gpu},600,61,97\n"
        for n in range(minutes)
        for gpu in range(2)
    )


def put(directory: Path, name: str, content: str | bytes) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return directory


def recorded(directory: Path, zone: ZoneInfo | None = None, **files: str) -> Recording:
    put(directory, "gpu.csv", HEAD + gpus())
    for name, content in files.items():
        put(directory, f"{name}.csv", content)
    return read(directory, CAUSES, zone)


def refused(directory: Path) -> str:
    with pytest.raises(BadRecording) as caught:
        read(directory, CAUSES)
    return str(caught.value)


@pytest.mark.parametrize(
    ("field", "values", "words"),
    [
        ("power_watts", [0.09, 0.61], "0.09 looks like kilowatts: multiply by 1000"),
        ("memory_used_bytes", [0.5, 60.5], "0.5 looks like GiB: multiply by 1073741824"),
        ("memory_used_bytes", [4, 60], "looks like MiB or GiB"),
        ("memory_used_bytes", [4, 1024], "4 looks like MiB: multiply by 1048576"),
        ("sm_clock_hertz", [0.345, 1.98], "0.345 looks like GHz: multiply by 1000000000"),
        ("sm_clock_hertz", [10.0], "10 looks like MHz: multiply by 1000000"),
        ("temperature_celsius", [97, 142, 149], "142 looks like Fahrenheit"),
    ],
)
def test_what_is_in_another_unit_is_told_with_what_to_multiply_by(
    field: str, values: list[float], words: str
) -> None:
    found = misfit("gpu", field, np.array(values * 50))
    assert found is not None
    assert words in found.text


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("power_watts", [0.5, 2.0]),
        ("power_watts", [0.0, 0.0]),
        ("temperature_celsius", [95, 95, 142]),  # one sensor, and half of the fleet is not that hot
        ("temperature_celsius", [97, 112, 115]),  # memory at its limit
    ],
)
def test_what_a_gpu_may_read_is_in_its_unit(field: str, values: list[float]) -> None:
    assert misfit("gpu", field, np.array(values * 50)) is None


@pytest.mark.parametrize(("count", "told"), [(99, False), (100, True)])
@pytest.mark.parametrize(("field", "value"), [("power_watts", 0.5), ("temperature_celsius", 140)])
def test_what_one_number_may_be_is_told_of_a_hundred(
    field: str, value: float, count: int, told: bool
) -> None:
    assert (misfit("gpu", field, np.array([value] * count)) is not None) is told


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("gpu.csv.gz", gzip.compress(HEAD.encode(), mtime=0), "gpu.csv.gz: is packed: unpack it first"),
        ("gpu.csv", HEAD, "gpu.csv: has no rows"),
        ("data/gpu.csv", HEAD + gpus(), "has no numbers: did you mean "),
        ("metrics.csv", HEAD + gpus(), "metrics.csv: is none of the files of a recording: not"),
        ("gpu.csv", (HEAD + gpus()).encode("utf-16"), "gpu.csv: is UTF-16, as PowerShell writes"),
        ("gpu.csv", f"at,index,power_watts\n{text(NOON)},0,6 °\n".encode("latin-1"), "is not UTF-8"),
        ("gpu.parquet", HEAD, "gpu.parquet: is no Parquet file"),
        ("inventory.json", "{}", "inventory.json: is none of the files of a recording; did you mean inventory.jsonl?"),
        ("gpu.csv", f"at,index,power\n{text(NOON)},0,6\n", "column power: is unknown; did you mean power_watts?"),
        ("gpu.csv", f"at,index,temp\n{text(NOON)},0,6\n", "column temp: is unknown; did you mean temperature_celsius?"),
        ("jobs.csv", "node,job_id,start\n", "jobs.csv:1: column job_id: is unknown; did you mean holder?"),
        ("jobs.csv", "node,job_id,start\n", "jobs.csv:1: column start: is unknown; did you mean started_at?"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_says_why(
    name: str, content: str | bytes, words: str, tmp_path: Path
) -> None:
    assert words in refused(put(tmp_path, name, content))


def test_a_file_is_no_recording(tmp_path: Path) -> None:
    words = "gpu.csv: is a file: name the directory that it is in"
    assert words in refused(put(tmp_path, "gpu.csv", HEAD) / "gpu.csv")


def test_a_file_in_capitals_is_read_and_one_of_another_kind_is_named(tmp_path: Path) -> None:
    put(tmp_path, "GPU.CSV", HEAD + gpus())
    put(tmp_path, "kernel/gpu-01.txt", "a line")
    found = read(tmp_path, CAUSES)
    assert len(found.gpus) == 2
    assert any("gpu-01.txt: is none of the files" in note for note in found.notes)


def test_an_exporters_name_beside_our_own_is_ignored(tmp_path: Path) -> None:
    more = HEAD.strip() + ",Hostname,gpu\n" + gpus().replace(",97\n", ",97,gpu-01,0\n")
    found = read(put(tmp_path, "gpu.csv", more), CAUSES)
    assert [note.partition(": ")[2] for note in found.notes] == [
        "column Hostname: is no column of the layout: ignored",
        "column gpu: is no column of the layout: ignored",
    ]


def test_a_column_that_no_number_can_hold_names_what_can(tmp_path: Path) -> None:
    names = "DCGM_FI_DEV_XID_ERRORS,hpc_job,clocks_event_reasons.sw_power_cap"
    more = HEAD.strip() + f",{names}\n" + gpus().replace(",97\n", ",97,79,1234,Active\n")
    found = read(put(tmp_path, "gpu.csv", more), CAUSES)
    assert [note.partition(": ")[2] for note in found.notes] == [
        "column DCGM_FI_DEV_XID_ERRORS: is ignored: what it says belongs in events.csv",
        "column hpc_job: is ignored: what it says belongs in jobs.csv",
        "column clocks_event_reasons.sw_power_cap: is ignored: clocks_event_reasons.active has all of these reasons",
    ]


JOBS = "node,gpu,holder,started_at,ended_at\n"
SINCE = f"{text(NOON)},"


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("jobs", f"{JOBS}gpu-01,0-1,12,{SINCE}\n", "jobs.csv:2: column gpu: '0-1' is no GPU: give each a row"),
        ("jobs", f'{JOBS}gpu-01,"0,1",12,{SINCE}\n', "jobs.csv:2: column gpu: '0,1' is no GPU: give each a row"),
        ("jobs", f"{JOBS}gpu-01,2,12,{SINCE}\n", "jobs.csv:2: column gpu: node gpu-01 has no GPU 2"),
        ("events", f"at,node,event\n{SINCE}gpu-01,xid\n", "events.csv:2: column xid: says no code"),
        ("truth", f"node,from,cause\ngpu-01,{SINCE}GPU hot\n", "no incident names 'GPU hot'; did you mean gpu_hot?"),
    ],
)  # fmt: skip
def test_a_row_that_says_too_little_is_named(
    file: str, content: str, words: str, tmp_path: Path
) -> None:
    put(tmp_path, "gpu.csv", HEAD + gpus())
    assert words in refused(put(tmp_path, f"{file}.csv", content))


def test_a_node_may_be_named_with_its_domain_and_a_gpu_as_tables_write_numbers(
    tmp_path: Path,
) -> None:
    jobs = f"{JOBS}gpu-01.hpc.example,1.0,12,{SINCE}Unknown\n"
    truth = f"node,gpu,from,to,cause\ngpu-01.hpc.example,1.0,{SINCE},XID 79\n"
    found = recorded(tmp_path, jobs=jobs, truth=truth)
    (job,), (wrong,) = found.allocations, found.truths or ()
    assert (job.subject.node, job.subject.gpu, job.ended_at) == ("gpu-01", "GPU-1", None)
    assert (wrong.subject, wrong.fault) == (job.subject, "xid 79")
    assert not found.notes


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("gpu-01", "gpu-01.hpc", True),
        ("gpu-01.hpc", "gpu-01", True),
        ("gpu-01", "gpu-012", False),
        ("gpu-01.a", "gpu-01.b", False),
        ("10", "10.0.0.1", False),
    ],
)
def test_a_domain_makes_no_other_node(one: str, other: str, alike: bool) -> None:
    assert is_host_of(one, other) is alike


def test_nodes_without_numbers_are_named_once_a_file(tmp_path: Path) -> None:
    others = "".join(f"far-{n},0,12,{SINCE}\n" for n in range(7))
    truth = f"node,from\ngpu-1,{text(NOON)}\n"
    found = recorded(tmp_path, jobs=JOBS + others, truth=truth)
    assert [note.partition("mistakes")[2] or note.rpartition("/")[2] for note in found.notes] == [
        "jobs.csv: no row has numbers of far-0, far-1, far-2, far-3, far-4 and 2 more",
        "truth.csv: no row has numbers of gpu-1; did you mean gpu-01?",
    ]


@pytest.mark.parametrize(
    ("since", "until", "is_noted"),
    [
        (NOON + timedelta(minutes=3), None, False),
        (NOON + timedelta(minutes=5), None, True),
        (NOON - timedelta(minutes=5), NOON, True),
        (NOON - timedelta(minutes=5), NOON + timedelta(minutes=1), False),
    ],
)
def test_what_was_wrong_outside_of_the_recording_is_noted(
    since: datetime, until: datetime | None, is_noted: bool, tmp_path: Path
) -> None:
    row = f"gpu-01,{text(since)},{'' if until is None else text(until)}\n"
    found = recorded(tmp_path, truth="node,from,to\n" + row)
    assert any("truth.csv:2: column from: the recording is from" in it for it in found.notes) is (
        is_noted
    )
    assert len(found.truths or ()) == 1


@pytest.mark.parametrize(
    ("holder", "known"),
    [
        ("12", "job 12"),
        ("12_3", "job 12_3"),
        ("alice", "job alice"),
        ("team/web-0", "pod team/web-0"),
        ("pid 4711", "pid 4711"),
    ],
)
def test_a_holder_without_a_word_before_it_is_a_job_or_a_pod(
    holder: str, known: str, tmp_path: Path
) -> None:
    (job,) = recorded(tmp_path, jobs=f"{JOBS}gpu-01,0,{holder},{SINCE}\n").allocations
    assert str(job.holder) == known


@pytest.mark.parametrize(
    "line", ["Jan 31 12:01:30 gpu-01 kernel: {}", "Jan 31 12:01:30 gpu-01 kernel: [ 5123.51] {}"]
)
def test_syslogs_times_are_of_the_year_of_the_recording(line: str, tmp_path: Path) -> None:
    xid = "NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus."
    put(tmp_path, "kernel/gpu-01.log", line.format(xid) + "\n")
    (event,) = recorded(tmp_path, ZoneInfo("UTC")).events
    assert (event.xid, event.at) == (79, NOON + timedelta(seconds=90))
    with pytest.raises(BadRecording, match="has no time zone: name it with --timezone UTC"):
        recorded(tmp_path)


@pytest.mark.parametrize(
    ("near", "line", "year"),
    [
        (datetime(2026, 1, 1, tzinfo=timezone.utc), "Dec 31 23:59:59", 2025),
        (datetime(2025, 12, 31, tzinfo=timezone.utc), "Jan  1 00:00:01", 2026),
        (datetime(2028, 3, 1, tzinfo=timezone.utc), "Feb 29 10:00:00", 2028),
    ],
)
def test_a_log_may_go_over_the_turn_of_the_year(near: datetime, line: str, year: int) -> None:
    at, _ = split(f"{line} n1 kernel: a word", Forms(zone=timezone.utc, near=near))
    assert at is not None
    assert at.year == year


@pytest.mark.parametrize(
    ("name", "uuid"),
    [
        ("1", "GPU-1"),
        ("1.0", "GPU-1"),
        ("gpu1", "GPU-1"),
        ("nvidia0", "GPU-0"),
        ("GPU-0", "GPU-0"),
        ("1.5", None),
        ("GPU-9", None),
        ("card", None),
    ],
)
def test_a_gpu_is_named_by_uuid_or_index_and_one_that_is_not_there_is_noted_once(
    name: str, uuid: str | None, tmp_path: Path
) -> None:
    found = recorded(tmp_path, jobs=JOBS + f"gpu-01,{name},12,{SINCE}\n" * 2)
    assert {it.subject.gpu for it in found.allocations} == {uuid or name}
    said = f"jobs.csv: node gpu-01 has no GPU {name}"
    assert [note.rpartition("/")[2] for note in found.notes] == ([] if uuid else [said])


def test_journalctls_own_words_are_no_lines_of_the_kernel(tmp_path: Path) -> None:
    line = "2026-01-31T12:01:30Z gpu-01 kernel: NVRM: Xid (PCI:0000:43:00): 79, GPU is lost."
    put(tmp_path, "kernel/gpu-01.log", f"-- Boot 0f3 --\n{line}\n-- No entries --\n")
    assert recorded(tmp_path).kernel_lines == 1


def test_a_second_name_of_a_gpu_is_no_mistake(tmp_path: Path) -> None:
    rows = "".join(f"{text(NOON + timedelta(minutes=n))},gpu-01,7,GPU-1,600\n" for n in range(4))
    put(tmp_path, "gpu.csv", f"at,node,gpu_id,uuid,power_watts\n{rows}")
    assert any("gpu_id" in note for note in read(tmp_path, CAUSES).notes)
    put(tmp_path, "gpu.csv", f"at,node,gpu_id,power_watts\n{rows.replace('GPU-1,', '')}")
    assert "did you mean index" in refused(tmp_path)


@pytest.mark.parametrize(
    ("cell", "value"),
    [("Enabled", 1), ("Disabled", 0), ("Yes", 1), ("No", 0), ("Not Active", 0), ("true", 1)],
)
def test_a_state_is_read_as_tools_write_it(cell: str, value: int, tmp_path: Path) -> None:
    put(tmp_path, "gpu.csv", f"at,index,ecc_mode\n{text(NOON)},0,{cell}\n")
    (row,) = read(tmp_path, CAUSES).tables["gpu"].to_pylist()
    assert row["ecc_mode"] == value


def test_a_word_is_no_number_of_what_is_counted(tmp_path: Path) -> None:
    put(tmp_path, "gpu.csv", f"at,index,pcie_replays\n{text(NOON)},0,No\n")
    assert "column pcie_replays: 'No': it is not a number" in refused(tmp_path)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "clock_event_reasons"),
        ("remapped_rows.pending", "remap_pending"),
        ("ecc.mode.current", "ecc_mode"),
        ("pstate", "performance_state"),
    ],
)
def test_what_exporters_tell_of_a_fault_is_named_as_here(
    name: str, ours: str, tmp_path: Path
) -> None:
    put(tmp_path, "gpu.csv", f"at,index,{name}\n{text(NOON)},0,0\n")
    assert f"column {name}: is an exporter's name: call it {ours}" in refused(tmp_path)
