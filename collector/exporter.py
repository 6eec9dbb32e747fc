"""`/metrics` for Prometheus: the rows of the last tick, on a thread of its own."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import start_http_server
from prometheus_client.registry import Collector, CollectorRegistry

from gpuvigil import metrics
from gpuvigil.errors import ConfigError

from .rows import Row


class Exporter(Collector):
    """Shows rows under the catalogue's Prometheus names; what was not measured is absent."""

    def __init__(self) -> None:
        self._rows: tuple[Row, ...] = ()
        self.port: int | None = None

    def show(self, rows: Iterable[Row]) -> None:
        """These rows from now on; safe while they are being served."""
        self._rows = tuple(rows)

    def serve(self, listen: str, port: int) -> None:
        """Answer on `listen`:`port` (0: a free port); ConfigError when that is not to be had."""
        registry = CollectorRegistry()
        registry.register(self)
        try:
            server, _ = start_http_server(port, listen, registry)
        except OSError as error:
            raise ConfigError(
                f"cannot serve /metrics on {listen}:{port}: {error.strerror};"
                " set collector.metrics_port"
            ) from None
        self.port = server.server_port

    def collect(self) -> Iterator[Metric]:
        rows = self._rows
        for measurement in metrics.MEASUREMENTS.values():
            mine = [row for row in rows if row.measurement is measurement]
            for metric in measurement.metrics:
                yield from _family(metric, measurement.tags, mine)


def _family(
    metric: metrics.Metric, tags: tuple[str, ...], rows: Sequence[Row]
) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    counts = metric.kind is metrics.Kind.COUNTER
    family = (CounterMetricFamily if counts else GaugeMetricFamily)(
        metric.prometheus, metric.sentence, labels=tags
    )
    for row in rows:
        value = row.fields.get(metric.name)
        if value is not None:
            family.add_metric([row.tags.get(tag, "") for tag in tags], value)
    if family.samples:
        yield family
