"""A hub's worth of records in which everything that can name somebody does."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from accounting.efficiency.inefficient_hours import Waste, WasteHour
from accounting.people.names import Names
from accounting.people.records_view import RecordsView
from accounting.people.roles import Person, Role
from accounting.usage.amounts import Seconds, Share
from accounting.usage.ledger import Ledger
from accounting.usage.model import Bucket
from gpuvigil.model import (
    Acceptance,
    Acknowledgement,
    Act,
    Allocation,
    Audit,
    AuditedAction,
    Event,
    EventKind,
    Evidence,
    Holder,
    Impact,
    Incident,
    Inventory,
    Job,
    NodeAction,
    Opinion,
    OutOfService,
    Record,
    RecordKind,
    Retirement,
    Rma,
    RmaState,
    ScheduledNode,
    Scheduler,
    Severity,
    Silence,
    Subject,
    Transition,
)
from gpuvigil.model.annotation import Annotation
from gpuvigil.model.report_run import Letter, LetterState, ReportRun

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
# The person who looks, somebody of their team, a stranger, and an operator.
ME, MATE, STRANGER, OPERATOR = "mira", "tomke", "quentin.zorn", "olga-op"
TEAM, OTHER_TEAM = "nlp", "vision"
# What stands in any of a stranger's fields, in every spelling of them.
SECRETS = ("quentin", "zorn", "zorn-private", "zorn_private")
GPU = Subject(cluster="prod", node="n-1", gpu="GPU-1")
NODE = GPU.of_node()
SOMETHING = (
    "Ask quentin.zorn (/home/quentin.zorn/zorn_private.py) to look at pod ml/zorn-private-0."
)


def person(role: Role) -> Person:
    return Person(name=ME, role=role, users=frozenset({ME}), teams=frozenset({TEAM}))


def sight(role: Role) -> RecordsView:
    return RecordsView(person=person(role), names=Names())


def allocation(user: str, account: str, number: int, *, ended: bool = False) -> Allocation:
    return Allocation(
        subject=replace(GPU, gpu=f"GPU-{number}"),
        holder=Holder.parse(f"job {number}"),
        user=user,
        account=account,
        command=f"/home/{user}/private.py",
        started_at=NOON - timedelta(hours=3),
        ended_at=NOON - timedelta(hours=1) if ended else None,
    )


def job(user: str, account: str, number: int) -> Job:
    return Job(
        told_by=Subject(cluster="prod", node="ctl"),
        number=str(number),
        state="RUNNING",
        submitted_at=NOON - timedelta(hours=4),
        seen_at=NOON,
        user=user,
        account=account,
        name=f"{user}-private",
        reason=f"asked by {user}",
        nodes=("n-1",),
    )


def incident() -> Incident:
    return Incident(
        id="0123456789abcdef-1",
        fingerprint="0123456789abcdef",
        fault="gpu_idle_held",
        subject=GPU,
        severity=Severity.WARNING,
        state="open",
        title="GPU held idle by quentin.zorn",
        since=NOON,
        updated_at=NOON,
        impact=Impact(
            gpus=1,
            holders=("job 3", "pod ml/zorn-private-0"),
            users=(STRANGER,),
            accounts=(OTHER_TEAM,),
            text=SOMETHING,
        ),
        evidence=(Evidence(name="held by", value=STRANGER, limit=STRANGER, peers=STRANGER),),
        action=SOMETHING,
        covers=(SOMETHING,),
        members=(GPU.key,),
        label="n-1 GPU 1",
        out_of_service=OutOfService("DRAIN", "drained: zorn broke it [quentin.zorn@now]"),
        acknowledged_by=STRANGER,
    )


def records() -> Iterator[Record]:
    """At least one of every kind."""
    for number, (user, account) in enumerate(
        ((ME, TEAM), (MATE, TEAM), (STRANGER, OTHER_TEAM)), start=1
    ):
        yield allocation(user, account, number).to_record()
        yield allocation(user, account, number + 10, ended=True).to_record()
        yield job(user, account, number).to_record()
    pod = replace(
        allocation(STRANGER, OTHER_TEAM, 4),
        holder=Holder.parse("pod ml/zorn-private-0"),
        pod="ml/zorn-private-0",
    )
    yield pod.to_record()
    stood = incident()
    yield stood.to_record()
    yield Transition(
        incident=stood.id,
        number=1,
        from_state="",
        to_state="open",
        signal="seen",
        at=NOON,
        reason=SOMETHING,
        subject=GPU,
        snapshot=stood.to_record().to_json(),
    ).to_record()
    yield Record(
        kind=RecordKind.NOTICE,
        id=f"{stood.id}:1:mail",
        at=NOON,
        subject=GPU.key,
        parent=stood.id,
        body={
            "channel": "mail",
            "state": "dead",
            "reason": SOMETHING,
            "last_error": "quentin.zorn@uni.edu refused",
            "receipt": "quentin.zorn@uni.edu",
            "snapshot": stood.to_record().to_json(),
        },
    )
    yield from said_by_people(stood)
    yield from summed_up()
    yield from told_by_machines()


def said_by_people(stood: Incident) -> Iterator[Record]:
    by, note, at = STRANGER, SOMETHING, NOON
    yield Acknowledgement(
        id="a1", incident=stood.id, subject=GPU, by=by, note=note, at=at
    ).to_record()
    yield Opinion(
        id="o1", incident=stood.id, fault=stood.fault, subject=GPU, by=by, useful=True, at=at
    ).to_record()
    yield Silence(
        id="s1",
        matchers=(f'owner="{STRANGER}"', 'holder=~"pod ml/zorn-private.*"', 'node="n-1"'),
        by=by,
        reason=note,
        at=at,
        starts_at=at,
        ends_at=at + timedelta(hours=1),
    ).to_record()
    yield Rma(
        incident=stood.id, subject=GPU, state=RmaState.OPEN, by=by, at=at, note=note
    ).to_record()
    yield Retirement(node=NODE, by=by, note=note, at=at).to_record()
    yield Acceptance(node=NODE, by=by, note=note, at=at).to_record()
    yield Annotation(id="n1", cluster="prod", note=note, by=by, at=at).to_record()
    yield NodeAction(
        incident=stood.id, node=NODE, act=Act.DRAIN, at=at, undo="sudo -u zorn_private true"
    ).to_record()
    yield Audit(
        deed=AuditedAction.SIGN_IN, person=by, about=by, detail=by, address="10.0.0.7", at=at
    ).to_record()


def summed_up() -> Iterator[Record]:
    shares = [
        Share(
            holder=f"job {number}",
            user=user,
            account=account,
            partition="gpu",
            model="H100",
            command=f"/home/{user}/private.py",
            project=f"{user}-private",
            gpus=1,
            allocated=900.0,
            measured=900.0,
            used=450.0,
            idle=0.0,
        )
        for number, (user, account) in enumerate(((ME, TEAM), (STRANGER, OTHER_TEAM)), start=1)
    ]
    bucket = Bucket(
        cluster="prod",
        start=NOON,
        gpus=8,
        nodes=1,
        seconds=Seconds(installed=7200.0),
        shares=shares,
        counted_at=NOON,
    )
    yield bucket.to_record()
    yield replace(Ledger.of(bucket), length=timedelta(hours=1)).to_record()
    waste = Waste(
        holder="job 3",
        user=STRANGER,
        account=OTHER_TEAM,
        partition="gpu",
        model="H100",
        advice="batch",
        gpus=1,
        gpu_hours=1.0,
    )
    yield WasteHour(cluster="prod", start=NOON, wastes=(waste,), scattered_gpus=0).to_record()


def told_by_machines() -> Iterator[Record]:
    message = "NVRM: Xid (PCI:0000:9b:00): 31, pid=4711, name=zorn_private, by quentin.zorn"
    yield Event(
        kind=EventKind.XID, subject=GPU, at=NOON, id="e1", xid=31, message=message
    ).to_record()
    yield Scheduler(
        told_by=Subject(cluster="prod", node="ctl"),
        at=NOON,
        answered_at=NOON,
        nodes=(ScheduledNode(name="n-1", states=("DRAIN",), reason="zorn [quentin.zorn@now]"),),
    ).to_record()
    yield Inventory(subject=NODE, at=NOON, boot="b", tick_seconds=1.0, version="1").to_record()
    run = ReportRun(name="weekly", due_at=NOON, title="GPU report", html=f"<p>{STRANGER}</p>")
    yield run.to_record(1)
    letter = Letter(run=run.id, to=f"{STRANGER}@example.org", state=LetterState.SENT, at=NOON)
    yield letter.to_record()
    of_nodes = (RecordKind.SETUP, RecordKind.SWITCH, RecordKind.EQUIPMENT, RecordKind.USUAL)
    for kind in (RecordKind.PULSE, *of_nodes):
        yield Record(kind=kind, id=kind.value, at=NOON, subject=NODE.key, body={})


def of_kind(found: Iterable[Record], kind: RecordKind) -> list[Record]:
    return [one for one in found if one.kind is kind]
