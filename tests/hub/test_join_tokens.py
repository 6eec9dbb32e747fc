"""Join tokens: each use gives one node one token of its own, and nothing else."""

import json
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, cast

import pytest

from collector.join import node_files
from collector.join.own_token import own_token
from collector.join.trusted_hub import Asked, exchange
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.hub_client.joining import PATH, id_of, is_join_token, made, sha256_of
from gpuvigil.model import Subject
from hub.auth.authentication import JOIN, WRITE, refusal
from hub.http.bearer import Scope
from hub.records import IssuedTokens, NotGivenError, Wanted
from tests.hub.in_process import HubThread
from tests.hub.talk import ask
from tests.hub.test_token_command import LINE, command, write
from tests.servers import HubProcess

HOUR = timedelta(hours=1)
INSTANT = timedelta(microseconds=1)


def wanted(node: str, token: str = "", cluster: str = "test") -> Wanted:
    given = token or made()
    return Wanted(cluster=cluster, node=node, id=id_of(given), sha256=sha256_of(given))


def offered(issued_tokens: IssuedTokens, uses: int, cluster: str = "test") -> str:
    issued, token = issued_tokens.create_join(uses, HOUR, "rack 3", cluster)
    assert is_join_token(token)
    assert id_of(token) == issued.id
    return issued.id


@pytest.mark.parametrize("uses", [1, 3])
def test_it_gives_as_many_tokens_as_it_has_uses_and_no_more(
    issued_tokens: IssuedTokens, uses: int
) -> None:
    id_ = offered(issued_tokens, uses)
    for number in range(uses):
        token = made()
        given = issued_tokens.join(id_, wanted(f"n{number}", token))
        bearer = issued_tokens.bearer(token.encode())
        assert bearer is not None
        assert (bearer.scope, bearer.cluster, bearer.node) == (Scope.NODE, "test", f"n{number}")
        assert given.name == id_
    with pytest.raises(NotGivenError, match=f"all {uses} uses of this join token are spent"):
        issued_tokens.join(id_, wanted("one-more"))
    # A token that is revoked brings its use not back.
    issued_tokens.revoke(given.id)
    with pytest.raises(NotGivenError, match="are spent"):
        issued_tokens.join(id_, wanted(f"n{uses - 1}"))


def test_the_same_request_again_takes_no_second_use(issued_tokens: IssuedTokens) -> None:
    id_ = offered(issued_tokens, 2)
    first, second = wanted("n1"), wanted("n2")
    assert len({issued_tokens.join(id_, first).id for _ in range(3)}) == 1
    issued_tokens.join(id_, second)
    assert issued_tokens.join(id_, first).sha256 == first.sha256
    with pytest.raises(NotGivenError, match="are spent"):
        issued_tokens.join(id_, wanted("n3"))
    issued_tokens.revoke(first.id)
    with pytest.raises(NotGivenError, match="another token has had this id"):
        issued_tokens.join(id_, first)


def test_another_tokens_id_is_not_taken_over(issued_tokens: IssuedTokens) -> None:
    id_ = offered(issued_tokens, 3)
    first = wanted("n1")
    issued_tokens.join(id_, first)
    for other in (
        Wanted(cluster="test", node="n2", id=first.id, sha256=first.sha256),
        Wanted(cluster="test", node="n1", id=first.id, sha256="0" * 64),
    ):
        with pytest.raises(NotGivenError, match="another token has had this id"):
            issued_tokens.join(id_, other)


def test_a_node_that_has_a_token_gets_a_second_only_once_that_is_revoked(
    issued_tokens: IssuedTokens,
) -> None:
    id_ = offered(issued_tokens, 3)
    made_by_hand, _ = issued_tokens.create(Scope.NODE, "", "test", "n1")
    with pytest.raises(NotGivenError, match=f"gpuvigil token revoke {made_by_hand.id}") as refused:
        issued_tokens.join(id_, wanted("n1"))
    assert refused.value.in_use
    issued_tokens.join(offered(issued_tokens, 1, ""), wanted("n1", cluster="other"))
    issued_tokens.revoke(made_by_hand.id)
    issued_tokens.join(id_, wanted("n1"))


def test_it_ends_when_it_was_said(issued_tokens: IssuedTokens, now: list[datetime]) -> None:
    issued, token = issued_tokens.create_join(9, HOUR, "", "test")
    now[0] += HOUR - INSTANT
    assert issued_tokens.bearer(token.encode()) is not None
    issued_tokens.join(issued.id, wanted("n1"))
    now[0] += INSTANT
    assert issued_tokens.bearer(token.encode()) is None
    with pytest.raises(NotGivenError, match="has ended"):
        issued_tokens.join(issued.id, wanted("n2"))


def test_what_is_no_join_token_gives_none(issued_tokens: IssuedTokens) -> None:
    for scope in (Scope.SERVICE, Scope.COLLECTOR, Scope.READER):
        issued, _ = issued_tokens.create(scope, "")
        with pytest.raises(NotGivenError, match="has ended"):
            issued_tokens.join(issued.id, wanted("n1"))
    id_ = offered(issued_tokens, 1)
    with pytest.raises(NotGivenError, match="nodes of the cluster test, and not of prod"):
        issued_tokens.join(id_, wanted("n1", cluster="prod"))
    with pytest.raises(ValueError, match="not rotated"):
        issued_tokens.rotate(id_, HOUR)
    with pytest.raises(ValueError, match="gpuvigil token join"):
        issued_tokens.create(Scope.JOIN, "")
    issued_tokens.revoke(id_)
    with pytest.raises(NotGivenError, match="has ended"):
        issued_tokens.join(id_, wanted("n1"))


@pytest.mark.parametrize("uses", [0, -1, 10_001])
def test_a_number_of_uses_has_limits(issued_tokens: IssuedTokens, uses: int) -> None:
    with pytest.raises(ValueError, match="from 1 to 10000 uses"):
        issued_tokens.create_join(uses, HOUR)
    for right in (1, 10_000):
        issued_tokens.create_join(right, HOUR)


def test_so_has_its_time(issued_tokens: IssuedTokens) -> None:
    second, longest = timedelta(seconds=1), timedelta(days=90)
    for wrong in (timedelta(0), second - INSTANT, -HOUR, longest + INSTANT):
        with pytest.raises(ValueError, match="from 1 s to 90 days"):
            issued_tokens.create_join(1, wrong)
    for right in (second, longest):
        issued_tokens.create_join(1, right)


@pytest.mark.parametrize(
    "wrong",
    [{"id": "3F9A01C2"}, {"id": "join-1-3"}, {"sha256": "0" * 63}, {"node": ""}, {"cluster": ""}]
    + [{"cluster": name} for name in ("simulated", "selftest")],
)
def test_what_is_no_nodes_token_is_told(wrong: dict[str, str]) -> None:
    right = {"cluster": "test", "node": "n1", "id": "3f9a01c2", "sha256": "0" * 64}
    Wanted(**right)
    with pytest.raises(ValueError, match=r"a node's token needs|hexadecimal|is of no node"):
        Wanted(**{**right, **wrong})


def test_of_two_at_the_same_time_one_gets_the_last_use(issued_tokens: IssuedTokens) -> None:
    for turn in range(3):
        id_ = offered(issued_tokens, 1)
        together, given, refused = threading.Barrier(2), [], []

        def join(node: str, id_: str = id_, together: threading.Barrier = together) -> None:
            asked = wanted(node)
            together.wait()
            try:
                given.append(issued_tokens.join(id_, asked))  # noqa: B023 - it ends in this turn
            except NotGivenError as error:
                refused.append(error)  # noqa: B023 - as above

        threads = [threading.Thread(target=join, args=(f"n{turn}-{it}",)) for it in range(2)]
        for it in threads:
            it.start()
        for it in threads:
            it.join()
        assert (len(given), len(refused)) == (1, 1)


class OfALaterVersion(Enum):
    """A scope that this hub does not know."""

    NEWER = "newer"


def test_a_join_token_opens_one_call_and_an_unknown_scope_none() -> None:
    calls = [
        WRITE,
        ("POST", "/api/v1/records"),
        ("GET", "/api/v1/status"),
        ("GET", "/api/v1/tokens"),
    ]
    for call in (*calls, JOIN):
        assert refusal(Scope.SERVICE, call) is None
        assert refusal(cast(Any, OfALaterVersion.NEWER), call) == "this token opens nothing"
        assert (refusal(Scope.JOIN, call) is None) == (call == JOIN)
    for scope in set(Scope) - {Scope.SERVICE, Scope.JOIN}:
        assert refusal(scope, JOIN) is not None


@pytest.fixture(scope="module")
def own_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubThread(tmp_path_factory.mktemp("joining")) as process:
        yield process


def join_token(hub: HubProcess, *more: str) -> str:
    done = command(hub, "join", "--cluster", "test", *more)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.mark.server
def test_a_join_token_neither_writes_nor_reads(own_hub: HubProcess) -> None:
    token = join_token(own_hub)
    assert write(own_hub, token, LINE.format("n1")).status == 403
    for path in ("status", "records?kind=event", "inventory?cluster=test&node=n1", "tokens"):
        refused = ask(f"{own_hub.url}/api/v1/{path}", token=token)
        assert (refused.status, "a join token may only" in refused.json["message"]) == (403, True)
    for path in ("records", "claim", "tokens", "tokens/join", "telemetry/latest"):
        assert ask(f"{own_hub.url}/api/v1/{path}", b"{}", token=token).status == 403
    assert ask(f"{own_hub.url}{PATH}", b"{}", token=own_hub.service_token).status == 403
    for body in (b"{}", b'{"cluster": 1}', b"[]", b"x"):
        assert ask(f"{own_hub.url}{PATH}", body, token=token).status == 400
    assert token not in own_hub.log.read_text() if own_hub.log.exists() else True


@pytest.mark.server
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--uses", "0"), "from 1 to 10000 uses"),
        (("--for", "0s"), "from 1 s to 90 days"),
        (("--for", "91d"), "is not a time like"),
    ],
)
def test_what_makes_no_sense_is_refused_by_the_command(
    own_hub: HubProcess, given: tuple[str, ...], said: str
) -> None:
    done = command(own_hub, "join", *given)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.server
def test_the_hub_takes_uses_and_seconds_as_numbers_alone(own_hub: HubProcess) -> None:
    for uses, seconds in ((True, 60), (1.0, 60), (1, "60"), (1, None), (None, 60), (1, 1e300)):
        body = json.dumps({"uses": uses, "seconds": seconds}).encode()
        answer = ask(f"{own_hub.url}/api/v1/tokens/join", body, token=own_hub.service_token)
        assert answer.status == 400, (uses, seconds)


@pytest.mark.server
def test_a_node_gets_its_own_token_and_keeps_it_over_tries_and_lost_answers(
    own_hub: HubProcess, tmp_path: Path
) -> None:
    join, said = join_token(own_hub, "--uses", "2"), list[str]()
    asked = Asked(url=own_hub.url, token=join, authority=None)
    node = Subject(cluster="test", node="n7")
    # The hub gave it, and the answer was lost.
    lost = made()
    node_files.keep_pending(lost, tmp_path)
    exchange(asked, node, lost)
    assert own_token(asked, node, tmp_path, said.append) == lost
    assert write(own_hub, lost, LINE.format("n7")).status == 204
    assert write(own_hub, lost, LINE.format("n8")).status == 403
    joining = node_files.Joining(url=own_hub.url, token=lost, authority=None, cluster="test")
    node_files.write(joining, tmp_path, replace=False)
    assert sorted(it.name for it in tmp_path.iterdir()) == ["collector-token", "collector.toml"]
    assert own_token(asked, node, tmp_path, said.append) == lost
    assert said == [f"kept       this node's token {id_of(lost)}, no use is taken"] * 2
    # The second use is there still; then none.
    other, third = tmp_path / "other", tmp_path / "third"
    token = own_token(asked, Subject(cluster="test", node="n8"), other, said.append)
    assert (other / node_files.PENDING).stat().st_mode & 0o777 == 0o600
    assert write(own_hub, token, LINE.format("n8")).status == 204
    with pytest.raises(GpuvigilError, match=r"gives this node no token: .*all 2 uses"):
        own_token(asked, Subject(cluster="test", node="n9"), third, said.append)
    assert not (third / node_files.PENDING).exists()


@pytest.mark.server
def test_a_token_for_any_node_is_not_kept_for_the_nodes_own(
    own_hub: HubProcess, tmp_path: Path
) -> None:
    (tmp_path / node_files.TOKEN).write_text(f"{own_hub.collector_token}\n")
    asked = Asked(url=own_hub.url, token=join_token(own_hub), authority=None)
    node = Subject(cluster="test", node="n20")
    assert own_token(asked, node, tmp_path, print) != own_hub.collector_token


def test_a_configuration_that_stays_is_told_before_a_use_is_taken(tmp_path: Path) -> None:
    one = node_files.Joining(url="https://hub1:8428", token="t", authority=None, cluster="test")
    other = node_files.Joining(url="https://hub2:8428", token="t", authority=None, cluster="test")
    node_files.check(one, tmp_path, replace=False)
    node_files.write(one, tmp_path, replace=False)
    node_files.check(one, tmp_path, replace=False)
    node_files.check(other, tmp_path, replace=True)
    with pytest.raises(ConfigError, match="says something else"):
        node_files.check(other, tmp_path, replace=False)
