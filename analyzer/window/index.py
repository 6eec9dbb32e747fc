"""The subjects of rows, and caches of what is worked out once per subject, not once per pass."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, finalize

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpuvigil.model import Subject

Numbers = npt.NDArray[Any]
Known = TypeVar("Known")
Found = TypeVar("Found")

NOWHERE = -1
# Answers of one measurement differ in which subjects have a line in their span.
_REMEMBERED = 16
# Per function, its answer for each subject's key, with the record that the answer was made from.
_MOST_ANSWERS = 1_000_000
_ANSWERS: dict[object, dict[str, tuple[Any, float]]] = {}
_NO_ANSWER: tuple[Any, float] = object(), np.nan
_TAGS = ("cluster", "node", "uuid", "device", "port")


class Index:
    """Subjects in the order of their rows, shared by the rows of later passes while these stay.

    Its caches depend on nothing but its subjects and the records it is given.
    """

    __slots__ = (
        "__weakref__",
        "_beside",
        "_change",
        "_facts",
        "_given",
        "_keys",
        "_node_keys",
        "_nodes",
        "_numbers",
        "subjects",
    )

    def __init__(self, subjects: Iterable[Subject]) -> None:
        self.subjects: tuple[Subject, ...] = tuple(subjects)
        self._numbers: dict[str, int] | None = None
        self._nodes: dict[str, Numbers] | None = None
        self._keys: list[str] | None = None
        self._node_keys: list[str] | None = None
        # Weak keys: this index must not keep the other one alive.
        self._beside: WeakKeyDictionary[Index, Numbers] = WeakKeyDictionary()
        self._facts: dict[object, tuple[list[Any], Numbers]] = {}
        # By `by_node`: the mapping that was given last, and its record for each row.
        self._given: dict[bool, tuple[Mapping[str, Any], list[Any]]] = {}
        self._change: tuple[list[Any], list[Any], list[int]] = ([], [], [])

    def __len__(self) -> int:
        return len(self.subjects)

    def number(self, subject: Subject) -> int | None:
        """Return the row of a subject, None when it has none."""
        return self._by_key().get(subject.key)

    def of_node(self, node: Subject) -> Numbers:
        """Return the rows of a node and of its GPUs and ports."""
        if self._nodes is None:
            nodes: dict[str, list[int]] = {}
            for n, key in enumerate(self._of_nodes()):
                nodes.setdefault(key, []).append(n)
            self._nodes = {key: np.array(them, np.int64) for key, them in nodes.items()}
        return self._nodes.get(node.key, _NONE)

    def places(self, other: "Index") -> Numbers:
        """Return for each row the other's row of its subject, else of its node, else `NOWHERE`."""
        found = self._beside.get(other)
        if found is None:
            numbers = other._by_key()
            here = map(numbers.get, self._of_subjects(), repeat(NOWHERE))
            found = np.fromiter(here, np.int64, len(self))
            if (missing := found == NOWHERE).any():
                nodes = map(numbers.get, self._of_nodes(), repeat(NOWHERE))
                found = np.where(missing, np.fromiter(nodes, np.int64, len(self)), found)
            self._beside[other] = found
        return found

    def facts(
        self,
        of: Callable[[Subject, Known | None], float],
        records: Mapping[str, Known],
        by_node: bool = False,
    ) -> Numbers:
        """Return `of` for each row, called with the record under the subject's key or its node's.

        `of` must be a pure module-level function: it is called again only where a record changed.
        `records` must not be modified: the same mapping is taken to have the same records.
        """
        given = self._records_of(records, by_node)
        before, values = self._facts.get(of, (None, _NONE))
        if before is given:
            return values
        if before is None:
            values = self._asked(of, given)
        elif changed := self._changed(before, given):
            values = values.copy()
            for n in changed:
                values[n] = of(self.subjects[n], given[n])
        values.flags.writeable = False
        self._facts[of] = (given, values)
        return values

    def _asked(
        self, of: Callable[[Subject, Known | None], float], given: Sequence[Known | None]
    ) -> Numbers:
        """Return `of` for each row of a new index, calling it only where no other index has.

        Where samples are missing, the subjects with a line change from pass to pass, but not the
        records.
        """
        known = _ANSWERS.setdefault(of, {})
        if len(known) > _MOST_ANSWERS:
            known.clear()
        keys = self._of_subjects()
        answers = [known.get(key, _NO_ANSWER) for key in keys]
        for n, (answer, record) in enumerate(zip(answers, given, strict=True)):
            if answer[0] is not record:
                answers[n] = known[keys[n]] = (record, of(self.subjects[n], record))
        return np.array([value for _, value in answers], np.float64)

    def _records_of(self, records: Mapping[str, Known], by_node: bool) -> list[Known | None]:
        """Return the record for each row: the same list for as long as none of them changes."""
        mapping, before = self._given.get(by_node, (None, None))
        if before is not None and mapping is records:
            return before
        given = list(map(records.get, self._of_nodes() if by_node else self._of_subjects()))
        if before == given:
            given = before
        self._given[by_node] = (records, given)
        return given

    def _changed(self, before: list[Known | None], given: list[Known | None]) -> list[int]:
        """Return the rows whose record changed, cached: the same records serve many facts."""
        known = self._change
        if known[0] is not before or known[1] is not given:
            pairs = enumerate(zip(before, given, strict=True))
            known = (before, given, [n for n, (old, new) in pairs if old is not new])
            self._change = known
        return known[2]

    def _by_key(self) -> dict[str, int]:
        if self._numbers is None:
            self._numbers = {key: n for n, key in enumerate(self._of_subjects())}
        return self._numbers

    def _of_subjects(self) -> list[str]:
        if self._keys is None:
            self._keys = [subject.key for subject in self.subjects]
        return self._keys

    def _of_nodes(self) -> list[str]:
        if self._node_keys is None:
            self._node_keys = [subject.of_node().key for subject in self.subjects]
        return self._node_keys


class Remembered(Generic[Known, Found]):
    """A pure function of many records that caches its last result until one of them changes."""

    __slots__ = ("_last", "_of")

    def __init__(self, of: Callable[[Sequence[Known]], Found]) -> None:
        self._of = of
        self._last: tuple[list[Known], Found] | None = None

    def __call__(self, records: Iterable[Known]) -> Found:
        given, last = list(records), self._last
        # Unchanged records are mostly the same objects, so this comparison is cheap.
        if last is None or last[0] != given:
            last = self._last = (given, self._of(given))
        return last[1]


class OfArrays(Generic[Found]):
    """A pure function of arrays that caches each result for as long as all its arrays live.

    Only results of read-only arrays are cached, as only those keep their values. A result must not
    keep its arrays alive.
    """

    __slots__ = ("_known", "_of")

    def __init__(self, of: Callable[..., Found]) -> None:
        self._of = of
        self._known: dict[tuple[int, ...], Found] = {}

    def __call__(self, *arrays: Numbers) -> Found:
        key = tuple(map(id, arrays))
        found = self._known.get(key)
        if found is None:
            found = self._of(*arrays)
            if not any(array.flags.writeable for array in arrays):
                self._known[key] = found
                for array in arrays:
                    finalize(array, self._known.pop, key, None).atexit = False
        return found


_NONE: Numbers = np.empty(0, np.int64)


def index_of(table: pa.Table) -> Index:
    """Return the index of the subjects that a table's tags name, in its order."""
    names = [tag for tag in _TAGS if tag in table.column_names]
    columns = [table[tag].to_pylist() for tag in names]
    return Index(
        subject_of(dict(zip(names, tags, strict=True))) for tags in zip(*columns, strict=True)
    )


class Indices:
    """The most recently used indices, found by their tags. One thread at a time."""

    def __init__(self) -> None:
        self._known: list[tuple[Sequence[pa.ChunkedArray], Index]] = []

    def of(self, table: pa.Table) -> Index:
        """Return the index of a table: the same one for the same subjects in the same order."""
        tags = [table[tag] for tag in _TAGS if tag in table.column_names]
        for place, (known, index) in enumerate(self._known):
            if len(index) == len(table) and len(known) == len(tags) and _same(known, tags):
                self._known.insert(0, self._known.pop(place))
                return index
        index = index_of(table)
        self._known = [(tags, index), *self._known[: _REMEMBERED - 1]]
        return index


def _same(some: Sequence[pa.ChunkedArray], others: Sequence[pa.ChunkedArray]) -> bool:
    return all(one.equals(other) for one, other in zip(some, others, strict=True))


def subject_of(tags: Mapping[str, str]) -> Subject:
    """Return the subject that tags name; other tags among them are ignored."""
    return Subject(
        cluster=tags["cluster"],
        node=tags["node"],
        gpu=tags.get("uuid"),
        device=tags.get("device"),
        port=tags.get("port"),
    )
