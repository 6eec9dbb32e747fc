"""Every mistake of a configuration in one line, with file, key and what was meant."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from cli.config_command import main
from gpuvigil.config import load
from gpuvigil.config.mistakes import limits, mistakes


def written(directory: Path, text: str) -> Path:
    file = directory / "gpuvigil.toml"
    file.write_text(text, encoding="utf-8")
    return file


WRONG = """\
[hub]
port = "many"
urll = "http://hub:8428"

[analyzer]
idle_after_minutes = 30
trend_seconds = "30m"
xid_overrides = [
  "63=loud",
]
idle_below_percent = 101

[[alerts.slack]]
name = "ops"
url = "https://hooks.slack.example/1"
nmae = "ops"

[[alerts.webhook]]
name = "second"
minimum_severity = "loud"
url = "http://127.0.0.1:1/"

[[alerts.routes]]
receivers = ["ops"]

[alert]
x = 1

[dashboard]
port = -1
"""


def test_each_mistake_is_one_line_with_its_place(tmp_path: Path) -> None:
    file = written(tmp_path, WRONG)
    found = mistakes(file, {})
    said = {line.removeprefix(f"{file}, ").partition(": ")[0]: line for line in found}
    assert set(said) == {
        "line 26, alert",
        "line 2, hub.port",
        "line 3, hub.urll",
        "line 6, analyzer.idle_after_minutes",
        "line 7, analyzer.trend_seconds",
        "line 8, analyzer.xid_overrides",
        "line 11, analyzer.idle_below_percent",
        "line 16, alerts.slack.nmae",
        "line 20, alerts.webhooks.minimum_severity",
        "line 30, dashboard.port",
    }
    assert "did you mean alerts?" in said["line 26, alert"]
    assert "did you mean url?" in said["line 3, hub.urll"]
    assert "did you mean idle_after_seconds?" in said["line 6, analyzer.idle_after_minutes"]
    assert "write 1800, in seconds" in said["line 7, analyzer.trend_seconds"]
    assert "did you mean name?" in said["line 16, alerts.slack.nmae"]


@pytest.mark.parametrize("key", ["webhook", "webhooks"])
def test_a_receivers_list_is_read_in_either_number(key: str, tmp_path: Path) -> None:
    file = written(tmp_path, f'[[alerts.{key}]]\nname = "a"\nurl = "http://127.0.0.1:1/"\n')
    assert [one.name for one in load(file, {}).alerts.webhooks] == ["a"]
    assert mistakes(file, {}) == []


def test_both_numbers_together_keep_their_order_and_lines(tmp_path: Path) -> None:
    text = '[[alerts.slacks]]\nname = "a"\nurl = "http://127.0.0.1:1/"\n'
    text += '[[alerts.slack]]\nname = "b"\nminimum_severity = "loud"\n'
    (line,) = mistakes(written(tmp_path, text), {})
    assert "line 6, alerts.slack.minimum_severity" in line


def test_a_secret_that_cannot_be_read_is_a_mistake_and_a_port_in_use_is_none(
    tmp_path: Path,
) -> None:
    (tmp_path / "there").write_text("x\n", encoding="utf-8")
    text = '[hub]\nservice_token_file = "there"\ncollector_token_file = "gone"\n'
    (line,) = mistakes(written(tmp_path, text), {})
    assert "line 3, hub.collector_token_file: cannot read" in line
    assert str(tmp_path / "gone") in line


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files for others")
def test_root_is_told_of_a_secret_that_the_services_user_cannot_read() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)  # pytest's own folder is closed to other users
        (folder / "data").mkdir()
        os.chown(folder / "data", 65534, 65534)
        secret = folder / "token"
        secret.touch(0o640)
        text = f'[hub]\ndata_directory = "{folder}/data"\nservice_token_file = "{secret}"\n'
        (line,) = mistakes(written(folder, text), {})
        assert "line 3, hub.service_token_file: user nobody cannot read " in line
        os.chown(secret, 0, 65534)
        assert mistakes(folder / "gpuvigil.toml", {}) == []
        assert (os.geteuid(), os.getegid()) == (0, 0)


def test_text_that_is_no_toml_and_a_missing_file_are_one_line(tmp_path: Path) -> None:
    (line,) = mistakes(written(tmp_path, "[hub\n"), {})
    assert line.startswith(str(tmp_path))
    (line,) = mistakes(tmp_path / "none.toml", {})
    assert "cannot read" in line


def test_a_wrong_variable_is_named_and_does_not_hide_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "[hub]\nport = -1\n")
    found = mistakes(file, {"GPUVIGIL_ANALYZER_TREND_SECONDS": "2h"})
    assert len(found) == 2
    assert any("TREND_SECONDS: '2h' is not a number; write 7200" in line for line in found)


def test_each_limit_says_who_set_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "[analyzer]\ntrend_seconds = 900\n")
    found = {it.key: it for it in limits(file, {"GPUVIGIL_ANALYZER_IDLE_AFTER_SECONDS": "60"})}
    assert found["analyzer.trend_seconds"].origin == f"{file}, line 2"
    assert found["analyzer.idle_after_seconds"].origin == "GPUVIGIL_ANALYZER_IDLE_AFTER_SECONDS"
    assert found["analyzer.steady_seconds"].origin == "default"
    assert main(["check", str(file), "--limits", "-o", "json"]) == 0
    told = {it["key"]: it["value"] for it in json.loads(capsys.readouterr().out)}
    assert told["analyzer.trend_seconds"] == 900


def test_the_exit_code_says_whether_anything_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(written(tmp_path, "[hub]\nport = 1\n"))]) == 0
    assert "nothing wrong" in capsys.readouterr().out
    assert main(["check", str(written(tmp_path, "[hub]\nprot = 1\n"))]) == 1
    assert "did you mean port?" in capsys.readouterr().out
