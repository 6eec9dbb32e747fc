"""Who comes in, and what they may do."""

import os

import pytest

from tests.hub.talk import ask
from tests.servers import HubProcess

pytestmark = pytest.mark.server

OPEN = ["/ping", "/health", "/healthz", "/readyz", "/metrics"]


@pytest.mark.parametrize("path", OPEN)
def test_probes_and_numbers_need_no_token(hub: HubProcess, path: str) -> None:
    assert ask(hub.url + path).status in {200, 204}


@pytest.mark.parametrize(
    "path", ["/api/v2/write", "/api/v1/records", "/api/v1/status", "/", "/nothing", "/metrics/"]
)
@pytest.mark.parametrize("authorization", [None, "Token wrong", "Token ", "Basic eDp5", "\xff"])
def test_everything_else_is_401_for_a_stranger(
    hub: HubProcess, path: str, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    for body in (None, b"x"):
        answer = ask(hub.url + path, body, headers=headers)
        assert answer.status == 401
        assert answer.json["code"] == "unauthorized"


def test_bearer_is_as_good_as_token(hub: HubProcess) -> None:
    headers = {"Authorization": f"Bearer {hub.service_token}"}
    assert ask(f"{hub.url}/api/v1/status", headers=headers).status == 200


@pytest.mark.parametrize("path", ["/api/v1/status", "/api/v1/changes?after=0", "/api/v1/records"])
def test_a_collector_reads_nothing(hub: HubProcess, path: str) -> None:
    answer = ask(hub.url + path, token=hub.collector_token)
    assert (answer.status, answer.json["code"]) == (403, "forbidden")


@pytest.mark.parametrize("path", ["claim", "finish", "telemetry/latest", "telemetry/forget"])
def test_a_collector_asks_for_nothing(hub: HubProcess, path: str) -> None:
    answer = ask(f"{hub.url}/api/v1/{path}", b"{}", token=hub.collector_token)
    assert answer.status == 403


def test_an_unknown_path_is_404_and_a_wrong_method_405_as_json(hub: HubProcess) -> None:
    nothing = ask(f"{hub.url}/nothing", token=hub.service_token)
    assert (nothing.status, nothing.json["code"]) == (404, "not found")
    wrong = ask(f"{hub.url}/api/v1/status", b"", token=hub.service_token, method="DELETE")
    assert wrong.status == 405
    verb = ask(f"{hub.url}/api/v1/telemetry/guess", b"{}", token=hub.service_token)
    assert verb.status == 404


def test_a_rotated_token_counts_at_once_and_half_a_rotation_keeps_the_old(hub: HubProcess) -> None:
    file = hub.service_token_file
    old = hub.service_token
    url = f"{hub.url}/api/v1/status"
    try:
        file.write_text("", encoding="utf-8")
        assert ask(url, token=old).status == 200
        file.unlink()
        assert ask(url, token=old).status == 200
        draft = file.with_suffix(".new")
        draft.write_text("another-token\n", encoding="utf-8")
        os.replace(draft, file)
        assert ask(url, token="another-token").status == 200
        assert ask(url, token=old).status == 401
    finally:
        file.write_text(f"{old}\n", encoding="utf-8")
    assert ask(url, token=old).status == 200
    log = hub.log.read_text(encoding="utf-8")
    assert "token kept" in log
    assert old not in log
    assert "another-token" not in log


def test_the_numbers_say_what_was_written(hub: HubProcess) -> None:
    ask(f"{hub.url}/api/v2/write", b"node,node=m load_average=1\nx", token=hub.service_token)
    text = ask(f"{hub.url}/metrics").body.decode()
    for name in (
        "lines_total",
        "bodies_total",
        "duplicate_bodies_total",
        "refused_lines_total",
        "failed_commits_total 0.0",
        "records_total",
        "queue_bytes 0.0",
        "commit_seconds_bucket",
    ):
        assert f"gpuvigil_hub_{name}" in text
