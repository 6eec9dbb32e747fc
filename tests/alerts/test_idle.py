"""Who holds idle GPUs is written to at the policy's stages, once each, and never over a doubt."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from accounting.efficiency.idle_query import ASKED, Excuses, Measurements, Row, excuses, why_idle
from accounting.efficiency.idle_reason import FOR_JOBS, Idleness
from alerts.decisions.attempts import reminded_after
from alerts.decisions.decide import decide
from alerts.delivery.hub_access import Context
from alerts.idle.idle_job import MOST_AT_ONCE, IdleWatch
from alerts.idle.idle_notice import (
    IdleHolding,
    holdings,
    idle_since,
    notice,
    reasons,
    stage_of,
    terms,
    verdict,
)
from alerts.idle.idle_samples import used_share
from alerts.messages.message import message
from alerts.messages.self_monitoring import OWN
from alerts.routing.case import ChannelProfile, writes_to_owners
from alerts.routing.notice import NoticeState, Verdict, draft
from alerts.routing.update_policy import owners
from gpuvigil.clock import ManualClock
from gpuvigil.config import AlertsSettings, EmailSettings, IdleSettings
from gpuvigil.hub_client import Hub
from gpuvigil.log import Log
from gpuvigil.model import (
    RESERVED_CLUSTERS,
    Allocation,
    Holder,
    Impact,
    Incident,
    Inventory,
    Job,
    Record,
    RecordKind,
    Severity,
    Subject,
    Transition,
    fingerprint,
)
from gpuvigil.store.external import store_of
from tests.polling import wait_until
from tests.servers import HubProcess, QuickHub

from .examples import NOON, SETTINGS
from .mailbox import Mailbox
from .process import AlertsProcess

MINUTE = timedelta(minutes=1)
HOUR_AGO = NOON - 61 * MINUTE
OWNERS = ChannelProfile(
    name="owners",
    minimum_severity=Severity.INFO,
    every_change=False,
    owners=True,
    owners_only=True,
)
CHAT = replace(OWNERS, name="chat", owners=False, owners_only=False)


def gpu(number: int, node: str = "n1") -> Subject:
    return Subject(cluster="lab", node=node, gpu=f"GPU-{number}")


def held_by(holder: str, user: str | None, *gpus: Subject, **more: Any) -> list[Allocation]:
    since = NOON - timedelta(hours=5)
    more = {"command": None, "started_at": since, **more}
    return [Allocation(subject=one, holder=Holder.parse(holder), user=user, **more) for one in gpus]


def a_holder(**changes: Any) -> IdleHolding:
    """Four GPUs, of which two are idle for an hour."""
    gpus = tuple(map(gpu, range(4)))
    idle = {one.key: HOUR_AGO for one in gpus[:2]}
    made = IdleHolding(
        cluster="lab",
        holder=Holder.parse("job 12"),
        user="alice",
        gpus=gpus,
        idle=idle,
        started_at=NOON - timedelta(hours=5),
        partition="gpu",
    )
    return replace(made, **changes)


def a_row(**changes: Any) -> Row:
    """An hour of a GPU with a process that computes nothing."""
    values = (60, 0.0, 0.0, 1.0, 1e9, 80e9, 72.0, 70.0, 75.0, 700.0, 0.0, 0)
    measured = dict(zip((one.column for one in ASKED), values, strict=True))
    return {**measured, "first_at": NOON - timedelta(hours=1), **changes}


EXPECTED = {"lab/n1": 60.0}


def of(
    held: IdleHolding, rows: Mapping[str, Row], faulty: frozenset[str] = frozenset()
) -> set[Idleness]:
    return set(reasons(held, the_hour(rows, faulty)).values())


def the_hour(rows: Mapping[str, Row], faulty: frozenset[str] = frozenset()) -> Measurements:
    return Measurements(
        start=NOON - timedelta(hours=1),
        end=NOON,
        rows=rows,
        expected=EXPECTED,
        excuses=Excuses(broken=faulty),
    )


def test_a_job_is_one_holder_on_all_its_nodes_and_what_is_shared_is_nobodys() -> None:
    job = [*held_by("job 12", "alice", gpu(0), gpu(1)), *held_by("job 12", "alice", gpu(0, "n2"))]
    shared = [*held_by("pid 7", "bob", gpu(5)), *held_by("pid 8", "eve", gpu(5))]
    nameless, sliced = held_by("job 13", None, gpu(6)), held_by("job 14", "dan", gpu(7), part="1g")
    everything = [*job, *shared, *nameless, *sliced]
    (found,) = holdings(everything, {one.subject.key: HOUR_AGO for one in everything})
    assert (str(found.holder), found.user, len(found.gpus), found.since) == (
        *("job 12", "alice", 3),
        HOUR_AGO,
    )


def test_nobody_is_idle_for_longer_than_the_job_is_there() -> None:
    young = held_by("job 12", "alice", gpu(0), started_at=NOON - 5 * MINUTE)
    (found,) = holdings(young, {gpu(0).key: HOUR_AGO})
    assert found.since == NOON - 5 * MINUTE
    old = held_by("pid 7", "bob", gpu(1))
    late = held_by("pid 8", "bob", gpu(2), started_at=NOON - 5 * MINUTE)
    (found,) = holdings([*old, *late], {gpu(2).key: HOUR_AGO})
    assert found.since == NOON - 5 * MINUTE


@pytest.mark.parametrize(
    ("settings", "changes", "stage"),
    [
        ((), {}, "notice 1"),
        ((), {"command": "bash"}, None),
        ((), {"command": "sys/dashboard/sys/jupyter"}, None),
        ((IdleSettings(interactive=True),), {"command": "bash"}, "notice 1"),
        ((IdleSettings(match=('partition="debug"',)),), {}, None),
        ((IdleSettings(match=('partition="gpu"',), notice_minutes=()), IdleSettings()), {}, None),
        ((IdleSettings(match=('owner="alice"',), notice_minutes=(90.0,)),), {}, None),
        ((IdleSettings(days=("sat", "sun")),), {}, None),  # it is a Friday
        ((IdleSettings(days=("sat",), zone="Pacific/Kiritimati"),), {}, "notice 1"),  # not there
    ],
)
def test_a_policy_says_who_is_written_to_and_on_which_days(
    settings: tuple[IdleSettings, ...], changes: dict[str, Any], stage: str | None
) -> None:
    held = a_holder(**changes)
    asked = terms(settings, held)
    assert (None if asked is None else stage_of(held, asked, {}, NOON)) == stage


def test_each_stage_is_told_once_and_a_pod_has_its_own() -> None:
    held = a_holder(idle={gpu(0).key: NOON - 110 * MINUTE})
    asked = terms((), held)
    assert asked is not None
    told = {"notice 1": NOON - 50 * MINUTE}
    assert stage_of(held, asked, told, NOON) == "notice 2"
    assert stage_of(held, asked, {**told, "notice 2": NOON}, NOON) is None
    assert stage_of(held, asked, {"notice 1": NOON - 5 * MINUTE}, NOON) is None
    assert stage_of(held, asked, {}, NOON, used_share=0.6) is None
    assert held.notice("notice 1") != held.notice("notice 2")
    (owned,) = holdings(
        held_by("job Deployment-7", "alice", gpu(0), pod="team/train-0"), {gpu(0).key: HOUR_AGO}
    )
    pod = terms((), owned)
    assert pod is not None
    assert pod.policy.notices == (30 * MINUTE,)


def test_a_doubt_about_one_gpu_excuses_the_holder() -> None:
    held, well = a_holder(), {gpu(number).key: a_row() for number in range(4)}
    assert of(held, well) == {Idleness.NOTHING_COMPUTED}
    busy = {**well, gpu(3).key: a_row(utilization_percent_max=80.0)}
    assert of(held, busy) == {Idleness.SOME_GPUS}
    for found in (
        of(held, {**well, gpu(1).key: a_row(power_watts_min=400.0)}),  # 0 % at half its power
        of(held, {**well, gpu(1).key: a_row(utilization_percent_count=30)}),
        of(held, {**well, gpu(1).key: a_row(first_at=NOON - 30 * MINUTE)}),
        of(held, {gpu(0).key: a_row()}),
        of(held, well, frozenset({gpu(1).key})),
        of(held, well, frozenset({"lab/n1"})),
        of(held, well, frozenset({gpu(3).key})),  # it waits for a peer
    ):
        assert not verdict(found).blames
    computed = {**well, gpu(0).key: a_row(utilization_percent_max=5.0)}
    assert set(reasons(held, the_hour(computed))) == {gpu(1).key}


def test_each_node_has_its_own_rhythm() -> None:
    well = {gpu(number).key: a_row() for number in range(4)}
    busy = {**well, gpu(9, "n9").key: a_row(utilization_percent_count=3600)}
    assert of(a_holder(), busy) == {Idleness.NOTHING_COMPUTED}


def test_a_notice_is_for_its_owner_alone_says_what_to_do_and_is_not_repeated() -> None:
    step = notice(a_holder(), "notice 2", FOR_JOBS, Idleness.NO_PROCESS, NOON)
    decided = decide(step, [OWNERS, CHAT], [], NOON, SETTINGS)
    verdicts = {one.channel: (one.verdict, one.state) for one in decided}
    assert verdicts == {
        "owners": (Verdict.FIRST, NoticeState.DUE),
        "chat": (Verdict.FOR_OWNER, NoticeState.NOT_SENT),
    }
    said = message(draft(step, "owners", NOON), NOON, "https://gpus.example.org")
    assert (said.for_owners, said.owners_only, said.answer_link) == (("alice",), True, None)
    assert said.summary == "Your job 12 holds 2 GPUs that compute nothing"
    assert said.impact.startswith(
        "2 GPUs of 4 that are allocated to you; 2.0 GPU-hours idle until now"
    )
    assert "scancel 12" in said.action
    assert said.action.endswith("This is the last notice about it.")
    assert "cluster=lab&node=n1" in said.link
    assert step.subject.cluster == OWN  # nor is it on the page of what happened on the node
    assert reminded_after(draft(step, "owners", NOON), SETTINGS, 600.0) is None


def an_idle_incident(*gpus: Subject, since: datetime = HOUR_AGO, **changes: Any) -> Incident:
    subject = gpus[0] if len(gpus) == 1 else gpus[0].of_node()
    made = Incident(
        id=f"i-{subject.key}",
        fingerprint=fingerprint("gpu_idle_held", subject),
        fault="gpu_idle_held",
        subject=subject,
        severity=Severity.INFO,
        state="open",
        title="held and idle",
        since=since,
        updated_at=NOON,
        members=tuple(one.key for one in gpus) if len(gpus) > 1 else (),
        impact=Impact(gpus=len(gpus), users=("alice",)),
    )
    return replace(made, **changes)


def test_owners_hear_of_idle_gpus_by_notices_and_others_by_the_incident() -> None:
    step = notice(a_holder(), "notice 1", FOR_JOBS, Idleness.NO_PROCESS, NOON)
    record = an_idle_incident(gpu(0)).to_record()
    incident = replace(step, incident=record.id, snapshot=record.to_json())
    decided = decide(incident, [OWNERS, CHAT], [], NOON, SETTINGS)
    assert [one.verdict for one in decided] == [Verdict.IDLE_POLICY, Verdict.FIRST]
    mixed = message(draft(incident, "both", NOON), NOON, "https://gpus.example.org")
    assert mixed.for_owners == ()


@pytest.mark.parametrize("cluster", sorted(RESERVED_CLUSTERS))
def test_of_gpus_that_no_machine_has_nobody_is_written_to(cluster: str) -> None:
    made_up = replace(gpu(0), cluster=cluster)
    assert idle_since([an_idle_incident(made_up), an_idle_incident(gpu(1))]).keys() == {gpu(1).key}
    step = notice(a_holder(), "notice 1", FOR_JOBS, Idleness.NO_PROCESS, NOON)
    lost = replace(an_idle_incident(made_up), fault="gpu_lost").to_record()
    told = replace(step, incident=lost.id, subject=made_up, snapshot=lost.to_json())
    assert owners(draft(told, "owners", NOON)) == ()


def test_without_a_channel_for_owners_that_hears_of_information_nobody_is_looked_for() -> None:
    assert writes_to_owners([OWNERS, CHAT])
    assert not writes_to_owners([CHAT])
    assert not writes_to_owners([replace(OWNERS, minimum_severity=Severity.WARNING)])


def test_the_share_that_was_used_is_of_all_that_is_held() -> None:
    columns = ("utilization_percent_mean", "utilization_percent_count")

    def part(**gpus: tuple[float | None, int]) -> dict[str, Row]:
        found = zip(map(gpu, range(4)), gpus.values(), strict=False)
        return {one.key: dict(zip(columns, values, strict=True)) for one, values in found}

    lately = part(first=(0.0, 15), second=(90.0, 15), third=(None, 0))
    assert used_share(a_holder(), [lately]) == pytest.approx(0.45)
    before = part(first=(75.0, 30), second=(75.0, 30))
    assert used_share(a_holder(), [lately, before]) == pytest.approx(0.65)
    assert used_share(a_holder(), [{}]) is None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with QuickHub(tmp_path_factory.mktemp("hub")) as process:
        yield process


def lines(idle: list[Subject], busy: list[Subject], now: datetime) -> bytes:
    """Two hours of a sample a minute."""
    rows = []
    for minute in range(120):
        at = int((now - timedelta(minutes=119 - minute, seconds=30)).timestamp()) * 10**9
        for percent, gpus in ((0.0, idle), (93.0, busy)):
            rows += [
                f"gpu,cluster={one.cluster},node={one.node},uuid={one.gpu},model=H100"
                f" up=1i,utilization_percent={percent},memory_utilization_percent=0,"
                f"compute_processes=1i,memory_used_bytes=1000000000i,memory_total_bytes=80000000000i,"
                f"power_watts=70,power_limit_watts=700,clock_event_reasons=0i {at}"
                for one in gpus
            ]
    return "\n".join(rows).encode()


@pytest.mark.server
def test_the_owner_of_an_idle_job_is_written_to_once_and_others_are_not(
    server: HubProcess, tmp_path: Path, mailbox: tuple[Mailbox, EmailSettings]
) -> None:
    box, settings = mailbox
    hub, now = server.hub(), datetime.now(timezone.utc)
    idle, broken, worked = [gpu(0), gpu(1)], [gpu(0, "n2")], [gpu(0, "n3")]
    store_of(hub).write(lines([*idle, *broken, *worked], [gpu(2)], now))
    node = Inventory(subject=gpu(0).of_node(), at=now, boot="b", tick_seconds=60.0, version="1")
    hub.write_records([node.to_record()])
    began, since = {"started_at": now - timedelta(hours=5)}, now - 61 * MINUTE
    allocations = [
        *held_by("job 12", "alice", *idle, gpu(2), **began),
        *held_by("job 13", "bob", *broken, **began),
    ]
    incidents = [
        an_idle_incident(*idle, since=since),
        an_idle_incident(*broken, since=since),
        an_idle_incident(*broken, id="i-lost", fault="gpu_lost"),
        an_idle_incident(*worked, since=since),  # of which nobody knows whose it is
    ]
    hub.write_records(
        [*(one.to_record() for one in allocations), *(one.to_record() for one in incidents)]
    )
    owners = {
        "list": "email",
        "server": "127.0.0.1",
        "port": settings.port,
        "security": "none",
        "sender": "gpus@example.org",
        "owner_address": "{user}@lab.example",
        "minimum_severity": "info",
    }
    with AlertsProcess(server, tmp_path, owners=owners):
        wait_until("the mail is there", lambda: bool(box.mails), 60.0)
    ((envelope, mail),) = box.mails
    assert envelope.rcpt_tos == ["alice@lab.example"]
    assert mail["Subject"] == "Your job 12 holds 2 GPUs that compute nothing"
    assert Idleness.SOME_GPUS.value in mail.get_content()
    assert "scancel 12" in mail.get_content()
    # Another process does not say it again, nor the next stage before its time.
    assert an_idle_watch(hub, ManualClock(now)).due(now + 6 * MINUTE) == []


@pytest.mark.server
def test_whoever_is_excused_again_and_again_keeps_nobody_waiting(server: HubProcess) -> None:
    hub, now = server.hub(), datetime.now(timezone.utc)
    unseen, seen = [gpu(number, "n5") for number in range(MOST_AT_ONCE)], gpu(0, "n6")
    node = Inventory(subject=seen.of_node(), at=now, boot="b", tick_seconds=60.0, version="1")
    store_of(hub).write(lines([seen], [], now))
    records = [node.to_record()]
    for number, one in enumerate([*unseen, seen]):
        job = held_by(f"job {50 + number}", f"user{number}", one, started_at=now - 300 * MINUTE)
        since = now - (70 if one is seen else 80) * MINUTE
        records += [job[0].to_record(), an_idle_incident(one, since=since).to_record()]
    hub.write_records(records)
    watch = an_idle_watch(hub, ManualClock(now))
    told = [step for minutes in (0, 6) for step in watch.due(now + minutes * MINUTE)]
    users = {user for step in told for user in owners(draft(step, "owners", now))}
    assert f"user{MOST_AT_ONCE}" in users


@pytest.mark.server
def test_a_notice_that_waits_ends_with_what_it_is_about_and_no_stage_follows_it(
    server: HubProcess,
) -> None:
    hub, now = server.hub(), datetime.now(timezone.utc)
    then, one = now - 50 * MINUTE, gpu(0, "n7")
    (job,) = held_by("job 77", "ann", one, started_at=now - 300 * MINUTE)
    node = Inventory(subject=one.of_node(), at=now, boot="b", tick_seconds=60.0, version="1")
    idle = an_idle_incident(one, since=then - 110 * MINUTE)
    store_of(hub).write(lines([one], [], now))
    hub.write_records([job.to_record(), node.to_record(), idle.to_record()])
    watch = an_idle_watch(hub, ManualClock(now))

    def of_job(at: datetime) -> list[Transition]:
        return [step for step in watch.due(at) if step.snapshot["body"]["label"] == str(job.holder)]

    (first,) = of_job(then)
    (fresh,) = decide(first, [OWNERS], [], then, SETTINGS)
    waiting = replace(fresh, verdict=Verdict.OUT_OF_HOURS, due_at=now + 60 * MINUTE)
    hub.write_records([first.to_record(), waiting.to_record()])
    assert of_job(now) == []  # though the second stage's time has come

    hub.write_records([replace(idle, state="resolved", version=2).to_record()])
    (end,) = of_job(now)
    hub.write_records([end.to_record()])
    verdicts = [one.verdict for one in decide(end, [OWNERS], [waiting], now, SETTINGS)]
    assert verdicts == [Verdict.SUPERSEDED, Verdict.NEVER_TOLD]
    told = waiting.next(state=NoticeState.SENT, sent_at=now)
    assert decide(end, [OWNERS], [told], now, SETTINGS)[-1].verdict is Verdict.RESOLVED_OFF

    hub.write_records([replace(idle, version=3).to_record()])
    (again,) = of_job(now + 6 * MINUTE)
    assert (again.incident, again.number, again.reason) == (first.incident, 3, "notice 1")


@pytest.mark.server
@pytest.mark.parametrize("worked_minutes_ago", [None, 70])
def test_a_stage_is_told_of_gpus_that_computed_nothing_for_as_long_as_it_says(
    server: HubProcess, worked_minutes_ago: int | None
) -> None:
    """A moment's work ends no incident: the second notice waits until 105 minutes lie behind it."""
    hub, now = server.hub(), datetime.now(timezone.utc)
    one, number = gpu(0, f"n9{worked_minutes_ago}"), 90 + (worked_minutes_ago or 0)
    (job,) = held_by(f"job {number}", "eve", one, started_at=now - 400 * MINUTE)
    node = Inventory(subject=one.of_node(), at=now, boot="b", tick_seconds=60.0, version="1")
    idle = an_idle_incident(one, since=now - 180 * MINUTE)
    rows = lines([one], [], now).decode().split("\n")
    if worked_minutes_ago is not None:
        rows[119 - worked_minutes_ago] = rows[119 - worked_minutes_ago].replace(
            "utilization_percent=0.0", "utilization_percent=90.0", 1
        )
    store_of(hub).write("\n".join(rows).encode())
    held = replace(
        a_holder(), holder=job.holder, user="eve", gpus=(one,), idle={one.key: idle.since}
    )
    first = notice(held, "notice 1", FOR_JOBS, Idleness.MEMORY_PARKED, now - 100 * MINUTE)
    (fresh,) = decide(first, [OWNERS], [], first.at, SETTINGS)
    told = fresh.next(state=NoticeState.SENT, sent_at=first.at)
    hub.write_records(
        [it.to_record() for it in (job, node, idle)] + [first.to_record(), told.to_record()]
    )
    due = an_idle_watch(hub, ManualClock(now)).due(now)
    stages = [step.reason for step in due if step.snapshot["body"]["label"] == str(job.holder)]
    assert stages == (["notice 2"] if worked_minutes_ago is None else [])


def an_idle_watch(hub: Hub, clock: ManualClock) -> IdleWatch:
    context = Context(
        connect=lambda: hub,
        owner="a test",
        settings=AlertsSettings(),
        clock=clock,
        stop=threading.Event(),
        log=Log("alerts"),
    )
    return IdleWatch(context, lambda: hub, 1.0)


@pytest.mark.server
def test_whom_slurm_suspended_is_not_written_to_nor_anybody_while_the_analyzer_is_silent(
    server: HubProcess,
) -> None:
    hub, now = server.hub(), datetime.now(timezone.utc)
    one, began = gpu(0, "n8"), now - 300 * MINUTE
    (allocation,) = held_by("job 88", "kim", one, started_at=began)
    node = Inventory(subject=one.of_node(), at=now, boot="b", tick_seconds=60.0, version="1")
    idle = an_idle_incident(one, since=now - 110 * MINUTE)
    job = Job(
        told_by=Subject(cluster="lab", node="control"),
        number="88",
        state="SUSPENDED",
        submitted_at=began,
        seen_at=now,
    )
    store_of(hub).write(lines([one], [], now))
    hub.write_records([it.to_record() for it in (allocation, node, idle, job)])

    def told(watch: IdleWatch, at: datetime) -> list[Transition]:
        return [
            it for it in watch.due(at) if it.snapshot["body"]["label"] == str(allocation.holder)
        ]

    watch = an_idle_watch(hub, ManualClock(now))
    assert told(watch, now) == []
    resumed = replace(job, state="RUNNING", seen_at=now + MINUTE)
    hub.write_records([resumed.to_record()])
    assert told(watch, now + MINUTE) == []  # it has hardly had the time to compute
    fresh = an_idle_watch(hub, ManualClock(now))
    assert len(told(fresh, now + MINUTE)) == 1
    pulse = Record(
        kind=RecordKind.PULSE,
        id="analyzer",
        at=now - MINUTE,
        subject="analyzer",
        version=1,
    )
    hub.write_records([pulse])
    assert told(an_idle_watch(hub, ManualClock(now)), now + MINUTE) == []


def test_a_fault_excuses_who_stopped_over_it_and_a_link_only_who_needs_other_nodes() -> None:
    lost = an_incident("gpu_lost", gpu(0), resolved_at=NOON - 30 * MINUTE)
    cut = an_incident("port_down", replace(gpu(0), gpu=None, device="mlx5_0", port="1"))
    stuck = an_incident("host_mount", Subject(cluster="lab", node="n1"))
    since = NOON - timedelta(hours=1)
    assert excuses([lost], since).cover(gpu(0))
    assert not excuses([lost], NOON - 20 * MINUTE).cover(gpu(0))
    assert not excuses([lost]).cover(gpu(0))
    assert not excuses([cut]).cover(gpu(1))
    assert excuses([cut]).cover(gpu(1), spread=True)
    span = replace(the_hour({gpu(1).key: a_row()}), excuses=excuses([stuck]))
    assert why_idle(gpu(1), [], span) is Idleness.WAITS
    assert why_idle(gpu(1), [], replace(span, excuses=excuses([]))) is Idleness.NOTHING_COMPUTED
    assert why_idle(gpu(1), [], span, held_since=NOON - MINUTE) is None


def an_incident(fault: str, subject: Subject, resolved_at: datetime | None = None) -> Incident:
    return Incident(
        id=fault,
        fingerprint=fault,
        fault=fault,
        subject=subject,
        severity=Severity.WARNING,
        state="open" if resolved_at is None else "resolved",
        title=fault,
        since=NOON - timedelta(hours=2),
        updated_at=NOON,
        resolved_at=resolved_at,
    )
