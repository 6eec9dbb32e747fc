"""Time that is over in the middle of a metric: what was read of how many targets is said, or it ends."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from evaluation.trial.asking import Asker, Load
from evaluation.trial.gathering import Bounds, CollectedMetrics, collect_metrics
from gpuvigil.config import StoreSettings
from gpuvigil.errors import StoreError

NODES = [f"n{number:02}:9400" for number in range(50)]  # with 8 GPUs each: two questions a metric
SECONDS = 1.5


@contextmanager
def prometheus(slow: int) -> Iterator[str]:
    """Answers as Prometheus' API; one question about a span, counted from 1, takes all the time."""
    ranges: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing."""

        def say(self, data: Any) -> None:
            body = json.dumps({"status": "success", "data": data}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            names = ["DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"]
            self.say(NODES if "/label/instance/" in self.path else names)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            counts = [{"metric": {"instance": one}, "value": [0, "8"]} for one in NODES]
            if self.path.endswith("query_range"):
                ranges.append(self.path)
                labels = {"instance": NODES[0], "gpu": "0", "UUID": "GPU-1", "modelName": "H100"}
                counts = [{"metric": labels, "values": [[1_800_000_000, "8"]]}]
                if len(ranges) == slow:
                    time.sleep(SECONDS)
            self.say({"resultType": "vector", "result": counts})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def asked(slow: int) -> CollectedMetrics:
    with prometheus(slow) as url:
        asker = Asker(StoreSettings(kind="prometheus", url=url), Load(rest=0.0, seconds=SECONDS))
        return collect_metrics(asker, Bounds(start=1_800_000_000.0, length=timedelta(hours=1)))


@pytest.mark.medium
def test_it_ends_where_not_every_gpu_is_known() -> None:
    with pytest.raises(StoreError, match=r"25 of 50 targets .*GPU_UTIL.* --minutes"):
        asked(slow=1)


@pytest.mark.medium
@pytest.mark.parametrize(("slow", "said"), [(2, "not asked"), (3, "asked of 25 of 50 targets")])
def test_a_note_says_of_how_many_targets_another_metric_was_asked(slow: int, said: str) -> None:
    notes = [f"DCGM_FI_DEV_POWER_USAGE: {said}: the time for questions was over"]
    assert asked(slow).notes == notes
