"""What all tests share: what a machine may lack, and the refusal to skip where CI counts on it."""

import os
import shutil
from collections.abc import Callable

import pytest

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


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped, expected-to-fail or deselected test is a failure of the run."""
    if not IN_CI:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    left_out = {
        name: len(reporter.stats.get(name, ()))
        for name in ("skipped", "xfailed", "xpassed", "deselected")
    }
    if any(left_out.values()):
        reporter.write_line(f"CI runs every test, and these were left out: {left_out}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
