"""The command against a real hub: what is typed, what is written, and what goes wrong."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accounting.usage.query import usage as asked
from gpuvigil.model import SIMULATED_CLUSTER, Opinion, Severity
from tests.browser.accessibility import violations
from tests.report.weeks import END, START, WEEK, eventful, idle, incident, inventory, share, usage
from tests.report.weeks import gpu as gpu_of
from tests.servers import ROOT, HubProcess, QuickHub

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with QuickHub(tmp_path_factory.mktemp("empty")) as hub:
        yield hub


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """Two clusters, a real one and the simulated one, each with a week of usage and incidents."""
    with QuickHub(tmp_path_factory.mktemp("fed")) as process:
        hub = process.hub()
        found = eventful()
        hub.write_records(one.to_record() for one in found.usage.buckets)
        hub.write_records(one.to_record() for one in found.before.buckets)
        hub.write_records(one.to_record() for one in found.incidents)
        hub.write_records(one.to_record() for one in found.opinions)
        hub.write_records(one.to_record() for one in found.inventories)
        played = usage([share("job 99", "simon", gpus=2)], cluster=SIMULATED_CLUSTER)
        hub.write_records(one.to_record() for one in played.buckets)
        gpu = gpu_of(0, "sim-001", SIMULATED_CLUSTER)
        hub.write_records(
            [
                idle(gpu, user="simon", label="sim-001 GPU 0").to_record(),
                incident(subject=gpu, label="sim-001 GPU 0").to_record(),
                inventory(SIMULATED_CLUSTER, "sim-001").to_record(),
            ]
        )
        yield process


def report(hub: HubProcess, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    config = hub.directory / "report.toml"
    config.write_text(
        f'[hub]\nurl = "{hub.url}"\nservice_token_file = "{hub.service_token_file}"\n',
        encoding="utf-8",
    )
    return run("--config", str(config), *arguments)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    program = "import sys; from report.report_command import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
        timeout=100,
    )


SPAN = ("--from", f"{START:%Y-%m-%d}", "--to", f"{END:%Y-%m-%d}")


def test_the_report_of_a_real_cluster_has_the_numbers_of_the_query(fed: HubProcess) -> None:
    done = report(fed, *SPAN, "-o", "json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["reports"]
    counted = asked(fed.hub(), "alpha", START, END, END + WEEK)
    assert (found["cluster"], found["simulated"]) == ("alpha", False)
    assert found["installed_gpu_hours"] == round(counted.seconds.installed / 3600)
    assert found["allocated_gpu_hours"] == round(counted.seconds.allocated / 3600)
    assert found["figures"]["hardware_incidents"]["value"] == 3
    assert [row["rule"] for row in found["rules"]] == ["gpu_idle_held", "port_down", "gpu_lost"]
    assert b"simon" not in done.stdout
    assert b"sim-001" not in done.stdout


def test_a_rule_on_trial_is_in_the_digest_until_three_of_its_incidents_were_useful(
    tmp_path: Path,
) -> None:
    with QuickHub(tmp_path) as process:
        hub, facts = process.hub(), eventful()
        tried = incident("port_setup", severity=Severity.WARNING)
        hub.write_records(one.to_record() for one in facts.usage.buckets)
        hub.write_records(one.to_record() for one in facts.inventories)
        hub.write_records([tried.to_record()])

        def told_in() -> list[tuple[bool, int]]:
            (found,) = json.loads(report(process, *SPAN, "-o", "json").stdout)["reports"]
            return [(row["on_trial"], row["unjudged"]) for row in found["rules"]]

        assert told_in() == [(True, 1)]
        votes = [
            Opinion.given(replace(tried, id=id_), "ann", useful=True, at=END)
            for id_ in ("i-1", "i-2", tried.id)
        ]
        hub.write_records(one.to_record() for one in votes[:2])
        assert told_in() == [(True, 1)]
        vote = replace(votes[2], at=START + timedelta(days=2))
        hub.write_records([vote.to_record()])
        assert told_in() == [(False, 0)]


def test_the_simulated_cluster_is_reported_when_it_is_asked_for(fed: HubProcess) -> None:
    done = report(fed, *SPAN, "-o", "json", "--cluster", SIMULATED_CLUSTER)
    (found,) = json.loads(done.stdout)["reports"]
    assert (found["cluster"], found["simulated"]) == (SIMULATED_CLUSTER, True)
    assert found["title"].startswith("SIMULATED")
    assert found["currency"] == "USD"
    assert any(note.startswith("SIMULATED prices") for note in found["method"]["notes"])
    assert found["figures"]["hardware_incidents"]["value"] == 1
    assert b"alpha" not in done.stdout


def test_an_unknown_cluster_is_refused_and_the_known_ones_are_named(fed: HubProcess) -> None:
    done = report(fed, "-o", "md", "--cluster", "beta")
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"'beta' is not known to the hub: there is alpha, simulated" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_an_empty_hub_gives_an_honest_report(empty: HubProcess) -> None:
    done = report(empty, "-o", "md")
    assert done.returncode == 0, done.stderr
    assert b"No GPU is known to this hub" in done.stdout


def test_the_file_is_written_whole_and_its_suffix_is_the_format(
    fed: HubProcess, tmp_path: Path, browser: "Browser"
) -> None:
    out = tmp_path / "report.html"
    done = report(fed, *SPAN, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""
    assert done.stderr.startswith(f"wrote {out}".encode())
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    shown = context.new_page()
    said: list[str] = []
    shown.on("console", lambda message: said.append(message.text))
    shown.on("request", lambda request: said.append(request.url))
    shown.goto(out.as_uri())
    wanted = [text for text in said if text != out.as_uri()]
    assert wanted == []
    width = shown.evaluate("document.documentElement.scrollWidth")
    assert width <= 1000
    context.close()
    # axe runs a script of its own, which the report's policy refuses: it is let in here only.
    context = browser.new_context(viewport={"width": 1000, "height": 800}, bypass_csp=True)
    checked = context.new_page()
    checked.goto(out.as_uri())
    assert violations(checked) == []
    context.close()


def test_a_file_that_cannot_be_written_leaves_the_old_one_alone(
    fed: HubProcess, tmp_path: Path
) -> None:
    done = report(fed, *SPAN, "--out", str(tmp_path / "nowhere" / "report.json"))
    assert done.returncode == 2
    assert b"there is no directory" in done.stderr
    directory = tmp_path / "report.csv"
    directory.mkdir()
    done = report(fed, *SPAN, "--out", str(directory))
    assert done.returncode == 2
    assert b"cannot write" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["report.csv"]


def test_a_hub_that_does_not_answer_is_named_with_what_to_do(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x\n", encoding="utf-8")
    config = tmp_path / "report.toml"
    config.write_text(
        f'[hub]\nurl = "http://127.0.0.1:1"\nservice_token_file = "{token}"\n', encoding="utf-8"
    )
    done = run("--config", str(config), "-o", "md")
    assert done.returncode == 1
    assert b"hub at http://127.0.0.1:1 does not answer" in done.stderr
    assert b"'gpuvigil up' starts everything" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_without_a_hub_of_up_and_without_a_file_it_says_so(tmp_path: Path) -> None:
    done = run("-o", "md", XDG_STATE_HOME=str(tmp_path))
    assert done.returncode == 2
    assert b"start 'gpuvigil up' first" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), b"no format is named"),
        (("-o", "html"), b"html needs a file"),
        (("-o", "pdf"), b"pdf needs a file"),
        (("--out", "report.txt"), b"does not say a format"),
    ],
)
def test_a_format_that_is_not_clear_is_asked_for(arguments: tuple[str, ...], said: bytes) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_the_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from report import report_command; report_command.form_of('md', None); "
        "sys.exit(bool({'altair', 'vl_convert', 'weasyprint', 'streamlit'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert done.returncode == 0


def test_html_does_without_altair() -> None:
    program = (
        "import sys; from report.formats import html_format; sys.exit('altair' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert done.returncode == 0
