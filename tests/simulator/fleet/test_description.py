"""A file outside the project describes a fleet; what is wrong with it is one clear line."""

from dataclasses import fields
from pathlib import Path

import pytest

from simulator.fleet import build
from simulator.fleet.description import KEYS, DescriptionError, read, rows, settings_of
from simulator.fleet.model import WorldSettings
from simulator.fleet.world import WEIGHTS, world

ROOT = Path(__file__).parents[3]

DESCRIBED = """
[fleet]
nodes = 6
days = 0.25
models = ["H100", "A100"]
nodes_per_rack = 2
[nodes]
slot_spread = 0.1
inlet_celsius = [20, 24]
[telemetry]
presence = [0.5, 0.9]
[work]
mix = { "phased scoring" = 2, "notebook" = 1 }
[faults]
per_1000_node_days = 4000
share_of_windows = 0.5
kinds = ["slow GPU", "off the bus"]
[faults.weights]
"slow GPU" = 3.5
"""


def described(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "fleet.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_describes_a_fleet_that_plays(tmp_path: Path) -> None:
    settings = read(described(tmp_path, DESCRIBED), seed=7)
    assert (settings.seed, settings.nodes, settings.days) == (7, 6, 0.25)
    assert settings.models == ("H100", "A100")
    assert settings.world == WorldSettings(
        slot_spread=0.1, inlet_celsius=(20.0, 24.0), presence=(0.5, 0.9), faulty_share=0.5
    )
    assert settings.mix == (("phased scoring", 2.0), ("notebook", 1.0))
    weights = dict(settings.fault_weights)
    assert weights["slow GPU"] == 3.5
    assert weights["off the bus"] == dict(WEIGHTS)["off the bus"]
    fleet = build(settings)
    assert {truth.fault for truth in fleet.truths()} <= {"slow GPU", "off the bus"}
    assert {job.workload.key for job in fleet.plan.jobs} <= {"phased scoring", "notebook"}
    assert next(fleet.blocks()).tables["gpu"].num_rows


def test_an_empty_file_is_the_world_as_it_is(tmp_path: Path) -> None:
    assert read(described(tmp_path, ""), seed=3) == world(3, nodes=64, days=1.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[telemetry]\npresense = 1", "'telemetry.presense' is no key; did you mean 'telemetry.presence'?"),
        ("[telemtry]\nbursty = 1", "'telemtry' is no section; did you mean 'telemetry'?"),
        ("[zzz]\na = 1", "'zzz' is no section; there are fleet, nodes, telemetry, work, life, faults"),
        ("nodes = 3", "nodes is a section: write [nodes] and its keys below"),
        ("[fleet]\nnodes = 0", "fleet.nodes = 0: takes a whole number from 1 to 20000 (nodes)"),
        ("[fleet]\nnodes = 2.5", "fleet.nodes = 2.5: takes a whole number from 1 to 20000 (nodes)"),
        ("[fleet]\nnodes = true", "fleet.nodes = True: takes a whole number"),
        ('[fleet]\ndays = "1"', "fleet.days = '1': takes a number from 0.01 to 60 (days)"),
        ("[fleet]\ndays = nan", "fleet.days = nan: takes a number from 0.01 to 60 (days)"),
        ('[fleet]\nmodels = ["H1000"]', "'H1000' is none of the GPU models of fleet.models; did you mean 'H100'?"),
        ("[fleet]\nmodels = []", "fleet.models is a list of GPU models: A100, H100"),
        ("[telemetry]\npresence = [0.9, 0.5]", "telemetry.presence: 0.9 is above 0.5; write the lower one first"),
        ("[telemetry]\npresence = 0.5", "telemetry.presence is [lowest, highest] of a number from 0.05 to 1 (share of ticks)"),
        ("[telemetry]\nbursty = 1.2", "telemetry.bursty = 1.2: takes a number from 0 to 1 (share of nodes)"),
        ("[work]\nmix = { notbook = 1 }", "'notbook' is no name in work.mix; did you mean 'notebook'?"),
        ("[work]\nmix = { notebook = -1 }", "work.mix, notebook = -1: takes a number from 0 on (parts of GPU time)"),
        ("[work]\nmix = { notebook = 0 }", "work.mix: one share at least is above 0"),
        ('[faults]\nkinds = ["slow"]', "'slow' is none of the kinds of fault of faults.kinds; did you mean"),
        ("[faults]\nweights = 3", "faults.weights is a table of parts of all faults by name"),
        ("[faults", "not TOML: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_with_the_key_and_what_it_may_be(
    tmp_path: Path, text: str, words: str
) -> None:
    file = described(tmp_path, text)
    with pytest.raises(DescriptionError) as found:
        read(file, seed=1)
    said = str(found.value)
    assert said.startswith(f"{file}: ")
    assert words in said
    assert "\n" not in said


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=r"nowhere\.toml: No such file or directory"):
        read(tmp_path / "nowhere.toml", seed=1)


@pytest.mark.parametrize("key", [key for key in KEYS if key.shape in {"number", "range"}], ids=lambda k: k.name)  # fmt: skip
def test_a_limit_may_be_reached_and_not_passed(key: object) -> None:
    (row,) = [it for it in KEYS if it is key]
    section, word = row.name.split(".")
    pair = row.shape == "range"
    for limit, past in ((row.low, row.low - 0.001), (row.high, row.high + 0.001)):
        if limit == float("inf"):
            continue
        settings_of({section: {word: [limit, limit] if pair else limit}}, 1)
        with pytest.raises(DescriptionError, match=row.name.replace(".", r"\.")):
            settings_of({section: {word: [past, past] if pair else past}}, 1)


def test_everything_that_makes_a_world_has_a_key_whose_default_is_its_own() -> None:
    assert {field.name for field in fields(WorldSettings)} <= {key.field for key in KEYS}
    assert len({key.name for key in KEYS}) == len(KEYS)
    for key in KEYS:
        if key.shape in {"number", "whole"}:
            assert key.low <= key.usual <= key.high, key.name


def test_the_documentation_has_the_keys_as_they_are() -> None:
    page = (ROOT / "docs/fleet.md").read_text(encoding="utf-8")
    assert "\n".join(rows()) in page, "put rows() of simulator/fleet/description.py there"
