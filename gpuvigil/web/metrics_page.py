"""A service's own `/metrics`: the text format, and the server."""

import threading
from collections.abc import Callable, Iterable, Mapping

from ..errors import ConfigError
from ..log import Log
from .metrics_server import MetricsServer

Sample = tuple[Mapping[str, object], float | int]


def family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> str:
    """Return a metric and its samples in Prometheus's text format, with its header even if there are none."""
    rows = [f"{name}{labels_text(labels)} {value}\n" for labels, value in samples]
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n" + "".join(rows)


def labels_text(labels: Mapping[str, object]) -> str:
    """Return escaped labels such as `{name="value"}`; empty without labels."""
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Exporter:
    """Serves `/metrics` while the `with` block runs; ConfigError when it cannot listen.

    `section` is the settings' section that has `metrics_listen` and `metrics_port`.
    """

    def __init__(self, listen: str, port: int, text: Callable[[], str], section: str) -> None:
        try:
            self._server = MetricsServer((listen, port), lambda: text().encode(), Log(section))
        except OSError as error:
            raise ConfigError(
                f"{section}.metrics_port: cannot listen on {listen} port {port}: {error.strerror};"
                " choose another port, or 0 for a free one"
            ) from None
        self.port = int(self._server.server_address[1])
        Log(section).info("metrics", address=listen, port=self.port)

    def __enter__(self) -> "Exporter":
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
