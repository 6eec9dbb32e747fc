"""The fleet is the same on any machine: what could differ between two is not used, or tried out."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator.fleet.test_bytes import DIGEST

ROOT = Path(__file__).parents[3]
FLEET = ROOT / "simulator/fleet"
# C libraries and processors differ in these; sums of floats depend on how they are cut.
DIFFER = frozenset(
    {
        "exp", "expm1", "exp2", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "tanh", "pow",
        "power", "float_power", "cbrt", "hypot", "arctan", "arctan2", "einsum", "dot", "matmul", "inner",
        "mean", "average", "std", "var", "convolve", "random", "default_rng", "shuffle", "gauss",
    }
)  # fmt: skip


def functions_called(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def powers(tree: ast.AST) -> Iterator[str]:
    """Powers but of plain whole numbers, and of two to a whole one, which every library has exactly."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.MatMult):
            sides = (node.left, node.right)
            plain = all(isinstance(s, ast.Constant) and isinstance(s.value, int) for s in sides)
            if not plain and ast.unparse(node) != "2.0 ** (5.0 - generation)":
                yield ast.unparse(node)


@pytest.mark.medium
def test_nothing_is_called_in_which_machines_differ() -> None:
    files = sorted(FLEET.glob("*.py"))
    assert len(files) > 15
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        assert not DIFFER & set(functions_called(tree)), file.name
        assert not list(powers(tree)), file.name


DIGESTED = """
from tests.simulator.fleet import runs, test_bytes
print(runs.digest(runs.played(test_bytes.SETTINGS)))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "varied",
    [
        {"PYTHONHASHSEED": "4711", "TZ": "Asia/Kolkata", "LC_ALL": "C"},
        {"NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_ICL"},
    ],
    ids=["hash seed, time zone and language", "no vector instructions"],
)
def test_another_surrounding_makes_the_same_bytes(varied: dict[str, str]) -> None:
    environment = {**os.environ, **varied, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DIGESTED],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.split() == [DIGEST]
