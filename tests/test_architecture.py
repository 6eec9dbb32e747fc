"""The layout is the architecture; these tests keep it so."""

import ast
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SERVICES = {"collector", "analyzer", "alerts", "dashboard", "hub"}

# Scripts that Streamlit runs have no package of their own, so they import absolutely.
SCRIPTS = {"dashboard/app.py"}

# The simulated fleet is not part of what goes to nodes, and nothing that does imports it.
FLEET = ROOT / "collector/simulator/fleet"
LIVE = {ROOT / "collector/simulator" / name for name in ("live.py", "live_faults.py")}

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
    relative: tuple[ast.ImportFrom, ...]
    at_top: tuple[ast.ImportFrom, ...]
    functions: tuple[tuple[str, int], ...]
    """Each by its place and name, with its lines of code."""


@functools.cache
def source(module: Path) -> Source:
    text = module.read_text(encoding="utf-8")
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return Source(
        lines=text.count("\n"),
        imports=frozenset(plain | {node.module or "" for node in froms if not node.level}),
        relative=tuple(node for node in froms if node.level),
        at_top=tuple(node for node in tree.body if isinstance(node, ast.ImportFrom)),
        functions=tuple(
            (f"{module}:{node.lineno} {node.name}", code_lines(node))
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
    )


def is_script(module: Path) -> bool:
    name = module.relative_to(ROOT).as_posix()
    return name in SCRIPTS or name.startswith("dashboard/pages/")


def relative_imports_of(module: Path) -> set[str]:
    """Every part of the names that a module imports relatively, and what it takes from them."""
    names: set[str] = set()
    for node in source(module).relative:
        names |= {*(node.module or "").split("."), *(alias.name for alias in node.names)}
    return names


def packages_imported_by(module: Path) -> set[str]:
    return {name.partition(".")[0] for name in source(module).imports}


@pytest.mark.parametrize("folder", sorted(SERVICES | {"gpuvigil"}))
def test_services_and_kernel_import_no_service(folder: str) -> None:
    for module in modules(folder):
        allowed = {"dashboard"} if is_script(module) else set()
        assert not packages_imported_by(module) & (SERVICES - allowed), module


@pytest.mark.parametrize("folder", sorted(SERVICES | {"gpuvigil"}))
def test_the_product_imports_nothing_of_its_tests(folder: str) -> None:
    for module in modules(folder):
        assert not packages_imported_by(module) & {"tests", "scoreboard", "benchmarks"}, module


def test_who_finds_faults_knows_nothing_of_who_makes_them() -> None:
    for module in modules("analyzer"):
        text = module.read_text(encoding="utf-8")
        assert "simulator" not in text, module
        assert not packages_imported_by(module) & {"collector", "scoreboard"}, module


def test_the_model_imports_nothing_of_ours_but_the_clock() -> None:
    for module in modules("gpuvigil/model"):
        ours = {node.module for node in source(module).relative if node.level > 1}
        assert ours <= {"clock"}, module


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
        if FLEET not in module.parents and module not in LIVE:
            reachable_kernel(module, seen)
            assert "fleet" not in relative_imports_of(module), module
    assert ROOT / "gpuvigil/hub.py" in seen
    for module in seen:
        assert not packages_imported_by(module) & HEAVY, module
    for module in modules("collector"):
        assert "child" not in relative_imports_of(module) or module.parent.name == "doctor", module


def test_only_one_package_touches_the_driver() -> None:
    for folder in SERVICES | {"gpuvigil"}:
        for module in modules(folder):
            if "pynvml" in packages_imported_by(module):
                assert module.parent == ROOT / "collector/nvml"


def test_nothing_needs_grpc() -> None:
    for folder in SERVICES | {"gpuvigil"}:
        for module in modules(folder):
            assert not packages_imported_by(module) & {"grpc", "google"}, module


def test_inject_can_change_only_what_sensors_read() -> None:
    seen: set[Path] = set()
    reachable_kernel(ROOT / "collector/simulator/inject.py", seen)
    names = {path.relative_to(ROOT).as_posix() for path in seen}
    assert "collector/simulator/inject.py" in names
    for path in seen:
        imported = packages_imported_by(path)
        assert not imported & {"hub", "analyzer", "alerts", "http", "socket", "urllib3"}, path
    assert "gpuvigil/hub.py" not in names


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    lines = (node.end_lineno or 0) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
    return lines


@pytest.mark.parametrize(
    "folder", sorted(SERVICES | {"gpuvigil", "scripts", "benchmarks", "scoreboard"})
)
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


def test_no_service_judges_by_what_the_simulated_fleet_knows() -> None:
    for folder in SERVICES | {"gpuvigil"}:
        for module in modules(folder):
            if FLEET not in module.parents:
                assert not any("simulator.fleet" in name for name in source(module).imports), module
