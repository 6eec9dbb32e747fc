"""`/metrics` of an alerts process: what its channels did, and how long that took."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuvigil.errors import ConfigError
from gpuvigil.log import Log
from gpuvigil.web.metrics_server import MetricsServer

# The key of a channel's pulse, the metric, its type and its sentence.
_METRICS = (
    ("attempts_total", "attempts_total", "counter", "Attempts to deliver a message."),
    ("failures_total", "failures_total", "counter", "Attempts that were not taken."),
    ("seconds_total", "delivery_seconds_total", "counter", "Seconds that attempts took."),
    ("waiting", "waiting", "gauge", "Messages in hand; the rest of a backlog waits in the hub."),
    ("failures", "failures_in_a_row", "gauge", "Attempts that failed since the last that did not."),
    ("refusals", "refusals_in_a_row", "gauge", "Messages refused since the last that was taken."),
)


def exposition(channels: Sequence[Mapping[str, Any]], notices: Mapping[str, int]) -> str:
    """The metrics of channels' pulses, and of what became of notices, in Prometheus's text format."""
    lines = []
    for key, name, kind, text in _METRICS:
        metric = f"gpuvigil_alerts_{name}"
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {kind}"]
        lines += [f'{metric}{{channel="{_escaped(one["name"])}"}} {one[key]}' for one in channels]
    metric = "gpuvigil_alerts_notices_total"
    lines += [f"# HELP {metric} Notices by what became of them.", f"# TYPE {metric} counter"]
    lines += [f'{metric}{{state="{state}"}} {count}' for state, count in sorted(notices.items())]
    return "\n".join(lines) + "\n"


def _escaped(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Exporter:
    """Answers `/metrics` while the `with` block runs; ConfigError when it cannot listen there."""

    def __init__(self, listen: str, port: int, text: Callable[[], str]) -> None:
        try:
            self._server = MetricsServer((listen, port), lambda: text().encode(), Log("alerts"))
        except OSError as error:
            raise ConfigError(
                f"alerts.metrics_port: cannot listen on {listen} port {port}: {error.strerror};"
                " choose another port, or 0 for a free one"
            ) from None
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> "Exporter":
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
