"""The commits that results name: whether history has them, and what has changed since."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
# An older figure is measured again once what it measures has changed.
MOST_COMMITS = 200
# Behind a commit: files were changed that it does not hold.
DIRTY = "-dirty"

_CITED = re.compile(r'("commit": )"([0-9a-f]{40})(?:-dirty)?"')


def is_whole(root: Path = ROOT) -> bool:
    """Whether the history is here; a shallow clone or an export has none to ask."""
    return _git(root, "rev-parse", "--is-shallow-repository").stdout.strip() == "false"


def is_kept(commit: str, root: Path = ROOT) -> bool:
    """Whether the branch has the commit."""
    found = _git(root, "merge-base", "--is-ancestor", commit.removesuffix(DIRTY), "HEAD")
    return found.returncode == 0


def cited(value: Any) -> Iterator[str]:
    """Every commit that a result names; what has none left says null."""
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
    """Whether a figure of a commit is older than it may be, and its code has changed since.

    `code` are paths; those that begin with an exclamation mark are left out.
    """
    return commits_since(commit, root) > MOST_COMMITS and has_changed(commit, code, root)


def commits_since(commit: str, root: Path = ROOT) -> int:
    """How many commits the branch has that this one does not."""
    return int(_git(root, "rev-list", "--count", f"{commit}..HEAD", check=True).stdout)


def has_changed(commit: str, code: Sequence[str], root: Path = ROOT) -> bool:
    """Whether the files below these paths are others than they were."""
    paths = [f":(exclude){it[1:]}" if it.startswith("!") else it for it in code]
    return bool(_git(root, "diff", "--name-only", commit, "HEAD", "--", *paths, check=True).stdout)


def _git(root: Path, *words: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=check)
