"""No decision reads a sentence: what is written for people is compared with nothing.

Causes, conditions, codes and groups travel as values (`CoveredBy`, `Finding.condition`, `Group`, an
enum's member); words are made from them where a person reads, and may be reworded there.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.sources import ROOT, Parsed, parse

pytestmark = pytest.mark.slow

# Fields of findings, incidents, transitions, notices, messages and rows that are for people.
_WORDS = {"title", "reason", "action", "summary", "heading", "sentence", "source", "label"}
_OF_TEXT = {
    *("startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition"),
    *("split", "find", "index", "count", "lower", "casefold"),
}
_OF_PATTERNS = {"match", "search", "fullmatch", "findall", "sub", "get"}

# What comes from outside is text until somebody has read it, and layout may look at what it lays out.
ALLOWED = {
    "alerts/actions/decide.py: _MARK.match(self.reason)": "a scheduler keeps our mark in its reason",
    "collector/check/slurm.py: node.reason.startswith(_OURS)": "the same mark",
    "collector/doctor/groups.py: re.findall('nvml\\\\w+', metric.source)": "names of functions",
    "gpuvigil/store/writing.py: str(error.reason).split()": "an error of a library, in one line",
    "accounting/queueing.py: re.sub('[\\\\s_,:]', '', said)": "why a job waits, as Slurm says it",
    "gpuvigil/schedulers/out_of_service.py: _BY.search(reason)": "a scheduler's reason",
    "gpuvigil/schedulers/out_of_service.py: _OF_FAULTS.search(reason)": "the same",
    "gpuvigil/trust.py: (error.reason or 'no PEM in it').lower()": "an error of OpenSSL",
    "gpuvigil/matching.py: labels.get(self.label)": "a label's name, as Prometheus has them",
    "integrations/switches/answers.py: it.labels[named_by]": "the same",
    "gpuvigil/faults/xids.py: _ASIDE.sub('', self.summary)": "a title is made of the summary",
    "dashboard/model/short_label.py: label.partition(' (')": "a label, to shorten it in a line",
    "dashboard/reports/page.py: run.summary.split('\\n\\n')": "a report's Markdown, to lay it out",
    "dashboard/layout/grids.py: column.title.removeprefix('COST ')": "a column's head",
    "dashboard/device/node_page.py: panel.label.partition('/')": "a port's device and number",
    "dashboard/gpus.py: self.reasons[self.reason[number]]": "the number of a text",
    "alerts/message.py: previous_title not in {'', incident.title}": "says again what was said otherwise",
    "collector/gpus.py: gpu.reason not in {None, Unmeasured.RELEASED_FOR_MAINTENANCE}": "an enum",
}


_Names = frozenset[str]
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def reads_words(node: ast.expr, local: _Names = frozenset()) -> bool:
    """`local`: variables of the function that were given words."""
    match node:
        case ast.Attribute(attr=name):
            return name in _WORDS
        case ast.Name(id=name):
            return name in local
        case (
            ast.Tuple(elts=parts)
            | ast.Set(elts=parts)
            | ast.List(elts=parts)
            | ast.BoolOp(values=parts)
            | ast.Call(func=ast.Name(id="str"), args=parts)
        ):
            return any(reads_words(part, local) for part in parts)
        case ast.Subscript(value=of):
            return reads_words(of, local)
        case ast.Call(func=ast.Attribute(value=of, attr=verb)) if verb in _OF_TEXT:
            return reads_words(of, local)
    return False


def words_in(function: ast.AST) -> _Names:
    """The variables of a function that are given words, however often it gives them others."""
    found: set[str] = set()
    given = [it for it in ast.walk(function) if isinstance(it, ast.Assign | ast.NamedExpr)]
    for node in sorted(given, key=lambda it: (it.lineno, it.col_offset)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for to, value in pairs:
                if isinstance(to, ast.Name) and reads_words(value, frozenset(found)):
                    found.add(to.id)
    return frozenset(found)


def is_no_text(node: ast.expr) -> bool:
    """A number, None, or an enum's member."""
    match node:
        case ast.Constant(value=value):
            return not isinstance(value, str | bytes) or value == ""
        case ast.Attribute(value=ast.Name(id=name)):
            return name[:1].isupper()
    return False


def decisions(module: Parsed) -> Iterator[str]:
    """Each expression of a module that compares words, or looks something up by them."""
    local = {
        id(node): words
        for function in module.nodes
        if isinstance(function, _Function) and (words := words_in(function))
        for node in ast.walk(function)
    }
    for node in module.nodes:
        reads = partial(reads_words, local=local.get(id(node), frozenset()))
        match node:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn()]):
                parts = [left, *node.comparators]
                found = any(map(reads, parts)) and not any(map(is_no_text, parts))
            case ast.Call(func=ast.Attribute(value=of, attr=verb), args=given):
                found = (verb in _OF_TEXT and reads(of)) or (
                    verb in _OF_PATTERNS and any(map(reads, given))
                )
            case ast.Subscript(slice=by):
                found = reads(by)
            case _:
                continue
        if found:
            yield ast.unparse(node)


def expression(decision: str) -> str:
    """Without the module, which may move."""
    return decision.partition(": ")[2]


def test_no_decision_reads_what_is_written_for_people(
    product_sources: Mapping[Path, Parsed],
) -> None:
    found = {
        f"{path.relative_to(ROOT).as_posix()}: {it}"
        for path, module in product_sources.items()
        for it in decisions(module)
    }
    known = {expression(it) for it in ALLOWED}
    assert sorted(it for it in found if expression(it) not in known) == []


@pytest.mark.parametrize(
    "text",
    [
        "step.reason.startswith('covered by ')",
        "last.reason.removeprefix(COVERED)",
        "incident.title == CONDITIONS['cooling'].title",
        "finding.title in _OWN_HEAT",
        "'drained' in incident.out_of_service.reason",
        "_CODE.match(what.title)",
        "_RANK_OF_TITLE[incident.title]",
        "_RANK_OF_TITLE.get(incident.title, 0)",
        "incident.action.lower() == 'x'",
        "'rack' in finding.label.split(' ')",
        "(a.title, b) == ('x', 1)",
        "def f(one):\n    text = one.title\n    return text.startswith('x')",
        "def f(one):\n    text = one.title.lower()\n    return 'x' in text",
        "def f(one):\n    a, b = one.fault, one.title\n    return b == 'x'",
        "def f(one):\n    return (text := one.reason) and text == 'x'",
        "def f(one):\n    words = one.title\n    text = words\n    return RANKS[text]",
    ],
)
def test_a_decision_that_reads_words_is_found(text: str) -> None:
    assert list(decisions(parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "incident.condition == 'cooling'",
        "isinstance(step.cause, CoveredBy)",
        "gpu.reason is Unmeasured.LOST",
        "gpu.reason == Unmeasured.LOST",
        "gpus.label == 0",
        "print(incident.title)",
        "f'{incident.label}: {incident.title}'",
        "def f(one):\n    text = one.title\n    return f'{text}.'",
        "def f(one):\n    text = one.title\ndef g(text):\n    return text == 'x'",
    ],
)
def test_a_value_may_be_compared_and_words_may_be_shown(text: str) -> None:
    assert list(decisions(parse(text))) == []
