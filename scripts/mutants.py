"""Mutation testing: put small faults into the code, one at a time, and see whether a test notices.

`python -m scripts.mutants [--count N] [--seed WORD] [--workers N] [--room NAME]...` draws mutants, the same number
from each room of `ROOMS`, with the commit's hash as the seed; for each it runs the tests that reach it, and lists
the survivors. Mutants without any visible effect are listed in `scripts/mutants_equivalent.json` with the reason.

All quick tests without servers, and slow ones of the store, are collected once, and run once to see which lines of
the rooms each of them reaches (`Reach`). Then each mutant is a fork of this process: the code of the changed
function is swapped in place, and the tests that reach its line run, nearest first, until one fails. Code that is
read at import (constants, defaults, class bodies) cannot be swapped: there the fork forgets our modules and imports
them again, the changed one from memory. The checkout stays as it is.

Exit code 1 when too many survive or over `EQUIVALENT_PERCENT` of the sample are excused. Of 300 or more, 90 % must
be killed. A smaller sample says less: it fails when that many survivors would be seen in less than one of a hundred
samples of code of which exactly 90 % are killed. Of 40 that is more than 9 (probability 0.5 %); where 95 % are killed
it is 0.003 %, and where 70 % are, 80 %.
"""

import argparse
import contextlib
import gc
import json
import math
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from scripts.import_anew import import_anew
from scripts.mutations import Mutant, all_mutants, sample

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "scripts/mutants_equivalent.json"
LIVING_PERCENT, EQUIVALENT_PERCENT = 10, 5
# From this many mutants on the share itself is required; below it, the probability of the result.
MANY, DOUBT = 300, 0.01
# Limit on the time of a mutant's tests, nearest first: farther ones are not run.
SECONDS_OF_TESTS = 120.0
# The time limit of a mutant: seconds, plus a multiple of its tests' time; one that never ends is noticed.
SECONDS, TIMES = 60.0, 3.0
# A mutant that takes all memory is noticed as well.
BYTES = 8 << 30

# The rooms in which a wrong line costs most: globs of their sources.
ROOMS: Mapping[str, Sequence[str]] = {
    "detectors": ("analyzer/detectors/*.py",),
    "incidents": (
        "analyzer/incidents/book.py",
        "analyzer/incidents/content.py",
        "analyzer/correlation/correlate.py",
        "analyzer/correlation/causes.py",
        "analyzer/correlation/visibility.py",
        "analyzer/evidence/cures.py",
    ),
    "outbox": (
        "alerts/decisions/decide.py",
        "alerts/delivery/dispatcher.py",
        "alerts/decisions/attempts.py",
        "alerts/decisions/suppression.py",
    ),
    "hub commit": (
        "hub/endpoints/records.py",
        "hub/records/record_book.py",
        "hub/records/validation.py",
        "hub/records/transactions.py",
        "hub/auth/authorization.py",
    ),
    "store": ("hub/embedded/*.py",),
    "usage": ("accounting/usage/*.py",),
    "parsers": (
        "gpuvigil/lineprotocol/*.py",
        "gpuvigil/faults/xid_messages.py",
        "collector/sensors/kernel_log_parser.py",
    ),
}


@dataclass(slots=True)
class Reach:
    """Which tests reach which line: test numbers by path and line, and each test's processor seconds."""

    lines: dict[str, dict[int, set[int]]] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)

    def add(self, other: "Reach") -> None:
        """Add what another process has seen."""
        for path, lines in other.lines.items():
            mine = self.lines.setdefault(path, {})
            for line, tests in lines.items():
                mine.setdefault(line, set()).update(tests)
        self.seconds |= other.seconds
        self.failed |= other.failed

    def of_file(self, path: str) -> set[int]:
        """Return the tests that run any line of a source."""
        return set[int]().union(*self.lines.get(path, {}).values())

    def tests(self, mutant: Mutant) -> set[int]:
        """Return the tests that reach a mutant; one read at import may be seen by all that reach its folder."""
        if mutant.at_import:
            folder = Path(mutant.path).parent
            of_folder = (lines for path, lines in self.lines.items() if Path(path).parent == folder)
            found = set[int]().union(*(tests for lines in of_folder for tests in lines.values()))
        else:
            lines, span = self.lines.get(mutant.path, {}), range(mutant.line, mutant.end_line + 1)
            found = set[int]().union(*(lines.get(line, ()) for line in span))
        return found - self.failed


class Tracer:
    """A recorder of the lines that run in some files, threads included, and of the functions called in others."""

    def __init__(self, lines: Mapping[str, str], calls: Mapping[str, str]) -> None:
        """Record the files of either, by the file names that code objects know."""
        self._lines, self._calls = lines, calls
        self.seen = set[tuple[str, int]]()

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        """Record an event; the signature is that of `sys.settrace`."""
        file = frame.f_code.co_filename
        if (path := self._lines.get(file)) is None:
            if (path := self._calls.get(file)) is not None:
                self.seen.add((path, frame.f_lineno))
            return None
        seen = self.seen

        def line(frame: FrameType, event: str, argument: object) -> Any:
            seen.add((path, frame.f_lineno))
            return line

        return line(frame, event, argument)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The work of a fork of this process: it returns the exit code, and has a time limit."""

    run: Callable[[], int]
    seconds: float


LIVED, KILLED, NO_TEST = 0, 1, 2
_WORDS = {LIVED: "lived", NO_TEST: "no test"}


def forked(tasks: Sequence[Task], workers: int) -> Iterator[tuple[int, int]]:
    """Yield the number and exit code of each task as it ends; `KILLED` for one that was ended."""
    waiting = list(enumerate(tasks))[::-1]
    running = dict[int, tuple[int, float, str]]()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                number, task = waiting.pop()
                folder = tempfile.mkdtemp()
                running[_fork(task, folder)] = (number, time.monotonic() + task.seconds, folder)
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                number, _, folder = running.pop(pid)
                _end(pid)
                shutil.rmtree(folder, ignore_errors=True)
                yield number, os.waitstatus_to_exitcode(status)
                continue
            for late in [pid for pid, (_, until, _) in running.items() if time.monotonic() > until]:
                _end(late)
            time.sleep(0.01)
    finally:
        for pid in running:
            _end(pid)


def _end(pid: int) -> None:
    """End a fork and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _fork(task: Task, folder: str) -> int:
    """Run a task in its own process group and temporary folder, silently."""
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    code = KILLED
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        code = task.run()
    finally:
        os._exit(code)


def functions(paths: Iterable[str]) -> Mapping[str, Sequence[FunctionType]]:
    """Return all living functions, by the file that they were written in."""
    found: dict[str, list[FunctionType]] = {path: [] for path in paths}
    gc.unfreeze()  # objects frozen by a conftest are not listed otherwise
    for it in gc.get_objects():
        if type(it) is FunctionType and it.__code__.co_filename in found:
            found[it.__code__.co_filename].append(it)
    return found


def swap(living: Iterable[FunctionType], before: str, after: str) -> None:
    """Give functions the code that they have in another version of their source with as many functions.

    ValueError where none of them was written there.
    """
    codes = [list(_codes(compile(it, "", "exec", dont_inherit=True))) for it in (before, after)]
    new = {_identity(old): new for old, new in zip(*codes, strict=True)}
    found = [(function, new.get(_identity(function.__code__))) for function in living]
    for function, code in found:
        if code is not None:
            function.__code__ = code
    if not any(code is not None for _, code in found):
        raise ValueError("no function of this source lives")


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _identity(code: CodeType) -> tuple[str, int, bytes]:
    return code.co_qualname, code.co_firstlineno, code.co_linetable


def nearest(mutant: Mutant, reach: Reach, names: Sequence[str]) -> list[int]:
    """Return the tests that reach a mutant, nearest first (module, name, folder, duration), for `SECONDS_OF_TESTS`."""
    seconds = defaultdict[str, float](float)
    for test in (found := reach.tests(mutant)):
        seconds[names[test].partition("::")[0]] += reach.seconds[test]
    stem, folders = Path(mutant.path).stem, Path("tests", mutant.path).parents

    own = reach.of_file(mutant.path)

    def distance(test: int) -> tuple[bool, bool, int, float, str, int]:
        file = names[test].partition("::")[0]
        # A package's tests may be in the folder above its own.
        above = [it for it in folders if Path(file).is_relative_to(it)]
        near = test not in own, stem not in Path(file).stem, -len(above)
        return *near, seconds[file], file, test

    total, chosen = 0.0, list[int]()
    for test in sorted(found, key=distance):
        # A test that takes too long does not keep later ones from running.
        if total + reach.seconds[test] < SECONDS_OF_TESTS:
            total += reach.seconds[test]
            chosen.append(test)
    return chosen


class Player:
    """A pytest plugin: plays mutants instead of running the collected tests once."""

    def __init__(self, sampled: Sequence[Mutant], root: Path, workers: int) -> None:
        self._sampled, self._root, self._workers = sampled, root, workers
        self._functions: Mapping[str, Sequence[FunctionType]] = {}
        self._began = time.monotonic()
        self.results = list[tuple[Mutant, str]]()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Configure Hypothesis: the first failing example is enough, and it is the same in every run."""
        import hypothesis  # noqa: PLC0415 - pytest wants to be there before it

        hypothesis.settings.register_profile(
            "mutants",
            deadline=None,
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
            derandomize=True,
            database=None,
        )
        hypothesis.settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out slow tests except those of the store."""
        items[:] = [
            it
            for it in items
            if it.nodeid.startswith(SLOW_TOO) or it.get_closest_marker("slow") is None
        ]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Find which test reaches what, then play."""
        self._functions = functions({str(self._root / mutant.path) for mutant in self._sampled})
        # Freeze living objects: a fork need not copy their pages because a collection touched them.
        gc.collect()
        gc.freeze()
        items = session.items
        self._note(f"{len(items)} tests collected")
        reach = self._reach(items)
        self._note("what they reach is known")
        names = [item.nodeid for item in items]
        for test in sorted(reach.failed):
            print(f"fails without a mutant: {names[test]}", flush=True)
        tasks = [self._task(mutant, reach, items, names) for mutant in self._sampled]
        for number, code in forked(tasks, self._workers):
            mutant, result = self._sampled[number], _WORDS.get(code, "killed")
            self.results.append((mutant, result))
            if result != "killed":
                place = f"{mutant.path}:{mutant.line}"
                print(f"{result}: {place}: {mutant.was} -> {mutant.now}", flush=True)
        self._note("played")
        return True

    def _note(self, done: str) -> None:
        print(f"{done} after {time.monotonic() - self._began:.0f} s", flush=True)

    def _reach(self, items: Sequence[pytest.Item]) -> Reach:
        """Run all tests once, those of a file in one process."""
        sampled = {str(self._root / mutant.path): mutant.path for mutant in self._sampled}
        beside = {
            str(path): str(path.relative_to(self._root))
            for folder in {Path(it).parent for it in sampled}
            for path in folder.glob("*.py")
        }
        files = defaultdict[str, list[int]](list)
        for number, item in enumerate(items):
            files[item.nodeid.partition("::")[0]].append(number)
        total = Reach()
        with tempfile.TemporaryDirectory() as folder:

            def task(numbers: Sequence[int]) -> Task:
                def run() -> int:
                    found = look(items, numbers, Tracer(sampled, beside))
                    # Not as a `Reach`: a page that ran under test may have replaced us as `__main__`.
                    plain = found.lines, found.seconds, found.failed
                    Path(folder, str(numbers[0])).write_bytes(pickle.dumps(plain))
                    return 0

                return Task(run=run, seconds=600)

            parts = list(files.values())
            for at, _ in forked([task(numbers) for numbers in parts], self._workers):
                if (found := Path(folder, str(parts[at][0]))).exists():
                    total.add(Reach(*pickle.loads(found.read_bytes())))
                else:
                    total.failed.update(parts[at])
        return total

    def _task(
        self, mutant: Mutant, reach: Reach, items: Sequence[pytest.Item], names: Sequence[str]
    ) -> Task:
        tests = nearest(mutant, reach, names)

        def run() -> int:
            if not tests:
                return NO_TEST
            source = (self._root / mutant.path).read_text()
            if mutant.at_import:
                import_anew(self._root, mutant, mutant.applied(source))
                given = [names[test] for test in tests]
                return int(pytest.main([*OPTIONS, "-x", f"--rootdir={self._root}", *given]) != 0)
            living = self._functions[str(self._root / mutant.path)]
            swap(living, source, mutant.applied(source))
            return LIVED if all(passes(items, tests)) else KILLED

        return Task(run=run, seconds=SECONDS + TIMES * sum(reach.seconds[it] for it in tests))


def passes(items: Sequence[pytest.Item], tests: Sequence[int]) -> Iterator[bool]:
    """Run tests one after the other, and yield whether each passed."""
    for test, after in pairwise([*tests, None]):
        assert test is not None
        item = items[test]
        following = None if after is None else items[after]
        reports = runtestprotocol(item, log=False, nextitem=following)
        yield not any(report.failed for report in reports)


def look(items: Sequence[pytest.Item], tests: Sequence[int], tracer: Tracer) -> Reach:
    """Return what the tests reach."""
    reach = Reach()
    sys.settrace(tracer)
    threading.settrace(tracer)
    began = time.process_time()
    for test, passed in zip(tests, passes(items, tests), strict=True):
        reach.seconds[test], began = time.process_time() - began, time.process_time()
        for path, line in tracer.seen:
            reach.lines.setdefault(path, {}).setdefault(line, set()).add(test)
        tracer.seen.clear()
        if not passed:
            reach.failed.add(test)
    sys.settrace(None)
    return reach


OPTIONS = ("-qq", "-p", "no:cacheprovider", "-m", "not server and not site")
# Slow tests run here as well: some behaviour of a store shows only with files of some size.
SLOW_TOO = "tests/hub/"


def most_living(number: int) -> int:
    """Return how many of a sample may survive: a tenth of a large one; in a smaller one as many as chance allows."""
    if number >= MANY:
        return number * LIVING_PERCENT // 100
    share = LIVING_PERCENT / 100
    chances = [
        math.comb(number, it) * share**it * (1 - share) ** (number - it) for it in range(number + 1)
    ]
    return next(it for it in range(number + 1) if sum(chances[it + 1 :]) < DOUBT)


def main(arguments: Sequence[str]) -> int:
    """Play a sample and report; return exit code 1 when a bar is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.mutants", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--count", type=int, default=MANY)
    parser.add_argument("--seed", default=None, help="by default the hash of the commit")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--room", action="append", choices=sorted(ROOMS))
    parser.add_argument("tests", nargs="*", default=["tests"])
    given = parser.parse_args(arguments)
    seed = given.seed or _commit()
    rooms = {room: ROOMS[room] for room in given.room or ROOMS}
    sampled = sample(all_mutants(rooms, ROOT), given.count, seed)
    print(f"{len(sampled)} mutants, seed {seed}", flush=True)
    os.environ.pop("CI", None)  # with it the tests refuse to leave any out
    return told(play(sampled, ROOT, given.workers, given.tests, json.loads(EQUIVALENT.read_text())))


def play(
    sampled: Sequence[Mutant],
    root: Path,
    workers: int,
    tests: Sequence[str],
    equivalent: Mapping[str, str],
) -> list[tuple[Mutant, str]]:
    """Return the result of each mutant: "killed", "lived", "no test" or "equivalent"."""
    player = Player([it for it in sampled if it.name not in equivalent], root, workers)
    code = pytest.main([*OPTIONS, "-s", f"--rootdir={root}", *tests], plugins=[player])
    if code not in {0, 5}:
        raise SystemExit(f"the tests cannot be collected: pytest ended with {code}")
    excused = [(it, "equivalent") for it in sampled if it.name in equivalent]
    return [*player.results, *excused]


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def told(results: Sequence[tuple[Mutant, str]]) -> int:
    """Print the results by room; return the exit code."""
    for room in ROOMS:
        counted = Counter(result for mutant, result in results if mutant.room == room)
        if judged := counted.total() - counted["equivalent"]:
            print(f"{room:>12}: {counted['killed']} of {judged} killed")
    counted = Counter(result for _, result in results)
    judged, excused = counted.total() - counted["equivalent"], counted["equivalent"]
    living, most = judged - counted["killed"], most_living(judged)
    print(f"{counted['killed']} of {judged} killed, {excused} equivalent; {most} may live")
    return int(living > most or excused * 100 > EQUIVALENT_PERCENT * len(results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
