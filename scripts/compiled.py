"""Compile the checkout, so that tests find compiled files where they cannot write them.

`python -m scripts.compiled`. Modules are compiled as Python wants them, and test files once more as pytest does,
which rewrites every `assert`: otherwise each of its processes would do so anew, for 15 s.
"""

import compileall
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from _pytest.assertion import rewrite

ROOT = Path(__file__).resolve().parent.parent
_HIDDEN = re.compile(r"/\.")
_AT_ONCE = 8  # files that a process takes at once


def as_pytest(path: Path) -> bool:
    """Write a test file compiled as by pytest; return false when it was there already."""
    target = rewrite.get_cache_dir(path) / (path.name[:-3] + rewrite.PYC_TAIL)
    if rewrite._read_pyc(path, target) is not None:
        return False
    # pytest reads an option of its configuration for a hook that nothing here has.
    source_hash, code = rewrite._rewrite_test(path, None)  # type: ignore[arg-type]
    target.parent.mkdir(exist_ok=True)
    draft = target.with_suffix(f".{os.getpid()}")
    with draft.open("wb") as file:
        rewrite._write_pyc_fp(file, source_hash, code)
    draft.replace(target)
    return True


def _tests(folder: Path) -> Iterator[Path]:
    yield from folder.rglob("test_*.py")
    yield from folder.rglob("conftest.py")


def main() -> int:
    """Compile what has changed; return 1 when a module cannot be compiled."""
    compiled = compileall.compile_dir(ROOT, quiet=1, rx=_HIDDEN, workers=0)
    with ProcessPoolExecutor() as pool:
        list(pool.map(as_pytest, _tests(ROOT / "tests"), chunksize=_AT_ONCE))
    return int(not compiled)


if __name__ == "__main__":
    sys.exit(main())
