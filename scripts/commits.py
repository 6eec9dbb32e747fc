"""The commits that results name: whether the history has them, and what has changed since."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
# A figure older than this many commits is measured again once its code has changed.
MOST_COMMITS = 200
# The suffix of a commit with uncommitted changes.
DIRTY = "-dirty"

_CITED = re.compile(r'("commit": )"([0-9a-f]{40})(?:-dirty)?"')


def is_whole(root: Path = ROOT) -> bool:
    """Return whether the whole history is here; a shallow clone or an export lacks it."""
    return _git(root, "rev-parse", "--is-shallow-repository").stdout.strip() == "false"


def is_kept(commit: str, root: Path = ROOT) -> bool:
    """Return whether the branch has the commit."""
    found = _git(root, "merge-base", "--is-ancestor", commit.removesuffix(DIRTY), "HEAD")
    return found.returncode == 0


def cited(value: Any) -> Iterator[str]:
    """Yield every commit that a result names; null stands for a lost one."""
    if isinstance(value, list):
        for inner in value:
            yield from cited(inner)
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key != "commit":
            yield from cited(inner)
        elif inner:
            yield str(inner)


def forget_lost(file: Path, root: Path = ROOT) -> None:
    """Write null for each commit in a JSON file that a rebase has left behind.

    Only for results that fingerprints bind to code: others are measured again.
    """
    text = file.read_text(encoding="utf-8")
    lost = {it for _, it in _CITED.findall(text) if not is_kept(it, root)}
    known = _CITED.sub(lambda it: f"{it[1]}null" if it[2] in lost else it[0], text)
    if lost:
        file.write_text(known, encoding="utf-8")


def is_outdated(commit: str, code: Sequence[str], root: Path = ROOT) -> bool:
    """Return whether a figure's commit is too old and its code has changed since.

    `code` are paths; those that begin with an exclamation mark are excluded.
    """
    return commits_since(commit, root) > MOST_COMMITS and has_changed(commit, code, root)


def commits_since(commit: str, root: Path = ROOT) -> int:
    """Return how many commits the branch has since that one; one that only merges others does not count."""
    counted = _git(root, "rev-list", "--count", "--no-merges", f"{commit}..HEAD", check=True)
    return int(counted.stdout)


def has_changed(commit: str, code: Sequence[str], root: Path = ROOT) -> bool:
    """Return whether files below these paths have changed since the commit."""
    paths = [f":(exclude){it[1:]}" if it.startswith("!") else it for it in code]
    return bool(_git(root, "diff", "--name-only", commit, "HEAD", "--", *paths, check=True).stdout)


def _git(root: Path, *words: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=check)
