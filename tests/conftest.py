"""What all tests share: what a machine may lack, and the refusal to skip where CI counts on it."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.nvml_fake import build
from tests.postgresql import Postgresql, programs

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# How long an example takes says something about the machine, not about the code.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

IN_CI = os.environ.get("CI") == "true"


@pytest.fixture(scope="session")
def needs() -> Callable[[str, str], str]:
    """`needs("gcc", "apt-get install gcc")` is the program's path, or a skip with one line.

    With `CI=true` a program that is missing fails the test.
    """

    def find(program: str, remedy: str) -> str:
        path = shutil.which(program)
        if path is None:
            if IN_CI:
                pytest.fail(f"{program} is missing: make test-servers installs it")
            pytest.skip(f"{program} is missing: {remedy}")
        return path

    return find


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory, needs: Callable[[str, str], str]) -> Path:
    """The fake NVML library, compiled."""
    needs("gcc", "apt-get install gcc")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="module")
def browser(needs: Callable[[str, str], str]) -> Iterator["Browser"]:
    """Chromium, headless."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - most tests need no browser

    chromium = needs("chromium", "apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped, expected-to-fail or deselected test is a failure of the run."""
    if not IN_CI:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    kinds = ["skipped", "xfailed", "xpassed"]
    if not session.config.getoption("lf"):  # else what passed before is deselected
        kinds.append("deselected")
    left_out = {name: len(reporter.stats.get(name, ())) for name in kinds}
    if any(left_out.values()):
        # A second run of what failed would end well without what was left out.
        assert session.config.cache is not None
        session.config.cache.set("cache/lastfailed", {})
        reporter.write_line(f"CI runs every test, and these were left out: {left_out}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Postgresql]:
    """A real PostgreSQL, empty; tests make databases of their own in it."""
    found = programs()
    if found is None:
        if IN_CI:
            pytest.fail("PostgreSQL is missing: make test-servers installs it")
        pytest.skip("PostgreSQL is missing: apt-get install postgresql")
    with Postgresql(found) as server:
        yield server
