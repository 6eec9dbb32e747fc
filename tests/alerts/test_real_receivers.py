"""What real servers make of what is sent to them: mail, an Alertmanager, a service of Apprise's."""

import json
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from socket import create_server
from typing import Any

import pytest

from alerts.channels.alertmanager import Alertmanager
from alerts.channels.apprise import Apprise
from alerts.channels.email import TRIES_FOR_SOME, email
from alerts.decisions.attempts import Pause
from alerts.messages.channel import Delivered, Refused, Retry
from alerts.messages.message import Message, message
from alerts.routing.notice import Kind
from gpuvigil.config import AlertmanagerSettings, AppriseSettings, EmailSettings
from gpuvigil.errors import ConfigError
from gpuvigil.lifecycle import Signal
from tests.polling import wait_until
from tests.receiver import Answer, Receiver
from tests.servers import QuickHub

from .examples import REAL, opened, resolved
from .mailbox import Mailbox
from .process import AlertsProcess
from .test_message import noticed
from .test_service import Story

pytestmark = [pytest.mark.server, pytest.mark.site]

URL = "https://gpus.example.org"


def now() -> datetime:
    return datetime.now(timezone.utc)


def told() -> Message:
    begun = opened(subject=REAL, label="n1 GPU 5", since=now())
    return message(noticed(begun, Kind.FIRED), now(), URL)


def ended() -> Message:
    over = resolved(at=now(), subject=REAL, label="n1 GPU 5", since=now())
    return message(noticed(over, Kind.RESOLVED), now(), URL)


def test_a_mail_server_gets_one_thread_of_plain_text(
    mailbox: tuple[Mailbox, EmailSettings],
) -> None:
    box, settings = mailbox
    channel = email(settings, URL)
    assert channel.deliver(told()) == Delivered()
    assert channel.deliver(ended()) == Delivered()
    (envelope, first), (_, end) = box.mails
    assert (envelope.mail_from, envelope.rcpt_tos) == ("gpus@example.org", ["o@x.org"])
    assert first["Subject"] == "GPU fell off the bus: n1 GPU 5 (critical)"
    assert first["References"] == end["References"]
    assert first.get_content_type() == "text/plain"
    assert "Do now: Drain the node and reboot it." in first.get_content()
    assert end["Subject"].startswith("Resolved after ")


def test_owners_are_written_to_beside_the_others_and_once(
    mailbox: tuple[Mailbox, EmailSettings],
) -> None:
    box, settings = mailbox
    channel = email(replace(settings, owner_domain="lab.example"), URL)
    assert channel.deliver(replace(told(), for_owners=("alice",))) == Delivered()
    assert [one.rcpt_tos for one, _ in box.mails] == [["o@x.org"], ["alice@lab.example"]]
    box.answer = "451 Greylisted"
    assert isinstance(channel.deliver(replace(told(), for_owners=("alice",))), Retry)


def test_whom_a_server_does_not_take_for_now_is_written_to_later_and_the_others_once(
    mailbox: tuple[Mailbox, EmailSettings],
) -> None:
    box, settings = mailbox
    channel = email(replace(settings, owner_domain="x.org"), URL)
    said = replace(told(), for_owners=("alice", "bob"))
    box.greylisted = {"alice@x.org", "bob@x.org"}
    later = channel.deliver(said)
    assert later == Retry(reason="127.0.0.1 answered 450", perhaps_received=True, for_some=True)
    assert Pause().after(later, now(), 0.5) == Pause()  # others need not wait for alice
    box.greylisted = {"alice@x.org"}
    assert channel.deliver(said) == later
    box.greylisted = set()
    assert channel.deliver(said) == Delivered()
    readers = [one.rcpt_tos for one, _ in box.mails]
    assert readers == [["o@x.org"], ["bob@x.org"], ["alice@x.org"]]
    # Those who run the machines hear of it again, whatever becomes of an owner's full mailbox.
    box.greylisted = {"alice@x.org"}
    outcomes = [channel.deliver(said) for _ in range(TRIES_FOR_SOME)]
    assert outcomes == [later] * (TRIES_FOR_SOME - 1) + [Delivered()]


def test_a_password_that_cannot_be_sent_is_said_at_the_start_and_later_tried_again(
    mailbox: tuple[Mailbox, EmailSettings], tmp_path: Path
) -> None:
    file = tmp_path / "password"
    settings = replace(mailbox[1], user="gpus", password_file=file)
    file.write_text("plain\n")
    channel = email(settings, URL)
    file.write_text("geheimnisträger\n")
    with pytest.raises(ConfigError, match="has a letter that is not ASCII"):
        email(settings, URL)
    later = channel.deliver(told())
    assert isinstance(later, Retry)
    assert later.reason.endswith("has a letter that is not ASCII: it cannot be sent")


def test_a_mail_server_says_later_or_never(mailbox: tuple[Mailbox, EmailSettings]) -> None:
    box, settings = mailbox
    channel = email(settings, URL)
    box.answer = "451 Greylisted"
    assert channel.deliver(told()) == Retry(reason="127.0.0.1 answered 451")
    box.answer = "554 No such message"
    assert channel.deliver(told()) == Refused(reason="127.0.0.1 answered 554")


def test_a_mail_server_without_tls_gets_nothing_that_needs_it(
    mailbox: tuple[Mailbox, EmailSettings],
) -> None:
    box, settings = mailbox
    outcome = email(replace(settings, security="starttls"), URL).deliver(told())
    assert isinstance(outcome, Retry)
    assert box.mails == []


@pytest.fixture
def alertmanager(tmp_path: Path, needs: Callable[[str, str], str]) -> Iterator[str]:
    """Debian's, with a receiver that nobody hears of."""
    program = needs("prometheus-alertmanager", "apt-get install prometheus-alertmanager")
    with closing(create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    config = tmp_path / "alertmanager.yml"
    config.write_text("route: {receiver: none}\nreceivers: [{name: none}]\n", encoding="utf-8")
    url = f"http://127.0.0.1:{port}"
    with (tmp_path / "alertmanager.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        wait_until("Alertmanager is ready", lambda: is_ready(url), 40.0)
        yield url
    finally:
        process.kill()
        process.wait()


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5):
            return True
    except OSError:
        return False


def alerts_of(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


def test_an_alertmanager_believes_what_is_repeated_and_forgets_what_is_over(
    alertmanager: str,
) -> None:
    channel = Alertmanager(AlertmanagerSettings(url=alertmanager, resend_seconds=60.0))
    begun = told()
    assert channel.deliver(begun) == Delivered()
    (alert,) = alerts_of(alertmanager)
    assert alert["labels"]["alertname"] == "gpu_lost"
    assert alert["labels"]["incident"] == "i-1"
    assert alert["annotations"]["action"] == "Drain the node and reboot it."
    until = datetime.fromisoformat(alert["endsAt"])
    later = now() + timedelta(seconds=30)
    assert channel.resend([begun], later) == Delivered()
    (again,) = alerts_of(alertmanager)
    assert again["fingerprint"] == alert["fingerprint"]
    assert datetime.fromisoformat(again["endsAt"]) > until
    over = replace(ended(), starts_at=begun.starts_at)
    assert channel.deliver(over) == Delivered()
    channel.close()
    wait_until("the alert is over", lambda: alerts_of(alertmanager) == [])


def test_the_service_repeats_what_stands(alertmanager: str, tmp_path: Path) -> None:
    channel = {"list": "alertmanager", "url": alertmanager, "resend_seconds": 0.5}
    with QuickHub(tmp_path / "hub") as server:
        story = Story(server.hub())
        with AlertsProcess(server, tmp_path, am=channel):
            story.tell(Signal.CONFIRMED)
            wait_until("it was told", lambda: len(alerts_of(alertmanager)) == 1)
            # The analyzer keeps the incident itself beside its steps.
            server.hub().write_records([story.incident()])
            first = alerts_of(alertmanager)[0]["endsAt"]
            wait_until("it is repeated", lambda: alerts_of(alertmanager)[0]["endsAt"] > first)


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
def test_apprise_carries_plain_text_and_says_only_that_it_went_wrong() -> None:
    with Receiver() as receiver:
        address = f"json://127.0.0.1:{receiver.port}/hook"
        channel = Apprise(AppriseSettings(url=address))
        assert channel.deliver(told()) == Delivered()
        receiver.answer(Answer(500))
        outcome = channel.deliver(told())
        got = receiver.received()[0].payload
    assert got["title"] == "GPU fell off the bus: n1 GPU 5 (critical)"
    assert "Do now: Drain the node and reboot it." in got["message"]
    assert isinstance(outcome, Retry)


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
def test_apprise_says_at_start_that_it_knows_no_such_service() -> None:
    with pytest.raises(ConfigError) as refused:
        Apprise(AppriseSettings(url="nosuch://s3cret"))
    assert "s3cret" not in str(refused.value)
