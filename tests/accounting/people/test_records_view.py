"""Every kind of record, with names wherever they can be, as each role sees it."""

import dataclasses
import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuvigil.model
from accounting.people.names import PEOPLE_KEYS, POD_KEYS, Names
from accounting.people.records_view import (
    _MACHINE,
    _PROGRAMS,
    _SHOWN,
    _WRITTEN,
    OTHERS,
    SOMEBODY,
    WITHHELD,
    Pseudonyms,
    RecordsView,
)
from accounting.people.roles import HOLDER_OF_THE_LINK, Person, Role, highest
from accounting.usage.columns import SHARES, unpacked
from accounting.usage.model import Bucket
from collector.kernel_log.event_book import _message
from collector.sensors.kernel_event import KernelEvent, KernelEventKind
from gpuvigil.model import (
    Acknowledgement,
    Allocation,
    Event,
    EventKind,
    Holder,
    Incident,
    OutOfService,
    Record,
    RecordKind,
    Silence,
)
from gpuvigil.model.report_run import ReportRun

from .scene import (
    GPU,
    ME,
    NOON,
    OPERATOR,
    SECRETS,
    STRANGER,
    allocation,
    incident,
    of_kind,
    person,
    records,
    sight,
)

ALL = tuple(records())
DRAINED = "drained: ada spilled tea"
NOT_OPERATORS = [Role.VIEWER, Role.TEAM, Role.OWN]


def text(found: Record) -> str:
    """All of a record, also what lies packed in it."""
    said = json.dumps(found.to_json()).casefold()
    if found.kind in {RecordKind.USAGE, RecordKind.USAGE_SPAN}:
        said += str(unpacked(found.body["holders"], SHARES).to_pylist()).casefold()
    if found.kind is RecordKind.REPORT:
        said += ReportRun.from_record(found).html.casefold()
    return said


def test_the_scene_has_every_kind() -> None:
    assert {one.kind for one in ALL} == set(RecordKind)


@pytest.mark.parametrize("role", NOT_OPERATORS)
def test_nobody_but_operators_sees_a_stranger_in_any_record(role: Role) -> None:
    for one in sight(role).records(ALL, NOON):
        assert not [name for name in SECRETS if name in text(one)], text(one)


@pytest.mark.parametrize("role", NOT_OPERATORS)
def test_a_record_alone_betrays_nobody_whom_it_names_itself(role: Role) -> None:
    for record in ALL:
        for one in sight(role).records([record], NOON):
            named = STRANGER in text(record) and record.kind not in _TOLD_BY_MACHINES
            assert not named or STRANGER not in text(one), text(one)


# A kernel's line names whom no other record does, where nothing else is known of them.
_TOLD_BY_MACHINES = {RecordKind.EVENT, RecordKind.ACTION}


def test_operators_see_everything_as_it_is() -> None:
    assert sight(Role.OPERATOR).records(ALL, NOON) == ALL


@pytest.mark.parametrize(
    ("role", "users"),
    [
        (Role.VIEWER, {ME, "tomke", SOMEBODY}),
        (Role.TEAM, {ME, "tomke", OTHERS}),
        (Role.OWN, {ME, OTHERS}),
    ],
)
def test_who_is_of_the_team_has_a_name_but_for_who_sees_own_jobs_alone(
    role: Role, users: set[str]
) -> None:
    shown = sight(role).records(ALL, NOON)
    found = [Allocation.from_record(one) for one in of_kind(shown, RecordKind.ALLOCATION)]
    assert {one.user for one in found} == users
    assert len(found) == len(of_kind(ALL, RecordKind.ALLOCATION))  # sums stay right


@pytest.mark.parametrize(
    ("role", "numbers"),
    [(Role.VIEWER, {"1", "2", "3"}), (Role.TEAM, {"1", "2"}), (Role.OWN, {"1"})],
)
def test_jobs_of_others_are_no_rows_for_own_and_team(role: Role, numbers: set[str]) -> None:
    shown = sight(role).records(ALL, NOON)
    assert {one.body["number"] for one in of_kind(shown, RecordKind.JOB)} == numbers
    held = {one.body["holder"] for one in of_kind(shown, RecordKind.ALLOCATION)}
    assert {f"job {number}" for number in numbers} <= held
    assert (OTHERS in held) is (role is not Role.VIEWER)


@pytest.mark.parametrize("role", list(Role))
def test_what_is_shown_can_still_be_read(role: Role) -> None:
    shown = sight(role).records(ALL, NOON)
    (seen,) = [Incident.from_record(one) for one in of_kind(shown, RecordKind.INCIDENT)]
    before = incident()
    assert (seen.fault, seen.subject, seen.members) == (
        before.fault,
        before.subject,
        before.members,
    )
    for one in of_kind(shown, RecordKind.USAGE):
        bucket = Bucket.from_record(one)
        assert sum(share.gpus for share in bucket.shares) == 2
        assert ME in {share.user for share in bucket.shares}
    for one in of_kind(shown, RecordKind.SILENCE):
        silence = Silence.from_record(one)
        assert silence.matchers[2] == 'node="n-1"'
        assert (silence.reason == WITHHELD) is (role is not Role.OPERATOR)


@pytest.mark.parametrize("role", NOT_OPERATORS)
def test_the_audit_log_is_for_operators(role: Role) -> None:
    assert not of_kind(sight(role).records(ALL, NOON), RecordKind.AUDIT)


def test_after_their_days_operators_too_see_pseudonyms_of_what_is_over() -> None:
    after = Pseudonyms(after=timedelta(days=30), key=b"k")
    whole = RecordsView(person=HOLDER_OF_THE_LINK, names=Names(), pseudonyms=after)
    just_below, just_above = NOON + timedelta(days=29), NOON + timedelta(days=31)
    assert whole.records(ALL, just_below) == ALL
    shown = whole.records(ALL, just_above)
    for one in shown:
        active = one.kind in {RecordKind.INCIDENT, RecordKind.AUDIT, RecordKind.JOB}
        active = active or one.parent == incident().id
        held = one.kind is RecordKind.ALLOCATION and one.body.get("ended_at") is None
        told = one.kind in {RecordKind.EVENT, RecordKind.ACTION}
        if not (active or held or told):
            assert STRANGER not in text(one), text(one)
    assert after.of(STRANGER) in text(of_kind(shown, RecordKind.USAGE)[0])
    assert after.of(STRANGER) != Pseudonyms(after=after.after, key=b"l").of(STRANGER)


def test_a_report_is_gone_when_its_names_are_and_operators_alone_have_one_before() -> None:
    kinds = {RecordKind.REPORT, RecordKind.LETTER}
    found = [one for one in ALL if one.kind in kinds]
    days = Pseudonyms(after=timedelta(days=30), key=b"k")
    for role, age, there in (
        (Role.OPERATOR, timedelta(days=30), kinds),
        (Role.OPERATOR, timedelta(days=30, seconds=1), set[RecordKind]()),
        *((role, timedelta(), set[RecordKind]()) for role in NOT_OPERATORS),
    ):
        seen = RecordsView(person=person(role), names=Names(), pseudonyms=days)
        assert {one.kind for one in seen.records(found, NOON + age)} == there


@given(st.text(alphabet="abzAZ09._-@/' ", min_size=2, max_size=12))
def test_any_name_goes_out_of_any_sentence(name: str) -> None:
    names = Names()
    names.add(name)
    bare = name.strip()
    if not bare or not any(ch.isalpha() for ch in name):
        return
    for sentence in (f"Ask {name} now.", f"held by {name}", f"({name}), [{name}]"):
        left = names.without(sentence, lambda _: "#")
        assert name.casefold() not in left.casefold().replace("#", "")


def test_a_name_within_a_word_is_no_name_and_numbers_stay() -> None:
    names = Names()
    names.add("ada", "1000", "w")
    said = "adamant 1000 W w ada's Ada_train.py /home/ada/x ada@now"
    shown = "adamant 1000 W w #'s #_train.py /home/#/x #@now"
    assert names.without(said, lambda _: "#") == shown


def test_of_several_roles_the_one_that_may_most_counts() -> None:
    assert highest([Role.OWN, Role.OPERATOR, Role.VIEWER]) is Role.OPERATOR
    assert highest([]) is None


@pytest.mark.parametrize("role", list(Role))
def test_a_person_is_read_as_written(role: Role) -> None:
    assert Person.from_json(person(role).to_json()) == person(role)


def test_the_operator_of_the_scene_is_somebody_else() -> None:
    assert OPERATOR not in {ME, STRANGER}


@pytest.mark.parametrize("program", ["carol_thesis.py", "carol thesis.py", "carol,thesis"])
@pytest.mark.parametrize("pci_address", ["0000:9b:00.0", None])
def test_no_kernel_event_names_a_program(program: str, pci_address: str | None) -> None:
    report = KernelEvent(
        kind=KernelEventKind.XID,
        code=31,
        text="MMU fault",
        pci_address=pci_address,
        process=program,
        pid=4711,
    )
    raw = f"NVRM: Xid (PCI:0000:9b:00): 31, pid=4711, name={program}, Ch 00000010"
    for message in (_message(report), raw):
        event = Event(kind=EventKind.XID, subject=GPU, at=NOON, id="e", xid=31, message=message)
        (shown,) = sight(Role.VIEWER).records([event.to_record()], NOON)
        assert "carol" not in shown.body["message"]
        assert "thesis" not in shown.body["message"]
        assert "4711" in shown.body["message"]
        assert not pci_address or "9b:00" in shown.body["message"]


# Sentences and what machines call things: names in them are found, and nothing else is taken out.
_TOLD = frozenset(
    [
        "about",
        "addressing",
        "action",
        "address",
        "addresses",
        "body",
        "cluster",
        "covered_by",
        "covers",
        "detail",
        "device",
        "devices",
        "driver",
        "driver_state",
        "fabric_cluster",
        "firmware",
        "goes_on",
        "gpu",
        "gpus",
        "group",
        "gsp_firmware",
        "guid",
        "host",
        "hosts",
        "incident",
        "inforom",
        "kernel",
        "label",
        "limit",
        "matchers",
        "message",
        "missing",
        "model",
        "node",
        "number",
        "operation",
        "part",
        "part_number",
        "pci_address",
        "peer",
        "peer_guid",
        "peer_port_name",
        "peers",
        "physical_state",
        "place",
        "port",
        "rack",
        "reason",
        "role",
        "snapshot",
        "source",
        "switch",
        "switch_port",
        "text",
        "title",
        "uuid",
        "value",
        "values",
        "vbios",
        "vendor",
        "version",
        "waits_for",
        "what",
        "why",
    ]
)


# Of reports and their letters, which only operators have.
_REPORTED = frozenset({"html", "run", "span", "summary"})


def test_of_every_text_of_a_record_it_is_known_whether_it_names_people() -> None:
    models = [one for one in vars(gpuvigil.model).values() if dataclasses.is_dataclass(one)]
    fields = {
        field.name
        for model in models
        for field in dataclasses.fields(model)
        if "str" in str(field.type) and not field.name.startswith("_")
    }
    known = {*PEOPLE_KEYS, *POD_KEYS, *_SHOWN, *_MACHINE, *_PROGRAMS, *_WRITTEN, *_TOLD, *_REPORTED}
    assert fields <= known


def _said(by: str, to: str = "") -> Record:
    return Acknowledgement(
        id="a9", incident=incident().id, subject=GPU, by=by, note=f"{by} looks", at=NOON, to=to
    ).to_record()


@pytest.mark.parametrize("role", NOT_OPERATORS)
@pytest.mark.parametrize(
    ("kind", "body", "shown"),
    [
        (RecordKind.TRANSITION, {"reason": f"out of service: {DRAINED}"}, WITHHELD),
        (RecordKind.TRANSITION, {"reason": "seen a second time"}, "seen a second time"),
        (RecordKind.NOTICE, {"cause": f"out of service: {DRAINED}"}, WITHHELD),
        (RecordKind.NOTICE, {"reason": "ada did it", "verdict": "silenced"}, WITHHELD),
        (RecordKind.NOTICE, {"reason": "ada did it", "verdict": "out_of_service"}, WITHHELD),
        (RecordKind.NOTICE, {"reason": "as planned", "verdict": "new"}, "as planned"),
    ],
)
def test_what_a_reason_quotes_of_what_somebody_typed_is_for_operators(
    role: Role, kind: RecordKind, body: dict[str, str], shown: str
) -> None:
    """Names that no record knows are in it, too."""
    out = replace(incident(), out_of_service=OutOfService("DRAIN", DRAINED))
    snapshot = out.to_record().to_json()
    step = Record(
        kind=kind,
        id="x",
        at=NOON,
        subject=GPU.key,
        parent=out.id,
        body=body | {"snapshot": snapshot},
    )
    found = sight(role).record(step, NOON)
    assert found is not None
    (key, *_) = body
    assert found.body[key] == shown
    whole = sight(Role.OPERATOR).record(step, NOON)
    assert whole is not None
    assert whole.body[key] == body[key]


def test_whom_an_incident_was_handed_to_is_a_person() -> None:
    (shown,) = sight(Role.VIEWER).records([_said(ME, "zorn")], NOON)
    assert (shown.body["by"], shown.body["to"]) == (ME, SOMEBODY)


def test_what_still_holds_is_not_old_and_what_is_over_keeps_its_words() -> None:
    after = Pseudonyms(after=timedelta(days=30), key=b"k")
    whole = RecordsView(person=HOLDER_OF_THE_LINK, names=Names(), pseudonyms=after)
    silence = Silence(
        id="s2",
        matchers=(f'owner="{STRANGER}"',),
        by=OPERATOR,
        reason=f"{OPERATOR} swaps it",
        at=NOON,
        starts_at=NOON,
        ends_at=NOON + timedelta(days=60),
    ).to_record()
    active, said = incident().to_record(), _said(OPERATOR)
    long_after = NOON + timedelta(days=89)
    assert whole.records([active, said, silence], long_after) == (active, said, silence)
    over = replace(incident(), state="resolved", resolved_at=NOON + timedelta(days=1)).to_record()
    _, said, silence = whole.records([over, said, silence], NOON + timedelta(days=91))
    assert said.body["note"] == f"{after.of(OPERATOR)} looks"
    assert silence.body["reason"] == f"{after.of(OPERATOR)} swaps it"
    assert STRANGER not in text(silence)


def test_two_who_see_different_things_share_no_answers() -> None:
    one = Person(name="ada", role=Role.OWN, users=frozenset({"a2"}))
    other = Person(name="a2", role=Role.OWN, users=frozenset({"ada"}))
    assert (
        RecordsView(person=one, names=Names()).rights
        != RecordsView(person=other, names=Names()).rights
    )
    assert not RecordsView(person=one, names=Names()).is_own_user(
        "ada"
    )  # on a cluster that is another


def test_a_pods_number_is_made_with_the_dashboards_key() -> None:
    pod = replace(allocation("quentin", "vision", 4), holder=Holder.parse("pod ml/zorn-0"))
    shown = [
        RecordsView(person=person(Role.VIEWER), names=Names(), key=key).records(
            [pod.to_record()], NOON
        )
        for key in (b"1", b"1", b"2")
    ]
    assert shown[0] == shown[1]
    assert (shown[0][0].id, shown[0][0].body["holder"]) != (
        shown[2][0].id,
        shown[2][0].body["holder"],
    )


@pytest.mark.parametrize("name", ["1000", "w"])
def test_a_number_that_a_record_gives_as_its_user_goes_out_of_its_sentence(name: str) -> None:
    names = Names()
    said = f"GPU of {name}. It drew 1000 W; ask user {name}, not user {name}1 or of {name}.5"
    left = names.without(said, lambda _: "#", {name})
    assert left == f"GPU of #. It drew 1000 W; ask user #, not user {name}1 or of {name}.5"
