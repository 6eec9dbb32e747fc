"""The whole pipeline with telemetry in a real VictoriaMetrics, behind addresses as of a cluster."""

import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from accounting.usage.query import usage
from dashboard.data import live
from dashboard.data.questions import QueryCache
from dashboard.data.snapshot import Snapshot
from gpuvigil.clock import SystemClock
from gpuvigil.config import Config, load
from gpuvigil.model import SIMULATED_CLUSTER, RecordKind
from gpuvigil.store.configured import hubs
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess
from tests.timeseries import VictoriaMetrics

pytestmark = [pytest.mark.server, pytest.mark.site]

NODES, GPUS = 3, 2
SETTINGS = """
[hub]
url = "{hub}"
collector_token_file = "{collector_token}"
service_token_file = "{service_token}"
[store]
kind = "victoriametrics"
url = "{cluster}/select/7/prometheus"
write_url = "{cluster}/insert/7/influx"
[simulator]
nodes = {nodes}
gpus_per_node = {gpus}
tick_seconds = 0.5
faults_file = "{directory}/faults.json"
spool_directory = "{directory}/spool"
[analyzer]
tick_seconds = 0.5
"""


@contextmanager
def cluster_paths(server: str) -> Iterator[str]:
    """A proxy that has the addresses of a cluster, those of tenant 7 and no others."""
    places = {"/insert/7/influx/": "/influx/", "/select/7/prometheus/": "/prometheus/"}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            status, content = 404, b"no such tenant"
            for outside, inside in places.items():
                if self.path.startswith(outside):
                    address = server + inside + self.path.removeprefix(outside)
                    status, content = self._ask(address, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _ask(self, address: str, body: bytes) -> tuple[int, bytes]:
            kept = ("Content-Type", "Content-Encoding")
            headers = {name: self.headers[name] for name in kept if self.headers[name]}
            try:
                asked = urllib.request.Request(address, data=body, headers=headers)
                with urllib.request.urlopen(asked, timeout=30) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read()
            except OSError as error:
                return 502, str(error).encode()

        def log_message(self, *_: object) -> None:
            pass

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()


@contextmanager
def running(command: str, file: Path) -> Iterator[None]:
    with (file.parent / f"{command}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuvigil", command, "--config", str(file)],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def pages(config: Config) -> Iterator[Snapshot]:
    connect = hubs(config)
    snapshot = Snapshot(connect, SystemClock(), config.analyzer, 0.5)
    questions = QueryCache(connect, SystemClock())
    live.install(live.Shared(snapshot=snapshot, questions=questions, config=config))
    snapshot.start()
    try:
        yield snapshot
    finally:
        snapshot.stop()
        questions.close()


def opened(script: str, **query: str) -> str:
    test = AppTest.from_file(str(ROOT / "dashboard" / script), default_timeout=60)
    test.query_params.update(query)
    test.run()
    assert not test.exception
    return "".join(it.proto.body for it in test.get("html"))


def known(snapshot: Snapshot) -> int:
    return sum(it.strip.known for it in snapshot.view(complete=True).clusters)


def is_away(snapshot: Snapshot) -> bool:
    return any("No answer from the store" in it for it in snapshot.view().warnings)


@pytest.mark.timeout(240)
def test_the_pipeline_works_with_its_telemetry_elsewhere(tmp_path: Path) -> None:
    with ExitStack() as stack:
        hub = stack.enter_context(HubProcess(tmp_path / "hub"))
        server = stack.enter_context(VictoriaMetrics(tmp_path / "vm"))
        cluster = stack.enter_context(cluster_paths(server.url))
        file = tmp_path / "gpuvigil.toml"
        file.write_text(
            SETTINGS.format(
                hub=hub.url,
                collector_token=hub.collector_token_file,
                service_token=hub.service_token_file,
                cluster=cluster,
                directory=tmp_path,
                nodes=NODES,
                gpus=GPUS,
            )
        )
        config = load(file)
        stack.enter_context(running("simulate", file))
        stack.enter_context(running("analyze", file))
        snapshot = stack.enter_context(pages(config))
        wait_until("every GPU has a state", lambda: known(snapshot) == NODES * GPUS, 60)
        client = hub.hub()
        assert client.status()["store"]["rows"] == 0
        assert len(client.records(RecordKind.INVENTORY)) == NODES
        pulse = wait_until("a pass", lambda: client.records(RecordKind.PULSE), 30)
        assert pulse
        _show(config)
        server.stop()
        wait_until("the page says that the store is away", lambda: is_away(snapshot), 60)
        assert "3 nodes · 6 GPUs" in opened("app.py")
        server.start()
        wait_until("the page is as before", lambda: not is_away(snapshot), 60)


def _show(config: Config) -> None:
    hub = hubs(config)()
    node = hub.records(RecordKind.INVENTORY)[0]
    assert "3 nodes · 6 GPUs" in opened("app.py")
    opened("pages/pipeline.py")
    name = node.subject.rpartition("/")[2]
    assert name in opened("pages/node.py", cluster=SIMULATED_CLUSTER, node=name)
    now = datetime.now(timezone.utc)
    counted = usage(hub, SIMULATED_CLUSTER, now - timedelta(hours=1), now, now)
    assert sum(bucket.seconds.installed for bucket in counted.buckets) > 0
    hub.close()
