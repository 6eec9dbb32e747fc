"""Parses Prometheus's text format, as far as inference servers are read from it. Pure.

The format: prometheus/docs, "Exposition formats", text-based format. Each line is parsed by itself,
so that a wrong one spoils no other.
"""

import re
from collections.abc import Iterator

from .metric_names import NAMES, Sample

MOST_SAMPLES = 4_000
LONGEST_LINE = 4_096
# The prefixes of the names in NAMES.
_LINE = re.compile(rb"^(?:vllm:|nv_)[^\n]*", re.MULTILINE)
# A name, labels, a value, and optionally a timestamp.
_SAMPLE = re.compile(r"([\w:]+)[ \t]*(?:\{(.*)\})?[ \t]*([^\s{}]+)(?:[ \t]+-?\d+)?[ \t]*", re.ASCII)
_LABEL = re.compile(r'[ \t]*([a-zA-Z_]\w*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)', re.ASCII)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "\\": "\\", '"': '"'}


def samples(content: bytes | bytearray) -> Iterator[Sample]:
    """Yield the samples whose names are in NAMES."""
    taken = 0
    for found in _LINE.finditer(content):
        one = found[0].decode(errors="replace")
        name = one.partition("{")[0].partition(" ")[0]
        if name not in NAMES or len(one) > LONGEST_LINE:
            continue
        taken += 1
        if taken > MOST_SAMPLES:
            return
        if (read := sample(one)) is not None:
            yield read


def sample(line: str) -> Sample | None:
    """Return name, labels and value of a line; None for a line that is no sample."""
    found = _SAMPLE.fullmatch(line)
    if found is None:
        return None
    labels = _labels(found[2] or "")
    try:
        value = float(found[3])
    except ValueError:
        return None
    return None if labels is None else (found[1], labels, value)


def _labels(text: str) -> dict[str, str] | None:
    found, at = dict[str, str](), 0
    text = text.rstrip()
    while at < len(text):
        label = _LABEL.match(text, at)
        if label is None:
            return None
        found[label[1]] = _ESCAPE.sub(lambda it: _ESCAPED.get(it[1], it[0]), label[2])
        at = label.end()
    return found
