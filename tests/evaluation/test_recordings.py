"""Recordings in the documented layout: what is read, what is refused, what is found in them."""

import csv
import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from analyzer.correlation.all_detectors import DETECTORS
from evaluation.judge.fault_names import OF_USE
from evaluation.recordings import layout
from evaluation.recordings.derived import HELD_BYTES
from evaluation.recordings.overlay import OVERLAYS, injections, lay
from evaluation.recordings.play import CAUSES, judged, played, settings_for
from evaluation.recordings.problems import BadRecording
from evaluation.recordings.recording import Recording, read
from evaluation.recordings.replay_command import main
from evaluation.recordings.telemetry import offsets
from evaluation.recordings.template import write
from evaluation.recordings.units import misfit
from evaluation.recordings.unjudged import unjudged
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import EventKind
from simulator.fleet.kinds import KINDS

pytestmark = pytest.mark.slow

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
PAGE = Path(__file__).parents[2] / "docs/recordings.md"
GPU = "at,node,uuid,index,power_watts,temperature_celsius,utilization_percent\n"


def text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def written(directory: Path, **files: str) -> Path:
    """A directory with these CSV files."""
    directory.mkdir(exist_ok=True, parents=True)
    for name, content in files.items():
        (directory / f"{name}.csv").write_text(content, encoding="utf-8")
    return directory


def gpus(minutes: int = 10, nodes: int = 2, tick: int = 10) -> list[str]:
    return [
        f"{text(NOON + timedelta(seconds=tick * n))},n{node},GPU-{node}-{gpu},{gpu},{600 + gpu},61,97\n"
        for n in range(minutes * 60 // tick)
        for node in range(nodes)
        for gpu in range(2)
    ]


def loaded(directory: Path, zone: ZoneInfo | None = None) -> Recording:
    return read(directory, CAUSES, zone)


def refused(directory: Path) -> str:
    with pytest.raises(BadRecording) as caught:
        loaded(directory)
    return str(caught.value)


def table(directory: Path, kind: str = "gpu") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = loaded(directory).tables[kind].to_pylist()
    return found


def test_a_row_is_read_in_the_catalogues_units(tmp_path: Path) -> None:
    (row,) = table(written(tmp_path, gpu=GPU + f"{text(NOON)},n1,GPU-1,3,612.5,61,97\n"))
    assert (row["cluster"], row["node"], row["uuid"], row["model"]) == (
        *("recorded", "n1", "GPU-1", "unknown"),
    )
    assert (row["at"], row["index"], row["power_watts"]) == (NOON, 3, 612.5)
    assert (row["temperature_celsius"], row["utilization_percent"], row["up"]) == (61, 97, 1)


def test_a_port_that_is_only_up_or_down_has_gone_down_as_often_as_its_rows_say(
    tmp_path: Path,
) -> None:
    ups = {"mlx5_0": [0, 0, 1, 0, 0, 1, 1, 0], "mlx5_1": [1] * 8}
    rows = "".join(
        f"{text(NOON + timedelta(seconds=10 * n))},n1,{device},{up}\n"
        for device, those in ups.items()
        for n, up in enumerate(those)
    )
    where = written(tmp_path, port="at,node,device,up\n" + rows)
    found: dict[str, list[int]] = {}
    for row in table(where, "port"):
        found.setdefault(row["device"], []).append(row["link_downed"])
    assert found == {"mlx5_0": [0, 0, 0, 1, 1, 1, 1, 2], "mlx5_1": [0] * 8}
    assert "port.link_downed" in loaded(where).given


@pytest.mark.parametrize(
    "cell", ["", "N/A", "[N/A]", "nan", "NULL", "-", "[Not Supported]", "inf", "1e999"]
)
def test_what_exporters_write_for_nothing_was_not_measured(cell: str, tmp_path: Path) -> None:
    (row,) = table(written(tmp_path, gpu=GPU + f"{text(NOON)},n1,G,0,{cell},{cell},97\n"))
    assert (row["power_watts"], row["temperature_celsius"]) == (None, None)


def test_numbers_with_their_unit_and_masks_are_read_as_nvidia_smi_writes_them(
    tmp_path: Path,
) -> None:
    at = text(NOON)
    where = written(
        tmp_path,
        gpu="at,index,power_watts,memory_used_bytes,sm_clock_hertz,utilization_percent,clock_event_reasons,performance_state\n"
        f"{at},0,612.50 W,61440 MiB,1755 MHz,97 %,0x0000000000000048,P2\n",
    )
    (row,) = table(where)
    assert row["performance_state"] == 2
    assert (row["power_watts"], row["memory_used_bytes"]) == (612.5, 60 * 2**30)
    assert (row["sm_clock_hertz"], row["utilization_percent"]) == (1_755_000_000, 97)
    assert row["clock_event_reasons"] == 0x48


def test_a_directory_has_a_file_for_each_node(tmp_path: Path) -> None:
    rows = f"at,index,power_watts\n{text(NOON)},0,500\n"
    found = loaded(written(tmp_path / "it/gpu", dgx01=rows, dgx02=rows).parent)
    assert [node.node for node in found.nodes] == ["dgx01", "dgx02"]


@pytest.mark.parametrize(
    "cell",
    [
        "1769860800",
        "1769860800000",
        "1.7698608e15",
        "1769860800000000000",
        "2026-01-31T13:00+01:00",
        "2026-01-31 12:00:00+00:00",
        "2026-01-31T12:00:00.000000000Z",
        "2026-01-31 12:00:00 UTC",
    ],
)
def test_times_are_iso_8601_or_since_1970(cell: str, tmp_path: Path) -> None:
    (row,) = table(written(tmp_path, gpu=f"at,index,power_watts\n{cell},0,1\n"))
    assert row["at"] == NOON


def test_a_time_without_a_zone_is_asked_for_one(tmp_path: Path) -> None:
    where = written(tmp_path, gpu="at,index,power_watts\n2026/01/31 13:00:00.000,0,1\n")
    assert "gpu.csv:2: column at: '2026/01/31 13:00:00.000': the time has no zone" in refused(where)
    assert loaded(where, ZoneInfo("Europe/Berlin")).tables["gpu"]["at"].to_pylist() == [NOON]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("at,index,temprature_celsius\nT,0,61\n", "gpu.csv:1: column temprature_celsius: is unknown; did you mean temperature_celsius?"),
        ("at,index,DCGM_FI_DEV_SM_CLOCK\nT,0,1980\n", "gpu.csv:1: column DCGM_FI_DEV_SM_CLOCK: is an exporter's name: call it sm_clock_hertz, times 1000000"),
        ("at,index,power.draw [W]\nT,0,1\n", "column power.draw [W]: is an exporter's name: call it power_watts"),
        ("at,host,index,power_draw\nT,a,0,1\n", "gpu.csv:1: column host: is an exporter's name: call it node"),
        ("at,index,nvidia_smi_utilization_gpu_ratio\nT,0,1\n", "call it utilization_percent, times 100"),
        ("metric,uuid,timestamp,value\nnvidia_smi_power_draw_watts,G,T,1\n", "gpu.csv: has a metric and a value in each row"),
        ("at,power_watts\nT,1\n", "gpu.csv: has no column uuid or index; it has at, power_watts"),
        ("index,power_watts\n0,1\n", "gpu.csv: has no column at;"),
        ("at,index,power_watts\nyesterday,0,1\n", "gpu.csv:2: column at: 'yesterday' is no time"),
        ("at,index,power_watts\nT,0,1\n,0,1\n", "gpu.csv:3: column at: every row needs a time"),
        ("at,uuid,power_watts\nT,G,1\nT,,1\n", "gpu.csv:3: column uuid: every row needs one"),
        ("at,index,power_watts\nT,0,1\nT,0,61 V\n", "gpu.csv:3: column power_watts: '61 V': write the number alone"),
        ("at,index,power_watts\nT,0,lots\n", "gpu.csv:2: column power_watts: 'lots': it is not a number"),
        ("at,index,power_watts\n12,0,1\n", "gpu.csv:2: column at: 1970-01-01 00:00 is not a time of a GPU"),
        ("at,index,power_watts,power_watts\nT,0,1,2\n", "gpu.csv:1: column power_watts: stands twice"),
        ("at,index,temperature_celsius\nT,0,61\nT,1,334\n", "gpu.csv:3: column temperature_celsius: 334 is no temperature"),
        ("at,index,temperature_celsius\nT,0,331\nT,1,334\n", "gpu.csv:2: column temperature_celsius: 331 looks like Kelvin: subtract 273.15"),
        ("at,index,utilization_percent\nT,0,0.97\n", "gpu.csv:2: column utilization_percent: 0.97 looks like a share of 1: multiply by 100"),
        ("at,index,memory_used_bytes\nT,0,61440\n", "gpu.csv:2: column memory_used_bytes: 61440 looks like MiB: multiply by 1048576"),
        ("at,index,sm_clock_hertz\nT,0,1980\n", "gpu.csv:2: column sm_clock_hertz: 1980 looks like MHz: multiply by 1000000"),
        ("at,index,power_watts\nT,0,612000\n", "gpu.csv:2: column power_watts: 612000 looks like milliwatts"),
        ("at,index,up\nT,0,4\n", "gpu.csv:2: column up: 4 is neither 0 nor 1"),
        ("at,index,pcie_replays\nT,0,-3\n", "gpu.csv:2: column pcie_replays: -3 is less than 0"),
        ("", "gpu.csv: Empty CSV file"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line_and_column(
    content: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = written(tmp_path, gpu=content.replace("T,", f"{text(NOON)},"))
    assert words in refused(where)
    assert main([str(where)]) == 2
    assert words in capsys.readouterr().err


def test_the_line_is_that_of_an_editor_whatever_stands_before_it(tmp_path: Path) -> None:
    where = written(tmp_path, gpu=f"at,index,power_watts\n\n{text(NOON)},0\n{text(NOON)},0,x\n")
    assert "gpu.csv:4: column power_watts: 'x'" in refused(where)


@pytest.mark.parametrize(
    ("field", "fits", "does_not"),
    [
        ("temperature_celsius", 115.0, 116.0),
        ("utilization_percent", 101.0, 101.5),
        ("memory_used_bytes", 1_048_576.0, 999_999.0),
        ("sm_clock_hertz", 1e6, 999_999.0),
        ("power_watts", 5000.0, 5001.0),
        ("sm_activity_percent", 0.04, 0.05),
    ],
)
def test_a_unit_is_doubted_only_beyond_what_any_gpu_reads(
    field: str, fits: float, does_not: float
) -> None:
    assert misfit("gpu", field, np.array([fits] * 100)) is None
    assert misfit("gpu", field, np.array([does_not] * 100)) is not None


def test_an_idle_gpus_small_percentages_beside_large_ones_are_percentages() -> None:
    assert misfit("gpu", "sm_activity_percent", np.array([0.3, 0.5, 61.0])) is None
    assert misfit("gpu", "shutdown_tlimit_celsius", np.array([-8.0])) is None
    assert misfit("port", "speed_bits_per_second", np.array([4e11])) is None
    assert misfit("port", "speed_bits_per_second", np.array([400.0])) is not None
    assert misfit("node", "space_used_share", np.array([0.97])) is None
    assert misfit("node", "space_used_share", np.array([97.0])) is not None


def test_every_wrong_cell_of_all_files_is_named_at_once(tmp_path: Path) -> None:
    where = written(
        tmp_path,
        gpu=f"at,index,temperature_celsius\n{text(NOON)},0,900\n",
        port=f"at,device,upp\n{text(NOON)},mlx5_0,1\n",
    )
    said = refused(where)
    assert "gpu.csv:2: column temperature_celsius" in said
    assert "port.csv:1: column upp: is unknown; did you mean up?" in said


def test_a_file_of_another_name_is_named(tmp_path: Path) -> None:
    where = written(tmp_path, gpus=GPU, gpu=GPU + gpus(1)[0])
    assert "gpus.csv: is none of the files of a recording; did you mean gpu?" in refused(where)
    (where / "gpus.csv").rename(where / "weather.txt")
    assert any("weather.txt" in note for note in loaded(where).notes)


def test_a_directory_without_numbers_or_that_is_not_there(tmp_path: Path) -> None:
    assert "it needs a gpu.csv, port.csv or node.csv" in refused(written(tmp_path / "empty"))
    assert "No such file or directory" in refused(tmp_path / "none")


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("gpu", "at,index,power_watts\nT,0,500\n"),
        ("port", "at,device,up\nT,mlx5_0,1\n"),
        ("node", "at,node,load_average\nT,n1,12.5\n"),
    ],
)
def test_one_file_of_numbers_is_enough(kind: str, content: str, tmp_path: Path) -> None:
    rows = [content.replace("T,", f"{text(NOON + timedelta(seconds=10 * n))},") for n in range(60)]
    header, _, _ = content.partition("\n")
    body = "".join(row.partition("\n")[2] for row in rows)
    found = loaded(written(tmp_path, **{kind: f"{header}\n{body}"}))
    assert len(found.nodes) == 1
    assert found.tick_seconds == 10.0
    assert len(found.tables["node"]) == 60
    assert played(found) == []


def test_several_files_of_a_kind_are_one_table(tmp_path: Path) -> None:
    rows = gpus(2)
    one = written(tmp_path / "one", gpu=GPU + "".join(rows))
    split = written(tmp_path / "split", **{"gpu-1": GPU + "".join(rows[:10])})
    written(split / "gpu", second=GPU + "".join(rows[10:]))
    assert table(one) == table(split)


def test_shuffled_and_doubled_rows_and_torn_lines_change_nothing(tmp_path: Path) -> None:
    rows = gpus(3)
    mixed = [*rows, *rows[5:9], GPU, f"{text(NOON)},n1,GP\n"]
    random.Random(4).shuffle(mixed)
    first = written(tmp_path / "first", gpu=GPU + "".join(rows))
    second = written(tmp_path / "second", gpu=GPU + "".join(mixed))
    assert table(first) == table(second)
    (note,) = loaded(second).notes
    assert "1 lines have too few or too many columns: left out" in note


def test_more_torn_lines_than_a_crash_leaves_are_refused(tmp_path: Path) -> None:
    rows, torn = gpus(10), f"{text(NOON)},n1,GP\n"
    assert len(rows) > 200
    few = written(tmp_path / "few", gpu=GPU + "".join([*rows, torn, torn]))
    assert len(loaded(few).tables["gpu"]) == len(rows)
    many = written(tmp_path / "many", gpu=GPU + "".join([*rows, *[torn] * 20]))
    assert "20 lines have too few or too many columns" in refused(many)


def test_a_carriage_return_within_a_line_is_named_and_windows_line_ends_are_read(
    tmp_path: Path,
) -> None:
    content = f"at,index,power_watts\n{text(NOON)},0,500\n"
    windows = written(tmp_path / "windows", gpu=content)
    (windows / "gpu.csv").write_bytes(content.replace("\n", "\r\n").encode())
    assert table(windows) == table(written(tmp_path / "unix", gpu=content))
    within = written(tmp_path / "within", gpu=content)
    (within / "gpu.csv").write_bytes(content.replace("0,500", "0\r,500").encode())
    assert "carriage return within a line" in refused(within)


def test_what_a_gpu_can_do_is_the_highest_that_it_did_where_nobody_recorded_it(
    tmp_path: Path,
) -> None:
    cells = [(minute, gpu) for minute in range(4) for gpu in (0, 1)]
    rows = [
        f"{text(NOON + timedelta(minutes=minute))},{gpu},{4 if minute > 1 and gpu == 0 else 16}\n"
        for minute, gpu in cells
    ]
    found = table(written(tmp_path / "own", gpu="at,index,pcie_width\n" + "".join(rows)))
    assert {row["pcie_width_max"] for row in found} == {16}
    clocks = [
        f"{text(NOON + timedelta(minutes=n))},0,{mhz}000000\n" for n, mhz in ((0, 2619), (1, 1593))
    ]
    found = table(
        written(tmp_path / "clock", gpu="at,index,memory_clock_hertz\n" + "".join(clocks))
    )
    assert {row["memory_clock_max_hertz"] for row in found} == {2_619_000_000}
    given = f"at,index,pcie_width,pcie_width_max\n{text(NOON)},0,4,8\n"
    (row,) = table(written(tmp_path / "given", gpu=given))
    assert row["pcie_width_max"] == 8


@pytest.mark.parametrize(
    ("memory", "jobs", "processes"),
    [
        (HELD_BYTES - 1, False, 0),
        (HELD_BYTES, False, 1),
        ("", False, None),
        (HELD_BYTES, True, None),
    ],
)
def test_memory_says_whether_somebody_holds_a_gpu_where_nobody_is_named(
    memory: object, jobs: bool, processes: int | None, tmp_path: Path
) -> None:
    at = text(NOON)
    given = {"gpu": f"at,index,power_watts,memory_used_bytes\n{at},0,90,{memory}\n"}
    if jobs:
        given["jobs"] = f"holder,started_at\njob 7,{at}\n"
    (row,) = table(written(tmp_path, **given))
    assert row.get("compute_processes") == processes


def test_one_value_a_row_is_one_row_a_moment(tmp_path: Path) -> None:
    at = text(NOON)
    where = written(
        tmp_path,
        gpu=f"at,index,power_watts,temperature_celsius\n{at},0,500,\n{at},0,,61\n",
    )
    (row,) = table(where)
    assert (row["power_watts"], row["temperature_celsius"]) == (500.0, 61)


def test_parquet_is_the_same_as_csv(tmp_path: Path) -> None:
    where = written(tmp_path / "csv", gpu=GPU + "".join(gpus(2)))
    there = written(tmp_path / "parquet")
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(where / "gpu.csv"), there / "gpu.parquet")
    assert table(where) == table(there)
    naive = pyarrow.csv.read_csv(where / "gpu.csv")
    at = naive["at"].cast(pa.timestamp("ns"))
    pyarrow.parquet.write_table(naive.set_column(0, "at", at), there / "gpu.parquet")
    assert "gpu.parquet: column at: the time has no zone" in refused(there)


@hypothesis.given(
    st.lists(st.lists(st.integers(0, 1000), min_size=1, max_size=8), min_size=1, max_size=4)
)
def test_a_counter_that_began_again_only_grows(readings: Sequence[Sequence[int]]) -> None:
    values = np.array([value for them in readings for value in them], float)
    subjects = np.array([number for number, them in enumerate(readings) for _ in them])
    found = values + offsets(values, subjects)
    for number, them in enumerate(readings):
        own = found[subjects == number]
        assert own[0] == them[0]
        grown = [new - old if new >= old else new for old, new in pairwise(them)]
        assert np.diff(own).tolist() == grown


@pytest.mark.slow
def test_gaps_of_all_nodes_are_the_recorders_and_those_of_one_are_its_own(tmp_path: Path) -> None:
    def kept(row: str) -> bool:
        minute = int(row[14:16])
        return not 10 <= minute < 21 and not (minute >= 26 and ",n1," in row)

    rows = [row for row in gpus(40) if kept(row)]
    found = loaded(written(tmp_path, gpu=GPU + "".join(rows)))
    assert found.gaps == ((NOON + timedelta(seconds=590), NOON + timedelta(minutes=21)),)
    (silent,) = played(found)
    assert (silent.subject.node, silent.fault) == ("n1", "node_silent")
    assert silent.opened_at > NOON + timedelta(minutes=26)
    said = played(found, silence=True)
    assert min(one.opened_at for one in said) < NOON + timedelta(minutes=21)


def test_reasons_of_low_clocks_are_counted_in_seconds_but_not_over_a_gap(tmp_path: Path) -> None:
    seconds = (0, 10, 20, 30, 500, 510)
    masks = ("0x0", "0x40", "0x48", "0x0", "0x40", "0x0")
    rows = "".join(
        f"{text(NOON + timedelta(seconds=it))},0,{mask}\n"
        for it, mask in zip(seconds, masks, strict=True)
    )
    found = table(written(tmp_path, gpu=f"at,index,clock_event_reasons\n{rows}"))
    assert [row["hardware_thermal_slowdown_seconds"] for row in found] == [0, 0, 10, 20, 20, 30]
    assert {row["power_brake_seconds"] for row in found} == {0.0}
    own = written(
        tmp_path / "own",
        gpu=f"at,index,clock_event_reasons,power_brake_seconds\n{text(NOON)},0,0x80,17\n",
    )
    assert [row["power_brake_seconds"] for row in table(own)] == [17.0]


def test_links_are_added_up_where_the_gpu_has_no_columns_of_them(tmp_path: Path) -> None:
    def at(second: int) -> str:
        return text(NOON + timedelta(seconds=second))

    where = written(
        tmp_path,
        gpu="at,uuid,power_watts\n" + "".join(f"{at(n)},G,500\n" for n in (0, 10, 20)),
        nvlink=f"at,uuid,link,up,crc_errors\n{at(0)},G,0,1,3\n{at(0)},G,1,1,0\n{at(15)},G,1,0,7\n",
    )
    rows = table(where)
    assert [row["nvlink_links_up"] for row in rows] == [2, 2, 1]
    assert [row["nvlink_links_expected"] for row in rows] == [2, 2, 2]
    assert [row["nvlink_crc_errors"] for row in rows] == [3, 3, 10]


XID = "NVRM: Xid (PCI:0000:43:00): 79, pid=12, name=python, GPU has fallen off the bus."
JOURNAL = json.dumps({"__REALTIME_TIMESTAMP": "1769861700000000", "MESSAGE": list(XID.encode())})


@pytest.mark.parametrize(
    "line",
    [
        f"[Sat Jan 31 12:15:00 2026] {XID}",
        f"kern  :err   : [Sat Jan 31 12:15:00 2026] {XID}",
        f"kern  :err   : 2026-01-31T12:15:00,000000+00:00 {XID}",
        f"2026-01-31T12:15:00,000000+00:00 {XID}",
        f"2026-01-31T12:15:00+0000 node-1 kernel: {XID}",
        f"2026-01-31T12:15:00.000000+00:00 node-1 kernel: [ 5123.511204] {XID}",
        f"<3>2026-01-31T12:15:00Z node-1 kernel: {XID}",
        f"<11>1 2026-01-31T12:15:00Z node-1 kernel: {XID}",
        JOURNAL,
    ],
)
def test_kernel_lines_are_read_in_every_tools_form(line: str, tmp_path: Path) -> None:
    write(where := tmp_path / "it")
    (where / "kernel.csv").unlink()
    (where / "kernel").mkdir()
    (where / "kernel/node-1.log").write_text(f"{line}\n", encoding="utf-8")
    (event,) = loaded(where, ZoneInfo("UTC")).events
    assert (event.kind, event.xid, event.at) == (EventKind.XID, 79, NOON + timedelta(minutes=15))
    assert event.subject.gpu == "GPU-node-1-1"


@pytest.mark.parametrize(
    "line",
    [
        XID,
        f"[ 5123.511204] {XID}",
        f"<3>[ 5123.511204] {XID}",
        f"kern  :err   : [ 5123.511204] {XID}",
        f"3,1234,5123511204,-;{XID}",
        f"node-1 kernel: {XID}",
        XID.replace("PCI:0000:43:00", "PCI:43:00.0"),
    ],
)
def test_a_line_without_an_hour_takes_the_time_beside_it(line: str, tmp_path: Path) -> None:
    write(where := tmp_path / "it")
    with (where / "kernel.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["at", "node", "line"], [text(NOON + timedelta(minutes=3)), "node-1", line]]
        )
    (event,) = loaded(where).events
    assert (event.xid, event.at) == (79, NOON + timedelta(minutes=3))
    assert event.subject.gpu == "GPU-node-1-1"
    with (where / "kernel.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["node", "line"], ["node-1", line]])
    assert "kernel.csv:2: column at: a kernel line needs a time" in refused(where)


def test_a_burst_of_lines_and_an_event_of_the_same_are_told_once(tmp_path: Path) -> None:
    write(where := tmp_path / "it")
    at = text(NOON + timedelta(minutes=15))
    with (where / "kernel.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["at", "node", "line"], *[[at, "node-1", XID]] * 5])
    written(where, events=f"at,node,gpu,event,xid\n{at},node-1,1,xid,79\n")
    counts = [event.count for event in loaded(where).events if event.xid == 79]
    assert counts[0] == 1
    assert len(counts) <= 2


def test_a_job_without_a_gpu_holds_all_of_its_node(tmp_path: Path) -> None:
    at = text(NOON)
    jobs = f"node,gpu,holder,user,started_at\nn0,,4711,ada,{at}\nn1,1,pod a/b,bob,{at}\n"
    found = loaded(written(tmp_path, gpu=GPU + "".join(gpus(2)), jobs=jobs)).allocations
    assert [(it.subject.gpu, str(it.holder)) for it in found] == [
        *(("GPU-0-0", "job 4711"), ("GPU-0-1", "job 4711")),
        ("GPU-1-1", "pod a/b"),
    ]


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("events", "at,node,event\nT,n1,portdown\n", "events.csv:2: column event: 'portdown' is no event; did you mean port_down?"),
        ("jobs", "node,gpu,holder,started_at\nn1,7,3,T\n", "jobs.csv:2: column gpu: node n1 has no GPU 7"),
        ("jobs", "node,holder,started_at\nn1,,T\n", "jobs.csv:2: column holder: every row needs one"),
        ("truth", "node,from,to\nn1,T,2026-01-31T11:00:00Z\n", "truth.csv:2: column to: is not after from"),
        ("truth", "host,from\nn1,T\n", "truth.csv: has no column node"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_records_is_named(
    file: str, content: str, words: str, tmp_path: Path
) -> None:
    where = written(tmp_path, gpu=GPU + "".join(gpus(2)))
    written(
        where, **{file: content.replace("T\n", f"{text(NOON)}\n").replace("T,", f"{text(NOON)},")}
    )
    assert words in refused(where)


def test_a_cause_that_no_incident_names_is_refused_and_without_one_any_will_do(
    tmp_path: Path,
) -> None:
    def recording(cause: str) -> Path:
        truth = f"node,gpu,from,what,cause\nn1,1,{text(NOON)},it broke,{cause}\n"
        return written(tmp_path / f"_{cause}", gpu=GPU + "".join(gpus(2)), truth=truth)

    said = "truth.csv:2: column cause: no incident names 'gpu_lots'; did you mean gpu_lost?"
    assert said in refused(recording("gpu_lots"))
    (truth,) = loaded(recording("")).truths or ()
    assert (truth.fault, truth.cause, truth.subject.gpu) == ("", "it broke", "GPU-1-1")


def test_inventories_say_what_no_row_can(tmp_path: Path) -> None:
    where = written(tmp_path, gpu=GPU + "".join(gpus(2)))
    gpus_of = [{"uuid": f"GPU-0-{n}", "index": n} for n in range(3)]
    (where / "inventory.jsonl").write_text(
        json.dumps({"node": "n0", "rack": "A7", "gpus": gpus_of}) + "\n"
    )
    known = {it.subject.node: it for it in loaded(where).inventories}
    assert (known["n0"].rack, len(known["n0"].gpus), known["n0"].tick_seconds) == ("A7", 3, 10.0)
    assert len(known["n1"].gpus) == 2
    (where / "inventory.jsonl").write_text('{"rack": "A7"}\n')
    assert "inventory.jsonl:1: is no inventory: it lacks 'node'" in refused(where)


@pytest.mark.parametrize(("event", "tells"), [("boot", True), ("port_up", False)])
def test_a_recording_tells_boots_where_it_has_one(event: str, tells: bool, tmp_path: Path) -> None:
    """Else a node that comes back without one would be taken to have been up all along."""
    events = f"at,node,device,event\n{text(NOON)},n0,mlx5_0,{event}\n"
    found = loaded(written(tmp_path, gpu=GPU + "".join(gpus(2)), events=events))
    assert {it.collected for it in found.inventories} == {tells}


def test_what_cannot_be_judged_is_said_by_what_is_missing() -> None:
    everything = {
        f"{name}.{metric.name}" for name, it in MEASUREMENTS.items() for metric in it.metrics
    }
    assert unjudged({*everything, *MEASUREMENTS, "events", "kernel", "jobs"}) == []
    ports = {it for it in everything if it.startswith("port.")}
    found = {it.detector: it for it in unjudged({*ports, "port", "node", "kernel"})}
    assert "port_errors" not in found
    assert not found["port_down"].wholly  # whether its job stands still is not known
    assert found["gpu_hot"].wholly
    assert "gpu.temperature_celsius" in found["gpu_hot"].missing
    without = {*everything, *MEASUREMENTS, "events", "jobs"} - {"port.receive_errors"}
    (one,) = unjudged(without)
    assert (one.detector, one.missing, one.wholly) == (
        "port_errors",
        ("port.receive_errors",),
        False,
    )
    assert {it.detector for it in unjudged({"node"})} < {it.name for it in DETECTORS}
    nobody = unjudged({*everything, *MEASUREMENTS, "events"})
    assert {(it.detector, it.missing, it.wholly) for it in nobody} == {
        (name, ("jobs",), True) for name in ("gpu_memory_held", "gpu_slow", "gpu_underused")
    }


def test_what_is_missed_by_its_rows_needs_no_column() -> None:
    def wholly(*given: str) -> set[str]:
        return {it.detector for it in unjudged(given) if it.wholly}

    assert not {"gpu_lost", "node_silent"} & wholly("gpu", "gpu.temperature_celsius")
    assert {"gpu_lost", "node_silent"} & wholly("port", "port.up") == {"gpu_lost"}


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template, as the command writes it."""
    where = tmp_path_factory.mktemp("example") / "it"
    assert main(["--template", str(where)]) == 0
    return where


def changed(example: Path, where: Path, **files: Iterable[Sequence[Any]]) -> Path:
    """A copy with other rows in some files, or without a file."""
    where.mkdir()
    for path in example.iterdir():
        if path.stem not in files:
            (where / path.name).write_bytes(path.read_bytes())
    for name, rows in files.items():
        with (where / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    return where


def test_the_template_has_every_kind_that_a_table_describes(example: Path) -> None:
    assert {path.stem for path in example.glob("*.csv")} == set(layout.FILES) - {"events", "nvlink"}
    assert main(["--template", str(example)]) == 2


@pytest.mark.slow
def test_the_example_is_found_with_its_cause(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(example), "-o", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    (incident,), (truth,) = result["incidents"], result["truths"]
    assert (incident["node"], incident["gpu"], incident["verdict"]) == (
        *("node-1", "GPU-node-1-1", "right"),
    )
    assert (truth["found"], truth["cause_right"], truth["place_right"]) == (True, True, True)
    assert truth["delay_seconds"] < 30
    assert result["figures"]["wrong"] == 0
    assert "fabric_down" in {it["detector"] for it in result["cannot_judge"] if it["wholly"]}
    assert main([str(example)]) == 0
    said = capsys.readouterr().out
    assert "1 of 1 truth found, 1 of 1 with the right cause" in said
    assert "cannot judge: fabric_down: no gpu.fabric_state" in said


@pytest.mark.parametrize(("after", "heard"), [(59, 1), (61, 0)])
def test_the_last_words_of_a_machine_are_judged_too(after: int, heard: int, tmp_path: Path) -> None:
    last = NOON + timedelta(minutes=3, seconds=-10)
    told = text(last + timedelta(seconds=10 + after))  # the last pass is 10 s after its numbers
    events = f"at,node,gpu,event,xid\n{told},n0,1,xid,79\n"
    where = written(tmp_path, gpu=GPU + "".join(gpus(minutes=3, nodes=1)), events=events)
    assert len(played(loaded(where))) == heard


@pytest.mark.parametrize(("tick", "window"), [(10, 60.0), (15, 60.0), (16, 64.0), (60, 240.0)])
def test_spans_are_long_enough_for_four_lines_of_what_comes_most_seldom(
    tick: int, window: float, tmp_path: Path
) -> None:
    found = loaded(written(tmp_path, gpu=GPU + "".join(gpus(minutes=4, nodes=1, tick=tick))))
    assert settings_for(found.slowest_seconds).window_seconds == window
    ports = "at,node,device,up\n" + "".join(
        f"{text(NOON + timedelta(seconds=90 * n))},n0,mlx5_0,1\n" for n in range(3)
    )
    seldom = loaded(written(tmp_path, port=ports))
    assert (seldom.tick_seconds, seldom.slowest_seconds) == (tick, 90.0)


def test_lanes_that_are_missing_are_found_in_a_line_a_minute(tmp_path: Path) -> None:
    header = GPU.replace("\n", ",pcie_width,pcie_width_max\n")
    rows = [row.replace("\n", ",16,16\n") for row in gpus(10, nodes=2, tick=60)]
    rows = [row.replace(",16,16", ",8,16") if ",GPU-0-1," in row else row for row in rows]
    (said,) = played(loaded(written(tmp_path, gpu=header + "".join(rows))))
    assert (said.fault, said.subject.gpu) == ("gpu_pcie", "GPU-0-1")
    assert timedelta(minutes=2) <= said.opened_at - NOON <= timedelta(minutes=4)


def test_a_node_that_joins_later_was_not_silent_before(tmp_path: Path) -> None:
    late = text(NOON + timedelta(minutes=15, seconds=50))
    rows = [row for row in gpus(20, nodes=2, tick=10) if ",n0," in row or row[:20] >= late]
    found = loaded(written(tmp_path, gpu=GPU + "".join(rows)))
    assert played(found) == []
    assert {it.subject.node: text(it.at) for it in found.inventories}["n1"] == late


@pytest.mark.slow
def test_the_exit_code_is_1_for_what_was_missed_and_only_strictly_for_what_is_wrong(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = ["node", "from", "what"]
    missed = changed(
        example, tmp_path / "missed", truth=[header, ["node-2", text(NOON), "slow disk"]]
    )
    assert main([str(missed)]) == 1
    assert "missed" in capsys.readouterr().out
    healthy = changed(example, tmp_path / "healthy", truth=[header])
    assert main([str(healthy)]) == 0
    assert "1 wrong incident" in capsys.readouterr().out
    assert main([str(healthy), "--strict"]) == 1


@pytest.mark.slow
def test_an_incident_of_use_counts_where_a_truth_asks_for_it(tmp_path: Path) -> None:
    rows = [re.sub(r",60\d,61,97\n", ",75,31,0\n", row) for row in gpus(70, nodes=1)]
    at = text(NOON)
    jobs = f"node,holder,user,started_at\nn0,4711,ada,{at}\n"
    key = next(it for it in sorted(OF_USE) if it.endswith("idle_held"))
    truth = f"node,from,cause\nn0,{at},{key}\n"
    found = loaded(written(tmp_path, gpu=GPU + "".join(rows), jobs=jobs, truth=truth))
    said = played(found)
    assert {one.fault for one in said} == {key}
    assert found.truths is not None
    assert judged(found.truths, said).missed == 0
    assert judged([], said).wrong == ()


@pytest.mark.parametrize("kind", OVERLAYS)
def test_an_overlay_changes_its_own_place_and_time_alone(kind: str, tmp_path: Path) -> None:
    found = loaded(written(tmp_path, gpu=GPU + "".join(gpus(40))))
    (injection,) = injections(found, [kind], 3)
    before = found.tables["gpu"]
    after, events = lay(before, injection)
    own = injection.truth().subject

    def outside(rows: pa.Table) -> list[Mapping[str, Any]]:
        return [
            {name: row[name] for name in before.column_names}
            for row in rows.to_pylist()
            if not (
                injection.start <= row["at"] < injection.end
                and row["node"] == own.node
                and own.gpu in {None, row["uuid"]}
            )
        ]

    assert outside(after) == outside(before)
    assert after.to_pylist() != before.to_pylist() or events


@pytest.mark.slow
def test_overlays_are_played_on_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = written(tmp_path / "long", gpu=GPU + "".join(gpus(40)))
    kinds = ["off the bus", "stuck clocks", "dead collector"]
    assert main([str(where), "-o", "json", "--overlay", *kinds]) == 0
    found = {it["fault"]: it for it in json.loads(capsys.readouterr().out)["overlays"]}
    assert found["off the bus"]["cause"]
    assert found["dead collector"]["seconds"] is not None
    assert found["stuck clocks"]["seconds"] is None
    short = written(tmp_path / "short", gpu=GPU + "".join(gpus(5)))
    assert main([str(short), "--overlay"]) == 2
    assert "an overlay needs 20 min of GPUs" in capsys.readouterr().err
    assert set(OVERLAYS) < set(KINDS)


def test_the_page_has_the_layouts_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "\n".join(layout.rows()).strip() in page
