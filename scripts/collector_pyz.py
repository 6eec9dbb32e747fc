"""Build `collector.pyz`: the collector for a node, as one file that any Python from 3.10 on runs.

`python -m scripts.collector_pyz FILE` writes it. It holds the collector, what that imports of the
kernel, NVIDIA's binding and a TOML reader for Python 3.10, all of it source; the same sources
give the same bytes.
"""

import ast
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import tomllib

ROOT = Path(__file__).parent.parent
OURS = ("gpuvigil", "collector")
STARTS = ("gpuvigil/__main__.py",)
# Needs numpy and Arrow, and no node plays a fleet.
LEFT_OUT = (
    "collector/simulator/fleet",
    "collector/simulator/live.py",
    "collector/simulator/live_faults.py",
)
# Tables, which no import names.
DATA = ("gpuvigil/data/*.csv", "collector/**/*.csv")

_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = '''\
"""gpuvigil's collector in one file."""

import sys

if sys.version_info < (3, 10):
    version = "%d.%d" % sys.version_info[:2]
    sys.stderr.write("gpuvigil needs Python 3.10 or newer; this is Python " + version + "\\n")
    # Slurm takes anything but 0 for a reason to drain the node.
    sys.exit(0 if any("slurm-" in word for word in sys.argv) else 2)

if sys.argv[1:2] == ["read"]:
    # By far the largest source first: what compiling it leaves free, all that follows can fill.
    import pynvml

if sys.argv[1:2] == ["machine"]:
    # Started every minute: without the command line it takes a third of the processor time.
    from collector.machine.child import main as look

    sys.exit(look(sys.argv[2:]))

from gpuvigil.cli import main

sys.exit(main())
'''
# The earliest time that a zip file can say; any other would make every build differ.
_TIME = (1980, 1, 1, 0, 0, 0)


def main() -> int:
    """Write the file; its name is the one argument."""
    target = Path(sys.argv[1])
    write(target)
    print(f"wrote {target}: {target.stat().st_size / 1024:.0f} KiB, {len(content())} files")
    return 0


def write(target: Path) -> None:
    """Write the file, executable."""
    with target.open("wb") as out:
        out.write(_SHEBANG)
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, data in sorted(content().items()):
                entry = zipfile.ZipInfo(name, _TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.create_system = 3  # Unix, wherever it is built
                entry.external_attr = 0o100644 << 16
                archive.writestr(entry, data)
    target.chmod(0o755)


def content() -> dict[str, bytes]:
    """Every file by its name in the archive."""
    found = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in sources()}
    tables = [path for pattern in DATA for path in ROOT.glob(pattern)]
    found |= {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in tables}
    found["__main__.py"] = _MAIN.encode()
    found["licenses/gpuvigil"] = (ROOT / "LICENSE").read_bytes()
    return found | metadata() | binding() | toml_reader()


def sources() -> set[Path]:
    """The collector's modules, and every module of the kernel that they import, also late."""
    seen: set[Path] = set()
    for module in [*(ROOT / "collector").rglob("*.py"), *(ROOT / start for start in STARTS)]:
        _follow(module, seen)
    return seen


def _follow(module: Path, seen: set[Path]) -> None:
    left_out = any(module.is_relative_to(ROOT / place) for place in LEFT_OUT)
    if left_out or module in seen or not module.is_file():
        return
    seen.add(module)
    package = module.parent
    while package != ROOT:
        _follow(package / "__init__.py", seen)
        package = package.parent
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom | ast.Import):
            for target in _targets(module, node):
                _follow(target, seen)


def _targets(module: Path, node: ast.ImportFrom | ast.Import) -> Iterator[Path]:
    """The files that an import may mean, if they are ours; some are not there."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
        bases = [ROOT.joinpath(*name.split(".")) for name in names if name.split(".")[0] in OURS]
    elif node.level:
        bases = [module.parents[node.level - 1].joinpath(*(node.module or "").split("."))]
    else:
        name = node.module or ""
        bases = [ROOT.joinpath(*name.split("."))] if name.split(".")[0] in OURS else []
    for base in bases:
        yield base.with_suffix(".py")
        yield base / "__init__.py"
        if isinstance(node, ast.ImportFrom):
            yield from (base / f"{alias.name}.py" for alias in node.names)
            yield from (base / alias.name / "__init__.py" for alias in node.names)


def metadata() -> dict[str, bytes]:
    """What an installed package says of itself: by it the command line finds its commands."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    commands = project["entry-points"]["gpuvigil.commands"]
    held = {name: place for name, place in commands.items() if place.startswith("collector.")}
    folder = f"gpuvigil-{project['version']}.dist-info"
    about = f"Metadata-Version: 2.1\nName: gpuvigil\nVersion: {project['version']}\n"
    table = "\n".join(["[gpuvigil.commands]", *(f"{k} = {v}" for k, v in sorted(held.items())), ""])
    return {f"{folder}/METADATA": about.encode(), f"{folder}/entry_points.txt": table.encode()}


def binding() -> dict[str, bytes]:
    """NVIDIA's binding; its licence is the comment that it begins with."""
    source = Path(str(distribution("nvidia-ml-py").locate_file("pynvml.py"))).read_bytes()
    head = source[: source.index(b"\n#####\n")].decode()
    licence = "\n".join(line.lstrip("#").strip() for line in head.splitlines()).strip()
    return {"pynvml.py": source, "licenses/nvidia-ml-py": f"{licence}\n".encode()}


def toml_reader() -> dict[str, bytes]:
    """tomli, as source: Python 3.11 has the same thing as `tomllib`."""
    found = {}
    for file in distribution("tomli").files or ():
        if file.parts[0] == "tomli" and file.suffix == ".py":
            found[file.as_posix()] = Path(str(file.locate())).read_bytes()
        elif file.name == "LICENSE":
            found["licenses/tomli"] = Path(str(file.locate())).read_bytes()
    return found


if __name__ == "__main__":
    sys.exit(main())
