"""The webhook speaks Alertmanager's format."""

from collections.abc import Iterator
from typing import Any

import pytest

from alerts.channels.webhook import payload, webhook
from alerts.messages.channel import Delivered
from alerts.messages.message import Message, message
from alerts.routing.notice import Kind
from gpuvigil.config import WebhookSettings
from tests.receiver import Receiver

from .examples import NOON, REAL, changed, opened, resolved, seconds
from .test_message import noticed

URL = "https://gpus.example.org"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def a_message(**changes: Any) -> Message:
    return message(noticed(opened(**changes), Kind.FIRED), NOON + seconds(5), URL)


def test_the_payload_is_that_of_alertmanager_version_4(receiver: Receiver) -> None:
    channel = webhook(WebhookSettings(url=receiver.url), URL)
    assert channel.deliver(a_message()) == Delivered()
    channel.close()
    (got,) = receiver.received()
    value = got.payload
    assert set(value) == {
        "version",
        "groupKey",
        "truncatedAlerts",
        "status",
        "receiver",
        "groupLabels",
        "commonLabels",
        "commonAnnotations",
        "externalURL",
        "alerts",
    }
    assert (value["version"], value["status"], value["receiver"]) == ("4", "firing", "webhook")
    (alert,) = value["alerts"]
    assert alert["labels"] == {
        "alertname": "gpu_lost",
        "severity": "critical",
        "cluster": "simulated",
        "node": "sim-003",
        "gpu": "GPU-00000000-0000-0000-0003-000000000005",
        "simulated": "true",
    }
    assert alert["startsAt"] == "2026-11-20T12:00:00.000000Z"
    assert alert["endsAt"] == "0001-01-01T00:00:00Z"
    assert alert["generatorURL"].startswith(f"{URL}/gpu?cluster=simulated&node=sim-003&gpu=GPU-")
    assert alert["annotations"]["incident_url"] == f"{URL}/incidents?incident=i-1"
    assert alert["annotations"]["summary"].startswith("[simulated] ")
    assert got.headers["Idempotency-Key"] == "i-1:chat:1"
    assert got.headers["Content-Type"] == "application/json"


def test_fired_updated_and_resolved_have_one_fingerprint_and_one_group() -> None:
    said = [
        message(noticed(opened(), Kind.FIRED), NOON, URL),
        message(noticed(changed(), Kind.UPDATED), NOON, URL),
        message(noticed(resolved(), Kind.RESOLVED), NOON, URL),
    ]
    values = [payload(one, "webhook", URL) for one in said]
    assert len({value["alerts"][0]["fingerprint"] for value in values}) == 1
    assert len({value["groupKey"] for value in values}) == 1
    assert [value["status"] for value in values] == ["firing", "firing", "resolved"]
    assert values[2]["alerts"][0]["endsAt"] == "2026-11-20T12:00:00.000000Z"


def test_a_real_incident_is_not_marked_as_simulated() -> None:
    labels = payload(a_message(subject=REAL), "webhook", URL)["commonLabels"]
    assert "simulated" not in labels
    assert all(isinstance(value, str) for value in labels.values())
