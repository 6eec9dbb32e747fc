"""A person's and a team's token: their own jobs by name, and nobody else's, whatever is asked."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cli import table_commands
from gpuvigil.model import GpuIdentity, Inventory, RecordKind
from report.report_command import main as report_main
from tests.accounting.people.scene import MATE, ME, NODE, NOON, OTHER_TEAM, SECRETS, TEAM
from tests.hub.in_process import HubThread
from tests.hub.talk import ask
from tests.hub.test_viewer_token import ALL, KINDS, OF_OPERATORS, asked, names_in, text
from tests.servers import ROOT, HubProcess

# Whose jobs each token shows, by their numbers: the scene's are of me, a mate and a stranger.
OWN = {"own": {"1"}, "team": {"1", "2"}}
# Whom a person's own token names nowhere.
OTHERS = (*SECRETS, MATE, OTHER_TEAM)
NAMES = {"own": ME, "team": TEAM}
_ROUTE = re.compile(r'Route\("/api/v1/([^"]+)", .*methods=\["(\w+)"\]')

CARD = GpuIdentity(uuid="GPU-1", index=0, pci_address="0000:01:00.0", model="H100")
INVENTORY = Inventory(
    subject=replace(NODE, node="n-2"),
    at=NOON,
    boot="b",
    tick_seconds=1.0,
    version="1",
    gpus=(CARD,),
)
# Every call of the hub's that needs a token: whether a person's and a team's may make it.
CALLS = {
    ("GET", "records"): True,
    ("GET", "inventory"): True,
    ("GET", "changes"): True,
    ("GET", "status"): True,
    ("POST", "telemetry/window"): True,
    ("POST", "telemetry/series"): True,
    ("POST", "telemetry/latest"): True,
    ("POST", "records"): False,
    ("POST", "claim"): False,
    ("POST", "finish"): False,
    ("GET", "tokens"): False,
    ("POST", "tokens"): False,
    ("POST", "tokens/join"): False,
    ("POST", "tokens/{id}/revoke"): False,
    ("POST", "tokens/{id}/rotate"): False,
    ("POST", "telemetry/forget"): False,
    ("GET", "store"): False,
    ("POST", "store/verify"): False,
    ("POST", "store/backup"): False,
    ("POST", "write"): False,
    ("POST", "join"): False,
}
# Routes that are named by a constant.
ELSEWHERE = {("POST", "write"), ("POST", "join")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubThread(tmp_path_factory.mktemp("person")) as hub:
        hub.hub().write_records(ALL)
        hub.hub().write_records([INVENTORY.to_record()])  # a report is of GPUs
        yield hub


@pytest.fixture(scope="module")
def tokens(site: HubProcess) -> dict[str, str]:
    """By their scopes."""
    return {scope: issued(site, scope, name) for scope, name in NAMES.items()}


def issued(hub: HubProcess, scope: str, name: str) -> str:
    content = json.dumps({"scope": scope, "name": name}).encode()
    answer = ask(f"{hub.url}/api/v1/tokens", content, token=hub.service_token)
    return str(answer.json["token"])


def jobs_in(found: list[dict[str, object]]) -> set[str]:
    return {json.loads(text(one))["body"]["number"] for one in found}


@pytest.mark.parametrize("scope", list(OWN))
@pytest.mark.parametrize("kind", KINDS)
def test_of_every_kind_nobody_elses_name_is_seen(
    site: HubProcess, tokens: dict[str, str], scope: str, kind: RecordKind
) -> None:
    found = asked(site, tokens[scope], f"records?kind={kind.value}")
    assert not names_in(found)
    assert bool(found) == (kind not in OF_OPERATORS)
    if kind is RecordKind.JOB:
        assert jobs_in(found) == OWN[scope]


@pytest.mark.parametrize("scope", list(OWN))
def test_neither_news_nor_an_inventory_names_anybody_else(
    site: HubProcess, tokens: dict[str, str], scope: str
) -> None:
    kinds = ",".join(kind.value for kind in KINDS)
    news = asked(site, tokens[scope], f"changes?after=0&kinds={kinds}")
    assert {one["kind"] for one in news} == {kind.value for kind in set(KINDS) - OF_OPERATORS}
    held = asked(site, tokens[scope], f"inventory?cluster={NODE.cluster}&node={NODE.node}&held=1")
    for found in (news, held):
        assert not names_in(found)
        assert any(f'"{ME}"' in text(one) for one in found)
        # Of a team of others not even that it is there.
        assert not any(OTHER_TEAM in text(one) for one in found)


@pytest.mark.parametrize("mine", [True, False])
@pytest.mark.parametrize("question", ["kind=allocation&holder=", "kind=job&parent="])
def test_a_holder_can_be_asked_for_by_whom_it_belongs_to(
    site: HubProcess, tokens: dict[str, str], question: str, mine: bool
) -> None:
    path = f"records?{question}job%20{1 if mine else 3}"
    assert bool(asked(site, tokens["own"], path)) == mine
    assert asked(site, issued(site, "reader", ""), path)


def test_a_record_can_be_asked_for_by_its_id_when_it_is_ones_own(
    site: HubProcess, tokens: dict[str, str]
) -> None:
    for kind in (RecordKind.ALLOCATION, RecordKind.JOB):
        for one in (it for it in ALL if it.kind is kind):
            path = f"records?kind={kind.value}&id={one.id.replace(' ', '%20').replace('|', '%7C')}"
            own = one.body["user"] == ME
            assert bool(asked(site, tokens["own"], path)) == own, one.id


@pytest.mark.parametrize("scope", list(OWN))
def test_every_call_of_the_hub_is_answered_or_refused_by_the_table(
    site: HubProcess, tokens: dict[str, str], scope: str
) -> None:
    files = (ROOT / "hub" / "endpoints").glob("*.py")
    said = [found for file in files for found in _ROUTE.findall(file.read_text(encoding="utf-8"))]
    written = {(method, path.replace("{verb}", "window")) for path, method in said}
    assert (
        written | {("POST", "telemetry/series"), ("POST", "telemetry/latest")} | ELSEWHERE
        == CALLS.keys()
    )
    for (method, path), may in CALLS.items():
        url = f"{site.url}/api/{'v2' if path == 'write' else 'v1'}/{path}"
        body = b"{}" if method == "POST" else None
        status = ask(url, body, token=tokens[scope], method=method).status
        assert (status != 403) == may, (method, path, status)
        assert status < 500


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("jobs", ME),
        ("why 1", ME),
        ("idle", ""),
        ("top", ""),
        ("usage --from 2026-01-31 --to 2026-02-01", ""),
        ("who n-1", ""),
        ("status", ""),
    ],
)
@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_commands_tell_a_person_of_their_own_jobs(
    site: HubProcess,
    tokens: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    told: str,
    form: str,
) -> None:
    name, *words = command.split()
    config = configured(site, tokens["own"], tmp_path)
    code = getattr(table_commands, f"{name}_main")([*words, "-o", form, "--config", str(config)])
    said = capsys.readouterr()
    assert code == 0, said.err
    assert told in said.out
    assert not [one for one in OTHERS if one in said.out.casefold()]


def test_a_job_of_another_is_one_that_there_is_not(
    site: HubProcess, tokens: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in ("3", "4711"):
        config = configured(site, tokens["own"], tmp_path)
        assert table_commands.why_main([number, "--config", str(config)]) == 2
        assert f"no scheduler or node has reported a job '{number}'" in capsys.readouterr().err


@pytest.mark.medium
def test_a_report_for_a_person_names_nobody_else_and_writes_nothing(
    site: HubProcess, tokens: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = site.hub().status()["sequence"]
    config = configured(site, tokens["own"], tmp_path)
    span = ["--cluster", "prod", "--from", "2026-01-31", "--to", "2026-02-01"]
    assert report_main([*span, "-o", "json", "--config", str(config)]) == 0
    said = capsys.readouterr().out.casefold()
    assert ME in said
    assert not [one for one in OTHERS if one in said]
    assert site.hub().status()["sequence"] == before
    config = configured(site, site.service_token, tmp_path)
    assert report_main([*span, "-o", "json", "--config", str(config)]) == 0
    assert OTHER_TEAM in capsys.readouterr().out.casefold()
    assert site.hub().status()["sequence"] > before


def configured(hub: HubProcess, token: str, directory: Path) -> Path:
    file, config = directory / "token", directory / "gpuvigil.toml"
    file.write_text(token)
    config.write_text(f'[hub]\nurl = "{hub.url}"\nservice_token_file = "{file}"\n')
    return config
