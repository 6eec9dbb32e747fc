"""The product with one call left out: what no test notices is not tested."""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A line that waits for the disk, by any of the names that the product has for it.
_SYNC = re.compile(r"^\s+(os\.fsync|sync|self\._names\.sync)\(.*\)$")


def syncs(*names: str) -> list[tuple[str, int, str]]:
    """Every line of these modules, or of the modules in these folders, that waits for the disk."""
    modules = [
        module
        for path in (ROOT / name for name in names)
        for module in (sorted(path.glob("*.py")) if path.is_dir() else [path])
    ]
    return [
        (module.relative_to(ROOT).as_posix(), number, line.strip())
        for module in modules
        for number, line in enumerate(module.read_text(encoding="utf-8").splitlines())
        if _SYNC.match(line)
    ]


def without_line(module: str, number: int, to: Path) -> Path:
    """A copy of a module's package in which one line does nothing; first on the path, it is used."""
    package = module.split("/", maxsplit=1)[0]
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / package, to / package, ignore=ignored)
    file = to / module
    lines = file.read_text(encoding="utf-8").splitlines()
    lines[number] = re.sub(r"\S.*", "pass", lines[number])
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return to
