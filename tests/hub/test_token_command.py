"""Tokens of nodes and readers: issued by a command, held against every request."""

import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpuvigil.clock import from_text
from gpuvigil.errors import ConfigError
from hub.http.bearer import Bearer, Scope
from hub.records import IssuedTokens, Transactions
from tests.hub.talk import Reply, ask, identity
from tests.servers import ROOT, HubProcess

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
LINE = "node,cluster=test,node={} load_average=1 1769860800"
EVENT = {
    "kind": "event",
    "id": "test/n1|boot|boot|test/n1|1",
    "at": "2026-01-31T12:00:00Z",
    "subject": "test/n1",
    "body": {},
    "version": 1,
}


def test_of_a_token_only_its_hash_is_kept(issued_tokens: IssuedTokens, tmp_path: Path) -> None:
    issued, token = issued_tokens.create(Scope.NODE, "rack 3", "test", "n1")
    for file in tmp_path.iterdir():
        assert token.rpartition("_")[2].encode() not in file.read_bytes()
    assert "sha256" not in issued.to_json()
    bearer = Bearer(scope=Scope.NODE, name="rack 3", cluster="test", node="n1")
    assert issued_tokens.bearer(token.encode()) == bearer
    assert issued_tokens.bearer(token[:-1].encode()) is None


def test_a_rotated_token_holds_until_its_end_and_the_new_one_at_once(
    issued_tokens: IssuedTokens, now: list[datetime]
) -> None:
    issued, old = issued_tokens.create(Scope.READER, "")
    _, new = issued_tokens.rotate(issued.id, timedelta(hours=1))
    assert issued_tokens.bearer(old.encode()) == issued_tokens.bearer(new.encode()) is not None
    now[0] += timedelta(hours=1)
    assert issued_tokens.bearer(old.encode()) is None
    assert issued_tokens.bearer(new.encode()) is not None
    with pytest.raises(KeyError):
        issued_tokens.rotate(issued.id, timedelta())


def test_a_rotation_does_not_prolong_what_was_to_end_sooner(
    issued_tokens: IssuedTokens, now: list[datetime]
) -> None:
    issued, old = issued_tokens.create(Scope.READER, "")
    issued_tokens.rotate(issued.id, timedelta(hours=1))
    issued_tokens.rotate(issued.id, timedelta(hours=9))
    now[0] += timedelta(hours=2)
    assert issued_tokens.bearer(old.encode()) is None


def test_what_another_hub_changes_counts_at_the_next_look(
    issued_tokens: IssuedTokens, transactions: Transactions, now: list[datetime]
) -> None:
    other = IssuedTokens(transactions, lambda: now[0])
    issued, token = other.create(Scope.READER, "")
    issued_tokens.refresh()
    assert issued_tokens.bearer(token.encode()) is not None
    _, new = other.rotate(issued.id, timedelta())
    issued_tokens.refresh()
    assert issued_tokens.bearer(token.encode()) is None
    assert issued_tokens.bearer(new.encode()) is not None


OLD = {
    "id": "3f9a01c2",
    "scope": "reader",
    "name": "old",
    "cluster": "",
    "node": "",
    "sha256": hashlib.sha256(b"old token").hexdigest(),
    "created_at": "2025-01-01T00:00:00.000000Z",
    "ends_at": None,
}


def test_tokens_of_a_file_are_taken_over_and_none_that_was_revoked_comes_back(
    issued_tokens: IssuedTokens, tmp_path: Path, now: list[datetime]
) -> None:
    file = tmp_path / "tokens.json"
    issued_tokens.import_file(file)
    for _ in range(2):  # a file that somebody puts back
        file.write_text(json.dumps({"format": 1, "tokens": [OLD]}))
        issued_tokens.import_file(file)
        assert not file.exists()
        assert [it.name for it in issued_tokens.all()] == ["old"]
    assert issued_tokens.bearer(b"old token") is not None
    issued_tokens.revoke(OLD["id"] or "")
    now[0] += timedelta(days=90)
    file.write_text(json.dumps({"format": 1, "tokens": [OLD]}))
    issued_tokens.import_file(file)
    assert issued_tokens.bearer(b"old token") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"format": 1, "tokens": [{"id": 1}]}', "does not hold tokens"),
        (json.dumps({"format": 1, "tokens": [{**OLD, "name": 5}]}), "does not hold tokens"),
        ("[]", "does not hold tokens"),
        ('{"format": 2, "tokens": []}', "newer gpuvigil"),
    ],
)
def test_a_file_that_is_damaged_is_one_line(
    tmp_path: Path, issued_tokens: IssuedTokens, text: str, said: str
) -> None:
    file = tmp_path / "tokens.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        issued_tokens.import_file(file)
    assert file.exists()


def test_what_ended_a_month_ago_is_no_longer_listed(
    issued_tokens: IssuedTokens, now: list[datetime]
) -> None:
    issued, _ = issued_tokens.create(Scope.READER, "")
    issued_tokens.revoke(issued.id)
    now[0] += timedelta(days=31)
    issued_tokens.create(Scope.READER, "another")
    assert [it.name for it in issued_tokens.all()] == ["another"]


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 2000])
def test_a_name_that_cannot_be_stored_is_said(issued_tokens: IssuedTokens, name: str) -> None:
    with pytest.raises(ValueError, match=r"name|surrogate"):
        issued_tokens.create(Scope.READER, name)


@pytest.mark.parametrize("scope", list(Scope))
def test_a_token_has_a_node_exactly_when_it_is_a_nodes(
    issued_tokens: IssuedTokens, scope: Scope
) -> None:
    wrong = ("", "") if scope is Scope.NODE else ("test", "n1")
    with pytest.raises(ValueError, match="a node's token"):
        issued_tokens.create(scope, "", *wrong)


@pytest.fixture(scope="module")
def own_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("tokens")) as process:
        yield process


def command(hub: HubProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    text = hub.config.read_text(encoding="utf-8")
    if "\nurl = " not in text:
        hub.config.write_text(f'{text}url = "{hub.url}"\n', encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "gpuvigil", "token", "--config", str(hub.config), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def issue(hub: HubProcess, *arguments: str) -> str:
    done = command(hub, "create", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def write(hub: HubProcess, token: str, line: str, headers: dict[str, str] | None = None) -> Reply:
    url = f"{hub.url}/api/v2/write?precision=s"
    return ask(url, line.encode(), token=token, headers=headers)


@pytest.mark.server
def test_a_nodes_token_writes_for_that_node_and_reads_nothing_but_its_inventory(
    own_hub: HubProcess,
) -> None:
    token = issue(own_hub, "--node", "n1", "--cluster", "test")
    url = own_hub.url
    before = own_hub.hub().status()["store"]["rows"]
    assert write(own_hub, token, LINE.format("n1"), identity(1)).status == 204
    for line, headers in (
        (LINE.format("n1"), identity(2, node="n2")),
        (LINE.format("n2"), identity(3)),
        (f"{LINE.format('n1')}\n{LINE.format('n2')}", identity(4)),
        (LINE.format("n1").replace("cluster=test", "cluster=other"), identity(5)),
        ("node load_average=1 5", identity(6)),
        ('node,cluster=test,node=n2 load_average=1,note="x" 5', identity(7)),
    ):
        refused = write(own_hub, token, line, headers)
        assert (refused.status, refused.json["code"]) == (403, "forbidden"), line
        assert "this token is of node n1 in test" in refused.json["message"]
    assert own_hub.hub().status()["store"]["rows"] == before + 1
    events = f"{url}/api/v1/records"
    assert ask(events, json.dumps(EVENT).encode(), token=token).status == 200
    for wrong in (
        {**EVENT, "id": "test/n1|2", "subject": "test/n2"},
        {**EVENT, "id": "test/n2|boot|gpu_lost|test/n2/gpu/GPU-0|1"},  # it would keep n2's out
        {**EVENT, "id": "test/n10|2"},
        {**EVENT, "kind": "inventory", "id": "test/n2"},
        {**EVENT, "kind": "incident", "id": "i"},
    ):
        assert ask(events, json.dumps(wrong).encode(), token=token).status == 403
    theirs = {**EVENT, "id": "theirs", "subject": "test/n2"}
    assert ask(events, json.dumps(theirs).encode(), token=own_hub.service_token).status == 200
    stolen = {**theirs, "subject": "test/n1", "version": 2}
    assert ask(events, json.dumps(stolen).encode(), token=token).status == 403
    own = f"{url}/api/v1/inventory?cluster=test&node="
    assert [ask(own + name, token=token).status for name in ("n1", "n2")] == [200, 403]
    assert ask(f"{url}/api/v1/status", token=token).status == 403


@pytest.mark.server
def test_a_readers_token_reads_and_changes_nothing(own_hub: HubProcess) -> None:
    token = issue(own_hub, "--scope", "reader", "--name", "grafana")
    url = own_hub.url
    for path in ("status", "records?kind=event", "changes?after=-1", "inventory?cluster=c&node=n"):
        assert ask(f"{url}/api/v1/{path}", token=token).status == 200
    question = json.dumps({"measurement": "node", "fields": ["load_average"], "since": EVENT["at"]})
    latest = ask(f"{url}/api/v1/telemetry/latest", question.encode(), token=token)
    assert latest.status == 200
    for path in ("records", "claim", "finish", "telemetry/forget", "tokens"):
        assert ask(f"{url}/api/v1/{path}", b"{}", token=token).status == 403
    assert write(own_hub, token, LINE.format("n1")).status == 403


@pytest.mark.server
def test_a_persons_and_a_teams_token_are_made_by_whose_they_are(own_hub: HubProcess) -> None:
    for option, scope in (("--person", "own"), ("--team", "team")):
        token = issue(own_hub, option, "alice")
        listed = command(own_hub, "list").stdout
        assert [scope, "-", "-", "alice"] == next(
            line.split()[1:5] for line in listed.splitlines() if token.split("_")[1] in line
        )
        assert ask(f"{own_hub.url}/api/v1/status", token=token).status == 200
        for more in (["--scope", "reader"], ["--name", "x"], ["--node", "n1"], ["--cluster", "c"]):
            assert command(own_hub, "create", option, "alice", *more).returncode == 2
        assert command(own_hub, "create", option, "").returncode != 0


@pytest.mark.server
def test_tokens_are_listed_rotated_and_revoked_by_a_command(own_hub: HubProcess) -> None:
    token = issue(own_hub, "--scope", "reader", "--name", "nightly")
    id_ = token.split("_")[1]
    status = f"{own_hub.url}/api/v1/status"
    listed = command(own_hub, "list").stdout
    assert "nightly" in listed
    assert token not in listed
    rotated = command(own_hub, "rotate", id_, "--overlap", "1h").stdout.strip()
    assert [ask(status, token=it).status for it in (token, rotated)] == [200, 200]
    assert command(own_hub, "revoke", id_).returncode == 0
    assert [ask(status, token=it).status for it in (token, rotated)] == [401, 200]
    again = command(own_hub, "revoke", id_)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "no token that holds" in again.stderr
    assert rotated not in own_hub.log.read_text()


@pytest.mark.server
def test_without_a_hub_its_database_is_written_and_keeps_its_owner(tmp_path: Path) -> None:
    with HubProcess(tmp_path) as hub:
        command(hub, "list")
        hub.stop()
        file = hub.data / "records.sqlite"
        before = file.stat()
        if os.geteuid() == 0:
            os.chown(file, 12345, 12345)
        token = issue(hub, "--node", "n9", "--cluster", "test")
        assert command(hub, "revoke", "nobody").returncode == 1
        after = file.stat()
        assert after.st_mode == before.st_mode
        if os.geteuid() == 0:
            assert {it.stat().st_uid for it in hub.data.glob("records.sqlite*")} == {12345}
            os.chown(file, before.st_uid, before.st_gid)
        hub.start()
        assert write(hub, token, LINE.format("n9")).status == 204


@pytest.mark.server
def test_where_something_answers_that_is_not_the_hub_nothing_is_written_here(
    tmp_path: Path, own_hub: HubProcess
) -> None:
    with HubProcess(tmp_path) as hub:
        hub.stop()
        file = hub.data / "records.sqlite"
        good = hub.config.read_text(encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]  # of nobody, after this
        for url, said in (
            (f"https://{own_hub.url.removeprefix('http://')}", "must begin with http://"),
            ("http://no-such-host.invalid:8428", "does not answer"),
            (f"http://192.0.2.1:1,http://127.0.0.1:{port}", "on its own machine"),
            (own_hub.url, "token is missing or wrong"),
        ):
            hub.config.write_text(f'{good}url = "{url}"\n', encoding="utf-8")
            before = file.read_bytes()
            done = command(hub, "create", "--scope", "reader")
            assert (done.returncode, done.stderr.count("\n"), done.stdout) == (1, 1, ""), url
            assert said in done.stderr
            assert file.read_bytes() == before
        hub.config.write_text(
            good.replace(str(hub.data), str(tmp_path / "elsewhere"))
            + f'url = "http://127.0.0.1:{port}"\n',
            encoding="utf-8",
        )
        done = command(hub, "list")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "to write into" in done.stderr


def test_ends_are_times(issued_tokens: IssuedTokens) -> None:
    issued, _ = issued_tokens.create(Scope.READER, "")
    issued_tokens.revoke(issued.id)
    assert [from_text(it.ends_at or "") for it in issued_tokens.all()] == [NOON]
