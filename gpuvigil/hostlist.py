"""Slurm's short form of many names: `gpu[01-03,7]` is gpu01, gpu02, gpu03 and gpu7."""

import re
from collections.abc import Iterator
from itertools import islice, product

_PART = re.compile(r"\[([0-9,-]+)\]")
_MOST = 4096  # names of one expression: more are a mistake


def expand(expression: str) -> Iterator[str]:
    """The names in their order; at most 4096 of one piece between commas."""
    for piece in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", expression):
        texts = _PART.split(piece)  # what stands between brackets, and what is in them, by turns
        choices = [list(_numbers(text)) if turn % 2 else [text] for turn, text in enumerate(texts)]
        yield from ("".join(found) for found in islice(product(*choices), _MOST))


def _numbers(text: str) -> Iterator[str]:
    """`01-03,7` is 01, 02, 03, 7: as wide as the first of a range is written."""
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash:
            yield first
        elif first.isdigit() and last.isdigit():
            for number in range(int(first), min(int(last), int(first) + _MOST) + 1):
                yield f"{number:0{len(first)}d}"
