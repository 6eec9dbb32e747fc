"""Run pytest in the current folder and write the outcome of each test to a file.

`python outcomes.py FILE ONLY [ARGUMENT...]`: `ONLY` is a JSON list of the tests to run, by node id, or `null`
for all. Tests that do not exist are left out silently. It imports nothing of the checkout, so that it can
run the tests of another commit.
"""

import json
import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcomes of the tests of one run, by node id."""

    exit_code: int
    passed: Collection[str] = ()
    failed: Collection[str] = ()
    """Includes those whose setup or teardown failed; none of them is in `passed`."""
    broken: Collection[str] = ()
    """Files that could not be collected."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many were skipped, deselected or expected to fail, by kind."""


class Recorder:
    """A pytest plugin that selects tests and keeps their outcomes."""

    LEFT_OUT = ("skipped", "xfailed", "xpassed", "deselected")

    def __init__(self, only: Collection[str] | None) -> None:
        self._only = None if only is None else frozenset(only)
        self.outcome = Outcome(exit_code=pytest.ExitCode.INTERNAL_ERROR)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._only is not None:
            items[:] = [item for item in items if item.nodeid in self._only]

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> object:
        result = yield
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        stats = {} if reporter is None else reporter.stats
        bad = [*stats.get("failed", ()), *stats.get("error", ())]
        collecting = [one for one in bad if isinstance(one, pytest.CollectReport)]
        failed = {one.nodeid for one in bad} - {one.nodeid for one in collecting}
        self.outcome = Outcome(
            exit_code=int(session.exitstatus),
            passed=sorted({one.nodeid for one in stats.get("passed", ())} - failed),
            failed=sorted(failed),
            broken=sorted({one.nodeid for one in collecting}),
            left_out={name: len(stats[name]) for name in self.LEFT_OUT if stats.get(name)},
        )
        return result


def main(file: Path, only: Collection[str] | None, arguments: list[str]) -> int:
    """Run, write and return pytest's exit code."""
    recorder = Recorder(only)
    code = int(pytest.main(arguments, plugins=[recorder]))
    # A failure after the session changes the exit code of the whole run.
    written = {**asdict(recorder.outcome), "exit_code": code}
    file.write_text(json.dumps(written), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.path[0] = os.getcwd()  # as with `python -m pytest`
    sys.exit(main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:]))
