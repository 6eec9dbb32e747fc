"""Count what the project consists of, to compare a checkout with an earlier one.

`python -m scripts.mass [CHECKOUT]` prints one line per count; `git worktree add` makes a checkout of an earlier commit.
Lines of code are those that hold more than a comment or a docstring; the product is every folder that is installed.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import tomllib

ROOT = Path(__file__).parent.parent
TESTS = ("tests", "soak", "hardware")
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def main() -> int:
    """Print the counts of the checkout that the one argument names, by default of this one."""
    for name, count in counts(Path(sys.argv[1]) if sys.argv[1:] else ROOT).items():
        print(f"{count:>9,}  {name}")
    return 0


def counts(root: Path) -> dict[str, int]:
    """Return the counts of a checkout, each by its name."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    product = [
        one.rstrip("*") for one in project["tool"]["setuptools"]["packages"]["find"]["include"]
    ]
    modules = list(_modules(root, product))
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    decisions = [one for one in pages if one.parent.name == "decisions"]
    settings = (root / "docs/settings.md").read_text(encoding="utf-8")
    return {
        "lines of the product's code": sum(map(code_lines, modules)),
        "files of the product's code": len(modules),
        "lines of the tests' code": sum(map(code_lines, _modules(root, TESTS))),
        "settings": len(re.findall(r"^\| `", settings, re.MULTILINE)),
        "commands": len(project["project"]["entry-points"]["gpuvigil.commands"]),
        "words of documents": _words(pages),
        "of these, of decisions": _words(decisions),
    }


def _modules(root: Path, folders: Iterable[str]) -> Iterator[Path]:
    for folder in folders:
        yield from (root / folder).rglob("*.py")


def _words(pages: Iterable[Path]) -> int:
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def code_lines(module: Path) -> int:
    """Return how many lines of a module hold code."""
    source = module.read_text(encoding="utf-8")
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            lines.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(lines)


if __name__ == "__main__":
    sys.exit(main())
