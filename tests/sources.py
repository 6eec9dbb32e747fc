"""The sources, each read and parsed once for all tests of a process that inspect them."""

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Folders that are no part of the product; they may play a fault of their choice, as tests do.
_NO_PRODUCT = {"tests", "benchmarks", "scripts", "soak", "hardware", "packaging", "docs"}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A module as text and as a tree, with the nodes in the order of `ast.walk`."""

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
    """Return the paths of all modules of the product."""
    return tuple(
        path
        for folder in sorted(ROOT.iterdir())
        if folder.is_dir() and folder.name not in _NO_PRODUCT and folder.name[0] not in "._"
        for path in sorted(folder.rglob("*.py"))
    )
