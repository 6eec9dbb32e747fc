"""Incidents, states and usage in InfluxDB: what is written, what waits, and what is lost is counted."""

import json
import re
import threading
import urllib.parse
import urllib.request
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from accounting.usage.amounts import Seconds, Share
from accounting.usage.model import Bucket
from gpuvigil.clock import SystemClock
from gpuvigil.config import Config, HubSettings, InfluxdbSettings
from gpuvigil.errors import ConfigError, StoreError, StoreUnavailable
from gpuvigil.lineprotocol import parse
from gpuvigil.model import (
    SELFTEST_CLUSTER,
    Allocation,
    GpuIdentity,
    Incident,
    Inventory,
    Record,
    RecordKind,
    Severity,
    Subject,
)
from gpuvigil.model.holder import job_holder
from integrations.influxdb.influxdb_command import States, run
from integrations.influxdb.lines import of_record, of_states
from integrations.influxdb.target import Target, Waiting
from tests.polling import wait_until
from tests.servers import HubProcess, QuickHub
from tests.timeseries import InfluxDB

from .influxdb2 import BUCKET, LARGEST_BYTES, ORGANIZATION, TOKEN, InfluxDB2

NOON = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
NODE = Subject(cluster="c", node="n1")
GPU = Subject(cluster="c", node="n1", gpu="GPU-0")
LOST = Incident(
    id="i1",
    fingerprint="f1",
    fault="gpu_lost",
    subject=GPU,
    severity=Severity.CRITICAL,
    state="open",
    title="GPU fell off the bus",
    since=NOON,
    updated_at=NOON + timedelta(minutes=5),
)


def share(holder: str, user: str, allocated: float, used: float, account: str | None) -> Share:
    return Share(
        holder=holder,
        user=user,
        command="train",
        gpus=4,
        allocated=allocated,
        measured=allocated,
        used=used,
        idle=0.0,
        account=account,
    )


BUCKET_OF_USAGE = Bucket(
    cluster="c",
    start=NOON,
    gpus=8,
    nodes=1,
    seconds=Seconds(installed=7200.0, active=3600.0, free=3600.0),
    shares=(
        share("job 1", "ada", 1800.0, 900.0, "physics"),
        share("job 2", "bob", 900.0, 900.0, "physics"),
        share("job 3", "zoe", 900.0, 900.0, None),
    ),
    counted_at=NOON + timedelta(minutes=16),
)


def settings(url: str, directory: Path, **more: object) -> InfluxdbSettings:
    token = directory / "token"
    token.write_text(f"{TOKEN}\n")
    known = InfluxdbSettings(
        url=url,
        bucket=BUCKET,
        organization=ORGANIZATION,
        token_file=token,
        interval_seconds=1.0,
        directory=directory / "influxdb",
    )
    return replace(known, **more)  # type: ignore[arg-type]


@pytest.fixture
def server() -> Iterator[InfluxDB2]:
    with InfluxDB2() as running:
        yield running


def counted(target: Target, name: str, waiting: int = 0) -> int:
    found = re.search(rf"^gpuvigil_influxdb_{name} (\d+)$", target.text(waiting), re.MULTILINE)
    assert found is not None
    return int(found[1])


def lines_of(record: Record) -> list[str]:
    found = of_record(record)
    assert found is not None
    assert not re.search("ada|bob|zoe|train", "\n".join(found))
    return found


def test_an_incident_is_a_point_at_each_of_its_changes() -> None:
    (line,) = parse("\n".join(lines_of(LOST.to_record())).encode()).lines
    assert line.measurement == "gpuvigil_incidents"
    assert dict(line.tags) == {
        "cluster": "c",
        "node": "n1",
        "subject": "GPU-0",
        "fault": "gpu_lost",
        "severity": "critical",
    }
    assert line.at_ns == int((NOON + timedelta(minutes=5)).timestamp()) * 10**9
    fields = dict(line.fields)
    assert (fields["open"], fields["state"], fields["id"]) == (1, "open", "i1")
    over = replace(LOST, state="resolved", updated_at=NOON + timedelta(minutes=9), version=2)
    (end,) = parse(lines_of(over.to_record())[0].encode()).lines
    assert (dict(end.fields)["open"], end.tags) == (0, line.tags)
    marked = replace(LOST, subject=replace(GPU, cluster=SELFTEST_CLUSTER))
    assert lines_of(marked.to_record()) == []
    assert of_record(replace(LOST.to_record(), body={"fault": "x"})) is None


def test_usage_is_the_clusters_and_each_accounts() -> None:
    found = parse("\n".join(lines_of(BUCKET_OF_USAGE.to_record())).encode()).lines
    by = {(it.measurement, dict(it.tags).get("account")): dict(it.fields) for it in found}
    whole = by["gpuvigil_usage", None]
    assert (whole["gpus"], whole["active"], whole["installed"]) == (8, 3600.0, 7200.0)
    assert by["gpuvigil_usage_accounts", "physics"]["allocated"] == 2700.0
    assert by["gpuvigil_usage_accounts", "none"]["used"] == 900.0


def test_every_gpu_of_a_node_is_in_one_state() -> None:
    identities = tuple(
        GpuIdentity(uuid=f"GPU-{number}", index=number, pci_address=None, model="H100")
        for number in range(5)
    )
    node = Inventory(
        subject=NODE, at=NOON, boot="b", tick_seconds=10.0, version="1", gpus=identities
    )
    row = {"cluster": "c", "node": "n1", "up": 1, "compute_processes": 0}
    loads = {0: 90.0, 1: 0.0, 2: 0.0}
    rows = [{**row, "uuid": f"GPU-{n}", "utilization_percent": it} for n, it in loads.items()]
    held = [replace(GPU, gpu="GPU-1")]
    lost = replace(LOST, subject=replace(GPU, gpu="GPU-3"))
    marked = replace(node, subject=Subject(cluster=SELFTEST_CLUSTER, node="s"))
    (line,) = of_states([node, marked], rows, held, [lost], NOON)
    (found,) = parse(line.encode()).lines
    assert dict(found.fields) == {"active": 1, "idle": 1, "free": 1, "unavailable": 1, "unknown": 1}


def some(count: int, fault: str = "gpu_hot") -> list[str]:
    one = replace(LOST, fault=fault)
    return [
        line
        for second in range(count)
        for line in lines_of(replace(one, updated_at=NOON + timedelta(seconds=second)).to_record())
    ]


def test_what_is_too_large_at_once_is_written_in_parts(server: InfluxDB2, tmp_path: Path) -> None:
    lines = some(200)
    assert len("\n".join(lines)) > LARGEST_BYTES
    target = Target(settings(server.url, tmp_path), SystemClock())
    target.write(lines)
    assert len(server.points) == 200
    assert (counted(target, "lines_total"), counted(target, "lost_lines_total")) == (200, 0)
    asked = server.asked
    in_batches = Target(settings(server.url, tmp_path, batch_count=50), SystemClock())
    in_batches.write(lines)
    assert (server.asked - asked, len(server.points)) == (4, 200)


def test_what_is_refused_for_good_is_counted_and_costs_nothing_else(
    server: InfluxDB2, tmp_path: Path
) -> None:
    target = Target(settings(server.url, tmp_path), SystemClock())
    server.refused_faults.add("gpu_hot")
    target.write([*some(2), *some(3, "gpu_lost")])
    assert len(server.points) == 3
    assert (counted(target, "lines_total"), counted(target, "lost_lines_total")) == (3, 2)
    target.write(["no line at all", *some(3, "gpu_slow")])
    assert len(server.points) == 6
    assert (counted(target, "lines_total"), counted(target, "lost_lines_total")) == (6, 3)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, {"code": "too many requests"}),
        (503, {"code": "unavailable"}),
        (500, {"code": "internal error"}),
    ],
)
def test_what_may_be_taken_later_is_not_lost(
    server: InfluxDB2, tmp_path: Path, status: int, body: dict[str, object]
) -> None:
    target = Target(settings(server.url, tmp_path), SystemClock())
    server.away.append((status, body))
    with pytest.raises(StoreUnavailable):
        target.write(some(3))
    target.write(some(3))
    assert len(server.points) == 3
    assert (counted(target, "failures_total"), counted(target, "lost_lines_total")) == (1, 0)


def test_a_wrong_token_or_bucket_loses_nothing(server: InfluxDB2, tmp_path: Path) -> None:
    good = settings(server.url, tmp_path)
    (tmp_path / "token").write_text("another\n")
    target = Target(good, SystemClock())
    with pytest.raises(StoreError, match="401"):
        target.write(some(3))
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    target.write(some(3))
    other = Target(replace(good, bucket="other"), SystemClock())
    with pytest.raises(StoreError, match="404"):
        other.write(some(3))
    assert counted(other, "lost_lines_total") == 0


def test_states_wait_as_long_as_there_is_room(server: InfluxDB2, tmp_path: Path) -> None:
    target = Target(settings(server.url, tmp_path), SystemClock())
    waiting = Waiting(target, 4)
    waiting.put(some(4))
    server.away.append((503, {}))
    with pytest.raises(StoreUnavailable):
        waiting.write()
    assert (len(waiting), counted(target, "waiting_lines", len(waiting))) == (4, 4)
    assert counted(target, "lost_lines_total") == 0
    waiting.put(some(5)[4:])
    assert (len(waiting), counted(target, "lost_lines_total")) == (4, 1)
    waiting.write()
    assert (len(waiting), len(server.points)) == (0, 4)


def test_without_an_address_it_says_so() -> None:
    with pytest.raises(ConfigError, match=r"influxdb\.url"):
        run(Config(), Namespace(), threading.Event())


@contextmanager
def running(hub: HubProcess, into: InfluxdbSettings) -> Iterator[None]:
    config = Config(
        hub=HubSettings(url=hub.url, service_token_file=hub.service_token_file), influxdb=into
    )
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(config, Namespace(), stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with QuickHub(tmp_path_factory.mktemp("hub")) as process:
        client = process.hub()
        node = Inventory(
            subject=NODE,
            at=NOON,
            boot="b",
            tick_seconds=10.0,
            version="1",
            gpus=(GpuIdentity(uuid="GPU-0", index=0, pci_address=None, model="H100"),),
        )
        held = Allocation(
            subject=GPU, holder=job_holder(1), user="ada", command="train", started_at=NOON
        )
        records = (LOST, BUCKET_OF_USAGE, node, held)
        client.write_records([one.to_record() for one in records])
        yield process


@pytest.mark.server
def test_nothing_is_lost_over_an_outage_and_a_new_start(
    hub: HubProcess, server: InfluxDB2, tmp_path: Path
) -> None:
    into = settings(server.url, tmp_path)
    place = into.directory / "sequence"

    def points(measurement: str) -> int:
        return sum(name == measurement for name, _, _ in list(server.points))

    server.away += [(503, {})] * 3
    with running(hub, into):
        wait_until("usage and an incident", lambda: points("gpuvigil_usage_accounts") == 2)
        assert points("gpuvigil_incidents") == 1
        wait_until("states", lambda: points("gpuvigil_gpu_states") >= 2)
        wait_until("its place", place.exists)
    second = replace(LOST, id="i2", fingerprint="f2", fault="gpu_hot")
    hub.hub().write_records([second.to_record()])
    before, asked = place.read_text(), points("gpuvigil_incidents")
    with running(hub, into):
        wait_until("what came meanwhile", lambda: points("gpuvigil_incidents") == asked + 1)
        wait_until("its place", lambda: place.read_text() != before)


@pytest.mark.server
def test_a_record_of_another_version_costs_no_other_state_and_more_than_are_read_are_said(
    server: InfluxDB2, tmp_path: Path
) -> None:
    with QuickHub(tmp_path / "hub") as own:
        here = Inventory(subject=NODE, at=NOON, boot="b", tick_seconds=10.0, version="1", gpus=())
        node = here.to_record()
        other = replace(node, id="c/n2", subject="c/n2", body={"later": True})
        bad = replace(LOST.to_record(), body={"state": "open", "later": True})
        own.hub().write_records([node, other, bad])
        clock, into = SystemClock(), settings(server.url, tmp_path)
        config = Config(influxdb=into)
        for most in (2, 1):
            waiting = Waiting(Target(into, clock), 100)
            states = States(own.hub(), waiting, config, clock, most)
            if most == 1:
                with pytest.raises(StoreError, match="more than 1 records of kind inventory"):
                    states.step(threading.Event())
            else:
                stop = threading.Event()
                stop.set()
                states.step(stop)
            assert [name for name, _, _ in server.points] == ["gpuvigil_gpu_states"]


@pytest.mark.server
def test_a_real_influxdb_1_has_it_all(hub: HubProcess, tmp_path: Path) -> None:
    with InfluxDB(tmp_path / "influxdb") as real:
        real.create(BUCKET)

        def rows(text: str) -> list[list[object]]:
            form = urllib.parse.urlencode({"db": BUCKET, "q": text})
            answer = json.loads(_asked(f"{real.url}/query?{form}"))
            return [row for it in answer["results"][0].get("series", ()) for row in it["values"]]

        with running(hub, replace(settings(real.url, tmp_path), token_file=None)):
            wait_until("states", lambda: rows("SELECT unavailable FROM gpuvigil_gpu_states"))
            wait_until("accounts", lambda: rows("SELECT used FROM gpuvigil_usage_accounts"))
        assert (
            rows("SELECT title FROM gpuvigil_incidents WHERE fault = 'gpu_lost'")[0][1]
            == LOST.title
        )
        ((_, allocated),) = rows(
            "SELECT allocated FROM gpuvigil_usage_accounts WHERE account = 'physics'"
        )
        assert allocated == 2700


def _asked(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return bytes(answer.read())


@pytest.mark.server
def test_the_hubs_own_v2_api_takes_the_clients_requests(hub: HubProcess, tmp_path: Path) -> None:
    """It keeps nothing of these measurements, which are none of its own, and says so by no error."""
    into = settings(hub.url, tmp_path, token_file=hub.collector_token_file, bucket="gpuvigil")
    target = Target(into, SystemClock())
    target.write(some(3))
    assert (counted(target, "lines_total"), counted(target, "lost_lines_total")) == (3, 0)
    assert hub.hub().records(RecordKind.INCIDENT)
