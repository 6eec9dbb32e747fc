"""Small faults put into the code, one at a time: does a test notice?

`python -m scripts.mutants [--count N] [--seed WORD] [--workers N] [--room NAME...]` draws mutants of the rooms below,
with the commit's hash as seed, runs for each the tests that can see it, and says which of them lived. Equivalent ones
are listed in `scripts/mutants_equivalent.json` with the reason. Exit code 1 when more lived than `LIVING_SHARE`, or
when more than `EQUIVALENT_SHARE` of a sample are excused.

The tests of a mutant are those that import its module, from the nearest on; unit tests only, and the first that fails
ends it. The sources are copied, so that the checkout stays as it is.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, zip_longest
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "scripts/mutants_equivalent.json"
LIVING_SHARE, EQUIVALENT_SHARE = 0.10, 0.05
# What a mutant may run for; one that never ends is noticed.
SECONDS = 150

# The rooms in which a wrong line costs most: globs of their sources.
ROOMS: Mapping[str, Sequence[str]] = {
    "detectors": ("analyzer/detectors/*.py",),
    "incidents": (
        "analyzer/incidents.py",
        "analyzer/correlate.py",
        "analyzer/causes.py",
        "analyzer/cures.py",
    ),
    "outbox": ("alerts/decide.py", "alerts/courier.py", "alerts/delivery.py", "alerts/holding.py"),
    "hub commit": (
        "hub/records/desk.py",
        "hub/records/book.py",
        "hub/records/intake.py",
        "hub/records/transactions.py",
        "hub/records/authorization.py",
    ),
    "store": ("hub/embedded/*.py",),
    "usage": ("gpuvigil/usage/*.py",),
    "parsers": (
        "gpuvigil/lineprotocol/*.py",
        "gpuvigil/xid_messages.py",
        "collector/sensors/kernel_log_parser.py",
    ),
}
TREES = ("alerts", "analyzer", "collector", "dashboard", "gpuvigil", "hub", "scoreboard", "scripts")
COPIED = (*TREES, "tests", "pyproject.toml", "docs", "benchmarks", "packaging", "hardware", "soak")

_COMPARED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COUNTED: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change: lines count from 1, columns are bytes from 0, as in `ast`."""

    room: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    was: str
    now: str

    @property
    def name(self) -> str:
        """What names it also after lines above it have changed."""
        return f"{self.path}: {self.was} -> {self.now}"

    def applied(self, source: str) -> str:
        """The source with this change."""
        lines = source.encode().splitlines(keepends=True)
        first, last = lines[self.line - 1], lines[self.end_line - 1]
        changed = first[: self.column] + self.now.encode() + last[self.end_column :]
        return b"".join([*lines[: self.line - 1], changed, *lines[self.end_line :]]).decode()


def mutants(room: str, path: str, source: str) -> Iterator[Mutant]:
    """Every mutant of a source: limits, conditions, signs, numbers, left-out calls."""
    tree = ast.parse(source)
    silent = {id(inner) for node in _not_run(tree) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        for now in _changes(node):
            yield Mutant(
                room=room,
                path=path,
                line=node.lineno,
                column=node.col_offset,
                end_line=node.end_lineno or node.lineno,
                end_column=node.end_col_offset or node.col_offset,
                was=ast.unparse(node),
                now=now,
            )


def _not_run(tree: ast.Module) -> Iterator[ast.AST]:
    """Annotations, and imports for type checkers only: no test can see them changed."""
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if (found := getattr(node, field, None)) is not None:
                yield found
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield node
        if isinstance(node, ast.FormattedValue | ast.JoinedStr | ast.Assert | ast.Raise):
            yield node
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("log.", "_log.")):
            yield node


def _changes(node: ast.AST) -> Iterator[str]:  # noqa: C901 - a table of operators
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
            other = _COMPARED[type(op)]()
            yield _text(ast.Compare(left=left, ops=[other], comparators=[right]))
        case ast.Compare(left=left, ops=ops, comparators=others) if len(ops) > 1:
            for at, op in enumerate(ops):
                if type(op) in _COMPARED:
                    changed = [*ops[:at], _COMPARED[type(op)](), *ops[at + 1 :]]
                    yield _text(ast.Compare(left=left, ops=changed, comparators=others))
        case ast.BoolOp(op=op, values=values):
            yield _text(
                ast.BoolOp(op=ast.Or() if isinstance(op, ast.And) else ast.And(), values=values)
            )
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _text(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _COUNTED:
            yield _text(ast.BinOp(left=left, op=_COUNTED[type(op)](), right=right))
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield repr(value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLED:
            yield _text(
                ast.Call(func=ast.Name(id=_CALLED[name]), args=node.args, keywords=node.keywords)
            )
        case ast.Expr(value=ast.Call()):
            yield "pass"
        case ast.Continue():
            yield "break"


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def sample(rooms: Iterable[str], number: int, seed: str) -> list[Mutant]:
    """So many mutants, the same share of every room, drawn by `seed`."""
    chance, drawn = random.Random(seed), list[list[Mutant]]()
    for room in rooms:
        found = [
            mutant
            for glob in ROOMS[room]
            for path in sorted(ROOT.glob(glob))
            for mutant in mutants(room, str(path.relative_to(ROOT)), path.read_text())
        ]
        chance.shuffle(found)
        drawn.append(found)
    turns = (mutant for turn in zip_longest(*drawn) for mutant in turn if mutant is not None)
    return list(islice(turns, number))


class Imports:
    """Who imports whom, from the sources as they are, tests included."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @cached_property
    def _importers(self) -> Mapping[str, set[str]]:
        found = defaultdict[str, set[str]](set)
        for tree in (*TREES, "tests"):
            for path in (self._root / tree).rglob("*.py"):
                name = str(path.relative_to(self._root))
                for other in self._imported(path):
                    found[other].add(name)
        return found

    def _imported(self, path: Path) -> set[str]:
        package = path.relative_to(self._root).parent.parts
        found = set[str]()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found |= self._files(tuple(alias.name.split(".")))
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else ()
                module = (*above, *(node.module.split(".") if node.module else ()))
                found |= self._files(module)
                for alias in node.names:
                    found |= self._files((*module, alias.name))
        return found

    def _files(self, module: tuple[str, ...]) -> set[str]:
        place = Path(*module) if module else Path()
        return {
            str(path)
            for path in (place.with_suffix(".py"), place / "__init__.py")
            if module and (self._root / path).is_file()
        }

    def tests(self, path: str) -> list[str]:
        """The test files that import a source, the nearest first."""
        found, seen, ring = list[str](), {path}, [path]
        while ring:
            ring = sorted({one for it in ring for one in self._importers.get(it, ())} - seen)
            seen.update(ring)
            found += [one for one in ring if Path(one).name.startswith("test_")]
        folder, stem = f"tests/{Path(path).parent}", Path(path).stem
        return sorted(found, key=lambda it: (stem not in it, not it.startswith(folder)))


def play(mutant: Mutant, tree: Path, tests: Sequence[str]) -> str:
    """Put it into a copy of the sources and run its tests: "killed", "lived" or "no test"."""
    if not tests:
        return "no test"
    file = tree / mutant.path
    source = file.read_text()
    file.write_text(mutant.applied(source))
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-x",
                "-q",
                "-p",
                "no:cacheprovider",
                *_OPTIONS,
                *tests,
            ],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "killed"
    finally:
        file.write_text(source)
    # 5: no test was collected.
    return {0: "lived", 5: "no test"}.get(done.returncode, "killed")


_OPTIONS = ("-m", "not server and not slow", "--timeout", "60", "--hypothesis-seed", "0")


def _copy(tree: Path) -> Path:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy2(source, tree / name)
    return tree


def main(arguments: Sequence[str]) -> int:
    """Play a sample and tell; exit code 1 when a bar is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.mutants", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", default=None, help="by default the hash of the commit")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--room", action="append", choices=sorted(ROOMS))
    given = parser.parse_args(arguments)
    seed = given.seed or _commit()
    excused = json.loads(EQUIVALENT.read_text())
    drawn = sample(given.room or ROOMS, given.count, seed)
    print(f"{len(drawn)} mutants, seed {seed}", flush=True)
    began, imports, results = time.monotonic(), Imports(ROOT), list[tuple[Mutant, str]]()
    with tempfile.TemporaryDirectory(prefix="gpuvigil-mutants-") as scratch:
        trees = SimpleQueue[Path]()
        for number in range(given.workers):
            trees.put(_copy(Path(scratch) / str(number)))

        def one(mutant: Mutant) -> tuple[Mutant, str]:
            if mutant.name in excused:
                return mutant, "equivalent"
            tree = trees.get()
            try:
                return mutant, play(mutant, tree, imports.tests(mutant.path))
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(given.workers) as pool:
            for mutant, result in pool.map(one, drawn):
                results.append((mutant, result))
                if result not in {"killed", "equivalent"}:
                    print(
                        f"{result}: {mutant.path}:{mutant.line}: {mutant.was} -> {mutant.now}",
                        flush=True,
                    )
    return _verdict(results, time.monotonic() - began)


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _verdict(results: Sequence[tuple[Mutant, str]], seconds: float) -> int:
    for room in ROOMS:
        counted = Counter(result for mutant, result in results if mutant.room == room)
        if counted:
            judged = sum(counted.values()) - counted["equivalent"]
            print(f"{room:>12}: {counted['killed']} of {judged} killed")
    counted = Counter(result for _, result in results)
    judged = len(results) - counted["equivalent"]
    living = judged - counted["killed"]
    print(
        f"{counted['killed']} of {judged} killed, {counted['equivalent']} equivalent, {seconds:.0f} s"
    )
    too_many = counted["equivalent"] > EQUIVALENT_SHARE * len(results)
    return int(living > LIVING_SHARE * judged or too_many)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
