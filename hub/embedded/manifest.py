"""The manifest in memory: what is sealed and what is hot, so that a question need not query for it.

The tables of the DuckDB file are authoritative; this follows them commit by commit.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb

from gpuvigil.metrics import MEASUREMENTS

from .schema import quoted
from .sealed_files import Unit, units
from .subjects import Subjects, read_subjects

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The sealed units and the subjects of each measurement, as one commit left them."""

    units: Mapping[str, tuple[Unit, ...]]
    subjects: Mapping[str, Subjects]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestView:
    """The state that a question sees; `hot` is the first and last time that a hot line may have."""

    contents: Contents
    hot: Span | None
    version: object


class Manifest:
    """The contents and hot times of a store; any thread may call.

    `read` returns contents and hot times from one snapshot of the tables.
    """

    def __init__(self, read: Callable[[], tuple[Contents, Mapping[str, Span]]]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._contents: Contents | None = None
        self._hot: dict[str, Span] = {}
        self._version = object()  # a new object after each change
        self._under_way = 0

    def view(self, measurement: str) -> ManifestView:
        """Return the current state.

        A snapshot of the tables taken later has the same contents if `still` says so after it.
        """
        while True:
            with self._lock:
                if self._contents is not None:
                    hot, version = self._hot.get(measurement), self._version
                    return ManifestView(contents=self._contents, hot=hot, version=version)
            self.renew()

    def is_current(self, version: object) -> bool:
        """Return whether nothing was sealed, joined or dropped since, nor is about to be."""
        with self._lock:
            return self._version is version and not self._under_way

    def widen(self, measurement: str, times_ns: Span) -> None:
        """Extend the hot times, before lines of these times are committed into the hot table."""
        with self._lock:
            self._hot[measurement] = _both(self._hot.get(measurement), times_ns)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Mark a commit under way that changes units; the contents are read again after it."""
        with self._lock:
            self._under_way += 1
            self._version = object()
        try:
            yield
        finally:
            with self._lock:
                # The next question reads them again.
                self._contents = None
                self._under_way -= 1
                self._version = object()

    def renew(self) -> None:
        """Read the tables, unless another thread has done so meanwhile."""
        with self._reading:
            with self._lock:
                if self._contents is not None:
                    return
                version = self._version
            contents, hot = self._read()
            with self._lock:
                for name, times_ns in hot.items():
                    self._hot[name] = _both(self._hot.get(name), times_ns)
                if self._version is version:
                    self._contents = contents

    def narrow(self, names: Iterable[str], read_hot: Callable[[], Mapping[str, Span]]) -> None:
        """Replace the hot times of these measurements by those that `read_hot` finds in the tables.

        No commit of lines may be under way.
        """
        # Not during `renew`: what it has read since must not be undone.
        with self._reading:
            hot = read_hot()
            with self._lock:
                for name in names:
                    self._hot.pop(name, None)
                self._hot.update(hot)


def read_contents(cursor: duckdb.DuckDBPyConnection) -> Contents:
    """Read the contents from the tables."""
    found: dict[str, list[Unit]] = {name: [] for name in MEASUREMENTS}
    for unit in units(cursor):
        if unit.measurement in found:
            found[unit.measurement].append(unit)
    return Contents(
        units={name: tuple(of) for name, of in found.items()},
        subjects={name: read_subjects(cursor, it) for name, it in MEASUREMENTS.items()},
    )


def read_hot(
    cursor: duckdb.DuckDBPyConnection, names: Iterable[str] = MEASUREMENTS
) -> dict[str, Span]:
    """Return the first and last time of each of these hot tables that is not empty."""
    found = {}
    for name in names:
        first, last = cursor.execute(
            f'SELECT epoch_ns(min("at")), epoch_ns(max("at")) FROM {quoted(name)}'
        ).fetchall()[0]
        if first is not None:
            found[name] = (first, last)
    return found


def _both(known: Span | None, more: Span) -> Span:
    return more if known is None else (min(known[0], more[0]), max(known[1], more[1]))
