"""Recordings in the forms of three exporters, read, laid under faults, and judged."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from evaluation.recorded.columns import PRESETS, parse
from evaluation.recorded.overlay import OVERLAYS, Injection, lay
from evaluation.recorded.play import Recording
from evaluation.recorded.read import recording
from evaluation.recorded.replay_command import main
from simulator.fleet.kinds import KINDS

pytestmark = [pytest.mark.slow, pytest.mark.site]

COMMANDS = Path(__file__).parents[2] / "docs/commands.md"
NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NVIDIA_SMI = "timestamp, uuid, index, utilization.gpu [%], power.draw [W], clocks.current.sm [MHz], memory.used [MiB]\n"


def nvidia_smi(path: Path, minutes: int = 40) -> Path:
    lines = [NVIDIA_SMI]
    for tick in range(minutes * 6):
        at = (NOON + timedelta(seconds=10 * tick)).strftime("%Y/%m/%d %H:%M:%S.250")
        lines += [
            f"{at}, GPU-{n}, {n}, {90 + n} %, 600.5{n} W, 1905 MHz, 61440 MiB\n" for n in range(2)
        ]
    path.write_text("".join(lines))
    return path


def test_nvidia_smis_own_csv_with_units_in_header_and_values(tmp_path: Path) -> None:
    table = recording([nvidia_smi(tmp_path / "smi.csv")], PRESETS["nvidia-smi"])
    row = table.to_pylist()[1]
    assert row["uuid"] == "GPU-1"
    assert row["at"] == NOON + timedelta(milliseconds=250)
    assert (row["utilization_percent"], row["power_watts"]) == (91, pytest.approx(600.51))
    assert (row["sm_clock_hertz"], row["memory_used_bytes"]) == (1_905_000_000, 60 * 1024**3)
    assert row["up"] == 1


def test_what_is_no_number_was_not_measured(tmp_path: Path) -> None:
    path = tmp_path / "smi.csv"
    path.write_text(
        "timestamp, uuid, utilization.gpu [%], power.draw [W]\n2026/01/31 12:00:00.000, G, [N/A], 70.25 W\n"
    )
    (row,) = recording([path], PRESETS["nvidia-smi"]).to_pylist()
    assert row["utilization_percent"] is None
    assert row["power_watts"] == 70.25


def test_a_log_is_read_with_the_lines_that_are_no_rows_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = nvidia_smi(tmp_path / "WHOLE.CSV")
    expected = recording([whole], PRESETS["nvidia-smi"])
    lines = whole.read_text().splitlines(keepends=True)
    lost = "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU\n"
    run_together = (
        "2026/01/31 12:02026/01/31 12:20:00.250, GPU-0, 0, 90 %, 600.50 W, 1905 MHz, 1 MiB\n"
    )
    torn = tmp_path / "torn.csv"
    torn.write_text(
        "".join([*lines[:100], lost, NVIDIA_SMI, *lines[100:], run_together, lines[-1][:40]])
    )
    assert recording([torn], PRESETS["nvidia-smi"]) == expected
    assert main([str(torn), "--faults", "off the bus"]) == 0
    said = capsys.readouterr().err
    assert said == (f"gpuvigil replay: {torn}: rows left out, torn or without a time or a GPU: 3\n")


def test_of_two_columns_of_one_name_the_first_is_read(tmp_path: Path) -> None:
    (path := tmp_path / "twice.csv").write_text(
        "timestamp,uuid,uuid,power.draw [W],power.draw [W]\n1769860800,G,H,1,2\n"
    )
    (row,) = recording([path], PRESETS["nvidia-smi"]).to_pylist()
    assert (row["uuid"], row["power_watts"]) == ("G", 1.0)


@pytest.mark.parametrize(
    "cell", ["inf", "1e999", "1-2", "18446744073709551615", "nan", "[GPU is lost]", "W", ""]
)
def test_what_is_beyond_any_number_was_not_measured(cell: str, tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_text(
        f"timestamp,uuid,power.draw,utilization.gpu\n1769860800,G,{cell},{cell}\n"
    )
    (row,) = recording([path], PRESETS["nvidia-smi"]).to_pylist()
    assert (row["power_watts"], row["utilization_percent"]) == (None, None)


def test_numbers_of_a_parquet_file_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    numbers = [float("inf"), float("nan"), 1e300, 70.25]
    values = {
        "timestamp": pa.array([1769860800_123456789] * 4, pa.timestamp("ns")),
        "uuid": pa.array(list("ABCD")).dictionary_encode(),
        "power.draw": numbers,
        "utilization.gpu": numbers,
        "fan.speed": pa.array(["30 %", "N/A", None, "7"], pa.large_string()),
    }
    pyarrow.parquet.write_table(pa.table(values), path)
    rows = recording([path], PRESETS["nvidia-smi"]).to_pylist()
    assert [row["power_watts"] for row in rows] == [None, None, None, 70.25]
    assert [row["utilization_percent"] for row in rows] == [None, None, None, 70]
    assert [row["fan_speed_percent"] for row in rows] == [30, None, None, 7]
    assert rows[0]["at"] == NOON + timedelta(microseconds=123456)


@pytest.mark.parametrize(
    "text",
    [
        "1769860800",
        "1769860800000",
        "1.7698608e15",
        "1769860800000000000",
        "2026-01-31T13:00+01:00",
    ],
)
def test_times_since_1970_are_seconds_or_smaller_by_their_size(text: str, tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_text(f"timestamp,uuid,power.draw\n{text},G,1\n")
    (row,) = recording([path], PRESETS["nvidia-smi"]).to_pylist()
    assert row["at"] == NOON


def test_dcgm_as_parquet_in_its_own_units(tmp_path: Path) -> None:
    path = tmp_path / "dcgm.parquet"
    values = {
        "timestamp": [NOON],
        "Hostname": ["n1"],
        "UUID": ["G"],
        "DCGM_FI_DEV_SM_CLOCK": [1980],
        "DCGM_FI_DEV_FB_USED": [2],
        "DCGM_FI_PROF_SM_ACTIVE": [0.25],
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": [5000],
    }
    pyarrow.parquet.write_table(pa.table(values), path)
    (row,) = recording([path], PRESETS["dcgm"]).to_pylist()
    assert (row["node"], row["sm_clock_hertz"], row["memory_used_bytes"]) == (
        "n1",
        1_980_000_000,
        2 * 1024**2,
    )
    assert (row["sm_activity_percent"], row["energy_joules"]) == (25.0, 5.0)


def test_prometheus_own_answer_as_it_came(tmp_path: Path) -> None:
    labels = {"Hostname": "n1", "UUID": "G", "gpu": "0", "modelName": "NVIDIA H100 80GB HBM3"}

    def series(name: str, *values: str) -> dict[str, Any]:
        pairs = [[NOON.timestamp() + 15 * n, value] for n, value in enumerate(values)]
        return {"metric": {"__name__": name, **labels}, "values": pairs}

    result = [
        series("DCGM_FI_DEV_GPU_TEMP", "61", "62"),
        series("DCGM_FI_PROF_SM_ACTIVE", "0.5", "NaN"),
        series("DCGM_EXP_XID_ERRORS_COUNT", "0", "0"),
    ]
    path = tmp_path / "range.json"
    path.write_text(
        json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})
    )
    first, second = recording([path], PRESETS["prometheus"]).to_pylist()
    assert (first["node"], first["uuid"], first["model"]) == ("n1", "G", labels["modelName"])
    assert (first["at"], second["at"]) == (NOON, NOON + timedelta(seconds=15))
    assert (first["temperature_celsius"], second["temperature_celsius"]) == (61, 62)
    assert (first["sm_activity_percent"], second["sm_activity_percent"]) == (50.0, None)
    path.write_text('{"status": "error"}')
    with pytest.raises(ValueError, match="no answer of /api/v1/query_range"):
        recording([path], PRESETS["prometheus"])


def test_prometheus_one_value_a_row(tmp_path: Path) -> None:
    path = tmp_path / "prometheus.csv"
    path.write_text(
        "__name__,timestamp,Hostname,UUID,value\n"
        f"DCGM_FI_DEV_GPU_TEMP,{NOON.timestamp()},n1,G,61\n"
        f"gpuvigil_gpu_power_watts,{NOON.timestamp()},n1,G,512.5\n"
        f"up,{NOON.timestamp()},n1,G,1\n"
    )
    (row,) = recording([path], PRESETS["prometheus"]).to_pylist()
    assert (row["temperature_celsius"], row["power_watts"], row["at"]) == (61, 512.5, NOON)


def test_a_map_of_ones_own() -> None:
    columns = parse("when = time\ncard = gpu # a comment\n\nW = power_watts * 0.001\n")
    assert columns.words == {"time": ("when",), "gpu": ("card",)}
    assert columns.fields == {"W": ("power_watts", 0.001)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("power", "line 1: 'power' is not"),
        ("a = time\nb = watts", "line 2: 'watts' is no field"),
        ("b = power_watts * 1e", "'1e' is no number"),
    ],
)
def test_a_map_that_cannot_be_read_names_its_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(text)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.txt", "", "is none of .csv, .parquet and .json"),
        ("a.csv", "b,c\n1,2\n", "has no column for the time"),
        ("a.csv", "timestamp,uuid,b\n1,G,2\n", "has none of the map's columns"),
        ("a.csv", "timestamp,uuid,power.draw\nyesterday,G,2\n", "'yesterday' is no time"),
        ("a.csv", "timestamp,uuid,power.draw\nnan,G,2\n", "'nan' is no time"),
        ("a.csv", f"timestamp,uuid,power.draw\n{'9' * 20},G,2\n", f"'{'9' * 20}' is no time"),
        ("a.csv", NVIDIA_SMI, "no row with a time"),
        ("a.csv", "", "Empty CSV file"),
        ("a.parquet", "not parquet", "a.parquet: "),
    ],
)
def test_what_cannot_be_read_is_one_line_and_2(
    name: str, text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert main([str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("gpuvigil replay: ")
    assert words in said
    assert said.count("\n") == 1


def test_a_file_that_is_not_there_and_one_too_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("none.csv", "none.json", "none.parquet"):
        none = tmp_path / name
        assert main([str(none)]) == 2
        why = f"cannot read {none}: No such file or directory"
        assert capsys.readouterr().err == f"gpuvigil replay: {why}\n"
    whole = str(nvidia_smi(tmp_path / "smi.csv"))
    assert main([whole, "--columns", str(none)]) == 2
    assert capsys.readouterr().err == f"gpuvigil replay: {why}\n"
    assert main([str(nvidia_smi(tmp_path / "short.csv", minutes=5))]) == 2
    assert "20 are needed" in capsys.readouterr().err


@pytest.mark.parametrize("kind", OVERLAYS)
def test_a_fault_changes_its_own_place_and_time_alone(kind: str, tmp_path: Path) -> None:
    table = recording([nvidia_smi(tmp_path / "smi.csv")], PRESETS["nvidia-smi"])
    found = Recording.of(table)
    (injection,) = found.injections(3, [kind])
    assert injection.kind == kind
    changed, _ = lay(table, injection)
    own = injection.truth().subject

    def outside(rows: pa.Table) -> list[dict[str, object]]:
        return [
            {name: row[name] for name in table.column_names}
            for row in rows.to_pylist()
            if not (
                injection.start <= row["at"] < injection.end and (own.gpu in {None, row["uuid"]})
            )
        ]

    assert outside(changed) == outside(table)
    assert changed.to_pylist() != table.to_pylist() or lay(table, injection)[1]


def test_a_gpu_is_of_the_model_that_was_recorded(tmp_path: Path) -> None:
    lines = ["timestamp,index,name,power.draw\n"]
    for second in range(0, 1800, 10):
        at = NOON.timestamp() + second
        lines += [f"{at},0,NVIDIA L4,70\n", f"{at},1,NVIDIA H100 PCIe,300\n", f"{at},2,,300\n"]
    (path := tmp_path / "mixed.csv").write_text("".join(lines))
    found = Recording.of(recording([path], PRESETS["nvidia-smi"]))
    (inventory,) = next(found.blocks(found.table)).inventories
    assert [gpu.model for gpu in inventory.gpus] == ["NVIDIA L4", "NVIDIA H100 PCIe", "unknown"]


def log(path: Path, gpus: str, first_second: int = 0) -> Path:
    """Ten minutes of nvidia-smi without a word about the node."""
    seconds = range(first_second, first_second + 600, 10)
    at = NOON.timestamp()
    lines = [f"{at + second},{gpu},500\n" for second in seconds for gpu in gpus.split()]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(["timestamp,gpu_uuid,power.draw\n", *lines]))
    return path


@pytest.mark.parametrize(
    ("gpus", "second_begins", "nodes"),
    [
        ("0 1", 3, ["n1", "n2"]),  # at the same time: these are two machines
        ("0 1", 600, ["node"]),  # one after the other: a log that was rotated
        ("GPU-8f 1", 600, ["node"]),
        ("GPU-8f GPU-90", 3, ["node"]),  # the same in the whole world
    ],
)
def test_files_that_name_no_node_are_of_one_or_of_their_own(
    gpus: str, second_begins: int, nodes: list[str], tmp_path: Path
) -> None:
    paths = [log(tmp_path / "n1.csv", gpus), log(tmp_path / "n2.csv", gpus, second_begins)]
    table = recording(paths, PRESETS["nvidia-smi"])
    assert sorted(set(table["node"].to_pylist())) == nodes
    assert len(table) == 240


def test_files_of_one_name_and_the_same_gpus_cannot_be_told_apart(tmp_path: Path) -> None:
    paths = [log(tmp_path / "n1/smi.csv", "0"), log(tmp_path / "n2/smi.csv", "0")]
    with pytest.raises(ValueError, match="call each file by its node"):
        recording(paths, PRESETS["nvidia-smi"])


def test_the_same_number_of_a_gpu_on_another_node_is_another_gpu(tmp_path: Path) -> None:
    lines = ["timestamp,hostname,index,power.draw\n"]
    for second in range(0, 1800, 10):
        at = NOON.timestamp() + second
        lines += [f"{at + 3 * n},n{n},{gpu},500\n" for n in range(3) for gpu in range(2)]
    (path := tmp_path / "nodes.csv").write_text("".join(lines))
    table = recording([path], PRESETS["nvidia-smi"])
    found = Recording.of(table)
    assert (len(found.gpus), found.tick_seconds) == (6, 10.0)
    for injection in found.injections(1):
        changed, _ = lay(table, injection)
        others = [
            [row["at"] for row in rows.to_pylist() if row["node"] != injection.gpu.node]
            for rows in (table, changed)
        ]
        assert others[0] == others[1]
        told = [row for row in changed.to_pylist() if row["power_watts"] != 500]
        assert {row["node"] for row in told} <= {injection.gpu.node}


def test_the_command_says_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = nvidia_smi(tmp_path / "smi.csv")
    kinds = ["off the bus", "stuck clocks", "dead collector"]
    assert main([str(path), "--json", "--faults", *kinds]) == 0
    result = json.loads(capsys.readouterr().out)
    ours = result["sets"]["gpuvigil"]
    assert (result["gpus"], result["tick_seconds"]) == (2, 10.0)
    assert ours["said_without_a_fault"] == []
    found = {outcome["fault"]: outcome for outcome in ours["outcomes"]}
    assert found["off the bus"]["seconds"] is not None
    assert found["off the bus"]["cause"]
    assert found["dead collector"]["seconds"] is not None
    assert found["stuck clocks"]["seconds"] is None
    assert main([str(path), "--faults", "off the bus"]) == 0
    assert "1 of 1 injected faults found" in capsys.readouterr().out


def test_every_overlay_is_a_kind_of_the_fleet(tmp_path: Path) -> None:
    table = recording([nvidia_smi(tmp_path / "smi.csv")], PRESETS["nvidia-smi"])
    for injection in Recording.of(table).injections(1):
        assert isinstance(injection, Injection)
        assert injection.truth().action
    assert f"{len(OVERLAYS)} of {len(KINDS)} kinds" in COMMANDS.read_text(encoding="utf-8")
