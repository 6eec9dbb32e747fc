"""A real Prometheus with a made-up past of known truth, and what the trial makes of it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from evaluation.trial import trial_command, words
from evaluation.trial.asking import Asker, Load
from evaluation.trial.gathering import Bounds
from evaluation.trial.trial_command import Found
from gpuvigil.config import Config, StoreSettings
from gpuvigil.errors import StoreError
from tests.evaluation.trial.made import IDLE, site
from tests.timeseries import Prometheus

pytestmark = pytest.mark.server
DAY = timedelta(days=1)


def midnight() -> datetime:
    return datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)


@dataclass(frozen=True)
class Tried:
    found: Found
    directory: Path
    server: Prometheus


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tried]:
    directory = tmp_path_factory.mktemp("trial")
    with site(directory, midnight(), DAY) as server:
        yield Tried(look(server, directory / "kept", Load()), directory, server)


def look(server: Prometheus, kept: Path, load: Load, length: timedelta = DAY) -> Found:
    kept.mkdir()
    asker = Asker(StoreSettings(kind="prometheus", url=server.url), load)
    bounds = Bounds(start=(midnight() - length).timestamp(), length=length)
    return trial_command.look(asker, bounds, Config(), kept)


def test_idle_hours_are_those_of_each_owner(tried: Tried) -> None:
    (report,) = tried.found.reports
    owners = report.sheet("owners")
    assert owners is not None
    idle = {row[0]: row[-1] for row in owners.rows if row[-1]}
    assert idle == pytest.approx(IDLE, rel=0.02)
    assert sum(float(str(hours)) for hours in idle.values()) == pytest.approx(
        sum(IDLE.values()), rel=0.02
    )
    assert report.installed_gpu_hours == pytest.approx(8 * 24, rel=0.01)
    assert report.method.coverage_percent == 100.0


def test_faults_are_found_where_they_are(tried: Tried) -> None:
    found = {(one.fault, one.xid, one.subject.gpu) for one in tried.found.incidents}
    assert {
        ("gpu_xid", 48, "GPU-gpu-b-1"),
        # A row that is replaced for an uncorrectable error, and the note that stays when that is over.
        ("gpu_memory", None, "GPU-gpu-b-0"),
        ("gpu_xid", 63, "GPU-gpu-b-0"),
        ("gpu_memory", None, "GPU-gpu-a-3"),
    } == {it for it in found if it[0] != "gpu_idle_held"}


def test_what_is_missing_is_named(tried: Tried) -> None:
    (report,) = tried.found.reports
    said = "\n".join(report.unjudged)
    assert "DCGM_FI_DEV_PCIE_LINK_WIDTH" in said
    assert "DCGM_FI_DEV_XID_ERRORS" not in said
    assert "Who holds" not in said
    assert "DCGM_FI_DEV_GPU_UTIL" not in said


def test_the_terminal_the_page_and_json_say_the_same(
    tried: Tried, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    span = datetime.now(timezone.utc) - midnight() + DAY
    last = f"{int(span.total_seconds() // 3600) + 1}h"
    given = ["--prometheus", tried.server.url, "--last", last, "--out", str(page)]
    assert trial_command.main(given) == 0
    text = capsys.readouterr().out
    html = page.read_text(encoding="utf-8")
    for said in ("team-b", "Xid 48", "DCGM_FI_DEV_PCIE_LINK_WIDTH"):
        assert said in text
        assert said in html
    assert "Allocated at 0 %, by owner" in html
    assert list(tmp_path.iterdir()) == [page]
    assert "Nothing was kept" not in text
    assert trial_command.main(given[:-2]) == 0
    assert "Nothing was kept" in capsys.readouterr().out
    told = json.loads(json.dumps(trial_command.as_json(tried.found)))
    rows = told["reports"][0]["sheets"]["owners"]["rows"]
    owners = {one["owner"]: one["zero_gpu_hours"] for one in rows}
    assert owners["team-b"] == pytest.approx(IDLE["team-b"], rel=0.02)
    assert told["asked"]["queries"] > 5
    assert ["gpu.pcie_width", "DCGM_FI_DEV_PCIE_LINK_WIDTH"] in told["missing"]


def test_a_query_never_has_more_points_than_it_may(tried: Tried, tmp_path: Path) -> None:
    found = look(tried.server, tmp_path / "kept", Load(points_per_query=500, rest=0.0), DAY / 12)
    assert 300 < found.asker.cost.largest <= 500
    assert found.asker.cost.queries > 12


def test_where_nothing_is_known_one_line_says_so(
    tried: Tried, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = ["--prometheus", tried.server.url, "--last", "2d", "--match", 'cluster="other"']
    assert trial_command.main(given) == 1
    assert "no GPU is known by dcgm-exporter's names" in capsys.readouterr().err
    assert trial_command.main(["--prometheus", "http://127.0.0.1:9", "--last", "2h"]) == 1
    assert "does not answer" in capsys.readouterr().err
    assert trial_command.main(["--prometheus", "prometheus:9090"]) == 2
    assert "is not like http://prometheus:9090: 'prometheus:9090'" in capsys.readouterr().err
    secret = ["--token-file", str(tmp_path / "none")]
    assert trial_command.main(["--prometheus", tried.server.url, *secret]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("DCGM_FI", "site_dcgm_fi", "it has site_dcgm_fi_DEV_FB_USED .* changed by relabelling"),
        (
            "UUID=",
            "uuid=",
            "DCGM_FI_DEV_GPU_UTIL has no series of a whole GPU .* Hostname .*gpu .*uuid",
        ),
        ("gpu=", 'GPU_I_ID="1",gpu=', "takes none of a slice .* GPU_I_ID"),
    ],
)
def test_whoever_relabels_is_told_what_is_not_known_here(
    before: str, after: str, said: str, tmp_path: Path
) -> None:
    hour = DAY / 24
    past = site(tmp_path, midnight(), hour, relabelled=lambda it: it.replace(before, after))
    with past as server, pytest.raises(StoreError, match=said):
        look(server, tmp_path / "kept", Load(), hour)


def test_without_utilisation_the_first_thing_missing_is_that() -> None:
    first, *others = words.limits({"gpu.up"}, {"DCGM_FI_DEV_GPU_TEMP"}, 1, 8)
    assert first == "Not judged: which GPUs are idle. Missing: DCGM_FI_DEV_GPU_UTIL."
    assert not [it for it in others if it.startswith("Not judged: which")]
    assert words.limits({"gpu.utilization_percent"}, {"DCGM_FI_DEV_GPU_UTIL"}, 1, 8)[0] != first


def test_an_exporter_that_is_not_there_is_named_once_and_not_by_each_metric() -> None:
    def lines(*there: str) -> list[str]:
        known = {"DCGM_FI_DEV_GPU_UTIL", *there}
        found = words.limits({"gpu.utilization_percent"}, known, 1, 8)
        return [it for it in found if it.startswith("Not judged") and "node_" in it]

    (nothing,) = [it for it in lines() if "_*" in it]
    assert "Node's memory is full, " in nothing
    assert "Network link runs below its speed" in nothing
    assert nothing.endswith(" Missing: node_exporter (node_*).")
    ports = [it for it in lines("node_load1") if "_*" in it]
    assert len(ports) == 1
    assert ports[0].endswith(" Missing: node_exporter's InfiniBand ports (node_infiniband_*).")
    assert "Network link runs below its speed" in ports[0]
    some = lines("node_load1", "node_infiniband_state_id")
    assert not [it for it in some if "_*" in it]
