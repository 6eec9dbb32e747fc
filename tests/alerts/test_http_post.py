"""What every channel that posts shares, towards real servers of every temper."""

import ipaddress
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from alerts.channels import CHANNELS, configured
from alerts.channels.address import is_forbidden
from alerts.channels.http_post import Answer as Answered
from alerts.channels.http_post import outcome_of
from alerts.messages.channel import Channel, Delivered, Outcome, Refused, Retry
from alerts.messages.message import Message, message
from alerts.routing.notice import Kind
from gpuvigil.config import (
    RECEIVERS,
    AlertsSettings,
    PostSettings,
    SlackSettings,
    WebhookSettings,
)
from gpuvigil.errors import ConfigError
from tests.receiver import OK, RESET, SILENT, Answer, Receiver, too_many

from .examples import NOON, opened, seconds
from .test_message import noticed

pytestmark = pytest.mark.server

URL = "https://gpus.example.org"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


# Those that post by themselves.
POSTING = sorted(
    key
    for key, settings in RECEIVERS.items()
    if issubclass(settings, PostSettings) and key != "apprise"
)


@pytest.fixture(params=POSTING)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each list of channels in turn."""
    monkeypatch.setenv("ROUTING_KEY", "r" * 32)
    return str(request.param)


def a_channel(kind: str, **given: Any) -> Channel:
    """A channel of that kind, with whatever else it needs."""
    more = {"routing_key_variable": "ROUTING_KEY"} if kind == "pagerduty" else {}
    return CHANNELS[kind](RECEIVERS[kind](**{**more, **given}), URL)


def a_message() -> Message:
    return message(noticed(opened(), Kind.FIRED), NOON + seconds(5), URL)


def deliver(kind: str, url: str, timeout_seconds: float = 5.0) -> Outcome:
    channel = a_channel(kind, url=url, timeout_seconds=timeout_seconds)
    try:
        return channel.deliver(a_message())
    finally:
        channel.close()


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
    kind: str, receiver: Receiver, answer: Answer, outcome: Outcome
) -> None:
    receiver.answer(answer)
    assert deliver(kind, receiver.url) == outcome
    assert len(receiver.received()) == 1


@pytest.mark.parametrize(
    "error", ["Invalid routing key", "Length of 'routing_key' is incorrect (should be 32 ...)"]
)
def test_a_page_waits_for_a_right_routing_key(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    monkeypatch.setenv("ROUTING_KEY", "r" * 32)
    wrong = {"status": "invalid event", "message": "Event object is invalid", "errors": [error]}
    receiver.answer(Answer(400, body=json.dumps(wrong).encode()))
    outcome = deliver("pagerduty", receiver.url)
    assert isinstance(outcome, Retry)
    assert "the routing key is not taken" in outcome.reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0.0), ("-5", 0.0), ("Fri, 20 Nov 2026 12:00:30 GMT", 30.0), ("soon", None)],
)
def test_retry_after_is_seconds_or_a_date(text: str, expected: float | None) -> None:
    outcome = outcome_of(Answered(host="host", status=503, at=NOON, retry_after=text))
    assert isinstance(outcome, Retry)
    assert outcome.after_seconds == expected


def test_a_silent_receiver_costs_its_time_out_and_no_more(kind: str, receiver: Receiver) -> None:
    receiver.answer(SILENT)
    began = time.monotonic()
    outcome = deliver(kind, receiver.url, timeout_seconds=0.3)
    assert time.monotonic() - began < 5.0
    assert outcome == Retry(reason="127.0.0.1: no answer within 0.3 s", perhaps_received=True)


def test_a_receiver_that_drips_costs_its_time_out_and_no_more(kind: str) -> None:
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
        outcome = deliver(kind, f"http://127.0.0.1:{server.getsockname()[1]}/", timeout_seconds=0.4)
        done.set()
        thread.join()
    assert time.monotonic() - began < 5.0
    assert outcome == Retry(reason="127.0.0.1: no answer within 0.4 s", perhaps_received=True)


def test_a_connection_that_breaks_may_have_delivered(kind: str, receiver: Receiver) -> None:
    receiver.answer(RESET)
    outcome = deliver(kind, receiver.url)
    assert isinstance(outcome, Retry)
    assert outcome.perhaps_received


def test_a_closed_port_surely_took_nothing(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    outcome = deliver(kind, f"http://127.0.0.1:{port}/")
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
    ("url", "instead"),
    [
        ("https://site.webhook.office.com/webhookb2/x", "workflow"),
        ("https://outlook.office.com/webhook/x", "workflow"),
        ("https://events.pagerduty.com/generic/2010-04-15/create_event.json", "v2"),
        ("https://am.example.org/api/v1/alerts", "version 2"),
        ("https://discordapp.com/api/webhooks/1/x", "discord.com"),
        ("https://lab.slack.com/services/hooks/incoming-webhook?token=x", "app"),
        ("https://api.opsgenie.com/v2/alerts", "5 April 2027"),
    ],
)
def test_an_address_that_was_given_up_is_refused_at_start_with_what_to_use_instead(
    kind: str, url: str, instead: str
) -> None:
    with pytest.raises(ConfigError, match=instead):
        a_channel(kind, url=url)


def test_what_anybody_on_the_way_could_read_is_not_sent_unless_allowed(kind: str) -> None:
    with pytest.raises(ConfigError, match="allow_http"):
        a_channel(kind, url="http://chat.example.org/hook")
    a_channel(kind, url="http://chat.example.org/hook", allow_http=True).close()
    a_channel(kind, url="https://chat.example.org/hook").close()


def test_the_url_may_stand_in_a_variable(
    kind: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT_URL", receiver.url)
    channel = a_channel(kind, url_variable="CHAT_URL")
    assert channel.deliver(a_message()) == Delivered()
    channel.close()
    with pytest.raises(ConfigError, match="NO_SUCH_URL"):
        a_channel(kind, url_variable="NO_SUCH_URL")


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254/latest", "http://[fe80::1]/", "ftp://host/", "host/path", "http://["],
)
def test_a_wrong_url_is_refused_at_start_without_being_said(kind: str, url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        a_channel(kind, url=url)
    assert f"channel '{RECEIVERS[kind]().name}'" in str(refused.value)
    assert url not in str(refused.value)


def test_the_url_file_is_read_for_every_message(
    kind: str, receiver: Receiver, tmp_path: Path
) -> None:
    file = tmp_path / "url"
    file.write_text(f"{receiver.url}/one\n", encoding="utf-8")
    channel = a_channel(kind, url_file=file)
    channel.deliver(a_message())
    file.write_text(f"{receiver.url}/two\n", encoding="utf-8")
    channel.deliver(a_message())
    file.unlink()
    missing = channel.deliver(a_message())
    channel.close()
    one, two = [got.path.partition("?")[0] for got in receiver.received()]
    assert one.startswith("/hook/one")
    assert two.startswith("/hook/two")
    assert isinstance(missing, Retry)


def test_a_url_is_never_in_an_outcome_nor_in_the_log(
    kind: str, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for answer in (OK, Answer(400), Answer(500), RESET):
        receiver.answer(answer)
        outcome = deliver(kind, f"{receiver.url}/s3cret-t0ken")
        assert "s3cret" not in repr(outcome)
    assert "s3cret" not in caplog.text


def test_a_channel_may_be_named_in_any_script(kind: str, receiver: Receiver) -> None:
    name = "équipe 東 \x7f"
    channel = a_channel(kind, name=name, url=receiver.url)
    said = replace(a_message(), notice=f"i-1:{name}:1")
    assert channel.deliver(said) == Delivered()
    channel.close()
    (got,) = receiver.received()
    assert unquote(got.headers["Idempotency-Key"]) == f"i-1:{name}:1"


def test_a_body_that_repeats_the_url_is_not_said(kind: str, receiver: Receiver) -> None:
    receiver.answer(Answer(404, body=b"Cannot POST /hook/s3cret-t0ken"))
    outcome = deliver(kind, f"{receiver.url}/s3cret-t0ken")
    assert outcome == Retry(reason="127.0.0.1 answered 404")


@pytest.mark.parametrize("body", [b"x" * 100_000, b"\xff\xfe", b"", b"two words"])
def test_a_body_that_is_not_one_word_leaves_the_status(
    kind: str, receiver: Receiver, body: bytes
) -> None:
    receiver.answer(Answer(403, body=body))
    assert deliver(kind, receiver.url) == Retry(reason="127.0.0.1 answered 403")


def test_every_list_of_channels_is_a_setting() -> None:
    assert list(CHANNELS) == list(RECEIVERS)
    assert all(getattr(AlertsSettings(), key) == () for key in CHANNELS)


@pytest.mark.parametrize("names", [("a", "a"), ("",), ("a:b",), ("-",)])
def test_channels_need_names_of_their_own(names: tuple[str, ...]) -> None:
    webhooks = tuple(WebhookSettings(name=name, url="http://127.0.0.1:1/") for name in names)
    with pytest.raises(ConfigError):
        configured(AlertsSettings(webhooks=webhooks))


def test_channels_of_two_kinds_cannot_share_a_name() -> None:
    one = WebhookSettings(name="ops", url="http://127.0.0.1:1/")
    other = SlackSettings(name="ops", url="http://127.0.0.1:1/")
    with pytest.raises(ConfigError, match="two channels are named 'ops'"):
        configured(AlertsSettings(webhooks=(one,), slack=(other,)))
