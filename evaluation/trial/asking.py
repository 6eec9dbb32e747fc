"""A careful client of a Prometheus: one small query after another, with a rest after each.

The cost of a query, series times points, is bounded before it is sent. After each query, the server has at least as
long for others as the query took; the whole cost is counted and reported.
API: prometheus.io/docs/prometheus/latest/querying/api, read 2026-11.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np

from gpuvigil.config import StoreSettings
from gpuvigil.errors import StoreError, StoreUnavailable
from gpuvigil.store.http import Limits, Web
from gpuvigil.store.promql import quoted

from ..tables import Numbers

# Prometheus refuses more points of one series in an answer (web/api/v1/api.go).
MOST_POINTS_OF_SERIES = 11_000
_MOST_BYTES = 256 * 1024 * 1024
_LONGEST_REST, _SHORTEST_REST = 5.0, 0.01
_TRIES = 3
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The most that a Prometheus may be asked."""

    points_per_query: int = 50_000
    seconds_per_query: float = 30.0
    rest: float = 1.0  # after a query, times the query's duration
    seconds: float = 480.0  # in all


@dataclass(slots=True, kw_only=True)
class Cost:
    """What the queries cost so far."""

    queries: int = 0
    points: int = 0
    largest: int = 0  # points of the largest answer
    seconds: float = 0.0  # for which the server was busy with them
    longest: float = 0.0  # of the longest query


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Moments that are a step apart; `start` is the first, in seconds since 1970."""

    start: int
    step: int
    count: int

    @property
    def last(self) -> int:
        return self.start + (self.count - 1) * self.step

    def parts(self, most: int) -> Iterator["Span"]:
        """Yield the span in parts of at most so many moments."""
        for first in range(0, self.count, most):
            yield replace(
                self, start=self.start + first * self.step, count=min(most, self.count - first)
            )


class OutOfTime(Exception):
    """The time for all queries is used up."""


@dataclass(slots=True)
class Asker:
    """Sends queries to one server; StoreError says why there is no answer, OutOfTime that time is used up."""

    settings: StoreSettings
    load: Load = field(default_factory=Load)
    cost: Cost = field(default_factory=Cost)
    _web: Web = field(init=False)
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        limits = Limits(seconds=self.load.seconds_per_query + 5.0, bytes=_MOST_BYTES)
        self._web = Web(self.settings, "try", limits)
        self._began = time.monotonic()

    def names(self, label: str, selectors: Sequence[str], span: Span) -> list[str]:
        """Return the values of a label in a span, from the server's index alone."""
        query = [("match[]", one) for one in selectors]
        query += [("start", str(span.start)), ("end", str(span.last))]
        path = f"/api/v1/label/{quote(label)}/values?{urlencode(query)}"
        return [str(one) for one in self._paced(path)]

    def now(self, query: str, at: int) -> list[tuple[Labels, float]]:
        """Return the series of an instant query."""
        form = {"query": query, "time": str(at), "timeout": self._timeout}
        found = self._paced("/api/v1/query", form)["result"]
        self._count(len(found))
        return [(one["metric"], float(one["value"][1])) for one in found]

    def over(self, query: str, span: Span) -> list[tuple[Labels, Numbers, Numbers]]:
        """Return each series with the numbers of the span's moments at which it has a value, and the values."""
        form = {
            "query": query,
            "start": str(span.start),
            "end": str(span.last),
            "step": str(span.step),
            "timeout": self._timeout,
        }
        found = []
        for one in self._paced("/api/v1/query_range", form)["result"]:
            pairs = one["values"]
            times = np.array([at for at, _ in pairs], np.float64)
            values = np.array([text for _, text in pairs]).astype(np.float64)
            found.append((one["metric"], np.rint((times - span.start) / span.step), values))
        self._count(sum(len(values) for _, _, values in found))
        return [(labels, at.astype(np.int64), values) for labels, at, values in found]

    def moments(self, series: int) -> int:
        """Return for how many moments one query may ask about so many series."""
        # A fifth is left for series that follow each other, as pods do on a GPU.
        points = self.load.points_per_query * 4 // 5
        return max(1, min(points // max(series, 1), MOST_POINTS_OF_SERIES))

    @property
    def _timeout(self) -> str:
        return f"{self.load.seconds_per_query:g}s"

    def _count(self, points: int) -> None:
        self.cost.points += points
        self.cost.largest = max(self.cost.largest, points)

    def _paced(self, path: str, form: Mapping[str, str] | None = None) -> Any:
        if time.monotonic() - self._began > self.load.seconds:
            raise OutOfTime
        began = time.monotonic()
        try:
            return self._asked(path, form)
        finally:
            took = time.monotonic() - began
            self.cost.queries += 1
            self.cost.seconds += took
            self.cost.longest = max(self.cost.longest, took)
            time.sleep(min(max(took * self.load.rest, _SHORTEST_REST), _LONGEST_REST))

    def _asked(self, path: str, form: Mapping[str, str] | None) -> Any:
        """Return the server's answer; the query is repeated a little later where the server had no time."""
        url = self.settings.url.rstrip("/") + path
        for left in range(_TRIES - 1, -1, -1):
            try:
                answer = self._answer(url, form)
                break
            except StoreUnavailable:
                if not left or time.monotonic() - self._began > self.load.seconds:
                    raise
                time.sleep(_LONGEST_REST / 5 * (_TRIES - left))
        if not isinstance(answer, dict) or "data" not in answer:
            raise StoreError("the answer is none of Prometheus' API; is --prometheus right?")
        return answer["data"]

    def _answer(self, url: str, form: Mapping[str, str] | None) -> Any:
        if form is None:
            return self._web.get(url)
        return self._web.post(url, form)


def matching(metrics: Sequence[str], matchers: Sequence[str]) -> str:
    """Return a selector for the series of these metrics."""
    if len(metrics) == 1:
        return f"{metrics[0]}{{{','.join(matchers)}}}"
    names = "|".join(metrics)
    return f"{{{','.join([f'__name__=~{quoted(names)}', *matchers])}}}"


def whole_steps(start: float, length: timedelta, step: int) -> Span:
    """Return the moments of a span, at whole steps since 1970."""
    first = -int(-start // step) * step
    return Span(start=first, step=step, count=max(int(length.total_seconds()) // step, 1))
