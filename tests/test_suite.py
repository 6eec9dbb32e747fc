"""Who gets a second try, and what the run says of it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts.outcomes import Outcome
from scripts.suite import MOST_ASKED, MOST_SECOND_TRIES, judge, main, report, wants_second_try

ROOT = Path(__file__).parent.parent


def outcome(
    failed: int | list[str] = 0,
    passed: int | list[str] = 0,
    broken: tuple[str, ...] = (),
    left_out: Mapping[str, int] | None = None,
) -> Outcome:
    return Outcome(
        exit_code=int(bool(failed or broken)),
        failed=failed if isinstance(failed, list) else [f"f{n}" for n in range(failed)],
        passed=passed if isinstance(passed, list) else [f"p{n}" for n in range(passed)],
        broken=broken,
        left_out=left_out or {},
    )


def test_what_passes_on_the_second_try_is_named_and_counted_as_passed() -> None:
    verdict = judge(outcome(failed=["a"], passed=9), before=(), second=outcome(passed=["a"]))
    assert (verdict.exit_code, verdict.on_second_try) == (0, ["a"])
    assert report(verdict, 61.6) == ["passed only on the second try: a", "10 passed in 62s"]


def test_what_fails_twice_fails_the_run() -> None:
    first = outcome(failed=["a", "b"], passed=8)
    verdict = judge(first, before=(), second=outcome(failed=["b"], passed=["a"]))
    assert verdict.exit_code == 1
    assert report(verdict, 5.0) == [
        "passed only on the second try: a",
        "failed: b (failed twice)",
        "9 passed, 1 failed in 5s",
    ]


@pytest.mark.parametrize("many", [MOST_SECOND_TRIES, MOST_SECOND_TRIES + 1])
def test_more_than_three_second_tries_fail_the_run_by_name(many: int) -> None:
    first = outcome(failed=many, passed=9)
    verdict = judge(first, before=(), second=outcome(passed=list(first.failed)))
    lines = report(verdict, 1.0)
    assert verdict.exit_code == (many > MOST_SECOND_TRIES)
    assert [line for line in lines if line.startswith("passed only")] == [
        f"passed only on the second try: f{n}" for n in range(many)
    ]
    assert (f"{many} tests needed a second try; more than 3 fail the run" in lines) == (many > 3)
    assert lines[-1] == f"{9 + many} passed in 1s"


def test_what_failed_on_the_commit_before_gets_no_second_try_even_if_it_would_pass() -> None:
    first = outcome(failed=["a", "b"], passed=1)
    assert wants_second_try(first, before={"a"}) == ["b"]
    verdict = judge(first, before={"a"}, second=outcome(passed=["a", "b"]))
    assert verdict.exit_code == 1
    assert verdict.failed == [("a", "fails on the commit before, too")]
    assert verdict.on_second_try == ["b"]


def test_without_the_commit_before_nothing_gets_a_second_try() -> None:
    first = outcome(failed=["a"], passed=1)
    assert wants_second_try(first, before=None) == []
    verdict = judge(first, before=None, second=None)
    assert verdict.exit_code == 1
    assert verdict.failed == [("a", "no second try without the commit before")]


@pytest.mark.parametrize("many", [MOST_ASKED, MOST_ASKED + 1])
def test_a_broken_suite_is_not_asked_again(many: int) -> None:
    first = outcome(failed=many)
    assert bool(wants_second_try(first, before=())) == (many <= MOST_ASKED)


def test_a_file_that_cannot_be_collected_fails_the_run_and_whoever_failed_beside_it() -> None:
    first = outcome(failed=["a"], passed=1, broken=("test_x.py",))
    assert wants_second_try(first, before=()) == []
    verdict = judge(first, before=(), second=None)
    assert verdict.exit_code == 1
    assert [name for name, _ in verdict.failed] == ["test_x.py", "a"]
    assert report(verdict, 1.0)[-1] == "1 passed, 2 failed in 1s"


@pytest.mark.parametrize("kind", ["skipped", "deselected", "xfailed", "xpassed"])
@pytest.mark.parametrize("all_must_run", [False, True])
def test_a_second_try_does_not_cover_what_was_left_out(kind: str, all_must_run: bool) -> None:
    first = outcome(failed=["a"], passed=1, left_out={kind: 2})
    second = outcome(passed=["a"])
    verdict = judge(first, before=(), second=second, all_must_run=all_must_run)
    assert verdict.exit_code == all_must_run
    assert report(verdict, 1.0)[-1] == f"2 passed, 2 {kind} in 1s"


PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "tiny"
version = "1"
[tool.setuptools]
py-modules = ["tiny"]
[tool.pytest.ini_options]
addopts = ["--import-mode=importlib", "-p", "no:cacheprovider"]
pythonpath = ["."]
"""
# The first asks twice, the second was wrong before, the third is new and wrong, the fourth is well.
BEFORE = """
import tiny
def test_second_time(): pass
def test_wrong_for_long(): assert tiny.SUM == 4
def test_well(): pass
"""
AFTER = """
import pathlib, tiny
TRIED = pathlib.Path({tried!r})
def once_more(name):
    seen = (TRIED / name).exists()
    (TRIED / name).touch()
    return seen
def test_second_time(): assert once_more("a")
def test_wrong_for_long(): assert once_more("b") and tiny.SUM == 3
def test_new_and_wrong(): assert tiny.SUM == 4
def test_well(): pass
"""


class Checkout:
    """A git repository with a tiny project of two commits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tiny"
        self.tried = folder / "tried"
        self.tried.mkdir()
        (self.folder / "checks").mkdir(parents=True)
        self.git("init", "--quiet")
        self.write("pyproject.toml", PROJECT)
        self.write("tiny.py", "SUM = 3\n")
        self.write("checks/test_tiny.py", BEFORE)
        self.commit()
        self.write("checks/test_tiny.py", AFTER.format(tried=str(self.tried)))
        self.commit()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def commit(self) -> None:
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "one")

    def git(self, *words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *words], cwd=self.folder, check=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.slow
@pytest.mark.site
def test_the_commit_before_decides_in_a_real_checkout(
    checkout: Checkout, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(checkout.folder, ["-q", "-n", "2", "checks"]) == 1
    lines = capfd.readouterr().out.splitlines()
    test = "checks/test_tiny.py::test"
    assert f"passed only on the second try: {test}_second_time" in lines
    assert f"failed: {test}_new_and_wrong (failed twice)" in lines
    assert f"failed: {test}_wrong_for_long (fails on the commit before, too)" in lines
    assert lines[-1].startswith("2 passed, 2 failed in ")


@pytest.mark.slow
@pytest.mark.site
def test_a_shallow_clone_gives_no_second_try_and_says_why(
    checkout: Checkout, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shallow = tmp_path / "shallow"
    subprocess.run(
        ["git", "clone", "--quiet", "--depth=1", f"file://{checkout.folder}", str(shallow)],
        check=True,
    )
    assert main(shallow, ["-q", "checks/test_tiny.py::test_second_time"]) == 1
    said = capfd.readouterr().out
    assert "it cannot be had or installed: fatal: Needed a single revision" in said
    assert "(no second try without the commit before)" in said
    assert said.splitlines()[-1].startswith("0 passed, 1 failed in ")


@pytest.mark.slow
@pytest.mark.site
def test_while_something_is_not_committed_the_last_commit_is_the_one_before(
    checkout: Checkout, capfd: pytest.CaptureFixture[str]
) -> None:
    checkout.write("tiny.py", "SUM = 5\n")
    assert main(checkout.folder, ["-q", "checks/test_tiny.py::test_new_and_wrong"]) == 1
    assert "test_new_and_wrong (fails on the commit before, too)" in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.site
def test_a_run_without_failures_ends_with_what_pytest_says(
    checkout: Checkout, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(checkout.folder, ["-q", "checks/test_tiny.py::test_well"]) == 0
    assert "1 passed in " in capfd.readouterr().out.splitlines()[-1]
    assert main(checkout.folder, ["-q", "checks/no_such_file.py"]) == 4


@pytest.mark.slow
@pytest.mark.site
@pytest.mark.parametrize("workers", ["0", "2"])
def test_in_ci_a_deselected_test_fails_the_run_whoever_deselects_it(workers: str) -> None:
    some = ["tests/gpuvigil/test_clock.py", "-n", workers, "-k", "span"]
    for ci, code in (("true", 1), ("", 0)):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *some],
            cwd=ROOT,
            env={**os.environ, "CI": ci},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout
        assert " deselected in " in done.stdout
        assert ("these were left out: " in done.stdout) == (ci == "true")
