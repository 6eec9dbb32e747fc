"""What the published figures rest on: each names a commit that exists."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
FILES = (*sorted(ROOT.glob("benchmarks/*.json")), ROOT / "soak/results.json")


def cited(value: Any) -> Iterator[str]:
    """Every commit that a result names."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key == "commit":
            yield str(inner)
        else:
            yield from cited(inner)


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_each_figure_names_a_commit_that_this_branch_has(file: Path) -> None:
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("needs the whole git history, which a shallow clone or an export lacks")
    commits = set(cited(json.loads(file.read_text(encoding="utf-8")))) - {""}
    unknown = {it for it in commits if git("merge-base", "--is-ancestor", it, "HEAD").returncode}
    assert not unknown, f"measure it anew: {file.name} names what no history has"
