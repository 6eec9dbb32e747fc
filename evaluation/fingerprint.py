"""What a result belongs to: hashes of the fleet and of the judge, and the commit that was judged.

Detectors have no hash, so that changing one discards no results. A result names the commit that was
played, and the last one that changed any detector.
"""

import ast
import hashlib
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
# The fleet, its parameter ranges, and the choice of fleets that are played.
_FLEET = ("simulator/fleet", "simulator/fabric", "evaluation/fleets.py")
# What decides what was right, and the baselines.
_JUDGE = (
    *("evaluation/baselines", "evaluation/judge", "evaluation/replay.py"),
    *("evaluation/rolling_store.py", "evaluation/dense_cells.py", "evaluation/tables.py"),
)
DETECTORS = ("analyzer", "gpuvigil/faults", "gpuvigil/data", "gpuvigil/lifecycle.py")
# Results, and the pages made from them: they are not code.
_WRITTEN = (":(exclude)evaluation/*.json", ":(exclude)evaluation/*.jsonl", ":(exclude)docs")


def fleet_hash() -> str:
    """Return 16 hex digits that change with anything that a fleet or its truth is made from."""
    return hash_of(_FLEET)


def judge_hash() -> str:
    """Return 16 hex digits that change with how detectors are played and judged."""
    return hash_of(_JUDGE)


def hash_of(places: Iterable[str], root: Path = ROOT) -> str:
    """Return 16 hex digits over the code and the tables at these places, comments and docstrings left out."""
    digest = hashlib.sha256()
    for place in places:
        path = root / place
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in {".py", ".csv"}:
                digest.update(file.relative_to(root).as_posix().encode() + b"\0")
                text = file.read_text(encoding="utf-8")
                digest.update((_code(text) if file.suffix == ".py" else text).encode() + b"\0")
    return digest.hexdigest()[:16]


def _code(source: str) -> str:
    """Return the source without what only people read."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            node.body[:1] = [ast.Pass()]
    return ast.unparse(tree)


def commit_of_detectors(root: Path = ROOT) -> str:
    """Return the last commit that changed a detector or its inputs; "unknown" without a history."""
    there = [it for it in DETECTORS if (root / it).exists()]
    return _git(root, "log", "-1", "--format=%H", "--", *there) or "unknown"


def checked_out(root: Path = ROOT) -> str:
    """Return the commit, with `-dirty` appended where files changed that are not written by runs."""
    found = _git(root, "describe", "--always", "--abbrev=40", "--exclude=*")
    changed = _git(root, "status", "--porcelain", "--", ".", *_WRITTEN)
    return f"{found}-dirty" if changed else found or "unknown"


def is_committed(commit: str) -> bool:
    """Return whether figures of this commit can be published; one line on stderr says why not."""
    if commit.endswith("-dirty"):
        print("figures are published of a commit: commit the changes first", file=sys.stderr)
        return False
    return True


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()
