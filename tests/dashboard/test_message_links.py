"""A message's link answers for its incident without a sign-in, and only when its form is sent."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette

from dashboard.auth.auth_middleware import AuthMiddleware
from dashboard.auth.keys import Keys
from dashboard.incidents.message_links import MessageLinkRoutes
from gpuvigil.clock import ManualClock
from gpuvigil.hub_client import Hub
from gpuvigil.matching.matchers import covered, labels_of
from gpuvigil.model import (
    Acknowledgement,
    Impact,
    Incident,
    Opinion,
    RecordKind,
    Severity,
    Silence,
    Subject,
)
from gpuvigil.web.signed_links import LIFE, PATH, Seal
from tests.polling import wait_until
from tests.servers import HubProcess, QuickHub

pytestmark = pytest.mark.server

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=timezone.utc)
SEAL = Seal(lambda: "k" * 40)
GPU = Subject(cluster="lab", node="n1", gpu="GPU-1")
INCIDENT = Incident(
    id="i-1",
    fingerprint="f",
    fault="gpu_lost",
    subject=GPU,
    severity=Severity.CRITICAL,
    state="open",
    title="GPU <b>fell</b> off the bus",
    since=NOW,
    updated_at=NOW,
    impact=Impact(gpus=1),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with QuickHub(tmp_path_factory.mktemp("hub")) as process:
        process.hub().write_records([INCIDENT.to_record()])
        yield process


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@contextmanager
def served(
    connect: Callable[[], Hub], clock: ManualClock, directory: Path
) -> Iterator[httpx.Client]:
    """Who is not signed in, at the door of a dashboard that has these routes."""
    app = Starlette(routes=MessageLinkRoutes(SEAL, connect, clock).routes())
    keys = Keys(directory / "secrets")
    door = AuthMiddleware(app, keys=keys, clock=clock, policy="default-src 'none'", signed=True)
    config = uvicorn.Config(door, log_config=None, lifespan="off")
    web = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=web.run, args=([listener],))
        thread.start()
        wait_until("it listens", lambda: web.started)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with httpx.Client(base_url=url, timeout=30.0, trust_env=False) as client:
            yield client
        web.should_exit = True
        thread.join()


@pytest.fixture
def client(server: HubProcess, clock: ManualClock, tmp_path: Path) -> Iterator[httpx.Client]:
    with served(lambda: Hub(server.url, lambda: server.service_token), clock, tmp_path) as client:
        yield client


def link(incident: str = "i-1") -> str:
    return PATH + SEAL.token(incident, NOW)


def test_a_link_that_is_merely_opened_changes_nothing_and_shows_no_markup_of_strangers(
    server: HubProcess, client: httpx.Client
) -> None:
    answer = client.get(f"{link()}?do=silence")
    assert answer.status_code == 200
    assert "<b>" not in answer.text
    assert "GPU &lt;b&gt;fell" in answer.text
    assert answer.text.index("Silence for 4 h") < answer.text.index("Acknowledge")
    assert "script-src" not in answer.headers["Content-Security-Policy"]
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    for kind in (RecordKind.ACKNOWLEDGEMENT, RecordKind.SILENCE, RecordKind.OPINION):
        assert server.hub().records(kind) == ()


def test_the_form_takes_it_silences_it_and_says_what_it_was_worth_once_however_often_it_is_sent(
    server: HubProcess, client: httpx.Client
) -> None:
    for answer in ("acknowledge", "silence", "noise", "useful"):
        for _ in range(2):
            said = client.post(link(), data={"by": "Ada L.", "answer": answer})
            assert said.status_code == 200
    hub = server.hub()
    (taken,) = map(Acknowledgement.from_record, hub.records(RecordKind.ACKNOWLEDGEMENT))
    (silence,) = map(Silence.from_record, hub.records(RecordKind.SILENCE))
    (opinion,) = map(Opinion.from_record, hub.records(RecordKind.OPINION))
    assert (taken.incident, taken.by) == ("i-1", "Ada L.")
    assert silence.matchers == ('fault="gpu_lost"', 'cluster="lab"', 'node="n1"', 'gpu="GPU-1"')
    assert silence.ends_at - silence.starts_at == timedelta(hours=4)
    assert (opinion.fault, opinion.by) == ("gpu_lost", "Ada L.")


def test_what_is_over_is_not_taken_and_what_stands_says_what_to_do(
    server: HubProcess, client: httpx.Client
) -> None:
    stands = replace(INCIDENT, id="i-stands", action="Drain the node <b>now</b>.")
    over = replace(stands, id="i-over", state="resolved")
    server.hub().write_records([stands.to_record(), over.to_record()])
    shown, ended = (client.get(link(one.id)).text for one in (stands, over))
    assert "Do now: Drain the node &lt;b&gt;now" in shown
    assert "Acknowledge" in shown
    assert "Do now" not in ended
    assert "Acknowledge" not in ended
    assert "Noise" in ended
    said = client.post(link("i-over"), data={"by": "ada", "answer": "acknowledge"})
    assert "nothing to acknowledge" in said.text
    assert server.hub().records(RecordKind.ACKNOWLEDGEMENT, parent="i-over") == ()


def test_a_silence_that_was_ended_is_made_again_by_the_same_link(
    server: HubProcess, client: httpx.Client, clock: ManualClock
) -> None:
    def made() -> Silence:
        found = map(Silence.from_record, server.hub().records(RecordKind.SILENCE))
        (one,) = [it for it in found if it.by == "eve"]
        return one

    sent = {"by": "eve", "answer": "silence"}
    assert client.post(link(), data=sent).status_code == 200
    server.hub().write_records([made().ended(clock.now()).to_record()])
    assert not made().holds(clock.now())
    clock.advance(0.5)
    assert client.post(link(), data=sent).status_code == 200
    assert made().holds(clock.now())


def test_what_came_back_is_taken_anew_by_the_same_link_and_name(
    server: HubProcess, client: httpx.Client
) -> None:
    def taken() -> int:
        return len(server.hub().records(RecordKind.ACKNOWLEDGEMENT, parent="i-back"))

    first = replace(INCIDENT, id="i-back")
    back = replace(first, since=NOW + timedelta(hours=1), version=2)
    for incident, times in ((first, 1), (back, 2)):
        server.hub().write_records([incident.to_record()])
        for _ in range(2):
            client.post(link("i-back"), data={"by": "ada", "answer": "acknowledge"})
        assert taken() == times


def test_a_silence_of_what_is_about_several_places_is_of_that_incident(
    server: HubProcess, client: httpx.Client
) -> None:
    wide = replace(INCIDENT, id="i-wide", members=("lab/n1/gpu/GPU-1", "lab/n2/gpu/GPU-2"))
    server.hub().write_records([wide.to_record()])
    assert client.post(link("i-wide"), data={"by": "bob", "answer": "silence"}).status_code == 200
    made = map(Silence.from_record, server.hub().records(RecordKind.SILENCE))
    (silence,) = [one for one in made if one.by == "bob"]
    assert silence.matchers == ('incident="i-wide"',)
    assert covered(silence.matchers, labels_of(wide))


def test_who_silences_it_again_later_silences_it_for_as_long_again(
    server: HubProcess, client: httpx.Client, clock: ManualClock
) -> None:
    for _ in range(2):
        clock.advance(3600)
        assert client.post(link(), data={"by": "eve", "answer": "silence"}).status_code == 200
    made = map(Silence.from_record, server.hub().records(RecordKind.SILENCE))
    (silence,) = [one for one in made if one.by == "eve"]
    assert silence.ends_at == NOW + timedelta(hours=6)
    assert silence.holds(clock.now())


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"by": " ", "answer": "acknowledge"}, 400),
        ({"by": "ada", "answer": "delete"}, 400),
        ({"by": "ada" * 3000, "answer": "acknowledge"}, 200),  # too long a form is none
    ],
)
def test_a_form_that_is_not_ours_keeps_nothing(
    server: HubProcess, client: httpx.Client, form: dict[str, str], status: int
) -> None:
    before = server.hub().records(RecordKind.ACKNOWLEDGEMENT)
    assert client.post(link(), data=form).status_code == status
    assert server.hub().records(RecordKind.ACKNOWLEDGEMENT) == before


def test_a_link_that_is_old_or_made_up_or_of_nothing_says_so(
    client: httpx.Client, clock: ManualClock
) -> None:
    assert client.get(f"{PATH}made.up").status_code == 403
    assert client.get(link("i-gone")).status_code == 404
    clock.advance(LIFE.total_seconds())
    assert client.post(link(), data={"by": "ada", "answer": "acknowledge"}).status_code == 403


def test_a_hub_that_is_away_is_said_and_keeps_the_form_worth_sending_again(
    clock: ManualClock, tmp_path: Path
) -> None:
    with served(lambda: Hub("http://127.0.0.1:9", lambda: "t"), clock, tmp_path) as client:
        answer = client.post(link(), data={"by": "ada", "answer": "acknowledge"})
    assert answer.status_code == 503
    assert "Not saved" in answer.text


def test_the_incident_is_read_as_it_is_now(server: HubProcess, client: httpx.Client) -> None:
    server.hub().write_records([replace(INCIDENT, version=2, acknowledged_by="bob").to_record()])
    assert "taken by bob" in client.get(link()).text
