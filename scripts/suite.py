"""Run the test suite, and once more each failed test that did not fail on the commit before.

`python -m scripts.suite [ARGUMENT...]`: the arguments are pytest's. A test that only a neighbour starved passes on
its second try and is named at the end; more than three such tests fail the run. The failed tests also run on the
commit before (on the last commit, while there are uncommitted changes); one that fails there gets no
second try. Without that commit, as in a shallow clone, none gets one.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts import outcomes
from scripts.outcomes import Outcome

MOST_SECOND_TRIES = 3
"""The most tests that may pass only on the second try."""
MOST_ASKED = 20
"""With more failures the code is broken, and no second try would save the run."""

_RAN = {0, 1}  # pytest's exit codes of a run that came to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of the whole run."""

    passed: int
    failed: Sequence[tuple[str, str]]
    """Each with the reason why no second try saved it."""
    on_second_try: Sequence[str]
    left_out: Mapping[str, int]
    """How many were skipped and the like, by kind."""
    all_must_run: bool

    @property
    def too_many(self) -> bool:
        return len(self.on_second_try) > MOST_SECOND_TRIES

    @property
    def exit_code(self) -> int:
        incomplete = self.all_must_run and any(self.left_out.values())
        return int(bool(self.failed) or self.too_many or incomplete)


def wants_second_try(first: Outcome, before: Collection[str] | None) -> list[str]:
    """Return the tests that run once more; `before` are failures on the commit before, None if unknown."""
    if before is None or first.broken or len(first.failed) > MOST_ASKED:
        return []
    return sorted(set(first.failed) - set(before))


def judge(
    first: Outcome,
    before: Collection[str] | None,
    second: Outcome | None,
    *,
    all_must_run: bool = False,
) -> Verdict:
    """Combine two tries and the commit before; with `all_must_run` a skipped test fails the run."""
    saved = set(wants_second_try(first, before)) & set(second.passed if second else ())
    failed = [(test, _why(test, first, before)) for test in sorted(first.failed)]
    return Verdict(
        passed=len(first.passed) + len(saved),
        failed=[
            *((file, "cannot be collected") for file in sorted(first.broken)),
            *((test, why) for test, why in failed if test not in saved),
        ],
        on_second_try=sorted(saved),
        left_out=first.left_out,
        all_must_run=all_must_run,
    )


def _why(test: str, first: Outcome, before: Collection[str] | None) -> str:
    if first.broken:
        return "no second try while files cannot be collected"
    if len(first.failed) > MOST_ASKED:
        return f"no second try when more than {MOST_ASKED} fail"
    if before is None:
        return "no second try without the commit before"
    return "fails on the commit before, too" if test in before else "failed twice"


def report(verdict: Verdict, seconds: float) -> list[str]:
    """Return lines for people; the last one counts as pytest does."""
    lines = [f"passed only on the second try: {test}" for test in verdict.on_second_try]
    if verdict.too_many:
        many = len(verdict.on_second_try)
        lines.append(
            f"{many} tests needed a second try; more than {MOST_SECOND_TRIES} fail the run"
        )
    lines += [f"failed: {test} ({why})" for test, why in verdict.failed]
    counts = {"passed": verdict.passed, "failed": len(verdict.failed), **verdict.left_out}
    shown = [f"{count} {name}" for name, count in counts.items() if count or name == "passed"]
    return [*lines, f"{', '.join(shown)} in {seconds:.0f}s"]


def main(root: Path, arguments: Sequence[str]) -> int:
    """Run the tests of the checkout `root`; return pytest's exit code, or that of the verdict."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gv-suite-") as name:
        folder = Path(name)
        first = _run(root, folder, None, arguments)
        if first.exit_code not in _RAN or not (first.failed or first.broken):
            return first.exit_code
        before = None if wants_second_try(first, ()) == [] else _fail_before(root, folder, first)
        wanted = wants_second_try(first, before)
        second = _run(root, folder, wanted, [*arguments, "-n", "0"]) if wanted else None
    verdict = judge(first, before, second, all_must_run=os.environ.get("CI") == "true")
    sys.stdout.write("\n" + "\n".join(report(verdict, time.monotonic() - began)) + "\n")
    return verdict.exit_code


def _run(
    checkout: Path,
    folder: Path,
    only: Collection[str] | None,
    arguments: Sequence[str],
    python: Path | None = None,
) -> Outcome:
    """Return the outcome of pytest in a checkout; for a run that never ended, only its exit code."""
    file = folder / "outcome.json"
    file.unlink(missing_ok=True)
    script = [str(python or sys.executable), str(Path(outcomes.__file__)), str(file)]
    wanted = json.dumps(None if only is None else list(only))
    code = subprocess.run([*script, wanted, *arguments], cwd=checkout, check=False).returncode
    if not file.exists():
        return Outcome(exit_code=code or 1)
    return Outcome(**json.loads(file.read_text(encoding="utf-8")))


def _fail_before(root: Path, folder: Path, first: Outcome) -> frozenset[str] | None:
    """Return the failed tests that also fail on the commit before; None when that is unknown."""
    sys.stdout.write("\nThe tests that failed, on the commit before:\n")
    sys.stdout.flush()
    try:
        checkout = _commit_before(root, folder)
        python = _environment(checkout)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip().splitlines()
        sys.stdout.write(f"it cannot be had or installed: {said[-1] if said else error}\n")
        return None
    files = sorted({test.partition("::")[0] for test in first.failed})
    there = [file for file in files if (checkout / file).is_file()]
    if not there:
        return frozenset()
    ran = _run(checkout, folder, first.failed, ["-q", *there], python)
    if ran.exit_code not in {*_RAN, 5}:  # 5: no tests were found
        return None
    return frozenset(
        test for test in first.failed if test in ran.failed or test.partition("::")[0] in ran.broken
    )


def _commit_before(root: Path, folder: Path) -> Path:
    """Clone the commit before the tested one; a clone writes nothing into the checkout's own folders."""
    changed = _said("git", "-C", str(root), "status", "--porcelain", "--untracked-files=no")
    name = "HEAD" if changed else "HEAD~1"
    commit = _said("git", "-C", str(root), "rev-parse", "--verify", f"{name}^{{commit}}")
    checkout = folder / "before"
    _said("git", "clone", "--quiet", "--no-checkout", str(root), str(checkout))
    _said("git", "-C", str(checkout), "checkout", "--quiet", "--detach", commit)
    return checkout


def _environment(checkout: Path) -> Path:
    """Return the interpreter of an environment with the checkout installed, over this one's packages."""
    _said(sys.executable, "-m", "venv", "--without-pip", str(checkout / ".venv"))
    python = checkout / ".venv/bin/python"
    packages = _said(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    # Such files in that folder are not read, so this checkout is not found beside the other.
    (Path(packages) / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index"]
    _said(*pip, "--no-deps", "--no-build-isolation", "--editable", str(checkout))
    return python


def _said(*command: str) -> str:
    """Return a command's output; CalledProcessError when it fails."""
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent, sys.argv[1:]))
