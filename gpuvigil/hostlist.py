"""Slurm's host lists: `gpu[01-03,7]` is gpu01, gpu02, gpu03 and gpu7."""

import re
from collections.abc import Iterator
from itertools import islice, product

_PART = re.compile(r"\[([0-9,-]+)\]")
_MOST = 4096  # names per expression: more are a mistake


def expand(expression: str) -> Iterator[str]:
    """Yield the names in order, at most 4096 for each part between commas."""
    for piece in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", expression):
        texts = _PART.split(piece)  # alternately the text between brackets and the text inside them
        choices = [list(_numbers(text)) if turn % 2 else [text] for turn, text in enumerate(texts)]
        yield from ("".join(found) for found in islice(product(*choices), _MOST))


def _numbers(text: str) -> Iterator[str]:
    """Yield the numbers of `01-03,7`: 01, 02, 03, 7. A range is padded to the width of its first number."""
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash:
            yield first
        elif first.isdigit() and last.isdigit():
            for number in range(int(first), min(int(last), int(first) + _MOST) + 1):
                yield f"{number:0{len(first)}d}"
