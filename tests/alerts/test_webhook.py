"""The webhook speaks Alertmanager's format to real servers of every temper."""

import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from alerts.channel import Delivered, Outcome, Refused, Retry
from alerts.channels import CHANNELS, configured
from alerts.channels.webhook import Webhook, is_forbidden, outcome_of, payload
from alerts.message import Message, message
from alerts.notice import Kind
from gpuvigil.config import AlertsSettings, WebhookSettings
from gpuvigil.errors import ConfigError
from tests.receiver import OK, RESET, SILENT, Answer, Receiver, too_many

from .examples import NOON, REAL, changed, opened, resolved, seconds
from .test_message import noticed

URL = "https://gpus.example.org"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def a_message(**changes: Any) -> Message:
    return message(noticed(opened(**changes), Kind.FIRED), NOON + seconds(5), URL)


def deliver(url: str, timeout_seconds: float = 5.0, **settings: Any) -> Outcome:
    settings = {"url": url, "timeout_seconds": timeout_seconds, **settings}
    channel = Webhook(WebhookSettings(**settings), URL)
    try:
        return channel.deliver(a_message())
    finally:
        channel.close()


def test_the_payload_is_that_of_alertmanager_version_4(receiver: Receiver) -> None:
    assert deliver(receiver.url) == Delivered()
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
    assert alert["generatorURL"].startswith(f"{URL}/?incident=i-1&from=")
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


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(200), Delivered()),
        (Answer(202), Delivered()),
        (too_many(7), Retry(reason="127.0.0.1 answered 429", after_seconds=7.0)),
        (Answer(429), Retry(reason="127.0.0.1 answered 429")),
        (Answer(500), Retry(reason="127.0.0.1 answered 500", perhaps_received=True)),
        (Answer(401), Retry(reason="127.0.0.1 answered 401")),
        (Answer(403), Retry(reason="127.0.0.1 answered 403")),
        (Answer(404), Retry(reason="127.0.0.1 answered 404")),
        (Answer(408), Retry(reason="127.0.0.1 answered 408")),
        (Answer(400), Refused(reason="127.0.0.1 answered 400")),
        (Answer(413), Refused(reason="127.0.0.1 answered 413")),
        (
            Answer(302, {"Location": "http://127.0.0.1:1/"}),
            Refused(reason="127.0.0.1 answered 302 and redirects are not followed"),
        ),
    ],
)
def test_every_answer_means_taken_later_or_never(
    receiver: Receiver, answer: Answer, outcome: Outcome
) -> None:
    receiver.answer(answer)
    assert deliver(receiver.url) == outcome
    assert len(receiver.received()) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0.0), ("-5", 0.0), ("Fri, 20 Nov 2026 12:00:30 GMT", 30.0), ("soon", None)],
)
def test_retry_after_is_seconds_or_a_date(text: str, expected: float | None) -> None:
    outcome = outcome_of(503, httpx.Headers({"Retry-After": text}), "host", NOON)
    assert isinstance(outcome, Retry)
    assert outcome.after_seconds == expected


def test_a_silent_receiver_costs_its_time_out_and_no_more(receiver: Receiver) -> None:
    receiver.answer(SILENT)
    began = time.monotonic()
    outcome = deliver(receiver.url, timeout_seconds=0.3)
    assert time.monotonic() - began < 5.0
    assert outcome == Retry(reason="127.0.0.1: no answer within 0.3 s", perhaps_received=True)


def test_a_receiver_that_drips_costs_its_time_out_and_no_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                while not done.wait(0.05):
                    try:
                        connection.send(b"H")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        outcome = deliver(f"http://127.0.0.1:{server.getsockname()[1]}/", timeout_seconds=0.4)
        done.set()
        thread.join()
    assert time.monotonic() - began < 5.0
    assert outcome == Retry(reason="127.0.0.1: no answer within 0.4 s", perhaps_received=True)


def test_a_connection_that_breaks_may_have_delivered(receiver: Receiver) -> None:
    receiver.answer(RESET)
    outcome = deliver(receiver.url)
    assert isinstance(outcome, Retry)
    assert outcome.perhaps_received


def test_a_closed_port_surely_took_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    outcome = deliver(f"http://127.0.0.1:{port}/")
    assert isinstance(outcome, Retry)
    assert not outcome.perhaps_received


@pytest.mark.parametrize(
    ("address", "forbidden"),
    [
        ("169.254.169.254", True),
        ("fe80::1", True),
        ("::ffff:169.254.169.254", True),
        ("fd00:ec2::254", True),
        ("100.100.100.200", True),
        ("127.0.0.1", False),
        ("10.0.0.1", False),
        ("::1", False),
        ("192.0.2.1", False),
    ],
)
def test_link_local_and_metadata_addresses_are_forbidden(address: str, forbidden: bool) -> None:
    assert is_forbidden(ipaddress.ip_address(address)) is forbidden


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254/latest", "http://[fe80::1]/", "ftp://host/", "host/path", "http://["],
)
def test_a_wrong_url_is_refused_at_start_without_being_said(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Webhook(WebhookSettings(url=url), URL)
    assert "webhook" in str(refused.value)
    assert url not in str(refused.value)


def test_the_url_file_is_read_for_every_message(receiver: Receiver, tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(f"{receiver.url}/one\n", encoding="utf-8")
    channel = Webhook(WebhookSettings(url_file=file), URL)
    channel.deliver(a_message())
    file.write_text(f"{receiver.url}/two\n", encoding="utf-8")
    channel.deliver(a_message())
    file.unlink()
    missing = channel.deliver(a_message())
    channel.close()
    assert [got.path for got in receiver.received()] == ["/hook/one", "/hook/two"]
    assert isinstance(missing, Retry)


def test_a_url_is_never_in_an_outcome_nor_in_the_log(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for answer in (OK, Answer(400), Answer(500), RESET):
        receiver.answer(answer)
        outcome = deliver(f"{receiver.url}/s3cret-t0ken")
        assert "s3cret" not in repr(outcome)
    assert "s3cret" not in caplog.text


def test_every_list_of_channels_is_a_setting() -> None:
    assert all(hasattr(AlertsSettings(), key) for key in CHANNELS)


@pytest.mark.parametrize("names", [("a", "a"), ("",), ("a:b",), ("-",)])
def test_channels_need_names_of_their_own(names: tuple[str, ...]) -> None:
    webhooks = tuple(WebhookSettings(name=name, url="http://127.0.0.1:1/") for name in names)
    with pytest.raises(ConfigError):
        configured(AlertsSettings(webhooks=webhooks))
