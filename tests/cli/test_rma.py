"""`gpuvigil rma` and `gpuvigil lemons` against a real hub."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from accounting.hardware.repeat_offenders import Part
from cli import table_commands
from dashboard.data import offenders
from dashboard.incidents.hub_queries import story
from gpuvigil.clock import SystemClock
from gpuvigil.model import RmaState, Severity
from tests.dashboard.scene import gpu, incident, node
from tests.servers import HubProcess, QuickHub

pytestmark = pytest.mark.server

NOW = SystemClock().now()
HERE = node("n1", "c")
LOST = replace(
    incident("gpu_lost", gpu(0, HERE), Severity.CRITICAL),
    since=NOW - timedelta(hours=1),
    serial="s1",
    slot="0000:1b:00.0",
)
BEFORE = replace(LOST, id="i-0", since=NOW - timedelta(days=3), state="resolved", serial="s0")
IDLE = incident("gpu_idle_held", gpu(1, HERE), Severity.INFO)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with QuickHub(tmp_path_factory.mktemp("hub")) as hub:
        hub.hub().write_records(one.to_record() for one in (LOST, BEFORE, IDLE))
        config = f'[hub]\nurl = "{hub.url}"\nservice_token_file = "{hub.service_token_file}"\n'
        (hub.directory / "site.toml").write_text(config)
        yield hub


def site_config(hub: HubProcess) -> list[str]:
    return ["--config", str(Path(hub.directory) / "site.toml")]


def test_a_return_is_opened_goes_on_and_is_over(
    site: HubProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: str) -> str:
        assert table_commands.rma_main([*arguments, *site_config(site)]) == 0
        return capsys.readouterr().out

    assert json.loads(said("-o", "json")) == []
    said(LOST.id, "open", "--by", "ann", "--note", "case 4711")
    said(LOST.id, "shipped", "--by", "ben")
    (row,) = json.loads(said("-o", "json"))
    assert (row["state"], row["by"], row["serial"], row["slot"]) == (
        *("shipped", "ben"),
        *("s1", "0000:1b:00.0"),
    )
    steps = {one["what"]: one["value"] for one in json.loads(said(LOST.id, "-o", "json"))}
    assert steps["open"].endswith("by ann, case 4711")
    # The incident's page has the same steps.
    told = story(site.hub(), LOST.id)
    assert told is not None
    assert [(one.state, one.by) for one in told.rma] == [
        (RmaState.OPEN, "ann"),
        (RmaState.SHIPPED, "ben"),
    ]
    said(LOST.id, "replaced", "--by", "ann")
    assert json.loads(said("-o", "json")) == []
    assert len(json.loads(said("--all", "-o", "json"))) == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([IDLE.id, "open"], "not a part that a maker takes back"),
        (["nothing", "open"], "the hub knows no incident 'nothing'"),
        ([LOST.id, "open", "--by", " "], "say who you are"),
    ],
)
def test_what_cannot_be_is_one_line(
    site: HubProcess, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    assert table_commands.rma_main([*arguments, *site_config(site)]) == 2
    line = capsys.readouterr().err
    assert why in line
    assert line.count("\n") == 1


def test_what_failed_twice_is_listed_and_a_page_finds_its_own(
    site: HubProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert table_commands.lemons_main(["-o", "json", *site_config(site)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["part"], row["name"], row["failures"], row["lemon"]) for row in rows} == {
        ("node", "n1", 2, True),
        ("slot", "0000:1b:00.0", 2, True),
    }
    found = offenders.asked(site.hub(), NOW)
    of_gpu = offenders.of_place(found, "c", "n1", "0000:1b:00.0", "s1")
    assert [(one.part, len(one.failures)) for one in of_gpu] == [(Part.GPU, 1), (Part.SLOT, 2)]
    assert "; a lemon:" in offenders.sentence(of_gpu[1])
    assert "score" not in offenders.sentence(of_gpu[1])
    assert offenders.of_place(found, "c", "n2", None, None) == ()
