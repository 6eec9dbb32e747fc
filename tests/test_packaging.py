"""The systemd unit of a node's collector, as systemd itself reads it."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuvigil.command_line import COMMANDS
from gpuvigil.config import load

ROOT = Path(__file__).parent.parent
PACKAGING = ROOT / "packaging"
UNIT = PACKAGING / "gpuvigil-collector.service"
INSTALL = (ROOT / "docs/install.md").read_text(encoding="utf-8")
INFINIBAND = (ROOT / "docs/infiniband.md").read_text(encoding="utf-8")
SERVICES = (PACKAGING / "gpuvigil@.service").read_text(encoding="utf-8")
DROP_INS = {
    "report": PACKAGING / "gpuvigil@report.service.d/schedule.conf",
    "infiniband": PACKAGING / "gpuvigil@infiniband.service.d/devices.conf",
}
_PROGRAM = "/usr/lib/gpuvigil/server/bin/gpuvigil"
# What the page has systemd read: the drop-in with a node's other secrets, and root's units that collect logs.
SECRETS, LOGS = re.findall(r"^```ini\n(.*?)^```$", INSTALL, re.MULTILINE | re.DOTALL)
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


def test_the_units_are_little_exposed(analyze: Analyze, tmp_path: Path) -> None:
    limit = f"--threshold={MOST_EXPOSED}"
    done = analyze("security", "--offline=true", limit, str(UNIT))
    assert done.returncode == 0, done.stdout
    for name in ("hub", "infiniband"):
        services = tmp_path / f"gpuvigil@{name}.service"
        services.write_text(SERVICES)
        if name in DROP_INS:
            drop_in(tmp_path, name)
        done = analyze("security", "--offline=true", limit, str(services))
        assert done.returncode == 0, done.stdout


def drop_in(directory: Path, name: str) -> None:
    """Put the unit's drop-in beside it."""
    shipped = DROP_INS[name]
    place = directory / shipped.parent.name / shipped.name
    place.parent.mkdir()
    place.write_text(shipped.read_text().replace(_PROGRAM, sys.executable))


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


def test_what_is_commented_out_is_a_configuration_too(tmp_path: Path) -> None:
    text = (PACKAGING / "collector.toml").read_text()
    file = tmp_path / "collector.toml"
    file.write_text(re.sub(r"^#(?=[\w\[])", "", text, flags=re.MULTILINE))
    config = load(file, {})
    assert config.hub.ca_file == Path("/etc/gpuvigil/ca.pem")
    assert config.store.kind == "victoriametrics"
    assert load(PACKAGING / "collector.toml", {}).store.kind == "hub"


def test_the_unit_hands_over_every_secret_that_the_page_names(
    analyze: Analyze, tmp_path: Path
) -> None:
    handed = dict(
        re.findall(r"^LoadCredential=([\w-]+):(/etc/gpuvigil/.*)$", SECRETS, re.MULTILINE)
    )
    variables = dict(re.findall(r"^Environment=(\w+)=(.*)$", SECRETS, re.MULTILINE))
    assert set(variables.values()) == {f"/run/credentials/%n/{name}" for name in handed}
    config = load(PACKAGING / "collector.toml", variables)
    found = (config.store.token_file, config.store.password_file, config.hub.client_key_file)
    assert [file and file.name for file in found] == ["store-token", "store-password", "client-key"]
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text())
    drop_in = tmp_path / f"{UNIT.name}.d/override.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(SECRETS)
    done = analyze("verify", str(unit))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    # It reads the drop-in, and would complain.
    drop_in.write_text(SECRETS.replace("LoadCredential=", "LoadCredentials="))
    assert "LoadCredentials" in analyze("verify", str(unit)).stderr


@pytest.mark.medium
@pytest.mark.parametrize(
    "command", ["hub", "analyze", "alert", "dashboard", "report", "infiniband"]
)
def test_the_unit_of_the_services_runs_a_command_that_exists(
    analyze: Analyze, tmp_path: Path, command: str
) -> None:
    assert command in COMMANDS
    page = INSTALL if command != "infiniband" else INFINIBAND
    assert f"@{command}" in page
    unit = tmp_path / f"gpuvigil@{command}.service"
    # The environment that the page makes is not here.
    unit.write_text(SERVICES.replace(_PROGRAM, sys.executable))
    if command in DROP_INS:
        drop_in(tmp_path, command)
    done = analyze("verify", str(unit))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    (file,) = re.findall(r"^ExecStart=\S+ %i --config (\S+)$", SERVICES, re.MULTILINE)
    assert f"- writes `{file}`" in INSTALL
    # The collector's state, under a user that systemd makes up, is another directory.
    theirs = re.findall(r"^(?:StateDirectory|User)=(.*)$", UNIT.read_text(), re.MULTILINE)
    ours = re.findall(r"^(?:StateDirectory|User)=(.*)$", SERVICES, re.MULTILINE)
    assert len(ours) == len(theirs)
    assert not set(ours) & set(theirs)


def test_what_a_site_runs_beside_the_services_writes_where_its_unit_may() -> None:
    (state,) = re.findall(r"^StateDirectory=(.*)$", SERVICES, re.MULTILINE)
    given = dict(re.findall(r"^Environment=(\w+)=(.*)$", SERVICES, re.MULTILINE))
    config = load(None, given)
    assert [
        config.slurm.spool_directory,
        config.infiniband.spool_directory,
        config.switches.spool_directory,
        config.influxdb.directory,
    ] == [Path("/var/lib", state, name) for name in ("slurm", "infiniband", "switches", "influxdb")]


def test_reports_are_made_by_the_service_and_not_once() -> None:
    """What `ExecStart=` of all services is for @report, but for the verb."""
    (of_all,) = re.findall(r"^ExecStart=(.+)$", SERVICES, re.MULTILINE)
    emptied, own = re.findall(r"^ExecStart=(.*)$", DROP_INS["report"].read_text(), re.MULTILINE)
    assert (emptied, own) == ("", of_all.replace("%i", "report schedule"))
    for shipped in DROP_INS.values():
        assert f"install -D -m 644 {shipped.relative_to(ROOT)} /etc/systemd/system/" in INSTALL


def test_systemd_reads_the_units_that_collect_logs(analyze: Analyze, tmp_path: Path) -> None:
    units = re.findall(
        r"^# /etc/systemd/system/(\S+)\n(.*?)(?=^# /|\Z)", LOGS, re.MULTILINE | re.DOTALL
    )
    assert [name for name, _ in units] == ["gpuvigil-logs.path", "gpuvigil-logs.service"]
    for name, text in units:
        # NVIDIA's program is on nodes with its driver; here another stands for it.
        (tmp_path / name).write_text(text.replace("/usr/bin/nvidia-bug-report.sh", "/bin/true"))
    done = analyze("verify", *(str(tmp_path / name) for name, _ in units))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
