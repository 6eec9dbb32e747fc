"""The compose file names our folders, runs our commands as they are written, and opens nothing to the network."""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomllib

from gpuvigil.command_line import COMMANDS
from gpuvigil.config import load
from tests.composed import COMPOSE, ROOT, SERVICES, of_profile, substituted
from tests.containers import INCLUDED

OURS = {name: it for name, it in SERVICES.items() if "build" in it}
OTHERS = {name: it for name, it in SERVICES.items() if "build" not in it}
FOLDERS = {"hub", "collector", "analyzer", "alerts", "dashboard", "report"}
CONFIGURATION = """
[alerts]
external_url = "https://gpus.example.com"
[[alerts.webhooks]]
name = "site"
url_file = "webhook-url"
"""
PROFILES = ("embedded", "influxdb", "victoriametrics")


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_has_every_service_once(profile: str) -> None:
    ours = [name.partition("-")[0] for name in of_profile(profile) if name in OURS]
    assert sorted(name for name in ours if name in FOLDERS) == sorted(FOLDERS)
    assert all((ROOT / name).is_dir() for name in FOLDERS)
    stores = [name for name in of_profile(profile) if name in OTHERS]
    assert stores == [name for name in (profile,) if name != "embedded"]


def test_there_are_no_other_profiles() -> None:
    named = {profile for it in SERVICES.values() for profile in it.get("profiles", ())}
    assert named == set(PROFILES)


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_service_runs_a_command_that_exists(name: str) -> None:
    program, command = OURS[name]["command"][:2]
    assert (program == "gpuvigil" and command in COMMANDS) or (program, command) == ("python", "-c")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_container_may_do_no_more_than_it_must(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    for port in service.get("ports", ()):
        assert port.startswith("127.0.0.1:")


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_another_makers_image_has_a_version(name: str) -> None:
    assert re.fullmatch(r"[a-z./-]+:v?\d+\.\d+\.\d+", OTHERS[name]["image"])


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_variable_is_a_setting(name: str) -> None:
    environment: dict[str, str] = OURS[name].get("environment", {})
    given = {key: value for key, value in environment.items() if key.startswith("GPUVIGIL_")}
    config = load(None, given)
    assert config.hub.url == given.get("GPUVIGIL_HUB_URL", config.hub.url)
    _, _, store = name.partition("-")
    assert config.store.kind == (store if store in PROFILES else "hub")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_secret_and_volume_that_a_service_gets_is_declared(name: str) -> None:
    assert set(SERVICES[name].get("secrets", ())) <= set(COMPOSE["secrets"])
    sources = {volume.partition(":/")[0] for volume in SERVICES[name].get("volumes", ())}
    folders = {substituted(it) for it in sources if it.startswith("$")}
    assert {it for it in sources if not it.startswith("$")} <= set(COMPOSE["volumes"])
    assert all((ROOT / folder).is_dir() for folder in folders)


def test_the_file_that_services_read_is_empty_until_somebody_fills_it(tmp_path: Path) -> None:
    file = ROOT / "packaging" / "compose" / "gpuvigil.toml"
    assert load(file, {}) == load(None, {})
    _, _, examples = file.read_text(encoding="utf-8").partition("\n\n")
    filled = tmp_path / "gpuvigil.toml"
    filled.write_text(re.sub("(?m)^# ?", "", examples), encoding="utf-8")
    config = load(filled, {})
    (slack,), (email,), (weekly,) = config.alerts.slack, config.alerts.email, config.reports
    assert slack.url_file == tmp_path / "slack-url"
    assert (weekly.channel, weekly.link_to) == (email.name, (slack.name,))


def test_the_image_copies_every_package_and_is_not_run_by_root() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = set(re.findall(r"^COPY (\w+) \1$", text, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert copied == {pattern.removesuffix("*") for pattern in packages}
    assert copied > FOLDERS
    assert "\nUSER gpuvigil\n" in text
    # What speaks to VictoriaMetrics and InfluxDB, and what draws a PDF, is an extra each.
    assert "'.[all,influxdb,pdf]'" in text


def test_the_image_has_what_a_pdf_needs_of_its_system() -> None:
    (listed,) = re.findall(r'^ARG PDF="(.+)"$', (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    packages = ROOT / "packaging" / "packages" / "server" / "nfpm.yaml"
    (suggested,) = re.findall(r"suggests: \[(.+)\]", packages.read_text())
    assert set(listed.split()) == {*suggested.split(", "), "fonts-dejavu-core"}
    # The engine that builds it in tests fetches nothing.
    assert set(listed.split()) <= set(INCLUDED)


@pytest.fixture
def directory() -> Iterator[Path]:
    """For secrets, volumes and logs; the services' account must get there."""
    made = Path(tempfile.mkdtemp(prefix="gpuvigil-compose-"))
    made.chmod(0o711)
    (made / "secrets").mkdir()
    for name in COMPOSE["secrets"]:
        (made / COMPOSE["secrets"][name]["file"]).write_text(secrets.token_hex(32) + "\n")
    (made / "configuration").mkdir()
    (made / "configuration" / "gpuvigil.toml").write_text(CONFIGURATION)
    (made / "configuration" / "webhook-url").write_text("http://127.0.0.1:9/\n")
    yield made
    shutil.rmtree(made)


@pytest.mark.server
@pytest.mark.site
@pytest.mark.parametrize("profile", PROFILES)
def test_every_command_and_health_check_works_as_it_is_written(
    profile: str, directory: Path
) -> None:
    result = run(profile, directory)
    said = json.dumps(result["said"], indent=1)
    assert result["healthy"] == result["services"] == of_profile(profile), said
    assert set(result["codes"].values()) == {0}, said
    assert any(name.startswith("node") for name in result["kept"]), said
    assert re.search(r"^http://127.0.0.1:8501/\?token=\S+$", result["url"], re.MULTILINE)
    (alerts,) = (said for name, said in result["said"].items() if name.startswith("alerts"))
    assert "channels=site" in alerts, said


def run(profile: str, directory: Path) -> dict[str, Any]:
    """What `tests.composed` found, in namespaces that end with it."""
    apart = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode != 0:
        # As a container engine does.
        said = "namespaces are not to be had: this needs root"
        pytest.fail(said) if os.environ.get("CI") == "true" else pytest.skip(said)
    process = subprocess.Popen(
        [*apart, sys.executable, "-m", "tests.composed", profile, str(directory)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "GPUVIGIL_CONFIGURATION": str(directory / "configuration")},
    )
    try:
        said, _ = process.communicate(timeout=110)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
    file = directory / "result.json"
    assert file.exists(), said
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    assert "healthy" in found, said
    return found
