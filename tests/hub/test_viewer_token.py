"""A viewer's token reads what there is, and nobody's name: whatever it asks for, and however."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from accounting.usage.columns import SHARES, unpacked
from cli import table_commands
from gpuvigil.errors import HubRefused
from gpuvigil.hub_client import Hub
from gpuvigil.model import Event, EventKind, Record, RecordKind
from hub.http.bearer import Scope
from tests.accounting.people.scene import GPU, NODE, NOON, OTHER_TEAM, SECRETS, STRANGER, records
from tests.hub.in_process import HubThread
from tests.hub.talk import ask
from tests.servers import HubProcess

ALL = tuple(records())
KINDS = list(RecordKind)
# People's names and words are nobody's but operators'.
OF_OPERATORS = {RecordKind.AUDIT, RecordKind.REPORT, RecordKind.LETTER}
POD = next(one for one in ALL if "ml/zorn-private-0" in str(one.body.get("pod")))
# It names somebody whom it does not say to be a person.
LATER = Event(
    kind=EventKind.XID, subject=GPU, at=NOON, id="e2", xid=31, message=f"as {STRANGER} says"
)


def token_of(hub: HubProcess, scope: str) -> str:
    asked = json.dumps({"scope": scope, "name": scope}).encode()
    answer = ask(f"{hub.url}/api/v1/tokens", asked, token=hub.service_token)
    return str(answer.json["token"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubThread(tmp_path_factory.mktemp("viewer")) as hub:
        hub.hub().write_records(ALL)
        yield hub


@pytest.fixture(scope="module")
def viewer(site: HubProcess) -> str:
    return token_of(site, "viewer")


def text(found: dict[str, object]) -> str:
    """All of a record as it is answered, also what lies packed in it."""
    said = json.dumps(found).casefold()
    if found["kind"] in {"usage", "usage_span"}:
        said += str(unpacked(found["body"]["holders"], SHARES).to_pylist()).casefold()  # type: ignore[index]
    return said


def names_in(found: list[dict[str, object]]) -> list[str]:
    return [text(one) for one in found if any(name in text(one) for name in SECRETS)]


def asked(hub: HubProcess, token: str, path: str) -> list[dict[str, object]]:
    answer = ask(f"{hub.url}/api/v1/{path}", token=token)
    assert answer.status == 200, answer
    found: list[dict[str, object]] = answer.json["records"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_of_every_kind_a_viewer_sees_rows_and_no_name(
    site: HubProcess, viewer: str, kind: RecordKind
) -> None:
    found = asked(site, viewer, f"records?kind={kind.value}")
    assert not names_in(found)
    if kind in OF_OPERATORS:
        assert not found
    else:
        assert len(found) == len([one for one in ALL if one.kind is kind])
        assert all(Record.from_json(one).sequence for one in found)


def test_neither_news_nor_an_inventory_names_anybody(site: HubProcess, viewer: str) -> None:
    kinds = ",".join(kind.value for kind in KINDS)
    news = asked(site, viewer, f"changes?after=0&kinds={kinds}")
    assert {one["kind"] for one in news} == {kind.value for kind in set(KINDS) - OF_OPERATORS}
    assert not names_in(news)
    held = asked(site, viewer, f"inventory?cluster={NODE.cluster}&node={NODE.node}&held=1")
    assert "allocation" in {one["kind"] for one in held}
    assert not names_in(held)


def test_a_reader_sees_names_and_so_did_one_before(site: HubProcess) -> None:
    reader = token_of(site, "reader")
    found = asked(site, reader, "records?kind=allocation")
    assert names_in(found)
    assert asked(site, reader, "records?kind=audit")
    assert asked(site, reader, "records?kind=allocation&holder=pod%20ml/zorn-private-0")


@pytest.mark.parametrize(
    ("question", "answered"),
    [
        ("kind=allocation&holder=pod%20ml/zorn-private-0", False),
        (f"kind=allocation&id={quote(POD.id)}", False),
        ("kind=job&subject=prod", True),
        ("kind=job&parent=job%203", True),  # a number names nobody
        ("kind=allocation&holder=job%203", True),
        ("kind=incident&id=0123456789abcdef-1", True),
        ("kind=transition&parent=0123456789abcdef-1", True),
    ],
)
def test_no_guess_of_a_name_is_confirmed(
    site: HubProcess, viewer: str, question: str, answered: bool
) -> None:
    assert bool(asked(site, viewer, f"records?{question}")) == answered
    assert asked(site, token_of(site, "reader"), f"records?{question}")  # it is there


@pytest.mark.medium
def test_whoever_was_named_before_the_hub_started_is_known_at_its_first_question(
    tmp_path: Path,
) -> None:
    with HubThread(tmp_path) as hub:
        hub.hub().write_records(ALL)
        viewer = token_of(hub, "viewer")
        numbers = {one["id"] for one in asked(hub, viewer, "records?kind=job")}
        hub.restart()
        hub.hub().write_records([LATER.to_record()])
        found = asked(hub, viewer, "records?kind=event&id=e2")
        assert len(found) == 1
        assert not names_in(found)
        # What stands for a job stays the same over a start, so that two answers fit together.
        assert {one["id"] for one in asked(hub, viewer, "records?kind=job")} == numbers


def test_who_is_named_while_the_hub_runs_is_known_at_the_next_question(
    site: HubProcess, viewer: str
) -> None:
    told = replace(LATER, id="e3", message="as newcomer-77 says").to_record()
    assert "newcomer-77" in text(_written(site, viewer, told))
    held = next(one for one in ALL if one.kind is RecordKind.ALLOCATION)
    site.hub().write_records([replace(held, id="other", body={**held.body, "user": "newcomer-77"})])
    assert "newcomer-77" not in text(asked(site, viewer, "records?kind=event&id=e3")[0])


def _written(hub: HubProcess, viewer: str, record: Record) -> dict[str, object]:
    hub.hub().write_records([record])
    (found,) = asked(hub, viewer, f"records?kind=event&id={record.id}")
    return found


def test_a_viewer_changes_nothing_and_reads_no_tokens(site: HubProcess, viewer: str) -> None:
    client = Hub(site.url, lambda: viewer)
    try:
        with pytest.raises(HubRefused) as refused:
            client.write_records([LATER.to_record()])
        assert refused.value.status == 403
        assert client.status()["sequence"]
    finally:
        client.close()
    for path in ("tokens", "store"):
        assert ask(f"{site.url}/api/v1/{path}", token=viewer).status == 403
    for path in ("claim", "finish", "telemetry/forget", "tokens"):
        assert ask(f"{site.url}/api/v1/{path}", b"{}", token=viewer).status == 403
    answer = ask(f"{site.url}/api/v1/telemetry/latest", b"{}", token=viewer)
    assert answer.status == 400  # let in, and no question


@pytest.mark.medium
@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("status", True),
        ("jobs", True),
        ("why 3", True),
        ("who n-1", False),
        ("idle", False),
        ("jobs -o json", True),
        ("jobs -o csv", True),
    ],
)
def test_commands_show_what_the_token_may_see(
    site: HubProcess,
    viewer: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    named: bool,
) -> None:
    name, *words = command.split()
    for scope, token in (("viewer", viewer), ("reader", token_of(site, "reader"))):
        file, config = tmp_path / scope, tmp_path / f"{scope}.toml"
        file.write_text(token)
        config.write_text(f'[hub]\nurl = "{site.url}"\nservice_token_file = "{file}"\n')
        code = getattr(table_commands, f"{name}_main")([*words, "--config", str(config)])
        said = capsys.readouterr()
        assert code == 0, said.err
        found = any(one in said.out.casefold() for one in SECRETS)
        assert found == (named and scope == "reader"), said.out


def test_the_team_is_no_person(site: HubProcess, viewer: str) -> None:
    """Sums by team are what a viewer is for."""
    assert OTHER_TEAM in text(asked(site, viewer, "records?kind=usage")[0])
    assert Scope("viewer") is Scope.VIEWER
