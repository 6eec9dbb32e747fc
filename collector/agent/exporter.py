"""`/metrics` for Prometheus: the rows of the last tick, served on threads of their own.

The text format 0.0.4 is written here: a client library keeps a value object per sample and costs
each scrape, and each node's memory, several times as much. Format: Prometheus, "Exposition formats"
(docs/instrumenting/exposition_formats.md).
"""

import errno
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache

from gpuvigil import metrics
from gpuvigil.errors import ConfigError
from gpuvigil.log import Log
from gpuvigil.web.metrics_page import labels_text
from gpuvigil.web.metrics_server import MetricsServer

from ..rows.catalogue_rows import Row

log = Log("collector")


class Exporter:
    """Serves rows under the catalogue's Prometheus names; what was not measured is absent."""

    def __init__(self) -> None:
        self._rows: tuple[Row, ...] = ()
        self._more: Callable[[Sequence[Row]], str] = _nothing
        self.port: int | None = None

    def show(self, rows: Iterable[Row], more: Callable[[Sequence[Row]], str] | None = None) -> None:
        """Serve these rows from now on, and the text that `more` makes of them.

        Safe while a scrape is being answered.
        """
        self._rows, self._more = tuple(rows), more or _nothing

    def serve(self, listen: str, port: int) -> None:
        """Answer on `listen`:`port` (0: a free port); ConfigError when it cannot be bound."""
        try:
            server = MetricsServer((listen, port), self.text, log)
        except OSError as error:
            elsewhere = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
            setting = "collector.metrics_listen" if elsewhere else "collector.metrics_port"
            raise ConfigError(
                f"cannot serve /metrics on {listen}:{port}: {error.strerror}; set {setting}"
            ) from None
        self.port = server.socket.getsockname()[1]
        threading.Thread(target=server.accept_always, name="metrics", daemon=True).start()

    def text(self) -> bytes:
        """Return the body that `/metrics` answers with now."""
        rows, more = self._rows, self._more
        return exposition(rows) + more(rows).encode()


def _nothing(_: Sequence[Row]) -> str:
    return ""


def exposition(rows: Sequence[Row]) -> bytes:
    """Return the rows as Prometheus text, one family per metric that has a sample."""
    parts: list[str] = []
    for measurement, families in _families():
        tags = measurement.tags
        mine = [
            (row.every, _labels(tags, tuple([row.tags.get(tag, "") for tag in tags])))
            for row in rows
            if row.measurement is measurement
        ]
        for column, name, head in families if mine else ():
            samples = [
                f"{name}{labels} {value}\n"
                for fields, labels in mine
                if (value := fields.get(column)) is not None
            ]
            if samples:
                parts.append(head)
                parts += samples
    return "".join(parts).encode()


@cache
def _families() -> Sequence[tuple[metrics.Measurement, Sequence[tuple[str, str, str]]]]:
    """Return, for each measurement, the column, the name and the head of each metric's family."""
    return [
        (of, [(metric.name, metric.prometheus, _head(metric)) for metric in of.metrics])
        for of in metrics.EXPORTED
    ]


def _head(metric: metrics.Metric) -> str:
    kind = "counter" if metric.kind is metrics.Kind.COUNTER else "gauge"
    sentence = metric.sentence.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {metric.prometheus} {sentence}\n# TYPE {metric.prometheus} {kind}\n"


# More subjects than a node has: an eight-GPU node has 144 NVLinks.
@lru_cache(maxsize=4096)
def _labels(tags: tuple[str, ...], values: tuple[str, ...]) -> str:
    return labels_text(dict(zip(tags, values, strict=True)))
