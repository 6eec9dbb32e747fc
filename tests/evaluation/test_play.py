"""A fleet of any seed, with kinds from outside, through analyzer, lifecycle and judge."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from evaluation.play.fleet_play import Counts, play
from evaluation.play.play_command import Progress, line, main, unread
from gpuvigil.model import Severity
from simulator.custom_kinds import CHANGES, DELIVERY, PHYSICS, WORK, is_look_alike, load
from simulator.fleet import FaultOrder, FleetSettings
from simulator.fleet.description import read

DOCUMENT = (Path(__file__).parents[2] / "docs/play.md").read_text(encoding="utf-8")
_KINDS = """
from simulator.custom_kinds import Fault, kind

@kind("board dies", of="node", cause="the board has no power", severity="critical", right=("node_silent",))
def dies(fault: Fault) -> None:
    fault.delivery("silent", set=1)
    fault.ends_jobs(after=60)
"""


@pytest.mark.slow
def test_what_only_switches_see_is_found_by_those_who_hear_them() -> None:
    order = FaultOrder(
        kind="slow uplink", node=0, port=0, uplink=3, start_seconds=400.0, seconds=500.0
    )
    settings = FleetSettings(
        seed=3, nodes=2, days=0.25 / 24, gpus_per_node=1, faults=(order,), life=False, switches=True
    )
    for switches in (True, False):
        counts = Counts.of([play(settings, switches)])
        assert (counts.faults, counts.one_incident) == (1, int(switches))
        assert sum(counts.wrong.values()) == 0


@pytest.mark.slow
def test_a_kind_from_outside_is_found_and_judged(tmp_path: Path) -> None:
    path = tmp_path / "kinds.py"
    path.write_text(_KINDS, encoding="utf-8")
    order = FaultOrder(kind="board dies", node=2, start_seconds=900.0, seconds=900.0)
    settings = FleetSettings(
        seed=3, nodes=3, days=0.6 / 24, faults=(order,), more_kinds=load(path), life=False
    )
    played = play(settings)
    assert played.node_days == pytest.approx(3 * 0.6 / 24)
    counts = Counts.of([played])
    assert (counts.faults, counts.found, counts.right_cause) == (1, 1, 1)
    assert counts.wrong == {severity.value: 0 for severity in Severity}
    values = json.loads(json.dumps(played.to_json()))
    [truth], incidents = values["truths"], values["incidents"]
    assert truth["fault"] == "board dies"
    assert truth["outcome"]["told"] in {"warning", "critical"}
    assert [it["truth"] for it in incidents if it["verdict"] == "right"] == [truth["id"]]
    # The same fault with nobody to see it: the judge counts what was not found.
    unseen = Counts.of([play(_too_short(settings))])
    assert (unseen.faults, unseen.found) == (1, 0)


@pytest.mark.slow
def test_a_described_fleet_is_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text("[fleet]\nnodes = 3\ndays = 0.02\n[faults]\nper_1000_node_days = 0\n")
    assert main(["--seed", "4", "--fleet", str(path), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["node_days"] == pytest.approx(0.06)
    by_minutes = ["--seed", "4", "--fleet", str(path), "--tick-seconds", "60"]
    assert main(by_minutes) == 0
    assert capsys.readouterr().out.startswith("0.06 node-days: 0 of 0 faults found")
    arguments = ["--seed", "4", "--fleet", str(path), "-o", "json", "--node-days", "0.12"]
    assert main([*arguments, "--workers", "1"]) == 0
    played = json.loads(capsys.readouterr().out)
    assert [fleet["nodes"] for fleet in played["fleets"]] == [3, 3]
    assert played["fleets"][0]["seed"] == 4


def test_the_fleet_of_the_document_is_one(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(DOCUMENT.partition("```toml\n")[2].partition("```")[0], encoding="utf-8")
    assert read(path, 1).nodes == 32


def _too_short(settings: FleetSettings) -> FleetSettings:
    """A fault too short for the node to be called silent."""
    [order] = settings.faults

    return replace(settings, faults=(replace(order, seconds=5.0),))


def test_the_line_says_what_was_found_and_what_was_wrong() -> None:
    counts = Counts(
        node_days=100.0,
        faults=8,
        found=6,
        right_cause=5,
        one_incident=4,
        wrong={"critical": 0, "warning": 2, "info": 1},
        seconds=(10.0, 30.0, 50.0),
    )
    assert line(counts) == (
        "100 node-days: 6 of 8 faults found (75 %, 95 % interval 41 to 93), 5 with the right cause,"
        " 4 in exactly one incident, median 30 s; wrong incidents: 0 critical, 2 warning, 1 info"
    )
    assert line(replace(counts, hidden=3)).endswith("; 3 more could show nowhere and do not count")
    assert line(replace(counts, hidden=1)).endswith(
        "; 1 more could show nowhere and does not count"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seed", "1", "--kinds", "nowhere.py"], "nowhere.py: no such file"),
        (["--seed", "1", "--node-days", "0"], "must be above 0"),
        (["--seed", "1", "--fleet", "nowhere.toml"], "nowhere.toml: No such file or directory"),
        (["--seed", "1", "--faults", "-1"], "is not a number from 0 on"),
        (["--node-days", "1"], "--seed"),
        (["--seed", "1", "--tick-seconds", "7"], "invalid choice: 7"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


def test_the_document_has_every_name_that_a_kind_may_use(tmp_path: Path) -> None:
    for name in (*CHANGES, *PHYSICS, *WORK, *DELIVERY):
        assert f"`{name}" in DOCUMENT
    [example] = [it for it in DOCUMENT.split("```") if it.startswith("python")]
    path = tmp_path / "kinds.py"
    path.write_text(example.removeprefix("python"), encoding="utf-8")
    [pump, evaluation] = load(path)
    assert (is_look_alike(pump), is_look_alike(evaluation)) == (False, True)
    order = FaultOrder(kind=pump.key, node=0, start_seconds=60.0, seconds=120.0, gpu=1)
    settings = FleetSettings(seed=1, nodes=1, days=0.01, faults=(order,), more_kinds=(pump,))
    assert settings.end - settings.start == timedelta(days=0.01)


@pytest.mark.slow
def test_what_is_said_of_a_look_alike_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "kinds.py"
    path.write_text(
        _KINDS.replace('severity="critical", right=("node_silent",)', "no_fault=True"),
        encoding="utf-8",
    )
    order = FaultOrder(kind="board dies", node=2, start_seconds=900.0, seconds=900.0)
    settings = FleetSettings(
        seed=3, nodes=3, days=0.6 / 24, faults=(order,), more_kinds=load(path), life=False
    )
    moments: list[timedelta] = []
    played = play(settings, tick_seconds=60.0, reached=moments.append)
    counts = Counts.of([played])
    assert (counts.faults, counts.look_alikes, counts.look_alikes_told) == (0, 1, 1)
    assert sum(counts.wrong.values()) > 0
    assert "; 1 of 1 look-alikes told as faults" in line(counts)
    values = played.to_json()
    [looked], incidents = values["look_alikes"], values["incidents"]
    assert (looked["fault"], values["truths"]) == ("board dies", [])
    assert looked["told"] in {"warning", "critical"}
    assert set(looked["incidents"]) == {it["id"] for it in incidents if it["verdict"] == "false"}
    assert moments == [timedelta(minutes=30), timedelta(minutes=36)]
    # Too short for a word.
    quiet = Counts.of([play(_too_short(settings))])
    assert (quiet.look_alikes, quiet.look_alikes_told) == (1, 0)


@pytest.mark.slow
def test_what_a_node_does_not_read_of_a_fault_is_said(tmp_path: Path) -> None:
    path, fleet = tmp_path / "kinds.py", tmp_path / "fleet.toml"
    fans = '    fault.node("fans_failed", set=1)\n    fault.event("boot")\n'
    path.write_text(_KINDS + fans, encoding="utf-8")
    for without, unread_there in ((1, ["fans_failed", "events"]), (0, [])):
        words = f"[fleet]\nnodes = 1\ndays = 0.02\n[telemetry]\nhost_sensors = {1 - without}\nno_events = {without}\n"
        fleet.write_text(words, encoding="utf-8")
        order = FaultOrder(kind="board dies", node=0, start_seconds=60.0, seconds=120.0)
        settings = replace(read(fleet, 3, load(path)), faults=(order,), fault_rate=0.0)
        [truth] = play(settings, tick_seconds=60.0).to_json()["truths"]
        assert truth["unread"] == unread_there


def test_a_long_fleet_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    for hours in (5.5, 6.0):
        progress = Progress(7, timedelta(hours=hours))
        for half_hours in range(1, int(2 * hours) + 1):
            progress.reached(timedelta(hours=half_hours / 2))
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "gpuvigil play: fleet 7: 1 of 6 hours"
    assert said[-1] == "gpuvigil play: fleet 7: 5.5 of 6 hours"
    assert len(said) == 9


@pytest.mark.slow
def test_a_field_that_nobody_reads_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kinds.py"
    changes = (
        '    fault.gpu("encoder_utilization_percent", add=1)\n    fault.gpu("power_watts", add=1)\n'
    )
    path.write_text(_KINDS + changes, encoding="utf-8")
    order = FaultOrder(kind="board dies", node=0, start_seconds=60.0, seconds=120.0)
    settings = FleetSettings(seed=3, nodes=1, days=0.01, faults=(order,), more_kinds=load(path))
    played = play(settings)
    assert played.unread == ("gpu.encoder_utilization_percent",)
    assert played.to_json()["unread"] == ["gpu.encoder_utilization_percent"]
    assert [it["unread"] for it in played.to_json()["truths"]] == [[]]
    [said] = unread([played, played])
    assert said == (
        "gpuvigil play: this fleet does not read gpu.encoder_utilization_percent:"
        " what a kind changes there shows nowhere"
    )
    sound = play(replace(settings, faults=()))
    assert (sound.unread, unread([sound])) == ((), [])
