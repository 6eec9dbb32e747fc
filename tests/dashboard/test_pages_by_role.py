"""Every page, and the search, as each role sees them: one real hub in which everything names people."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from streamlit.testing.v1 import AppTest

from accounting.people.roles import HOLDER_OF_THE_LINK, Person, Role
from dashboard.data import live
from dashboard.data.questions import QueryCache
from dashboard.data.snapshot import Snapshot
from dashboard.layout.frame import PAGES
from dashboard.layout.search import find
from dashboard.pipeline.hub_queries import token_list
from gpuvigil.clock import SystemClock
from gpuvigil.config import AnalyzerSettings, Config
from gpuvigil.errors import HubError
from gpuvigil.model import (
    Acknowledgement,
    Audit,
    AuditedAction,
    Opinion,
    Record,
    RecordKind,
    Silence,
)
from gpuvigil.model.report_run import ReportRun
from gpuvigil.web import page_links
from tests.accounting.people.scene import (
    GPU,
    ME,
    NOON,
    SECRETS,
    STRANGER,
    incident,
    person,
    records,
)
from tests.hub.in_process import HubThread
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess

from .scene import inventory
from .test_incidents_and_pipeline_on_a_hub import said

pytestmark = pytest.mark.server

NOT_OPERATORS = [Role.VIEWER, Role.TEAM, Role.OWN]
LATER = SystemClock().now() - timedelta(hours=4) - NOON
THEN = page_links.stamp(SystemClock().now() - timedelta(minutes=5))  # everything had happened
_asking: list[Person | None] = [None]
# What leads to somebody's job, GPU or incident, also where one guesses its address.
ADDRESSES = [
    ("overview", {}),
    ("overview", {"wall": "1"}),
    ("incidents", {}),
    ("incidents", {"incident": incident().id}),
    ("jobs", {}),
    ("jobs", {"user": STRANGER}),
    ("job", {"cluster": "prod", "job": "job 1"}),
    ("job", {"cluster": "prod", "job": "job 3"}),
    ("job", {"cluster": "prod", "job": "job 13"}),
    ("job", {"cluster": "prod", "job": "pod ml/llama-0"}),
    ("node", {"cluster": "prod", "node": "n-1"}),
    ("gpu", {"cluster": "prod", "node": "n-1", "gpu": "GPU-3"}),
    ("network", {}),
    ("inference", {}),
    ("efficiency", {}),
    ("silences", {}),
    ("pipeline", {}),
    ("people", {}),
    ("hardware", {}),
    ("out_of_service", {}),
    ("handover", {}),
    ("reports", {}),
    ("overview", {"at": THEN}),
    ("incidents", {"incident": incident().id, "at": THEN}),
    ("jobs", {"at": THEN}),
    ("efficiency", {"at": THEN}),
]


def moved(record: Record) -> Record:
    """As it would be told today."""
    return (
        replace(record, at=record.at + LATER) if record.kind is not RecordKind.INCIDENT else record
    )


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubThread(tmp_path_factory.mktemp("hub")) as process:
        client = process.hub()
        kept = (RecordKind.INVENTORY, RecordKind.PULSE, RecordKind.SWITCH, RecordKind.SETUP)
        told = [moved(one) for one in records() if one.kind not in kept]
        had = inventory(GPU.of_node(), at=SystemClock().now())
        uuids = tuple(replace(one, uuid=f"GPU-{n}") for n, one in enumerate(had.gpus, 1))
        client.write_records([*told, replace(had, gpus=uuids).to_record()])
        snapshot = Snapshot(process.hub, SystemClock(), AnalyzerSettings(), 0.5)
        questions = QueryCache(process.hub, SystemClock())
        people = live.People(asker=lambda: _asking[0])
        shared = live.Shared(snapshot=snapshot, questions=questions, config=Config(), people=people)
        live.install(shared)
        snapshot.start()
        wait_until("the incident", lambda: snapshot.view().attention)
        yield process
        snapshot.stop()
        questions.close()


def as_(who: Person | None) -> None:
    _asking[0] = who


def open_page(name: str, **query: str) -> AppTest:
    """The page alone, as a link opens it."""
    test = AppTest.from_file(str(ROOT / "dashboard" / "pages" / f"{name}.py"), default_timeout=30)
    test.session_state["runs"] = 1
    for key, value in query.items():
        test.query_params[key] = value
    return test.run()


@pytest.mark.site
@pytest.mark.parametrize("role", NOT_OPERATORS)
@pytest.mark.parametrize(("page", "query"), ADDRESSES)
def test_no_page_and_no_address_names_a_stranger(
    hub: HubProcess, role: Role, page: str, query: dict[str, str]
) -> None:
    as_(person(role))
    for _ in range(2):  # and not once what was asked for is there
        names_nobody(page, query)


def names_nobody(page: str, query: dict[str, str]) -> None:
    shown = said(open_page(page, **query)).casefold()
    found = [name for name in SECRETS if name in shown]
    asked = {value.casefold() for value in query.values()}
    assert not found or asked & set(found), (found, shown)


@pytest.mark.parametrize(
    ("page", "query"),
    [
        ("incidents", {"incident": incident().id}),
        ("jobs", {}),
        ("gpu", {"cluster": "prod", "node": "n-1", "gpu": "GPU-3"}),
    ],
)
def test_what_names_most_names_no_stranger_to_who_sees_their_own_jobs(
    hub: HubProcess, page: str, query: dict[str, str]
) -> None:
    as_(person(Role.OWN))
    names_nobody(page, query)


def test_every_page_is_looked_at() -> None:
    looked_at = {page for page, _ in ADDRESSES}
    assert {page.script.removeprefix("pages/").removesuffix(".py") for page in PAGES} == looked_at


@pytest.mark.site
def test_operators_see_the_name_on_the_same_pages(hub: HubProcess) -> None:
    as_(person(Role.OPERATOR))
    for page, query in (("incidents", {"incident": incident().id}), ("jobs", {}), ("silences", {})):
        wait_until(f"the name on {page}", partial(_is_named, page, query))


@pytest.mark.site
def test_the_own_jobs_are_there_and_no_others(hub: HubProcess) -> None:
    as_(person(Role.OWN))
    shown = wait_until("the jobs", lambda: _with("job 1", said(open_page("jobs"))))
    assert ME in shown
    assert "job 2" not in shown
    assert "job 3" not in shown
    as_(person(Role.TEAM))
    shown = wait_until("the team's jobs", lambda: _with("job 2", said(open_page("jobs"))))
    assert "job 3" not in shown
    as_(person(Role.VIEWER))
    assert wait_until("all jobs", lambda: _with("job 3", said(open_page("jobs"))))


def _is_named(page: str, query: dict[str, str]) -> bool:
    return STRANGER in said(open_page(page, **query))


def _with(word: str, text: str) -> str:
    return text if word in text else ""


@pytest.mark.parametrize("role", NOT_OPERATORS)
@pytest.mark.parametrize(
    "text", ["quentin.zorn", "quentin", "zorn", "n-1", "job 3", "ml/zorn-private-0", "GPU-3"]
)
def test_the_search_finds_no_stranger(hub: HubProcess, role: Role, text: str) -> None:
    as_(person(role))
    snapshot = live.current()
    hits = find(snapshot.view(), snapshot.inventories(), text, snapshot.allocations())
    for hit in hits:
        shown = f"{hit.title} {hit.detail} {hit.href}".casefold()
        assert not [name for name in SECRETS if name in shown], hit
    if role is Role.OWN and text == "quentin.zorn":
        assert not hits


@pytest.mark.parametrize("role", NOT_OPERATORS)
def test_what_the_map_is_drawn_from_names_nobody(hub: HubProcess, role: Role) -> None:
    """What goes over the WebSocket besides a page's own text."""
    as_(person(role))
    view = live.current().view()
    sent = b"".join(view.maps.values()).lower()
    assert not [name for name in SECRETS if name.encode() in sent]
    assert sent != b""


@pytest.mark.parametrize("role", NOT_OPERATORS)
def test_only_operators_change_anything(hub: HubProcess, role: Role) -> None:
    as_(person(role))
    test = open_page("incidents", incident=incident().id)
    said(test)
    assert not test.text_input
    assert not test.button
    assert not open_page("silences").text_area
    taken = _acknowledgement("forged")
    with pytest.raises(HubError, match="only operators"):
        live.shared().questions.call(lambda client: client.write_records([taken]))
    assert hub.hub().record(RecordKind.ACKNOWLEDGEMENT, "forged") is None


def test_tokens_are_shown_to_operators_alone(hub: HubProcess) -> None:
    as_(person(Role.OPERATOR))
    assert live.shared().questions.ask("tokens", token_list, 0.0).value == token_list(hub.hub())
    as_(person(Role.VIEWER))
    with pytest.raises(HubError, match="not asked of the hub for a person"):
        live.shared().questions.ask("tokens", token_list, 0.0)


def test_who_has_a_name_closes_by_it_and_others_see_no_form(hub: HubProcess) -> None:
    as_(person(Role.VIEWER))
    (folded,) = open_page("incidents", incident=incident().id).expander
    assert folded.label == "Export"
    assert not folded.text_input
    as_(person(Role.OPERATOR))
    test = open_page("incidents", incident=incident().id)
    asked = {field.label for field in test.text_input}
    assert asked == {
        "What you know or are doing about it",
        "Hand over to",
        "Why",
    }
    test.session_state[f"gives-{incident().id}"] = "a colleague"  # as no browser can
    test.button(key=f"Close as false-{incident().id}").click().run()
    kept = hub.hub().records(RecordKind.OPINION, parent=incident().id)
    assert Opinion.given(incident(), ME, useful=False, at=NOON).id in {one.id for one in kept}
    assert Opinion.given(incident(), "a colleague", useful=False, at=NOON).id not in {
        one.id for one in kept
    }


def _acknowledgement(id_: str, by: str = "somebody else") -> Record:
    return Acknowledgement(
        id=id_, incident=incident().id, subject=GPU, by=by, note="", at=SystemClock().now()
    ).to_record()


def test_what_an_operator_writes_is_their_own_word_and_in_the_audit_log(hub: HubProcess) -> None:
    as_(person(Role.OPERATOR))
    live.shared().questions.call(lambda client: client.write_records([_acknowledgement("real")]))
    kept = hub.hub().record(RecordKind.ACKNOWLEDGEMENT, "real")
    assert kept is not None
    assert kept.body["by"] == ME
    entries = [_audit(one) for one in hub.hub().records(RecordKind.AUDIT)]
    assert (AuditedAction.ACKNOWLEDGE, ME, incident().id) in {
        (one.deed, one.person, one.about) for one in entries
    }


def test_an_operator_may_ask_for_a_report_and_nobody_else(hub: HubProcess) -> None:
    run = ReportRun(name="weekly", due_at=SystemClock().now(), early=True)
    as_(person(Role.VIEWER))
    with pytest.raises(HubError, match="only operators"):
        live.shared().questions.call(
            lambda client: client.write_records([run.to_record(1, run.due_at)])
        )
    for who in (HOLDER_OF_THE_LINK, person(Role.OPERATOR)):
        as_(who)
        live.shared().questions.call(
            lambda client: client.write_records([run.to_record(1, run.due_at)])
        )
    kept = hub.hub().record(RecordKind.REPORT, run.id)
    assert kept is not None
    assert ReportRun.from_record(kept) == run
    told = [_audit(one) for one in hub.hub().records(RecordKind.AUDIT)]
    mine = [one for one in told if (one.deed, one.about) == (AuditedAction.REPORT, run.id)]
    assert {one.person for one in mine} == {"", ME}
    assert "called themselves" not in str(mine)


def test_a_silence_that_another_ends_stays_its_authors(hub: HubProcess) -> None:
    now = SystemClock().now()
    hers = Silence(
        id="s9",
        matchers=('node="n-1"',),
        by="olga",
        reason="work",
        at=now,
        starts_at=now,
        ends_at=now + timedelta(hours=1),
    )
    hub.hub().write_records([hers.to_record()])
    as_(person(Role.OPERATOR))
    ended = hers.ended(SystemClock().now()).to_record()
    live.shared().questions.call(lambda client: client.write_records([ended]))
    kept = hub.hub().record(RecordKind.SILENCE, "s9")
    assert kept is not None
    assert kept.body["by"] == "olga"
    entries = [_audit(one) for one in hub.hub().records(RecordKind.AUDIT)]
    assert (AuditedAction.SILENCE, ME, "s9") in {
        (one.deed, one.person, one.about) for one in entries
    }


def _audit(record: Record) -> Audit:
    return Audit.from_record(record)


def test_an_operator_writes_nothing_but_what_pages_write(hub: HubProcess) -> None:
    as_(HOLDER_OF_THE_LINK)
    event = next(one for one in records() if one.kind is RecordKind.EVENT)
    with pytest.raises(HubError, match="only operators"):
        live.shared().questions.call(lambda client: client.write_records([event]))


@pytest.mark.parametrize("role", list(Role))
def test_no_page_reaches_what_services_do(hub: HubProcess, role: Role) -> None:
    as_(person(role))
    questions = live.shared().questions
    with pytest.raises(HubError, match="not asked of the hub for a person"):
        questions.call(lambda client: client.request("GET", "/api/v1/records?kind=audit"))
    with pytest.raises(HubError, match="not asked of the hub for a person"):
        questions.call(lambda client: client.claim(RecordKind.NOTICE, "me", lease_seconds=1.0))


def test_whose_session_is_over_sees_nothing(hub: HubProcess) -> None:
    as_(None)
    test = open_page("jobs")
    assert [one.value for one in test.error] == [live.SIGNED_OUT]
    assert "job" not in "".join(one.proto.body for one in test.get("html"))


def test_what_was_asked_for_one_is_no_answer_for_another(hub: HubProcess) -> None:
    """One memory of answers serves all; what differs by who asks is kept by who asks."""

    def users() -> set[object]:
        answer = live.shared().questions.ask(
            "who", lambda client: client.records(RecordKind.JOB), 60.0
        )
        return {one.body.get("user") for one in answer.value}

    as_(person(Role.OPERATOR))
    assert STRANGER in users()
    as_(person(Role.OWN))
    assert users() == {ME}
    as_(replace(person(Role.OWN), name="tomke", users=frozenset({"tomke"})))
    assert users() == {"tomke"}
    as_(person(Role.OPERATOR))
    assert STRANGER in users()


def test_whose_name_no_session_knows_only_claims_one(hub: HubProcess) -> None:
    as_(HOLDER_OF_THE_LINK)
    taken = _acknowledgement("claimed", "olga")
    live.shared().questions.call(lambda client: client.write_records([taken]))
    entries = [_audit(one) for one in hub.hub().records(RecordKind.AUDIT)]
    assert ("", "called themselves olga, signed in by link") in {
        (one.person, one.detail) for one in entries
    }
    assert not [one for one in entries if one.person == "olga"]
