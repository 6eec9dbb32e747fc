"""`gpuvigil kubernetes` as a process, between a real hub and an API server."""

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from cli.tables.why import fetch
from gpuvigil.config import KubernetesSettings
from gpuvigil.errors import ConfigError, HubRefused, HubUnavailable
from gpuvigil.hub_client import Hub
from gpuvigil.model import Allocation, Holder, Job, Record, RecordKind, Scheduler, Subject
from gpuvigil.schedulers.kubernetes_api import api_url
from integrations.kubernetes.service import write
from tests.integrations.kubernetes.apiserver import RECORDED, FakeApiServer, History, recorded
from tests.polling import wait_until
from tests.servers import HubProcess, QuickHub

ROOT = Path(__file__).parents[3]
AT = datetime(2026, 3, 2, 9, 2, tzinfo=timezone.utc)


@pytest.fixture
def fake() -> Iterator[FakeApiServer]:
    server = FakeApiServer()
    server.token = "secret"
    server.objects = json.loads((RECORDED / "owners.json").read_text())
    server.paths = {
        "/api/v1/pods": History(recorded("pods")[:11], 11),
        "/api/v1/nodes": History(recorded("nodes")[:6], 6),
    }
    yield server
    server.close()


@contextlib.contextmanager
def watching(hub: HubProcess, fake: FakeApiServer, directory: Path, log: Path) -> Iterator[None]:
    """The watcher with a token of its cluster, as a process, which ends cleanly when it is asked to."""
    asked = {"scope": "scheduler", "name": "kubernetes", "cluster": "c"}
    made = hub.hub().request("POST", "/api/v1/tokens", json.dumps(asked).encode())
    (directory / "scheduler-token").write_text(json.loads(made.body)["token"])
    config = directory / "gpuvigil.toml"
    config.write_text(
        f'[hub]\nurl = "{hub.url}"\nscheduler_token_file = "scheduler-token"\n'
        f'[collector]\ncluster = "c"\n[kubernetes]\napi_url = "{fake.url}"\ntoken_file = "token"\n'
        'user_label = "example.org/submitted-by"\n'
    )
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "integrations.kubernetes", "--config", str(config)],
            stderr=out,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.server
def test_a_pods_gpu_becomes_its_jobs_and_what_is_unknown_is_said(
    fake: FakeApiServer, tmp_path: Path
) -> None:
    one = Allocation(
        subject=Subject(cluster="c", node="gpu-a", gpu="GPU-0"),
        holder=Holder.parse("pod train/llama-worker-0"),
        user=None,
        command=None,
        started_at=AT,
        pod="train/llama-worker-0",
    )
    (tmp_path / "token").write_text("secret\n")
    with QuickHub(tmp_path / "hub") as hub:
        client = hub.hub()
        client.write_records([one.to_record()])
        log = tmp_path / "log"
        with watching(hub, fake, tmp_path, log):

            def held() -> Allocation | None:
                (record,) = client.records(RecordKind.ALLOCATION)
                found = Allocation.from_record(record)
                return found if found.holder != one.holder else None

            given = wait_until("the pod's job", held)
            assert (str(given.holder), given.user) == ("job PyTorchJob/train/llama", "ann")
            jobs = {job.number: job for job in map(Job.from_record, client.records(RecordKind.JOB))}
            assert jobs["PyTorchJob/train/llama"].gpus == 16
            assert (jobs["Pod/train/gang-0"].reason or "").startswith("SchedulingGated")

            # What is told of Slurm's jobs is told of these.
            told = fetch(client, "PyTorchJob/train/llama", None).head
            assert told[0].startswith("job PyTorchJob/train/llama of ann"), told

            def scheduler(*, known: bool) -> Scheduler | None:
                (record,) = client.records(RecordKind.SCHEDULER)
                found = Scheduler.from_record(record)
                return found if (found.nodes is not None) is known else None

            first = wait_until("nodes", lambda: scheduler(known=True))
            assert [node.name for node in first.nodes or ()] == ["gpu-a", "gpu-b"]
            fake.failing = True
            silent = wait_until("nothing is known", lambda: scheduler(known=False))
            assert (silent.why, silent.answered_at is not None) == ("503: starting", True)
            # Nobody's job ends because nobody answers.
            open_ = client.records(RecordKind.JOB, states=["RUNNING", "PENDING"])
            assert len(open_) == len(jobs)
    assert "secret" not in log.read_text()
    assert 1 <= log.read_text().count("the API server does not tell") <= 2  # pods, nodes


class Refusing(BaseHTTPRequestHandler):
    """Takes requests without the word `bad` and not too large; of a bad one it says what the hub says."""

    status: ClassVar[int] = 200
    counts: ClassVar[list[int]] = []
    most_bytes: ClassVar[int] = 1_000_000

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        status = self.status
        if status == 200:
            status = 413 if len(body) > self.most_bytes else 400 if b"bad" in body else 200
        if status == 200:
            self.counts.append(len(body.splitlines()))
        said = b'{"sequence": 1}' if status == 200 else b'{"message": "no", "lines": [3]}'
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.medium
def test_a_refused_record_costs_itself_alone_and_a_refused_token_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def waiting() -> dict[str, Record]:
        names = [
            f"{'bad' if number in {700, 1_100} else 'fine'} {number}" for number in range(1_200)
        ]
        return {
            name: Record(kind=RecordKind.JOB, id=name, at=AT, subject="c/kubernetes", body={})
            for name in names
        }

    Refusing.status, Refusing.counts, Refusing.most_bytes = 200, [], 1_000_000
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        hub = Hub(f"http://127.0.0.1:{server.server_port}", lambda: "token")
        left = waiting()
        write(hub, left)
        assert (left, sum(Refusing.counts), Refusing.counts[0]) == ({}, 1_198, 500)
        assert caplog.text.count("the hub refuses records: dropped") == 1
        assert 'count=2 first="bad 700"' in caplog.text
        # Somebody on the way takes only smaller parts.
        left, Refusing.most_bytes, Refusing.counts = waiting(), 10_000, []
        write(hub, left)
        assert (left, sum(Refusing.counts)) == ({}, 1_198)
        for Refusing.status, error in (
            *((status, HubRefused) for status in (401, 403, 404)),
            (503, HubUnavailable),
        ):
            left = waiting()
            with pytest.raises(error):
                write(hub, left)
            assert left.keys() == waiting().keys()
        hub.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_api_servers_address_is_what_a_pod_is_told() -> None:
    told = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert api_url(KubernetesSettings(), told) == "https://10.0.0.1:6443"
    assert (
        api_url(KubernetesSettings(), {"KUBERNETES_SERVICE_HOST": "fd00::1"})
        == "https://[fd00::1]:443"
    )
    assert api_url(KubernetesSettings(api_url="https://k8s:6443"), told) == "https://k8s:6443"
    with pytest.raises(ConfigError, match="this is no pod"):
        api_url(KubernetesSettings(), {})
