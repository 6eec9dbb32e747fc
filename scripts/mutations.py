"""The small faults that `scripts.mutants` puts into the code: all of them, and the choice of a sample."""

import ast
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

_COMPARED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COUNTED: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change: lines count from 1, columns are bytes from 0, as in `ast`."""

    room: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    was: str
    now: str
    text: str
    """Its first line in the source."""
    at_import: bool
    """Whether it is read when the module is imported, not when a function runs."""

    @property
    def name(self) -> str:
        """A name that stays the same when lines above it change."""
        return f"{self.path}: {self.text}: {self.was} -> {self.now}"

    def applied(self, source: str) -> str:
        """Return the source with this change."""
        lines = source.encode().splitlines(keepends=True)
        first, last = lines[self.line - 1], lines[self.end_line - 1]
        changed = first[: self.column] + self.now.encode() + last[self.end_column :]
        return b"".join([*lines[: self.line - 1], changed, *lines[self.end_line :]]).decode()


def mutants(room: str, path: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a source: limits, conditions, signs, numbers, left-out calls."""
    tree, lines = ast.parse(source), source.splitlines()
    silent = {id(inner) for node in _not_run(tree) for inner in ast.walk(node)}
    later = {id(inner) for node in _bodies(tree) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        for now in _changes(node):
            assert isinstance(node, ast.expr | ast.stmt)
            yield Mutant(
                room=room,
                path=path,
                line=node.lineno,
                column=node.col_offset,
                end_line=node.end_lineno or node.lineno,
                end_column=node.end_col_offset or node.col_offset,
                was=ast.unparse(node),
                now=now,
                text=lines[node.lineno - 1].strip(),
                at_import=id(node) not in later,
            )


def _not_run(tree: ast.Module) -> Iterator[ast.AST]:  # noqa: C901 - a table of kinds
    """Yield code that no test has to cover: types, class decorators, words of messages and logs, assertions."""
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if (found := getattr(node, name, None)) is not None:
                yield found
        match node:
            case ast.JoinedStr() | ast.Assert() | ast.Raise():
                yield node
            case ast.ClassDef(decorator_list=decorators):
                yield from decorators  # slots, frozen and the like
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield node
            case ast.BinOp(left=left, right=right) if _is_number(node):
                yield from (left, right)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))) if (
                name.strip("_").lower() == "log"
            ):
                yield node
            case ast.keyword(arg="strict", value=ast.Constant(value=True)):
                yield node  # of zip: an assertion that both have the same length


def _bodies(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from node.body
        elif isinstance(node, ast.Lambda):
            yield node.body


def _changes(node: ast.AST) -> Iterator[str]:  # noqa: C901 - a table of kinds
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            for at, op in enumerate(ops):
                changed = [*ops[:at], _COMPARED[type(op)](), *ops[at + 1 :]]
                yield _text(ast.Compare(left=left, ops=changed, comparators=others))
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield _text(ast.BoolOp(op=other, values=values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _text(operand)
        case ast.BinOp() if _is_number(node):
            yield _text(ast.BinOp(node, ast.Add(), ast.Constant(1)))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _COUNTED:
            yield _text(ast.BinOp(left=left, op=_COUNTED[type(op)](), right=right))
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield repr(value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLED:
            yield _text(ast.Call(ast.Name(_CALLED[name]), node.args, node.keywords))
        case ast.Expr(value=ast.Call()):
            yield "pass"
        case ast.Continue():
            yield "break"


def _is_number(node: ast.AST) -> bool:
    """Return whether it is a product of literals, which is one number: 32 * 1024 * 1024."""
    match node:
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case ast.Constant(value=int() | float()):
            return True
    return False


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def all_mutants(rooms: Mapping[str, Sequence[str]], root: Path) -> Mapping[str, list[Mutant]]:
    """Return every mutant by its room."""
    return {
        room: [
            mutant
            for glob in globs
            for path in sorted(root.glob(glob))
            for mutant in mutants(room, str(path.relative_to(root)), path.read_text())
        ]
        for room, globs in rooms.items()
    }


def sample(found: Mapping[str, Sequence[Mutant]], number: int, seed: str) -> list[Mutant]:
    """Draw so many mutants by `seed`, the same number from each room while it has them."""
    chance = random.Random(seed)
    drawn = [chance.sample(of_room, len(of_room)) for of_room in found.values()]
    turns = (mutant for turn in zip_longest(*drawn) for mutant in turn if mutant is not None)
    return list(islice(turns, number))
