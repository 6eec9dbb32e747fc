"""What the long fault runs found, in `soak/results.json`: the newest run of each, good or not."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpuvigil.clock import to_text

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).with_name("results.json")


@dataclass(slots=True)
class Result:
    """What one run has to say; `tells` takes a dataclass, or values by name."""

    values: dict[str, Any] = field(default_factory=dict)

    def tells(self, found: Any = None, **values: object) -> None:
        """Say more; what was said before under the same name is replaced."""
        self.values |= {} if found is None else asdict(found)
        self.values |= values


@contextmanager
def recorded(name: str, **asked: object) -> Iterator[Result]:
    """Write down how the run that is made inside has ended: also one that fails."""
    result, begun, at = Result(), time.monotonic(), datetime.now(timezone.utc)
    # Of the tree as it is at the start: somebody may go on working in it.
    commit = _commit()
    result.tells(**asked)
    passed = False
    try:
        yield result
        passed = True
    finally:
        _write(
            name,
            {
                "passed": passed,
                "begun_at": to_text(at),
                "duration_seconds": round(time.monotonic() - begun),
                "commit": commit,
                "command": f"{_asked()}make soak ARGUMENTS='-k {name}'",
                **result.values,
            },
        )


def _asked() -> str:
    """The variables that make a run another than it would be."""
    return "".join(f"{key}={it} " for key, it in sorted(os.environ.items()) if key[:5] == "SOAK_")


def _commit() -> str:
    """The commit that ran, with `+` behind it when files were changed since."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no").splitlines()
    # The results themselves are no change.
    others = [row for row in changed if not row.endswith(f"soak/{FILE.name}")]
    return git("rev-parse", "--short=10", "HEAD") + ("+" if others else "")


def _write(name: str, said: dict[str, Any]) -> None:
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    kept[name] = said
    FILE.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")
