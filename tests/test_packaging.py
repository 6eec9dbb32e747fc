"""The systemd unit of a node's collector, as systemd itself reads it."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuvigil.config import load

PACKAGING = Path(__file__).parent.parent / "packaging"
UNIT = PACKAGING / "gpuvigil-collector.service"
# Of 100; systemd calls everything under 20 good.
MOST_EXPOSED = 20


@pytest.fixture(scope="module")
def analyze(needs: Callable[[str, str], str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    program = needs("systemd-analyze", "apt-get install systemd")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=60, check=False
        )

    return run


Analyze = Callable[..., subprocess.CompletedProcess[str]]


def test_systemd_reads_the_unit_without_a_complaint(analyze: Analyze, tmp_path: Path) -> None:
    done = analyze("verify", str(UNIT))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    # And it would complain.
    wrong = tmp_path / UNIT.name
    wrong.write_text(UNIT.read_text().replace("KillMode=mixed", "KillMode=sometimes"))
    assert "kill mode" in analyze("verify", str(wrong)).stderr


def test_the_unit_is_little_exposed(analyze: Analyze) -> None:
    limit = f"--threshold={MOST_EXPOSED}"
    done = analyze("security", "--offline=true", limit, str(UNIT))
    assert done.returncode == 0, done.stdout


def test_the_unit_and_its_configuration_fit_the_collector(tmp_path: Path) -> None:
    text = UNIT.read_text()
    token = tmp_path / "collector-token"
    token.write_text("secret\n")
    variables = dict(re.findall(r"^Environment=(\w+)=(.*)$", text, re.MULTILINE))
    assert variables == {"GPUVIGIL_HUB_COLLECTOR_TOKEN_FILE": "/run/credentials/%n/collector-token"}
    environment = dict.fromkeys(variables, str(token))
    config = load(PACKAGING / "collector.toml", environment)
    assert config.hub.collector_token_file == token
    # What the unit lets it write is where it writes.
    state = re.search(r"^StateDirectory=(.*)$", text, re.MULTILINE)
    assert state is not None
    assert config.collector.spool_directory.is_relative_to(Path("/var/lib") / state[1])
