"""Build `collector.pyz`: the collector for a node, as one file that any Python from 3.10 on runs.

`python -m scripts.collector_pyz FILE` writes it. It contains the collector, the kernel modules that it
imports, NVIDIA's binding and a TOML reader for Python 3.10, all of it source; the same sources give the
same bytes.
"""

import ast
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution
from pathlib import Path

import tomllib

ROOT = Path(__file__).parent.parent
OURS = ("gpuvigil", "collector")
STARTS = ("gpuvigil/__main__.py",)
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

# What stays on the node, or comes again and again, does without the command line, which takes a MiB
# of memory and a third of the time of a look at the machine.
DIRECT = {
    "collect": "collector.supervisor",
    "read": "collector.reader",
    "machine": "collector.machine.inspection_child",
}

if sys.argv[1:2] and sys.argv[1] in DIRECT:
    from importlib import import_module

    sys.exit(import_module(DIRECT[sys.argv[1]]).main(sys.argv[2:]))

from gpuvigil.command_line import main

sys.exit(main())
'''
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
# The earliest time that a zip file can hold; the real time would make every build differ.
_TIME = (1980, 1, 1, 0, 0, 0)


def main() -> int:
    """Write the file named by the one argument."""
    target = Path(sys.argv[1])
    write(target)
    print(f"wrote {target}: {target.stat().st_size / 1024:.0f} KiB, {len(content())} files")
    return 0


def write(target: Path) -> None:
    """Write the file and make it executable."""
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
    """Return every file by its name in the archive."""
    found = {path.relative_to(ROOT).as_posix(): without_docstrings(path) for path in sources()}
    tables = [path for pattern in DATA for path in ROOT.glob(pattern)]
    found |= {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in tables}
    found["__main__.py"] = _MAIN.encode()
    found["licenses/gpuvigil"] = (ROOT / "LICENSE").read_bytes()
    return found | metadata() | binding() | toml_reader()


def without_docstrings(module: Path) -> bytes:
    """Return a module's source with its docstrings cut short: they would take 0.3 MiB of memory on a node.

    Every line keeps its number, for tracebacks.
    """
    source = module.read_text(encoding="utf-8")
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            text = node.body[0]
            first, last = text.lineno - 1, text.end_lineno or text.lineno
            lines[first:last] = [" " * text.col_offset + '"-"', *[""] * (last - first - 1)]
    return "\n".join(lines).encode()


def sources() -> set[Path]:
    """Return the collector's modules, and every kernel module that they import, late imports included."""
    seen: set[Path] = set()
    for module in [*(ROOT / "collector").rglob("*.py"), *(ROOT / start for start in STARTS)]:
        _follow(module, seen)
    return seen


def _follow(module: Path, seen: set[Path]) -> None:
    if module in seen or not module.is_file():
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
    """Yield our files that an import may mean; some may not exist."""
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
    """Return the metadata of an installed package, in which the command line finds its commands."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    commands = project["entry-points"]["gpuvigil.commands"]
    held = {name: place for name, place in commands.items() if place.startswith("collector.")}
    folder = f"gpuvigil-{project['version']}.dist-info"
    about = f"Metadata-Version: 2.1\nName: gpuvigil\nVersion: {project['version']}\n"
    table = "\n".join(["[gpuvigil.commands]", *(f"{k} = {v}" for k, v in sorted(held.items())), ""])
    return {f"{folder}/METADATA": about.encode(), f"{folder}/entry_points.txt": table.encode()}


def binding() -> dict[str, bytes]:
    """Return the part of NVIDIA's binding that the collector uses; its licence is the leading comment.

    All of the binding would be a sixth of the memory that the collector takes on a node.
    """
    source = Path(str(distribution("nvidia-ml-py").locate_file("pynvml.py"))).read_text("utf-8")
    head = source[: source.index("\n#####\n")]
    licence = "\n".join(line.lstrip("#").strip() for line in head.splitlines()).strip()
    names = {name for module in (ROOT / "collector").rglob("*.py") for name in _of_pynvml(module)}
    kept = f"{head}\n# Left out: what gpuvigil's collector does not use.\n{needed(source, names)}"
    return {"pynvml.py": kept.encode(), "licenses/nvidia-ml-py": f"{licence}\n".encode()}


def _of_pynvml(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        on = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(node, ast.Attribute) and isinstance(on, ast.Name) and on.id == "pynvml":
            yield node.attr


def needed(source: str, names: set[str]) -> str:
    """Return the definitions of `names` in a module's source and all that they depend on, in order.

    Other statements stay, and so do error codes: the binding makes a class of each.
    """
    statements = [(set(_defines(node)), node) for node in ast.parse(source).body]
    wanted, before = set(names), -1

    def stays(defined: set[str]) -> bool:
        codes = any(name.startswith("NVML_ERROR_") for name in defined)
        return codes or not defined or bool(defined & wanted)

    while len(wanted) > before:
        before = len(wanted)
        for defined, node in statements:
            if stays(defined):
                wanted |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    lines = source.splitlines()
    kept = [_text(lines, node) for defined, node in statements if stays(defined)]
    return "\n".join(kept) + "\n"


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [each.asname or each.name for each in node.names if each.name != "*"]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _text(lines: Sequence[str], node: ast.stmt) -> str:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    first = min([node.lineno, *(each.lineno for each in decorators)])
    return "\n".join(lines[first - 1 : node.end_lineno])


def toml_reader() -> dict[str, bytes]:
    """Return tomli as source; Python 3.11 has the same code as `tomllib`."""
    found = {}
    for file in distribution("tomli").files or ():
        if file.parts[0] == "tomli" and file.suffix == ".py":
            found[file.as_posix()] = Path(str(file.locate())).read_bytes()
        elif file.name == "LICENSE":
            found["licenses/tomli"] = Path(str(file.locate())).read_bytes()
    return found


if __name__ == "__main__":
    sys.exit(main())
