"""The layout is the architecture; these tests keep it so."""

import ast
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sources import ROOT, parsed

pytestmark = pytest.mark.slow

SERVICES = {"collector", "analyzer", "alerts", "dashboard", "hub"}
# The floors: which packages each may import. Services meet at the hub and never import each other.
FLOORS: dict[str, set[str]] = {
    "gpuvigil": set(),
    "accounting": {"gpuvigil"},
    "collector": {"gpuvigil"},
    "hub": {"accounting", "gpuvigil"},
    "analyzer": {"accounting", "gpuvigil"},
    "alerts": {"accounting", "gpuvigil"},
    "dashboard": {"accounting", "gpuvigil"},
    "report": {"accounting", "alerts", "gpuvigil"},
    "integrations": {"accounting", "collector", "gpuvigil"},
    "cli": {"accounting", "dashboard", "gpuvigil", "report"},
    "simulator": {"collector", "gpuvigil", "integrations"},
    "evaluation": {
        "accounting",
        "alerts",
        "analyzer",
        "collector",
        "gpuvigil",
        "report",
        "simulator",
    },
}
TOOLS = {"scripts", "benchmarks", "soak", "hardware"}

# Scripts that Streamlit runs have no package of their own, so they import absolutely.
SCRIPTS = {"dashboard/app.py"}

# What a node must not have to install for the collector.
HEAVY = {
    "prometheus_client",
    "pyarrow",
    "duckdb",
    "sqlalchemy",
    "alembic",
    "psycopg",
    "starlette",
    "uvicorn",
    "streamlit",
    "numpy",
    "sklearn",
    "httpx",
    "influxdb_client",
    "re2",
}


@functools.cache
def modules(folder: str) -> tuple[Path, ...]:
    return tuple(sorted((ROOT / folder).rglob("*.py")))


@dataclass(frozen=True, slots=True)
class Source:
    """What these tests ask of a module, which is parsed once for all of them."""

    lines: int
    imports: frozenset[str]
    """The dotted names that it imports absolutely."""
    plain: frozenset[str]
    """Those of them that it imports as a whole."""
    froms: tuple[ast.ImportFrom, ...]
    relative: tuple[ast.ImportFrom, ...]
    at_top: tuple[ast.ImportFrom, ...]
    functions: tuple[tuple[str, int], ...]
    """Each by its place and name, with its lines of code."""


@functools.cache
def source(module: Path) -> Source:
    found = parsed(module)
    froms = [node for node in found.nodes if isinstance(node, ast.ImportFrom)]
    plain = {
        alias.name for node in found.nodes if isinstance(node, ast.Import) for alias in node.names
    }
    return Source(
        lines=found.text.count("\n"),
        imports=frozenset(plain | {node.module or "" for node in froms if not node.level}),
        plain=frozenset(plain),
        froms=tuple(froms),
        relative=tuple(node for node in froms if node.level),
        at_top=tuple(node for node in found.tree.body if isinstance(node, ast.ImportFrom)),
        functions=tuple(
            (f"{module}:{node.lineno} {node.name}", code_lines(node))
            for node in found.nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
    )


def is_script(module: Path) -> bool:
    name = module.relative_to(ROOT).as_posix()
    return name in SCRIPTS or name.startswith("dashboard/pages/")


@functools.cache
def file_of(*parts: str) -> Path | None:
    """The file of a dotted name; None for what is no module of ours."""
    if parts[:1] and parts[0] in {*FLOORS, *TOOLS}:
        place = ROOT.joinpath(*parts)
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                return file
    return None


def targets_of(module: Path) -> Iterator[Path]:
    """Every module of ours that a module imports, absolutely or relatively, at its top or late."""
    for name in source(module).plain:
        if found := file_of(*name.split(".")):
            yield found
    for node in source(module).froms:
        folder = module.relative_to(ROOT).parts[: -node.level] if node.level else ()
        base = (*folder, *(node.module or "").split(".")) if node.module else folder
        for alias in node.names:
            if found := file_of(*base, alias.name) or file_of(*base):
                yield found


def packages_imported_by(module: Path) -> set[str]:
    return {name.partition(".")[0] for name in source(module).imports}


@pytest.mark.parametrize("folder", sorted(FLOORS))
def test_imports_fall_downwards_only(folder: str) -> None:
    for module in modules(folder):
        found = packages_imported_by(module) & {*FLOORS, *TOOLS, "tests"}
        assert found - {folder} <= FLOORS[folder], module


def test_the_floors_have_no_circle_and_services_none_of_each_other() -> None:
    below: set[str] = set()
    while new := {it for it, allowed in FLOORS.items() if allowed <= below} - below:
        below |= new
    assert below == set(FLOORS)
    assert not any(FLOORS[service] & SERVICES for service in SERVICES)


def test_no_two_folders_import_each_other() -> None:
    edges = {
        (module.parent, target.parent): (module, target)
        for folder in {*FLOORS, *TOOLS}
        for module in modules(folder)
        for target in targets_of(module)
        if target.parent != module.parent
    }
    assert len(edges) > 100
    assert [edges[one] for one in edges if (one[1], one[0]) in edges] == []


def test_who_finds_faults_knows_nothing_of_who_makes_them() -> None:
    for module in modules("analyzer"):
        assert "simulator" not in parsed(module).text, module


def test_the_model_imports_nothing_of_ours_but_the_clock_and_what_a_reader_needs() -> None:
    below = {"clock", "gpu_identity", "plain"}
    for module in modules("gpuvigil/model"):
        ours = {node.module for node in source(module).relative if node.level > 1}
        assert ours <= below, module
    for name in below:
        module = ROOT / f"gpuvigil/{name}.py"
        assert {node.module for node in source(module).relative} <= below, module


def reachable_kernel(module: Path, seen: set[Path]) -> set[Path]:
    """`module` and every kernel module it imports, directly or not, at its top level."""
    if module in seen or not module.exists():
        return seen
    seen.add(module)
    for node in source(module).at_top:
        for target in kernel_targets(module, node):
            reachable_kernel(target, seen)
    return seen


def kernel_targets(module: Path, node: ast.ImportFrom) -> Iterator[Path]:
    if node.level:
        base = module.parents[node.level - 1]
        name = node.module or ""
    elif (node.module or "").partition(".")[0] == "gpuvigil":
        base, name = ROOT, node.module or ""
    else:
        return
    path = base.joinpath(*name.split(".")) if name else base
    yield path.with_suffix(".py")
    yield path / "__init__.py"
    for alias in node.names:
        yield path / f"{alias.name}.py"


def test_a_node_needs_nothing_heavy_for_the_collector() -> None:
    seen: set[Path] = set()
    for module in modules("collector"):
        reachable_kernel(module, seen)
    assert ROOT / "gpuvigil/hub_client/__init__.py" in seen
    for module in seen:
        assert not packages_imported_by(module) & HEAVY, module
    # Child processes are started, not imported; the doctor asks what they ask.
    children = {it for it in modules("collector") if it.stem.endswith("_child")} - {
        ROOT / "collector/processes/watchdog_child.py"
    }
    assert len(children) == 4
    for module in modules("collector"):
        assert not children & set(targets_of(module)) or module.parent.name == "doctor", module


def test_only_one_package_touches_the_driver() -> None:
    for folder in FLOORS:
        for module in modules(folder):
            if "pynvml" in packages_imported_by(module):
                assert module.parent == ROOT / "collector/nvml"


def test_nothing_needs_grpc() -> None:
    for folder in FLOORS:
        for module in modules(folder):
            assert not packages_imported_by(module) & {"grpc", "google"}, module


def test_inject_can_change_only_what_sensors_read() -> None:
    seen: set[Path] = set()
    reachable_kernel(ROOT / "simulator/inject.py", seen)
    names = {path.relative_to(ROOT).as_posix() for path in seen}
    assert "simulator/inject.py" in names
    for path in seen:
        imported = packages_imported_by(path)
        assert not imported & {"hub", "analyzer", "alerts", "http", "socket", "urllib3"}, path
    assert "gpuvigil/hub_client/__init__.py" not in names


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    lines = (node.end_lineno or 0) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
    return lines


@pytest.mark.parametrize("folder", sorted({*FLOORS, *TOOLS}))
def test_no_function_is_over_60_lines_and_no_file_over_500(folder: str) -> None:
    for module in modules(folder):
        found = source(module)
        assert found.lines <= 500, module
        for function, lines in found.functions:
            assert lines <= 60, function


def test_no_file_names_a_download_address_of_a_registry() -> None:
    forbidden = ("pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "deb.debian" + ".org")
    for folder, below, names in os.walk(ROOT):
        below[:] = [name for name in below if not name.startswith(".") and name != "__pycache__"]
        for path in (Path(folder, name) for name in names):
            if path.suffix not in {".png", ".pyc"}:
                text = path.read_text(encoding="utf-8", errors="replace")
                assert not any(host in text for host in forbidden), path
