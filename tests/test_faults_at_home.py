"""A fault's key stands in its row, in its detector and in tests, and nowhere else.

What is decided about a fault is a column of the table (`gpuvigil.faults`), so that a new fault is a
row, a detector and a test. A key that stands elsewhere is such a decision, kept where nobody looks.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from gpuvigil.faults import FAULTS
from tests.sources import ROOT, Parsed, parse, parsed

pytestmark = pytest.mark.slow

# What records of the version before say; to be deleted with the version after this.
_OLDER = {"gpuvigil/model/older.py"}
_KEY = re.compile(rf"(?<![\w.-])({'|'.join(FAULTS)})(?![\w-])")


def at_home(path: str) -> frozenset[str]:
    """The keys that may stand in a module: all in the table, its own in a detector."""
    if path.startswith("gpuvigil/faults/"):
        return frozenset(FAULTS)
    if path.startswith("analyzer/detectors/"):
        return frozenset(key for key, row in FAULTS.items() if row.detector == Path(path).stem)
    return frozenset()


class Texts:
    """What the expressions of a module come to, as far as they are made of constants."""

    def __init__(self, module: Parsed) -> None:
        self._names: dict[str, str] = {}
        for node in module.nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                text = self.of(node.value)
                for target in targets:
                    if isinstance(target, ast.Name) and text is not None:
                        self._names[target.id] = text

    def of(  # noqa: C901, PLR0911 - a table of kinds
        self, node: ast.expr
    ) -> str | None:
        match node:
            case ast.Constant(value=str() as text):
                return text
            case ast.Constant(value=bytes() as raw):
                return raw.decode("latin-1")
            case ast.Name(id=name):
                return self._names.get(name)
            case ast.JoinedStr(values=parts):
                return self._joined(parts)
            case ast.FormattedValue(value=value):
                return self.of(value)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._joined([left, right])
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                values = right.elts if isinstance(right, ast.Tuple) else [right]
                return self._filled(left, "%s", values)
            case ast.Call(func=ast.Attribute(value=of, attr=verb), args=values):
                return self._called(of, verb, values)
        return None

    def _called(self, of: ast.expr, verb: str, values: list[ast.expr]) -> str | None:
        if verb == "join" and values and isinstance(values[0], ast.Tuple | ast.List | ast.Set):
            return self._joined(values[0].elts, self.of(of) or "")
        if verb == "format":
            return self._filled(of, "{}", values)
        text, given = self.of(of), [self.of(value) for value in values]
        if text is None or None in given or verb not in _VERBS:
            return None
        return str(getattr(text, verb)(*given))

    def _joined(self, parts: list[ast.expr], between: str = "") -> str | None:
        texts = [self.of(part) for part in parts]
        known = [text for text in texts if text is not None]
        return between.join(known) if len(known) == len(texts) else None

    def _filled(self, form: ast.expr, gap: str, values: list[ast.expr]) -> str | None:
        text, given = self.of(form), [self.of(value) for value in values]
        for value in given:
            text = None if text is None or value is None else text.replace(gap, value, 1)
        return text


_VERBS = {"lower", "casefold", "strip", "replace", "removeprefix", "removesuffix"}


def docstrings(module: Parsed) -> set[ast.expr]:
    return {
        node.body[0].value
        for node in module.nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }


def bound(module: Parsed) -> frozenset[str]:
    """Names at a module's top that stand for a fault: its key, its row, or something made of them."""
    texts = Texts(module)
    return frozenset(
        target.id
        for node in module.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id not in {"DETECTOR", "ROWS"}
        if any(text in FAULTS for text in map(texts.of, expressions(ast.walk(node.value))))
    )


def expressions(nodes: Iterable[ast.AST]) -> list[ast.expr]:
    return [node for node in nodes if isinstance(node, ast.expr)]


def strays(module: Parsed, path: str, homes: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """The line and the key of each that stands in a module where it is not at home.

    `homes`: by the last part of a module's name, the names in it that stand for a fault.
    """
    texts, own, told = Texts(module), at_home(path), docstrings(module)
    for node in expressions(module.nodes):
        said = None if node in told else texts.of(node)
        for key in set(_KEY.findall(said or "")) - own:
            yield f"{path}:{node.lineno} {key}"
        if isinstance(node, ast.Attribute):
            yield from _of_attribute(node, path, homes, own)
    for imported in (node for node in module.nodes if isinstance(node, ast.ImportFrom)):
        names = homes.get((imported.module or "").rpartition(".")[2], frozenset())
        for alias in imported.names:
            if alias.name in names:
                yield f"{path}:{imported.lineno} {imported.module}.{alias.name}"


def _of_attribute(
    node: ast.Attribute, path: str, homes: Mapping[str, frozenset[str]], own: frozenset[str]
) -> Iterator[str]:
    of = node.value
    if isinstance(of, ast.Name) and node.attr in homes.get(of.id, ()):
        yield f"{path}:{node.lineno} {of.id}.{node.attr}"
    # A member of something else that is called like a fault: its word is no way to the key.
    word = of.attr.lower() if isinstance(of, ast.Attribute) else ""
    if node.attr in {"value", "name"} and word in FAULTS and word not in own:
        yield f"{path}:{node.lineno} {word}, the {node.attr} of a member"


def homes() -> Mapping[str, frozenset[str]]:
    return {
        path.stem: bound(parsed(path))
        for folder in ("gpuvigil/faults", "analyzer/detectors")
        for path in (ROOT / folder).glob("*.py")
    }


def test_a_faults_key_stands_in_its_row_its_detector_and_nowhere_else(
    product_sources: Mapping[Path, Parsed],
) -> None:
    known = homes()
    found = [
        stray
        for file, module in product_sources.items()
        if (path := file.relative_to(ROOT).as_posix()) not in _OLDER
        for stray in strays(module, path, known)
    ]
    assert found == [], (
        "ask the fault's row (gpuvigil/faults) instead, with a new column if need be"
    )


HOMES = {"gpu_lost": frozenset({"_FAULT", "LOST"})}


@pytest.mark.parametrize(
    "text",
    [
        "if fault == 'gpu_lost': pass",
        "KEYS = {'gpu_lost': 1}",
        "KEYS = 'gpu_lost,gpu_xid'.split(',')",
        "LOST = b'gpu_lost'",
        "LOST = 'gpu_' + 'lost'",
        "LOST = 'gpu' '_lost'",
        "A = 'gpu'\nLOST = A + '_lost'",
        "A = 'gpu'\ndef f():\n    return f'{A}_lost'",
        "LOST = f\"gpu_{'lost'}\"",
        "LOST = '_'.join(['gpu', 'lost'])",
        "LOST = ''.join(('gpu', '_', 'lost'))",
        "LOST = '%s_lost' % 'gpu'",
        "LOST = '{}_{}'.format('gpu', 'lost')",
        "LOST = 'GPU_LOST'.lower()",
        "LOST = 'gpu-lost'.replace('-', '_')",
        "LOST = EventKind.GPU_LOST.value",
        "LOST = EventKind.GPU_LOST.name.lower()",
        "from .detectors.gpu_lost import LOST",
        "from analyzer.detectors.gpu_lost import _FAULT as OTHER",
        "from .detectors import gpu_lost\nprint(gpu_lost._FAULT.key)",
        "def f(kind: str = 'gpu_lost') -> None: ...",
        "match fault:\n    case 'gpu_lost': pass",
    ],
)
def test_a_key_in_any_disguise_is_a_stray(text: str) -> None:
    assert list(strays(parse(text), "alerts/made_up.py", HOMES))


@pytest.mark.parametrize(
    "text",
    [
        '"""As `gpu_lost` does."""',
        "def f():\n    'Of a gpu_lost.'",
        "kind is EventKind.GPU_LOST",
        "from .detectors.gpu_lost import lost_gpus",
        "LOST = where(lambda row: row.shows is Shows.LOST)",
        "name = 'gpu_lost_total'",
        "gpu_lost = FAULTS[incident.fault]",
    ],
)
def test_what_only_sounds_like_a_key_is_none(text: str) -> None:
    assert list(strays(parse(text), "alerts/made_up.py", HOMES)) == []


def test_a_detector_may_name_its_own_faults_and_no_other() -> None:
    text = "_FAULT = FAULTS['gpu_lost']"
    assert list(strays(parse(text), "analyzer/detectors/gpu_lost.py", HOMES)) == []
    assert list(strays(parse(text), "gpuvigil/faults/gpus.py", HOMES)) == []
    assert list(strays(parse(text), "analyzer/detectors/gpu_hot.py", HOMES))


def test_a_name_for_a_fault_is_known_in_its_home() -> None:
    text = "_FAULT = FAULTS['gpu_lost']\nBOTH = ('gpu_lost', 'gpu_xid')\nNEEDS = ()\nDETECTOR = D('gpu_lost')"
    assert bound(parse(text)) == {"_FAULT", "BOTH"}
