"""Accounts and partitions come into an incident on its way to the hub."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from analyzer.jobs.job_accounts import Jobs
from gpuvigil.matching.matchers import fit, labels_of
from gpuvigil.model import (
    Allocation,
    Impact,
    Incident,
    Record,
    RecordKind,
    Severity,
    Subject,
    Transition,
)

NOON = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
GPU = Subject(cluster="lab", node="n1", gpu="GPU-1")


def allocation(holder: str, cluster: str = "lab", **more: object) -> Record:
    fields = {"user": "ada", "command": None, "started_at": NOON, **more}
    return Allocation(subject=replace(GPU, cluster=cluster), holder=holder, **fields).to_record()  # type: ignore[arg-type]


def incident(*holders: str) -> Incident:
    return Incident(
        id="i-1",
        fingerprint="f",
        fault="gpu_lost",
        subject=GPU,
        severity=Severity.CRITICAL,
        state="open",
        title="GPU fell off the bus",
        since=NOON,
        updated_at=NOON,
        impact=Impact(gpus=1, holders=holders, users=("ada",)),
    )


def test_an_incident_and_its_transition_say_whose_account_its_jobs_are_on() -> None:
    jobs = Jobs()
    jobs.ingest(allocation("job 1", account="vision", partition="a100"))
    jobs.ingest(allocation("job 2", account="speech", ended_at=NOON + timedelta(hours=1)))
    jobs.ingest(allocation("pid 7"))
    jobs.ingest(allocation("job 1", cluster="other", account="others"))
    one = incident("job 1", "job 2", "pid 7", "job 3")
    step = Transition(
        incident=one.id,
        number=1,
        from_state="suspect",
        to_state="open",
        signal="confirmed",
        at=NOON,
        reason="seen twice",
        subject=GPU,
        snapshot=one.to_record().to_json(),
    )
    for record in (
        jobs.named(one.to_record()),
        Record.from_json(Transition.from_record(jobs.named(step.to_record())).snapshot),
    ):
        labels = labels_of(Incident.from_record(record))
        assert (labels["account"], labels["partition"]) == (("speech", "vision"), ("a100",))
        assert fit(['account="vision"', 'partition=~"a.*"', 'owner="ada"'], labels)
        assert not fit(['account!="speech"'], labels)
    assert jobs.named(allocation("job 9")) == allocation("job 9")


def test_what_another_node_says_of_a_job_neither_routes_nor_silences_an_incident() -> None:
    jobs = Jobs()
    said = allocation("job 1", account="vision", partition="a100")
    elsewhere = replace(GPU, node="n3")
    lie = replace(
        allocation("job 1", account="muted", partition="night"),
        subject=elsewhere.key,
        id="n3|job 1",
    )
    for record in (said, lie):
        jobs.ingest(record)
    one = incident("job 1")
    labels = labels_of(Incident.from_record(jobs.named(one.to_record())))
    assert (labels["account"], labels["partition"]) == (("vision",), ("a100",))
    # Of what is about both nodes both are heard.
    both = replace(one, members=(GPU.key, elsewhere.key))
    labels = labels_of(Incident.from_record(jobs.named(both.to_record())))
    assert labels["account"] == ("muted", "vision")


def test_what_an_older_version_kept_has_no_accounts() -> None:
    record = incident("job 1").to_record()
    impact = {key: record.body["impact"][key] for key in ("gpus", "holders", "users", "text")}
    old = replace(record, kind=RecordKind.INCIDENT, body={**record.body, "impact": impact})
    assert labels_of(Incident.from_record(old))["account"] == ()
