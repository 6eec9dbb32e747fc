"""A copy of a cluster's objects, by a real HTTP server that cuts watches and loses versions."""

import ssl
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuvigil.errors import ConfigError
from gpuvigil.schedulers.kubernetes_api import (
    ApiError,
    ApiServer,
    Forbidden,
    Gone,
    NotThere,
    Object,
    path_of,
)
from integrations.kubernetes import objects
from integrations.kubernetes.mirror import Mirror
from integrations.kubernetes.objects import Pod
from tests.integrations.kubernetes.apiserver import PAGE, Cut, FakeApiServer, History, recorded
from tests.polling import wait_until

pytestmark = pytest.mark.server

PODS = "/api/v1/pods"
EVENTS = recorded("pods")


@pytest.fixture(scope="module")
def server() -> Iterator[FakeApiServer]:
    fake = FakeApiServer()
    yield fake
    fake.close()


@pytest.fixture
def fresh() -> Iterator[FakeApiServer]:
    fake = FakeApiServer()
    yield fake
    fake.close()


def mirror(server: FakeApiServer) -> Mirror[Pod]:
    return Mirror(ApiServer(server.url, None, None), PODS, objects.pod, lambda: None, 0.002)


def expected(history: History) -> dict[str, Pod]:
    state = history.state(len(history.events))
    return {uid: kept for uid, told in state.items() if (kept := objects.pod(told))}


def follow(server: FakeApiServer, history: History) -> Mirror[Pod]:
    """Until the last event is known and all cuts are made and overcome."""
    server.paths[PODS] = history
    found, stop = mirror(server), threading.Event()
    thread = threading.Thread(target=found.run, args=(stop,), daemon=True)
    thread.start()
    last = history.version(len(history.events))
    try:
        wait_until("the last event", lambda: found.version == last and history.settled, 60)
    finally:
        stop.set()
        thread.join(60)
    return found


CUTS = st.lists(
    st.builds(
        Cut,
        st.integers(0, 6),
        st.sampled_from(["end", "drop", "middle", "gone", "expired"]),
        st.integers(0, 5),
    ),
    max_size=6,
)


@given(st.integers(0, len(EVENTS)), CUTS)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_however_a_watch_is_cut_the_copy_is_the_same_in_the_end(
    server: FakeApiServer, now: int, cuts: list[Cut]
) -> None:
    history = History(EVENTS, now)
    history.cuts = list(cuts)
    copy = follow(server, history).copy()
    assert copy.objects == expected(history)
    assert copy.why == ""


def test_only_a_lost_version_lists_anew(server: FakeApiServer) -> None:
    history = History(EVENTS)
    history.cuts = [Cut(3, "drop"), Cut(2, "middle"), Cut(1, "end")]
    follow(server, history)
    assert history.lists == 1
    history = History(EVENTS)
    # A pod that is deleted while nobody listens is in no event that is ever told.
    history.cuts = [Cut(5, "expired", missed=12), Cut(0, "gone")]
    assert follow(server, history).copy().objects == expected(history)
    assert history.lists == 3


def test_what_was_known_is_kept_and_marked_while_the_server_is_away(
    fresh: FakeApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    fresh.paths[PODS] = History(EVENTS, len(EVENTS))
    found, stop = mirror(fresh), threading.Event()
    assert found.copy().why  # an empty copy that nobody filled is no empty cluster
    thread = threading.Thread(target=found.run, args=(stop,), daemon=True)
    thread.start()
    wait_until("a copy", lambda: not found.copy().why)
    fresh.failing = True
    wait_until("a failure", lambda: found.copy().why == "503: starting")
    assert found.copy().objects == expected(fresh.paths[PODS])
    fresh.failing = False
    wait_until("the end of it", lambda: not found.copy().why)
    stop.set()
    thread.join(60)
    assert caplog.text.count("the API server does not tell") == 1


def test_a_copy_that_cannot_be_made_anew_is_not_known(fresh: FakeApiServer) -> None:
    fresh.paths[PODS] = History(EVENTS, len(EVENTS))
    found, stop = mirror(fresh), threading.Event()
    thread = threading.Thread(target=found.run, args=(stop,), daemon=True)
    thread.start()
    wait_until("a copy", lambda: not found.copy().why)
    fresh.forgetful = True
    wait_until("that it is old", lambda: "too old resource version" in found.copy().why)
    assert found.copy().objects == expected(fresh.paths[PODS])
    fresh.forgetful = False
    wait_until("the end of it", lambda: not found.copy().why)
    stop.set()
    thread.join(60)


def changed(event: Mapping[str, Any], version: int, part: str, **fields: Any) -> dict[str, Any]:
    """That event, told anew at a version, with other fields in one part of its object."""
    told = {**event["object"], part: {**event["object"].get(part, {}), **fields}}
    told["metadata"] = {**told["metadata"], "resourceVersion": str(version)}
    return {"type": "MODIFIED", "object": told}


@pytest.mark.parametrize("listed", [1, 4])
def test_an_object_of_an_unexpected_form_costs_no_other_and_not_what_was_known_of_it(
    fresh: FakeApiServer, caplog: pytest.LogCaptureFixture, listed: int
) -> None:
    first, second = EVENTS[0], EVENTS[1]
    odd = [
        changed(first, 9001, "status", startTime="noon"),
        changed(
            first, 9002, "metadata", uid="x", name="nobodys", namespace=[], ownerReferences=[{}]
        ),
        changed(first, 9003, "metadata", uid="x", name="nobodys", ownerReferences=["y"]),
    ]
    found = follow(fresh, History([first, *odd, second], listed)).copy()
    known = [objects.pod(event["object"]) for event in (first, second)]
    assert list(found.objects.values()) == known[listed > 1 :]
    assert found.why == ""
    assert caplog.text.count("an object cannot be read") == 2  # each is said once


def test_an_answer_of_an_unexpected_form_ends_nothing(fresh: FakeApiServer) -> None:
    fresh.objects[PODS] = {"kind": "List", "items": ["x"]}
    found, stop = mirror(fresh), threading.Event()
    thread = threading.Thread(target=found.run, args=(stop,), daemon=True)
    thread.start()
    wait_until("that it is odd", lambda: "an unexpected form" in found.copy().why)
    fresh.paths[PODS] = History(EVENTS, len(EVENTS))
    del fresh.objects[PODS]
    wait_until("the end of it", lambda: not found.copy().why)
    assert found.copy().objects == expected(fresh.paths[PODS])
    stop.set()
    thread.join(60)


def test_errors_are_told_apart(fresh: FakeApiServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    fresh.token, fresh.objects = "new", {"/x": {"kind": "X"}}
    api = ApiServer(fresh.url, token, None)
    with pytest.raises(Forbidden, match="401"):
        api.get("/x")
    token.write_text("new\n")  # a pod's token is renewed while it runs
    assert api.get("/x") == {"kind": "X"}
    fresh.forbidden = {"/x"}
    with pytest.raises(Forbidden, match="403: pods is forbidden"):
        api.get("/x")
    with pytest.raises(NotThere):
        api.get("/y")
    fresh.paths[PODS] = History(EVENTS)
    fresh.paths[PODS].cuts = [Cut(0, "gone")]
    with pytest.raises(Gone):
        list(api.watch(PODS, "1"))
    with pytest.raises(ApiError, match="cannot read the service account's token"):
        ApiServer(fresh.url, tmp_path / "none", None).get("/x")
    with pytest.raises(ConfigError, match="api_url"):
        ApiServer("gpu-cluster:6443", None, None)


def test_the_servers_certificate_is_looked_at(fresh: FakeApiServer, tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    for name, of in (("ca", authority), ("other", stranger)):
        of.cert_pem.write_to_path(str(tmp_path / f"{name}.pem"))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    fresh._server.socket = context.wrap_socket(fresh._server.socket, server_side=True)
    fresh.objects = {"/x": {"kind": "X"}}
    url = fresh.url.replace("http:", "https:")
    assert ApiServer(url, None, tmp_path / "ca.pem").get("/x") == {"kind": "X"}
    with pytest.raises(ApiError, match="ca_file names who signs it"):
        ApiServer(url, None, tmp_path / "other.pem").get("/x")


def test_of_a_list_no_more_than_a_page_is_held(fresh: FakeApiServer) -> None:
    history = fresh.paths[PODS] = History(EVENTS, 11)
    asked_when_kept: list[int] = []

    def keep(told: Object) -> Pod | None:
        asked_when_kept.append(len(fresh.asked))
        return objects.pod(told)

    stop = threading.Event()
    stop.set()
    found = Mirror(ApiServer(fresh.url, None, None), PODS, keep, lambda: None)
    history.cuts = [Cut(0, "end")]
    found.once(stop)
    listed = len(history.state(11))
    # The first page was looked through before the second was asked for, and so on.
    assert asked_when_kept[:listed] == [1 + number // PAGE for number in range(listed)]
    state = history.state(11)
    kept = {uid: it for uid, told in state.items() if (it := objects.pod(told))}
    assert found.copy().objects == kept
    assert found.version == history.version(11)


def test_a_name_cannot_lead_elsewhere() -> None:
    assert path_of("v1", "pods", None) == PODS
    at = path_of("ray.io/v1", "rayjobs", "a", "../../nodes")
    assert at == "/apis/ray.io/v1/namespaces/a/rayjobs/..%2F..%2Fnodes"
