"""The command line knows its commands, imports no service to say so, and exits as expected."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import gpuvigil
from gpuvigil.command_line import COMMANDS, INTERNAL, main


def test_every_command_has_an_entry_point_and_every_entry_point_a_command() -> None:
    found = {entry.name for entry in entry_points(group="gpuvigil.commands")}
    assert found == set(COMMANDS) | INTERNAL


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("colect", "did you mean 'gpuvigil collect'? Else see 'gpuvigil --help'"),
        ("Jobs", "did you mean 'gpuvigil jobs'? Else see 'gpuvigil --help'"),
        ("topo", "did you mean 'gpuvigil topology'? Else see 'gpuvigil --help'"),
        ("read-all", "see 'gpuvigil --help'"),
        ("", "see 'gpuvigil --help'"),
    ],
)
def test_an_unknown_command_is_one_line_with_the_nearest_and_exit_code_2(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([typed]) == 2
    assert capsys.readouterr().err == f"gpuvigil: {typed!r} is not a command; {said}\n"


@pytest.mark.parametrize(
    "typed", ["incidents", "incident", "users", "team", "nodes", "gpus", "hardware", "reports"]
)
def test_what_is_no_command_but_a_page_leads_to_commands_that_there_are(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([typed]) == 2
    named = re.findall(r"'gpuvigil (\w+)", capsys.readouterr().err)
    assert named
    assert set(named) <= set(COMMANDS)


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gpuvigil {gpuvigil.__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, gpuvigil.command_line as c; c.main(['--help']); print(*sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    loaded = set(shown.split())
    assert not loaded & {"streamlit", "pyarrow", "duckdb", "pynvml", "numpy", "starlette", "httpx"}


def test_a_renamed_command_still_runs_and_says_its_new_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["alerts", "route", "--help"])
    shown = capsys.readouterr()
    assert ended.value.code == 0
    assert shown.out.startswith("usage: gpuvigil alert route")
    assert shown.err == "gpuvigil alerts: is now 'gpuvigil alert'\n"


def test_an_old_name_without_a_verb_starts_no_service(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["alerts"])
    assert "VERB" in capsys.readouterr().out


@pytest.mark.server
def test_whoever_reads_no_further_is_told_nothing(tmp_path: Path) -> None:
    """As behind `head -1`: no traceback, and no error."""
    program = [sys.executable, "-m", "gpuvigil"]
    subprocess.run([*program, "replay", "--template", str(tmp_path / "it")], check=True)
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody:
        done = subprocess.run(
            [*program, "replay", str(tmp_path / "it"), "-o", "json"],
            stdout=nobody,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
