"""Compact sets of ranks: `((0, 511), (513, 1023))`."""

from collections.abc import Iterable

Spans = tuple[tuple[int, int], ...]  # the first and the last rank of each span, in order

# Ours: half of 1,024 ranks in any order. A rank number in a file name has six digits.
MOST_SPANS, MOST_SPANNED = 512, 65_536
_MOST = 1_000_000


def spans(ranks: Iterable[int]) -> Spans:
    """Return the spans of these ranks, at most `MOST_SPANS`; the rest is left out."""
    found: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if found and rank == found[-1][1] + 1:
            found[-1] = (found[-1][0], rank)
        else:
            found.append((rank, rank))
    return tuple(found[:MOST_SPANS])


def ranks_in(them: Spans) -> frozenset[int]:
    """Return all ranks of the spans."""
    return frozenset(rank for first, last in them for rank in range(first, last + 1))


def read_spans(value: object) -> Spans:
    """Parse spans from JSON; raise ValueError or TypeError for invalid ones, or for too many ranks."""
    if not isinstance(value, list | tuple) or len(value) > MOST_SPANS:
        raise TypeError("a list of spans was expected")
    found = tuple((_rank(first), _rank(last)) for first, last in value)
    if any(first > last for first, last in found):
        raise ValueError("a span ends before it begins")
    if sum(last - first + 1 for first, last in found) > MOST_SPANNED:
        raise ValueError(f"over {MOST_SPANNED} ranks")
    return found


def _rank(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST:
        raise ValueError("a rank was expected")
    return value
