"""Limits the series of each node: one that floods the store with new ones is refused and named.

A series is a measurement with its tags, which is the head of a line.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.log import Log

from ..bodies.deduplication import LONGEST_NAME
from ..bodies.schema import unescaped

_LOG = Log("hub")

# A series that has not come for one to two of these is forgotten, and makes room for another.
_GENERATION = timedelta(hours=12)
_LOG_AGAIN = timedelta(minutes=10)
_MOST_FLOODS_KEPT = 1000
_COMMA = re.compile(r"(?<!\\),")
_EQUALS = re.compile(r"(?<!\\)=")
# No record could be about such a name (`hub.records.validation`).
_NO_NAME = re.compile(r",(?:cluster|node|uuid|device|port)=\.\.?(?:,|$)")

Node = tuple[str, str]


@dataclass(slots=True)
class Flood:
    """What was refused from one node because it has too many series."""

    cluster: str
    node: str
    lines: int
    since: datetime
    logged: datetime


class SeriesLimiter:
    """The series of the last half day to day, by node; one thread admits, any may read."""

    def __init__(self, most_per_node: int, most_nodes: int, now: Callable[[], datetime]) -> None:
        self._most_per_node = most_per_node
        self._most_nodes = most_nodes
        self._now = now
        self._began = now()
        self._known: set[int] = set()
        self._before: set[int] = set()
        self._counts: dict[Node, int] = {}
        self._floods: dict[Node, Flood] = {}

    @property
    def count(self) -> int:
        return len(self._known)

    def floods(self) -> list[Flood]:
        return list(self._floods.values())

    def admit(self, head: str, lines: int = 1) -> str | None:
        """Return why `lines` lines of a series are refused; None when they are admitted.

        A malformed head is left to the parser.
        """
        key = hash(head)
        if key in self._known:
            return None
        self._age()
        node = node_of(head)
        if node is None:
            return None
        misnamed = _misnamed(head)
        if misnamed is not None:
            return misnamed
        count = self._counts.get(node, 0)
        if key not in self._before:
            if count >= self._most_per_node:
                return self._refuse(node, lines, f"has more than {self._most_per_node} series")
            if not count and len(self._counts) >= self._most_nodes:
                return self._refuse(node, lines, f"is one of more than {self._most_nodes} nodes")
        self._known.add(key)
        self._counts[node] = count + 1
        return None

    def _age(self) -> None:
        if self._now() - self._began >= _GENERATION:
            self._began = self._now()
            self._before, self._known, self._counts = self._known, set(), {}
            self._floods.clear()

    def _refuse(self, node: Node, lines: int, why: str) -> str:
        name = "/".join(node) if any(node) else "lines without a node"
        now = self._now()
        flood = self._floods.get(node)
        if flood is None:
            if len(self._floods) >= _MOST_FLOODS_KEPT:
                self._floods.pop(next(iter(self._floods)))
            flood = Flood(node[0], node[1], 0, now, now - _LOG_AGAIN)
            self._floods[node] = flood
        flood.lines += lines
        if now - flood.logged >= _LOG_AGAIN:
            flood.logged = now
            _LOG.warning("new series refused", node=name, why=why, lines=flood.lines)
        return f"a new series of {name}, which {why}"


def node_of(head: str) -> Node | None:
    """Return cluster and node in the head of a line, empty without tags; None if malformed."""
    name, *tags = _COMMA.split(head)
    found: dict[str, str] = {}
    for tag in tags:
        key, *values = _EQUALS.split(tag)
        if len(values) != 1 or not values[0] or unescaped(key) in found:
            return None
        found[unescaped(key)] = unescaped(values[0])
    if not name or name[0] in " \t#":
        return None
    return found.get("cluster", ""), found.get("node", "")


def _misnamed(head: str) -> str | None:
    """Return what is wrong with the names in a well-formed head; None when nothing is."""
    if _longest_value(head) > LONGEST_NAME:
        return f"a tag's value has more than {LONGEST_NAME} signs"
    return "'.' and '..' are no names" if _NO_NAME.search(head) else None


def _longest_value(head: str) -> int:
    """Return how many characters the longest value of a tag has, in a well-formed head."""
    if len(head) <= LONGEST_NAME:
        return len(head)
    tags = (_EQUALS.split(tag) for tag in _COMMA.split(head)[1:])
    return max((len(unescaped(value)) for _, value in tags), default=0)


def head_of(measurement: str, tag_keys: Sequence[str], values: Sequence[str]) -> str:
    """Return the head of a line, as its sender would write it with sorted tags."""
    tags = zip(tag_keys, values, strict=True)
    return ",".join([measurement, *(f"{_escaped(key)}={_escaped(value)}" for key, value in tags)])


def _escaped(text: str) -> str:
    return text.replace(" ", "\\ ").replace(",", "\\,").replace("=", "\\=")
