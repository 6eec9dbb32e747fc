"""Every record kind, with every name in it, by every kind of token: who may say so."""

import dataclasses
import json
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuvigil.config import HubSettings
from gpuvigil.errors import ConfigError, HubRefused
from gpuvigil.hub_client import Hub
from gpuvigil.model import (
    SCHEDULER_KINDS,
    Allocation,
    BusGpu,
    Event,
    EventKind,
    GpuIdentity,
    Holder,
    Inventory,
    Job,
    Nic,
    PortIdentity,
    Record,
    RecordKind,
    ScheduledNode,
    Scheduler,
    Subject,
)
from hub.auth.authorization import MAKE_TOKEN, check_kinds
from hub.auth.tokens import Tokens
from hub.http.bearer import Bearer, Scope
from hub.http.responses import Refused
from tests.hub.in_process import HubThread
from tests.hub.talk import ask
from tests.servers import HubProcess

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
OWN = Subject(cluster="test", node="n1")  # whose token it is
OTHER = replace(OWN, node="n2")
ALIKE = replace(OWN, node="n10")
ELSEWHERE = Subject(cluster="other", node="n1")
ALIKE_ELSEWHERE = Subject(cluster="test2", node="n1")

# What the tokens are; with each of the last three and of the first nobody comes in.
SERVICE = frozenset({"service", "issued service"})
ANY_NODE = SERVICE | {"collector", "issued collector"}
OF_NODE = ANY_NODE | {"node"}
ANY_SCHEDULER = SERVICE | {"scheduler", "issued scheduler"}
OF_SCHEDULER = ANY_SCHEDULER | {"scheduler of test"}
OF_ANOTHER = ANY_SCHEDULER | {"scheduler of other"}
STRANGERS = frozenset({"none", "unknown", "revoked node", "revoked scheduler", "revoked service"})
TOKENS = (
    OF_NODE | OF_SCHEDULER | OF_ANOTHER | STRANGERS | {"reader", "viewer", "team", "own", "join"}
)

SERVICES_KINDS = frozenset(RecordKind) - {
    *(RecordKind.EVENT, RecordKind.ALLOCATION, RecordKind.INVENTORY),
    *(RecordKind.JOB, RecordKind.SCHEDULER),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A record, what is said in it, and the tokens with which it is accepted."""

    what: str
    record: Record
    accepted: frozenset[str]


def gpu(node: Subject = OWN) -> Subject:
    return replace(node, gpu="GPU-1")


def port(node: Subject = OWN) -> Subject:
    return replace(node, device="mlx5_0", port="1")


def event(subject: Subject = OWN, of: Subject | None = None, message: str = "") -> Record:
    """By the collector of `of`, of the subject's node unless said otherwise."""
    node = (of or subject).of_node().key
    id_ = f"{node}|boot|xid|{subject.key}|1"
    kind = EventKind.XID
    return Event(kind=kind, subject=subject, at=NOON, id=id_, xid=79, message=message).to_record()


def allocation(subject: Subject, holder: str = "pid 7", **more: Any) -> Record:
    told = Allocation(
        subject=subject,
        holder=Holder.parse(holder),
        user="ada",
        command="train",
        started_at=NOON,
        **more,
    )
    return told.to_record()


def inventory(subject: Subject = OWN, **more: Any) -> Record:
    told = Inventory(subject=subject, at=NOON, boot="b", tick_seconds=10.0, version="0.1.0", **more)
    return told.to_record()


def job(told_by: Subject = OWN, number: str = "17", **more: Any) -> Record:
    told = Job(
        told_by=told_by, number=number, state="RUNNING", submitted_at=NOON, seen_at=NOON, **more
    )
    return told.to_record()


def scheduler(told_by: Subject = OWN, *nodes: str) -> Record:
    down = tuple(ScheduledNode(name=name, states=("MAINT", "DELETED")) for name in nodes)
    return Scheduler(told_by=told_by, at=NOON, answered_at=NOON, nodes=down).to_record()


def events() -> Iterator[Case]:
    yield Case("its own", event(), OF_NODE)
    yield Case("its own GPU's", event(gpu()), OF_NODE)
    yield Case("its own port's", event(port()), OF_NODE)
    yield Case("message: words about another", event(message="test/n2 is gone"), OF_NODE)
    yield Case("subject and id: another node", event(OTHER), ANY_NODE)
    yield Case("subject and id: another's GPU", event(gpu(OTHER)), ANY_NODE)
    yield Case("subject: another node", event(OTHER, of=OWN), ANY_NODE)
    yield Case("id: another node", event(OWN, of=OTHER), ANY_NODE)
    yield Case("subject and id: one that begins alike", event(ALIKE), ANY_NODE)
    yield Case("subject and id: another cluster", event(ELSEWHERE), ANY_NODE)
    yield Case("subject: the cluster", replace(event(), subject="test"), SERVICE)
    yield Case("subject: nodes below it", replace(event(), subject="test/n1/n2"), SERVICE)
    yield Case("subject: another way to write it", replace(event(), subject="t%65st/n1"), SERVICE)
    yield Case("parent: an incident", replace(event(), parent="0123456789abcdef:1"), SERVICE)
    yield Case("due_at: work for somebody", replace(event(), due_at=NOON), SERVICE)


def allocations() -> Iterator[Case]:
    of_pod = {"holder": "pod ns/llama-0", "pod": "ns/llama-0"}
    yield Case("its own GPU", allocation(gpu()), OF_NODE)
    # Who is on its GPUs a node alone can say.
    yield Case("holder: a job", allocation(gpu(), "job 17", account="x"), OF_NODE)
    yield Case("subject: another's GPU", allocation(gpu(OTHER)), ANY_NODE)
    taken = replace(allocation(gpu(OTHER)), id=allocation(gpu()).id)
    yield Case("subject: another's GPU, with its own id", taken, ANY_NODE)
    taken = replace(allocation(gpu()), id=allocation(gpu(OTHER)).id)
    yield Case("id: another's", taken, ANY_NODE)
    yield Case("subject: another cluster's GPU", allocation(gpu(ELSEWHERE)), ANY_NODE)
    # To which job a pod's GPUs belong a node does not know.
    yield Case("pod: on its own GPU", allocation(gpu(), **of_pod), OF_NODE | OF_SCHEDULER)
    given = {**of_pod, "holder": "job Job/ns/llama"}
    yield Case("pod: on its own GPU, of a job", allocation(gpu(), **given), OF_NODE | OF_SCHEDULER)
    on_other = allocation(gpu(OTHER), **given)
    yield Case("pod: on another's GPU", on_other, ANY_NODE | OF_SCHEDULER)
    elsewhere = allocation(gpu(ELSEWHERE), **given)
    yield Case("pod: in another cluster", elsewhere, ANY_NODE | OF_ANOTHER)
    alike = allocation(gpu(ALIKE_ELSEWHERE), **given)
    yield Case("pod: in a cluster that begins alike", alike, ANY_NODE | ANY_SCHEDULER)
    of_job = replace(allocation(gpu(), **given), id=allocation(gpu(), "job 17").id)
    yield Case("pod: with the id of a job's", of_job, OF_NODE)
    yield Case("parent: an incident", replace(allocation(gpu()), parent="i"), SERVICE)


def inventories() -> Iterator[Case]:
    card = GpuIdentity(uuid="GPU-9", index=0, pci_address="0000:01:00.0", model="H100", serial="1")
    leaf = PortIdentity(
        device="mlx5_0", port="1", kind="roce", role="fabric", switch="leaf-1", switch_port="swp1"
    )
    yield Case("its own", inventory(), OF_NODE)
    # Its rack, its parts and their numbers a node alone can say.
    told = inventory(
        rack="another's",
        gpus=(card,),
        ports=(leaf,),
        missing={"GPU-8": NOON},
        on_bus=(BusGpu(address="0000:9b:00.0"),),
    )
    yield Case("rack, gpus, ports, missing, on_bus", told, OF_NODE)
    yield Case("subject and id: another node", inventory(OTHER), ANY_NODE)
    yield Case("subject: another node", replace(inventory(OTHER), id=OWN.key), ANY_NODE)
    yield Case("id: another node", replace(inventory(), id=OTHER.key), ANY_NODE)
    yield Case("id: below its own", replace(inventory(), id=f"{OWN.key}/x"), ANY_NODE)
    yield Case("subject and id: another cluster", inventory(ELSEWHERE), ANY_NODE)
    yield Case("parent: a node", replace(inventory(), parent=OTHER.key), SERVICE)


def jobs() -> Iterator[Case]:
    yield Case("its own word", job(), OF_SCHEDULER)
    told = job(nodes=("n2",), numbers={"n2": (0,)}, pods=("ns/p",), user="ada", account="x")
    yield Case("nodes, numbers, pods, user, account", told, OF_SCHEDULER)
    yield Case("told_by: another machine", job(OTHER), OF_SCHEDULER)
    yield Case("told_by: another cluster", job(ELSEWHERE), OF_ANOTHER)
    yield Case("told_by: a cluster that begins alike", job(ALIKE_ELSEWHERE), ANY_SCHEDULER)
    yield Case("parent: another job", replace(job(), parent="job 18"), SERVICE)
    yield Case("parent: none", replace(job(), parent=None), SERVICE)
    yield Case("id: another cluster", replace(job(), id=job(ELSEWHERE).id), SERVICE)
    yield Case("subject: another cluster", replace(job(), subject=ELSEWHERE.key), SERVICE)
    yield Case("due_at: work for somebody", replace(job(), due_at=NOON), SERVICE)


def schedulers() -> Iterator[Case]:
    yield Case("no node", scheduler(), OF_SCHEDULER)
    yield Case("nodes: itself and all others", scheduler(OWN, "n1", "n2", "n3"), OF_SCHEDULER)
    yield Case("told_by: another machine", scheduler(OTHER, "n1"), OF_SCHEDULER)
    yield Case("told_by: another cluster", scheduler(ELSEWHERE, "n1"), OF_ANOTHER)
    yield Case("told_by: alike", scheduler(ALIKE_ELSEWHERE, "n1"), ANY_SCHEDULER)
    yield Case("id: another", replace(scheduler(), id=OTHER.key), SERVICE)
    yield Case("id: another cluster", replace(scheduler(), id=ELSEWHERE.key), SERVICE)
    yield Case("subject: another cluster", replace(scheduler(), subject=ELSEWHERE.key), SERVICE)
    yield Case("parent: a job", replace(scheduler(), parent="job 17"), SERVICE)


def of_services(kind: RecordKind) -> Iterator[Case]:
    for subject in (OWN, gpu(), OTHER, ELSEWHERE):
        about = Record(kind=kind, id=f"{subject.key}|1", at=NOON, subject=subject.key)
        yield Case(f"subject: {subject.key}", about, SERVICE)
    about = Record(kind=kind, id="i", at=NOON, subject=OWN.key, parent="j", due_at=NOON)
    yield Case("parent and due_at", about, SERVICE)


CASES = {
    RecordKind.EVENT: events,
    RecordKind.ALLOCATION: allocations,
    RecordKind.INVENTORY: inventories,
    RecordKind.JOB: jobs,
    RecordKind.SCHEDULER: schedulers,
}

# Every field of what can be said, and whether it names somebody: a new one is to be thought about.
NAMES: dict[type[Any], set[str]] = {
    Record: {"kind", "id", "subject", "parent", "due_at"},
    Event: {"subject", "id", "message"},
    Allocation: {"subject", "holder", "user", "account", "pod"},
    Inventory: {"subject", "gpus", "ports", "nics", "rack", "missing", "on_bus"},
    BusGpu: {"address"},
    GpuIdentity: {"uuid", "pci_address", "serial", "fabric_cluster", "fabric_clique"},
    Nic: {"address", "devices", "gpus"},
    PortIdentity: {"device", "port", "switch", "switch_port", "addresses", "waits_for"},
    Job: {"told_by", "number", "user", "account", "nodes", "numbers", "pods"},
    Scheduler: {"told_by", "nodes", "left"},
    ScheduledNode: {"name"},
}
NO_NAMES: dict[type[Any], set[str]] = {
    Record: {"at", "body", "version", "sequence"},
    Event: {"kind", "at", "xid", "sxid", "count", "version", "gone", "collectives", "crashed"},
    Allocation: {
        *("command", "started_at", "ended_at", "partition", "array", "exit_code", "place", "part"),
        "began_before",
    },
    Inventory: {
        *("at", "boot", "tick_seconds", "version", "driver", "driver_state"),
        *("driverless_since", "expects_gpus", "kernel"),
    },
    BusGpu: {"driver", "vendor"},
    GpuIdentity: {
        *("index", "model", "vbios", "memory_total_bytes", "part_number", "inforom"),
        *("gsp_firmware", "minor"),
    },
    Nic: {"model", "link", "best", "beside"},
    PortIdentity: {"kind", "role", "was_up", "firmware", "addressing", "mtu"},
    Job: {
        *("state", "submitted_at", "seen_at", "started_at", "ended_at", "partition", "qos", "name"),
        *("array", "reason", "gpus", "limit_seconds", "exit_code"),
    },
    Scheduler: {"at", "why", "answered_at", "query_seconds"},
    ScheduledNode: {"states", "reason", "gpus", "gpus_used", "since", "until"},
}


@pytest.mark.parametrize("of", list(NAMES))
def test_of_every_field_it_is_known_whether_it_names_somebody(of: type[Any]) -> None:
    fields = {field.name for field in dataclasses.fields(of)}
    assert NAMES[of] | NO_NAMES[of] == fields
    assert not NAMES[of] & NO_NAMES[of]


@pytest.fixture(scope="module")
def scoped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    directory = tmp_path_factory.mktemp("scopes")
    file = directory / "scheduler-token"
    file.write_text("of-any-scheduler\n", encoding="utf-8")
    with HubThread(directory, {"scheduler_token_file": file}) as hub:
        yield hub


@pytest.fixture(scope="module")
def tokens(scoped: HubProcess) -> dict[str, str]:
    """By what they are."""
    made: dict[str, str] = {}

    def issue(what: str, scope: str, cluster: str = "", node: str = "") -> None:
        asked = {"scope": scope, "name": what, "cluster": cluster, "node": node}
        url = f"{scoped.url}/api/v1/tokens"
        answer = ask(url, json.dumps(asked).encode(), token=scoped.service_token)
        made[what] = answer.json["token"]
        if what.startswith("revoked"):
            end = f"{url}/{answer.json['issued']['id']}/revoke"
            assert ask(end, b"{}", token=scoped.service_token).status == 200

    for prefix in ("", "revoked "):
        issue(f"{prefix}node", "node", "test", "n1")
    for what in ("issued scheduler", "revoked scheduler"):
        issue(what, "scheduler")
    for cluster in ("test", "other"):
        issue(f"scheduler of {cluster}", "scheduler", cluster)
    for what in ("issued service", "revoked service"):
        issue(what, "service")
    issue("issued collector", "collector")
    for what in ("reader", "viewer", "team", "own"):
        issue(what, what)
    asked = json.dumps({"uses": 1, "seconds": 3600}).encode()
    answer = ask(f"{scoped.url}/api/v1/tokens/join", asked, token=scoped.service_token)
    made["join"] = answer.json["token"]
    made |= {"service": scoped.service_token, "collector": scoped.collector_token}
    made |= {"scheduler": "of-any-scheduler", "none": "none", "unknown": "gpuvigil_0_nobody"}
    assert made.keys() == TOKENS
    return made


@pytest.fixture(scope="module")
def clients(scoped: HubProcess, tokens: dict[str, str]) -> Iterator[dict[str, Hub]]:
    """One connection for each token."""
    made = {what: Hub(scoped.url, partial(str, token)) for what, token in tokens.items()}
    yield made
    for client in made.values():
        client.close()


@pytest.mark.medium
@pytest.mark.parametrize("kind", list(RecordKind))
def test_who_may_write_what_about_whom(clients: dict[str, Hub], kind: RecordKind) -> None:
    assert (kind in SERVICES_KINDS) == (kind not in CASES)
    for number, case in enumerate(CASES[kind]() if kind in CASES else of_services(kind)):
        assert case.record.kind is kind
        before = clients["service"].changes(-1, [kind]).sequence
        for what in sorted(TOKENS - case.accepted):
            with pytest.raises(HubRefused) as refused:
                clients[what].write_records([case.record])
            said = f"{kind.value}, {case.what}, with {what}: {refused.value}"
            assert refused.value.status in ({401} if what in STRANGERS else {400, 403}), said
        assert clients["service"].changes(-1, [kind]).sequence == before, case.what
        for step, what in enumerate(sorted(case.accepted)):
            version = case.record.version + 100 * number + step
            after = clients[what].write_records([replace(case.record, version=version)])
            assert after > before, f"{kind.value}, {case.what}, with {what}"
            before = after


def _write(hub: HubProcess, token: str, record: Record) -> tuple[int, str]:
    content = json.dumps(record.to_json()).encode()
    answer = ask(f"{hub.url}/api/v1/records", content, token=token)
    return answer.status, answer.json.get("message", "")


@pytest.mark.medium
def test_one_line_of_another_keeps_the_whole_body_out(
    scoped: HubProcess, tokens: dict[str, str]
) -> None:
    client = scoped.hub()
    before = client.status()["sequence"]
    for own, others, what in (
        (event(), scheduler(OWN, "n2"), "node"),
        (event(), scheduler(OWN, "n2"), "collector"),
        (job(number="901"), job(ELSEWHERE, "902"), "scheduler of test"),
        (job(number="903"), event(), "scheduler of test"),
    ):
        body = "\n".join(json.dumps(it.to_json()) for it in (own, others)).encode()
        assert ask(f"{scoped.url}/api/v1/records", body, token=tokens[what]).status == 403
    assert client.status()["sequence"] == before


@pytest.mark.medium
def test_who_may_not_speak_for_a_scheduler_is_told_how_to_and_so_is_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with HubThread(tmp_path) as hub:
        for record in (job(), scheduler()):
            status, message = _write(hub, hub.collector_token, record)
            assert (status, "a collector's token may not write" in message) == (403, True)
            assert "gpuvigil token create --scope scheduler --cluster" in message
        status, message = _write(
            hub, hub.collector_token, replace(event(), kind=RecordKind.SILENCE)
        )
        assert (status, "gpuvigil token create" in message) == (403, False)
    assert caplog.text.count("a scheduler's records refused") == 1  # and not for each


def test_a_scheduler_reads_what_it_goes_on_from_of_its_cluster_alone(
    scoped: HubProcess, tokens: dict[str, str]
) -> None:
    client = scoped.hub()
    start = client.status()["sequence"]
    here, there = job(number="801"), job(ELSEWHERE, "802")
    held = [allocation(gpu(OTHER), "job 801"), allocation(gpu(ELSEWHERE), "job 802")]
    later = NOON + timedelta(hours=1)
    said = [Scheduler(told_by=it, at=later, nodes=()).to_record() for it in (OTHER, ELSEWHERE)]
    client.write_records([here, there, *held, *said, event(gpu(OTHER))])

    def sees(what: str) -> tuple[set[str], set[str]]:
        hub = Hub(scoped.url, lambda: tokens[what])
        kinds = [RecordKind.JOB, RecordKind.ALLOCATION, RecordKind.SCHEDULER]
        try:
            found = [record for kind in kinds for record in hub.records(kind)]
            news = hub.changes(start, kinds, wait_seconds=0).records
        finally:
            hub.close()
        return {it.id for it in found} & ids, {it.id for it in news}

    ids = {it.id for it in (here, there, *held, *said)}
    of_test = {here.id, held[0].id, said[0].id}
    assert sees("scheduler") == sees("service") == (ids, ids)
    assert sees("scheduler of test") == (of_test, of_test)
    assert sees("scheduler of other") == (ids - of_test, ids - of_test)
    for path in (
        *("records?kind=event", "records?kind=incident", "records?kind=silence", "status"),
        *("changes?after=-1", "changes?after=0&kinds=job,event", "inventory?cluster=test&node=n1"),
        *("tokens", "store"),
    ):
        for what in ("scheduler", "scheduler of test"):
            assert ask(f"{scoped.url}/api/v1/{path}", token=tokens[what]).status == 403, path
    for path in ("api/v2/write", "api/v1/claim", "api/v1/finish", "api/v1/telemetry/latest"):
        assert ask(f"{scoped.url}/{path}", b"{}", token=tokens["scheduler"]).status == 403, path


def test_what_another_wrote_under_an_id_of_ours_is_not_replaced(
    scoped: HubProcess, tokens: dict[str, str]
) -> None:
    client = scoped.hub()
    theirs = replace(event(gpu(OTHER)), id="test/n1|stolen")
    client.write_records([theirs])
    mine = replace(theirs, subject=OWN.key, version=2)
    assert _write(scoped, tokens["node"], mine)[0] == 403


def test_a_hub_without_a_scheduler_starts_and_takes_no_two_tokens_for_one(tmp_path: Path) -> None:
    files = {}
    for name in ("service", "collector", "scheduler"):
        files[name] = tmp_path / name
        files[name].write_text(f"{name}\n")
    both = HubSettings(service_token_file=files["service"], collector_token_file=files["collector"])
    assert Tokens(both).bearer(b"Token scheduler") is None
    all_three = replace(both, scheduler_token_file=files["scheduler"])
    found = Tokens(all_three).bearer(b"Token scheduler")
    assert found is not None
    assert (found.scope.value, found.cluster) == ("scheduler", "")
    for same in ("service", "collector"):
        files["scheduler"].write_text(f"{same}\n")
        with pytest.raises(
            ConfigError, match=f"hub.{same}_token_file and hub.scheduler_token_file"
        ):
            Tokens(all_three)


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ({RecordKind.JOB}, True),
        (SCHEDULER_KINDS, True),
        (SCHEDULER_KINDS | {RecordKind.INVENTORY}, True),
        (SCHEDULER_KINDS | {RecordKind.INCIDENT}, False),
    ],
)
def test_who_writes_what_schedulers_tell_without_their_token_hears_how_to_get_one(
    kinds: Set[RecordKind], told: bool
) -> None:
    node = Bearer(scope=Scope.NODE, cluster="c", node="n1")
    with pytest.raises(Refused) as refused:
        check_kinds(node, kinds)
    assert (MAKE_TOKEN in str(refused.value)) == told
