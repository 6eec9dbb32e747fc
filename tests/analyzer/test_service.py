"""The analyzer as a process, with a real hub that may be killed under it."""

import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpuvigil.clock import to_ns, to_text
from gpuvigil.hub_client import Hub
from gpuvigil.lineprotocol import Value, encode
from gpuvigil.model import (
    Ended,
    EndedBy,
    EventKind,
    GpuIdentity,
    Incident,
    OutOfService,
    Record,
    RecordKind,
    Rma,
    RmaState,
    ScheduledNode,
    Scheduler,
    Subject,
    Transition,
)
from tests.polling import wait_until
from tests.servers import HubProcess, QuickHub

from .process import Analyzer, running
from .scene import GPU_FIELDS, NODE_FIELDS, allocation, event, gpu, inventory, node

pytestmark = pytest.mark.server


def now() -> datetime:
    return datetime.now(timezone.utc)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with QuickHub(tmp_path / "hub") as process:
        yield process


@pytest.fixture
def analyzer(hub: HubProcess) -> Iterator[Analyzer]:
    yield from running(Analyzer(hub))


@pytest.fixture
def slow_analyzer(hub: HubProcess) -> Iterator[Analyzer]:
    """One that makes a single pass: whatever it finds later, an event made it look."""
    yield from running(Analyzer(hub, tick_seconds=600))


def transitions(hub: Hub) -> list[Transition]:
    return [Transition.from_record(record) for record in hub.records(RecordKind.TRANSITION)]


def incidents(hub: Hub) -> list[Incident]:
    return [Incident.from_record(record) for record in hub.records(RecordKind.INCIDENT)]


def send(
    hub: Hub,
    sequence: int,
    rows: Mapping[Subject, Mapping[str, Value | None]],
    cluster: str = "c",
) -> None:
    """One body of node-1, as its collector sends it."""
    at = now()
    lines = [encode(s.kind, _tags(s), fields, to_ns(at)) for s, fields in rows.items()]
    headers = {
        "Gpuvigil-Cluster": cluster,
        "Gpuvigil-Node": "node-1",
        "Gpuvigil-Boot": "b",
        "Gpuvigil-Lane": "live",
        "Gpuvigil-Sequence": str(sequence),
        "Gpuvigil-Sent-At": to_text(at),
        "Gpuvigil-Version": "1",
    }
    body = "\n".join(line for line in lines if line).encode()
    hub.request("POST", "/api/v2/write?precision=ns", body, headers)


def healthy_rows() -> dict[Subject, Mapping[str, Value | None]]:
    return {node(): NODE_FIELDS, gpu(1, 0): GPU_FIELDS, gpu(1, 1): {**GPU_FIELDS, "index": 1}}


def xid_now(code: int, subject: Subject | None = None) -> Record:
    return event(EventKind.XID, subject or gpu(), now(), code).to_record()


def test_prometheus_sees_what_stands_and_who_holds_what(
    hub: HubProcess, analyzer: Analyzer
) -> None:
    collector = hub.collector_hub()
    collector.write_records([inventory(node()).to_record(), allocation(gpu()).to_record()])
    collector.write_records([xid_now(95)])
    found = re.search(r"metrics .*port=(\d+)", analyzer.log.read_text())
    assert found is not None

    def page() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/metrics") as answer:
            return str(answer.read().decode())

    wait_until("the incident", lambda: 'severity="critical",held="no"} 1' in page())
    held = re.search(r"^gpuvigil_gpu_held\{.*\} 1$", page(), re.MULTILINE)
    assert held is not None
    assert f'uuid="{gpu().gpu}"' in held[0]
    assert re.search(r"^gpuvigil_analyzer_passes_total [1-9]", page(), re.MULTILINE)


# --- from an event to a transition ----------------------------------------------------------------


def test_an_event_becomes_a_transition_without_a_pass(
    hub: HubProcess, slow_analyzer: Analyzer
) -> None:
    client = hub.hub()
    collector = hub.collector_hub()
    collector.write_records([inventory(node()).to_record(), allocation(gpu()).to_record()])
    for code in (94, 95, 140):
        collector.write_records([xid_now(code, gpu(1, code))])
    wait_until("a transition for each", lambda: len(transitions(client)) == 3)
    made = transitions(client)
    assert {(t.from_state, t.to_state, t.number) for t in made} == {("suspect", "open", 1)}
    assert {record.id for record in client.records(RecordKind.INCIDENT)} == {
        t.incident for t in made
    }


def test_a_cure_resolves_the_same_incident_at_once(hub: HubProcess, analyzer: Analyzer) -> None:
    client = hub.hub()
    send(client, 1, healthy_rows())
    client.write_records([inventory(node()).to_record(), xid_now(95)])
    wait_until("it opens", lambda: len(transitions(client)) == 1)
    client.write_records([event(EventKind.GPU_RESET, gpu(), now()).to_record()])
    wait_until("it ends", lambda: len(transitions(client)) == 2)
    opened, ended = transitions(client)
    assert (ended.incident, ended.number) == (opened.incident, 2)
    assert isinstance(ended.cause, Ended)
    assert (ended.cause.by, ended.cause.event) == (EndedBy.EVENT, EventKind.GPU_RESET)
    assert ended.reason == ended.cause.text
    (incident,) = incidents(client)
    assert (incident.state, incident.version) == ("resolved", 2)


def test_the_transition_shows_the_impact(hub: HubProcess, analyzer: Analyzer) -> None:
    client = hub.hub()
    held = [allocation(gpu(1, index), "job 1042").to_record() for index in (0, 1)]
    client.write_records([inventory(node()).to_record(), *held])
    client.write_records([xid_now(79)])
    wait_until("it opens", lambda: incidents(client))
    (incident,) = incidents(client)
    assert incident.title == "GPU fell off the bus"
    assert incident.label == "node-1 GPU 0"
    assert incident.impact.text == "job 1042 of alice: 2 GPUs on 1 node wait for this one"


def test_a_node_that_is_drained_and_resumed_is_heard_of_without_a_pass(
    hub: HubProcess, slow_analyzer: Analyzer
) -> None:
    client, collector = hub.hub(), hub.collector_hub()
    told_by, at = Subject(cluster="c", node="slurmctl"), now()
    drained = ScheduledNode(name="node-1", states=("IDLE", "DRAIN"), reason="fan [ada@now]")
    said = Scheduler(told_by=told_by, at=at, answered_at=at, nodes=(drained,))
    collector.write_records([inventory(node()).to_record(), xid_now(95)])
    wait_until("it opens", lambda: len(transitions(client)) == 1)
    client.write_records([said.to_record()])
    out = OutOfService("DRAIN", "drained: fan [ada@now]")
    wait_until(
        "it is out of service", lambda: [i.out_of_service for i in incidents(client)] == [out]
    )
    later = at + timedelta(minutes=1)
    client.write_records([replace(said, at=later, answered_at=later, nodes=()).to_record()])
    wait_until("it is told", lambda: [i.out_of_service for i in incidents(client)] == [None])
    assert [t.signal for t in transitions(client)] == ["confirmed", "changed", "changed"]


# --- from numbers to a transition -----------------------------------------------------------------


def test_numbers_become_incidents_and_a_silent_node_covers_them(
    hub: HubProcess, analyzer: Analyzer
) -> None:
    client = hub.hub()
    own = replace(inventory(node()), tick_seconds=1.0)
    client.write_records([own.to_record(), allocation(gpu(1, 1)).to_record()])
    idle = {
        **GPU_FIELDS,
        "utilization_percent": 0,
        "memory_utilization_percent": 0,
        "power_watts": 75.0,
    }
    lost = {"up": 0, "unmeasured_reason": 3, "index": 0}
    sequence = 0

    def two_incidents() -> bool:
        nonlocal sequence
        sequence += 1
        send(client, sequence, {node(): NODE_FIELDS, gpu(): lost, gpu(1, 1): idle})
        time.sleep(0.1)
        return {i.fault for i in incidents(client)} == {"gpu_lost", "gpu_idle_held"}

    wait_until("lost and idle", two_incidents)

    def covered() -> bool:
        return {i.state for i in incidents(client) if i.fault != "node_silent"} == {"resolved"}

    wait_until("the node is silent and covers both", covered)
    (silent,) = (i for i in incidents(client) if i.fault == "node_silent")
    assert silent.severity.value == "critical"
    assert "node-1 GPU 0: GPU fell off the bus" in silent.covers
    ended = [t.reason for t in transitions(client) if t.to_state == "resolved"]
    assert set(ended) == {"covered by node-1: Node stopped reporting"}


def test_the_pulse_says_how_the_analyzer_does(hub: HubProcess, analyzer: Analyzer) -> None:
    client = hub.hub()
    send(client, 1, healthy_rows())

    def beats() -> bool:
        (pulse,) = client.records(RecordKind.PULSE)
        return pulse.id == "analyzer" and pulse.body["subjects"] == 3

    wait_until("the pulse counts three subjects", beats)
    (pulse,) = client.records(RecordKind.PULSE)
    assert pulse.body["newest_at"] is not None
    assert 0.0 < pulse.body["pass_seconds"] < 5.0
    later = wait_until("the next beat", lambda: client.records(RecordKind.PULSE))
    assert later[0].version >= pulse.version


# --- when something is killed ---------------------------------------------------------------------


def test_a_killed_hub_delays_a_transition_and_doubles_none(
    hub: HubProcess, analyzer: Analyzer
) -> None:
    client = hub.hub()
    client.write_records([inventory(node()).to_record(), xid_now(95)])
    wait_until("the first opens", lambda: len(transitions(client)) == 1)
    client.write_records([xid_now(95, gpu(1, 1))])
    hub.kill()
    wait_until("the analyzer says so", lambda: "cannot go on" in analyzer.log.read_text())
    time.sleep(0.5)
    hub.start()
    client = hub.hub()
    wait_until("the second opens", lambda: len(transitions(client)) == 2)
    client.write_records([xid_now(95, gpu(1, 2))])
    wait_until("a third opens", lambda: len(transitions(client)) == 3)
    time.sleep(1.0)
    assert len(incidents(client)) == len(transitions(client)) == 3
    complaints = analyzer.log.read_text().count("cannot go on")
    assert complaints <= 2 * 2, "one line per thread and outage"
    assert analyzer.end() == 0


def test_an_analyzer_that_starts_again_goes_on_where_it_was(
    hub: HubProcess, analyzer: Analyzer
) -> None:
    client = hub.hub()
    client.write_records([inventory(node()).to_record(), xid_now(95)])
    wait_until("it opens", lambda: len(transitions(client)) == 1)
    analyzer.end(signal.SIGKILL)
    client.write_records([xid_now(95, gpu(1, 1))])
    analyzer.start()
    wait_until("what came meanwhile opens", lambda: len(transitions(client)) == 2)
    client.write_records([event(EventKind.GPU_RESET, gpu(), now()).to_record()])
    wait_until("the old one ends", lambda: len(transitions(client)) == 3)
    numbers = sorted((t.incident, t.number) for t in transitions(client))
    assert len(set(numbers)) == 3
    assert len(incidents(client)) == 2


def test_what_was_learned_of_gpus_is_kept_and_read_at_the_next_start(
    hub: HubProcess, analyzer: Analyzer
) -> None:
    client = hub.hub()
    client.write_records([inventory(node()).to_record()])
    send(hub.collector_hub(), 1, healthy_rows())
    wait_until("it is kept", lambda: client.records(RecordKind.USUAL))
    (kept,) = client.records(RecordKind.USUAL)
    assert (kept.subject, set(kept.body["heat"])) == (node().key, {"GPU-1-0", "GPU-1-1"})
    analyzer.end(signal.SIGKILL)
    (pulse,) = (it for it in client.records(RecordKind.PULSE) if it.id == "analyzer")
    analyzer.start()
    # The look that is kept still counts for its ten minutes: a process without it looks at once.
    wait_until("it goes on", lambda: client.record(RecordKind.PULSE, "analyzer") != pulse)
    assert client.records(RecordKind.USUAL) == (kept,)


def test_a_record_that_cannot_be_read_stops_nothing(hub: HubProcess, analyzer: Analyzer) -> None:
    client = hub.hub()
    strange = replace(xid_now(95), id="strange", body={"event": "of a newer version"})
    client.write_records([strange])
    client.write_records([xid_now(95)])
    wait_until("the good one opens", lambda: len(transitions(client)) == 1)
    assert "strange" in analyzer.log.read_text()
    analyzer.end(signal.SIGKILL)
    analyzer.start()
    client.write_records([xid_now(95, gpu(1, 1))])
    wait_until("it opens after a restart too", lambda: len(transitions(client)) == 2)


def test_without_its_token_the_analyzer_says_so_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "gpuvigil", "analyze", "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 2
    assert "service_token_file" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_event_that_comes_late_from_a_spool_is_marked(
    hub: HubProcess, analyzer: Analyzer
) -> None:
    client = hub.hub()
    client.write_records([inventory(node()).to_record()])
    old = event(EventKind.XID, gpu(), now() - timedelta(minutes=10), 95)
    client.write_records([old.to_record(), xid_now(95, gpu(1, 1))])
    wait_until("both open", lambda: len(incidents(client)) == 2)
    assert {i.subject: i.late for i in incidents(client)} == {gpu(): True, gpu(1, 1): False}


def test_an_event_of_a_hubs_absence_is_late_and_one_from_just_before_may_have_been_in_time(
    hub: HubProcess,
) -> None:
    patient = Analyzer(hub)
    patient.config.write_text(f"{patient.config.read_text()}late_after_seconds = 3\n")
    client = hub.hub()
    for analyzer in running(patient):
        client.write_records([inventory(node()).to_record()])
        before = event(EventKind.XID, gpu(), now(), 95).to_record()
        hub.kill()
        wait_until(
            "the analyzer says so",
            lambda: 'again" loop=changes' in patient.log.read_text(encoding="utf-8"),
        )
        # It hears of nothing before all is there, so that its first answer has both.
        assert analyzer.process is not None
        analyzer.process.send_signal(signal.SIGSTOP)
        meanwhile = event(EventKind.XID, gpu(1, 1), now(), 95).to_record()
        time.sleep(4.0)
        hub.start()
        client.write_records([before, meanwhile])
        analyzer.process.send_signal(signal.SIGCONT)
        wait_until("both open", lambda: len(incidents(client)) == 2)
        assert {i.subject: i.late for i in incidents(client)} == {gpu(): False, gpu(1, 1): True}


def _tags(subject: Subject) -> dict[str, str]:
    tags = {"cluster": subject.cluster, "node": subject.node}
    return {**tags, "uuid": subject.gpu, "model": "H100"} if subject.gpu else tags


def test_a_part_that_was_replaced_ends_its_return_by_itself(
    hub: HubProcess, slow_analyzer: Analyzer
) -> None:
    client, at = hub.hub(), now()
    lost = Rma(
        incident="i-1",
        subject=gpu(),
        state=RmaState.SHIPPED,
        by="ann",
        at=at,
        serial="s1",
        slot="0000:1B:00.0",
    )
    client.write_records([lost.to_record()])
    fresh = GpuIdentity(
        uuid="GPU-new", index=0, pci_address="0000:1b:00.0", model="H100", serial="s2"
    )
    here = replace(inventory(node()), at=at + timedelta(seconds=1), gpus=(fresh,))
    client.write_records([here.to_record()])

    def steps() -> list[tuple[str, str]]:
        records = client.records(RecordKind.RMA, parent="i-1")
        return [(one.body["state"], one.body["by"]) for one in records]

    wait_until("the step is written", lambda: ("replaced", "gpuvigil") in steps())
