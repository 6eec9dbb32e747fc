"""The compose file names our folders, runs our commands, and opens nothing to the network."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuvigil.cli import COMMANDS
from gpuvigil.config import load

ROOT = Path(__file__).parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]


def test_every_service_is_a_folder_of_that_name() -> None:
    assert set(SERVICES) == {"hub", "collector", "analyzer", "alerts", "dashboard"}
    assert all((ROOT / name).is_dir() for name in SERVICES)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_runs_a_command_that_exists(name: str) -> None:
    program, command = SERVICES[name]["command"]
    assert program == "gpuvigil"
    assert command in COMMANDS


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_published_ports_are_on_loopback(name: str) -> None:
    for port in SERVICES[name].get("ports", ()):
        assert port.startswith("127.0.0.1:")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_variable_is_a_setting(name: str) -> None:
    given = {
        key: value
        for key, value in SERVICES[name]["environment"].items()
        if key.startswith("GPUVIGIL_")
    }
    config = load(None, given)
    assert str(config.hub.url) == given["GPUVIGIL_HUB_URL"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_secret_that_a_service_gets_is_declared(name: str) -> None:
    assert set(SERVICES[name]["secrets"]) <= set(COMPOSE["secrets"])


def test_the_image_copies_every_package_and_is_not_run_by_root() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = set(re.findall(r"^COPY (\w+) \1$", text, re.MULTILINE))
    assert copied == {"gpuvigil", "collector", "hub", "analyzer", "alerts", "dashboard"}
    assert "\nUSER gpuvigil\n" in text
