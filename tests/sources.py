"""The sources, each read and parsed once for all tests of a process that look at them."""

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
# What plays a fault of its choice, as tests do.
_NO_PRODUCT = {"tests", "benchmarks", "scripts", "soak", "hardware", "packaging", "docs"}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A module as text and as a tree, whose nodes are listed as `ast.walk` gives them."""

    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]


def parse(text: str) -> Parsed:
    tree = ast.parse(text)
    return Parsed(text=text, tree=tree, nodes=tuple(ast.walk(tree)))


@functools.cache
def parsed(path: Path) -> Parsed:
    return parse(path.read_text(encoding="utf-8"))


@functools.cache
def product() -> tuple[Path, ...]:
    """Every module of the product."""
    return tuple(
        path
        for folder in sorted(ROOT.iterdir())
        if folder.is_dir() and folder.name not in _NO_PRODUCT and folder.name[0] not in "._"
        for path in sorted(folder.rglob("*.py"))
    )
