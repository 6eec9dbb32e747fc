"""The part of YAML that people write by hand: nested lists and tables, plain and quoted texts.

A topology.yaml takes no more, and the product has no other use for YAML. What is beyond it is refused:
anchors, tags, texts over several lines, tables in braces.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_KEY = re.compile(
    r"""("[^"]*"|'[^']*'|[^\s"'\[\]{}#&*!|>%@`-][^:#]*?|-[^\s:#][^:#]*?)\s*:(?:\s+|$)"""
)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_REFUSED = tuple("&*!|>%@`{")
_DEEPEST = 20


class _Line(NamedTuple):
    number: int
    indent: int
    text: str


def parse(text: str) -> Any:
    """Lists, dictionaries, texts, whole numbers, true, false and None; ValueError names the line."""
    lines = [
        line for number, raw in enumerate(text.splitlines(), 1) if (line := _line(number, raw))
    ]
    if not lines:
        return None
    value, rest = _block(lines, lines[0].indent, 0)
    if rest:
        raise ValueError(f"line {rest[0].number}: is indented otherwise than what is around it")
    return value


def _line(number: int, raw: str) -> _Line | None:
    """Without its comment; None of an empty one and of a document's beginning."""
    text = re.sub(r"(^|\s)#.*$", "", raw) if not _quoted_hash(raw) else raw
    text = text.rstrip()
    if not text or text in {"---", "..."}:
        return None
    indent = len(text) - len(text.lstrip(" "))
    if text[indent] == "\t":
        raise ValueError(f"line {number}: YAML is indented with blanks")
    return _Line(number, indent, text[indent:])


def _quoted_hash(raw: str) -> bool:
    return re.search(r"""("[^"]*#[^"]*"|'[^']*#[^']*')\s*$""", raw) is not None


def _block(lines: Sequence[_Line], indent: int, depth: int) -> tuple[Any, Sequence[_Line]]:
    """The value that begins with the first line, and the lines after it."""
    first = lines[0]
    if depth > _DEEPEST:
        raise ValueError(f"line {first.number}: is nested too deeply")
    if first.text == "-" or first.text.startswith("- "):
        return _list(lines, indent, depth)
    if _KEY.match(first.text):
        return _table(lines, indent, depth)
    return _scalar(first.text, first.number), lines[1:]


def _list(lines: Sequence[_Line], indent: int, depth: int) -> tuple[Any, Sequence[_Line]]:
    found = []
    while lines and lines[0].indent == indent and re.match(r"-(\s|$)", lines[0].text):
        line, inner = lines[0], lines[0].text[1:].lstrip()
        if inner:
            # What follows the dash is a block of its own, which goes on below it.
            at = indent + len(line.text) - len(inner)
            value, lines = _block([_Line(line.number, at, inner), *lines[1:]], at, depth + 1)
        else:
            value, lines = _below(lines[1:], indent + 1, depth)
        found.append(value)
    return found, lines


def _table(lines: Sequence[_Line], indent: int, depth: int) -> tuple[Any, Sequence[_Line]]:
    found: dict[str, Any] = {}
    while lines and lines[0].indent == indent and (match := _KEY.match(lines[0].text)):
        line, rest = lines[0], lines[0].text[match.end() :]
        key = _unquoted(match[1])
        if key in found:
            raise ValueError(f"line {line.number}: {key} is there twice")
        if rest:
            found[key], lines = _scalar(rest, line.number), lines[1:]
            continue
        # A list below a key may stand as far left as the key.
        after = lines[1:]
        is_list = bool(after) and after[0].indent == indent and after[0].text.startswith("-")
        found[key], lines = _below(after, indent if is_list else indent + 1, depth)
    return found, lines


def _below(lines: Sequence[_Line], least: int, depth: int) -> tuple[Any, Sequence[_Line]]:
    if not lines or lines[0].indent < least:
        return None, lines
    return _block(lines, lines[0].indent, depth + 1)


def _scalar(text: str, number: int) -> Any:
    if text.startswith("["):
        if not text.endswith("]"):
            raise ValueError(f"line {number}: a list in brackets ends in its line")
        parts = text[1:-1].split(",") if text[1:-1].strip() else []
        return [_scalar(part.strip(), number) for part in parts]
    if text[0] in _REFUSED:
        raise ValueError(f"line {number}: {text!r} is more YAML than is read here")
    if text[0] in "\"'":
        if len(text) < 2 or text[-1] != text[0] or text[0] in text[1:-1] or "\\" in text:
            raise ValueError(f"line {number}: {text} is no text in quotes that is read here")
        return text[1:-1]
    if _NUMBER.fullmatch(text):
        return int(text)
    return _WORDS.get(text.lower(), text)


def _unquoted(key: str) -> str:
    return key[1:-1] if key[:1] in {'"', "'"} else key
