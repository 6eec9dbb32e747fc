"""With the token of one node nobody is made to miss what happens on another."""

import json
import secrets
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpuvigil.model import (
    Event,
    EventKind,
    GpuIdentity,
    Incident,
    Inventory,
    RecordKind,
    ScheduledNode,
    Scheduler,
    Subject,
)
from tests.alerts.process import AlertsProcess
from tests.analyzer.process import Analyzer, running
from tests.hub.talk import ask
from tests.polling import wait_until
from tests.receiver import Receiver
from tests.servers import HubProcess

pytestmark = pytest.mark.server

NODES = [Subject(cluster="c", node=f"n{number}") for number in (1, 2, 3)]


def xid_79(node: Subject) -> str:
    """A GPU that fell off the bus just now, as its collector tells it; the id is new each time."""
    at, gpu = datetime.now(timezone.utc), Subject(cluster="c", node=node.node, gpu="GPU-1")
    id_ = f"{node.key}|{secrets.token_hex(4)}|xid|{gpu.key}|1"
    event = Event(kind=EventKind.XID, subject=gpu, at=at, id=id_, xid=79)
    return json.dumps(event.to_record().to_json())


def all_away() -> str:
    """One scheduler's word: every node is in maintenance, or gone."""
    at = datetime.now(timezone.utc)
    nodes = tuple(ScheduledNode(name=it.node, states=("MAINT", "DELETED")) for it in NODES)
    said = Scheduler(told_by=NODES[2], at=at, answered_at=at, nodes=nodes)
    return json.dumps(said.to_record().to_json())


def inventory(node: Subject) -> str:
    card = GpuIdentity(uuid="GPU-1", index=0, pci_address="0000:01:00.0", model="H100")
    at = datetime.now(timezone.utc) - timedelta(seconds=1)
    told = Inventory(
        subject=node, at=at, boot="b", tick_seconds=10.0, version="0.1.0", gpus=(card,)
    )
    return json.dumps(told.to_record().to_json())


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "hub") as process:
        yield process


@pytest.fixture
def analyzer(hub: HubProcess) -> Iterator[Analyzer]:
    yield from running(Analyzer(hub))


@pytest.fixture
def receiver(hub: HubProcess, analyzer: Analyzer, tmp_path: Path) -> Iterator[Receiver]:
    """Whom alerts tells of criticals."""
    with Receiver() as people:
        ops = {"url": people.url, "minimum_severity": "critical"}
        with AlertsProcess(hub, tmp_path, ops=ops):
            yield people


def test_a_node_that_calls_all_others_away_holds_back_no_page(
    hub: HubProcess, receiver: Receiver
) -> None:
    def write(record: str, token: str) -> int:
        return ask(f"{hub.url}/api/v1/records", record.encode(), token=token).status

    def token_of(scope: str, **more: str) -> str:
        asked = json.dumps({"scope": scope, "cluster": "c", **more}).encode()
        made = ask(f"{hub.url}/api/v1/tokens", asked, token=hub.service_token)
        return str(made.json["token"])

    n1, n3 = (token_of("node", node=name) for name in ("n1", "n3"))
    assert [write(inventory(node), hub.collector_token) for node in NODES] == [200] * 3
    assert [write(all_away(), token) for token in (n3, hub.collector_token)] == [403, 403]
    assert write(xid_79(NODES[0]), n1) == 200
    wait_until("people are told", lambda: _pages(receiver, "n1"), 60.0)
    # What a scheduler says does hold a page back: else this test could not fail.
    assert write(all_away(), token_of("scheduler")) == 200
    assert write(xid_79(NODES[1]), hub.collector_token) == 200
    client = hub.hub()

    def reasons() -> list[str]:
        found = map(Incident.from_record, client.records(RecordKind.INCIDENT))
        outs = [it.out_of_service for it in found if it.subject.node == "n2"]
        return [out.reason for out in outs if out is not None]

    (why,) = wait_until("it is out of service", reasons, 60.0)
    assert why == "deleted from the cluster"
    assert not _pages(receiver, "n2")


def _pages(receiver: Receiver, node: str) -> list[str]:
    bodies = [it.body.decode() for it in receiver.received()]
    return [body for body in bodies if f'"{node}' in body or f"{node} GPU" in body]
