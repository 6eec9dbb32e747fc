"""Nodes of a Kubernetes cluster are cordoned and given back, and what people did stays as they left it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from alerts.actions.drain_rules import ActionError, DrainRefusal, Step, plan
from alerts.actions.kubernetes import ANNOTATION, Kubernetes, KubernetesError
from alerts.actions.service import Actor
from gpuvigil.config import ActionsSettings
from gpuvigil.model import Act, Record, RecordKind
from gpuvigil.schedulers.kubernetes_api import ApiServer
from tests.servers import QuickHub

from .apiserver import NodesServer
from .lost import accepted, lost_gpu

NOON = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
LIVE = ActionsSettings(enabled=True, dry_run=False, of="kubernetes", most_percent=50.0, resume=True)
CORDON = {"spec": {"unschedulable": True}}
UNCORDON = {"spec": {"unschedulable": None}}
PERSON = "kubectl-cordon"


@pytest.fixture
def server() -> Iterator[NodesServer]:
    with NodesServer() as found:
        for number in range(1, 5):
            found.add(f"n{number}")
        found.add("cpu1", gpus=None)
        yield found


def cluster(server: NodesServer) -> Kubernetes:
    return Kubernetes(ApiServer(server.url, None, None))


def cordoned(server: NodesServer) -> set[str]:
    return {name for name, node in server.nodes.items() if node["spec"].get("unschedulable")}


def drain(server: NodesServer, name: str) -> Step:
    """As decided on what is there now."""
    version = cluster(server).machines(name)[name].version
    reason = "gpuvigil [gpu_lost i1] GPU fell off the bus"
    return Step(what=Act.DRAIN, node=name, incident="i1", reason=reason, version=version)


def test_what_a_node_is_comes_from_its_conditions_and_only_gpu_nodes_count(
    server: NodesServer,
) -> None:
    server.add("sick", ready="Unknown")
    server.change("n2", CORDON, PERSON)
    found = cluster(server).machines()
    assert set(found) == {"n1", "n2", "n3", "n4", "sick"}
    assert (found["n1"].in_service, found["n1"].gpus) == (True, 8)
    assert (found["n2"].in_service, found["n2"].fit, found["n2"].ours) == (False, True, None)
    assert (found["sick"].in_service, found["sick"].fit) == (False, False)
    assert cluster(server).machines("nowhere") == {}


def test_a_mark_counts_only_until_somebody_else_has_had_a_say(server: NodesServer) -> None:
    kubernetes = cluster(server)
    kubernetes.do(drain(server, "n1"))
    assert cordoned(server) == {"n1"}
    assert kubernetes.machines("n1")["n1"].ours == ("gpu_lost", "i1")
    server.change("n1", UNCORDON, PERSON)
    assert kubernetes.machines("n1")["n1"].ours is None
    server.change("n1", CORDON, PERSON)  # our annotation is still there
    assert server.nodes["n1"]["metadata"]["annotations"][ANNOTATION]
    assert kubernetes.machines("n1")["n1"].ours is None
    server.change("n1", UNCORDON, PERSON)
    kubernetes.do(drain(server, "n1"))
    assert kubernetes.machines("n1")["n1"].ours == ("gpu_lost", "i1")
    del server.nodes["n1"]["metadata"]["managedFields"]  # a server that does not tell
    assert kubernetes.machines("n1")["n1"].ours is None


def test_what_a_person_gave_back_is_not_taken_again_for_the_same_incident(
    server: NodesServer,
) -> None:
    kubernetes, stands = cluster(server), replace(lost_gpu("n1", NOON), id="i1")
    kubernetes.do(drain(server, "n1"))
    server.change("n1", UNCORDON, PERSON)
    found = plan(LIVE, "c", [stands], kubernetes.machines(), NOON)
    assert (found.steps, [one.why for one in found.refused]) == ((), [DrainRefusal.RELEASED])
    another = replace(stands, id="i2")
    (step,) = plan(LIVE, "c", [another], kubernetes.machines(), NOON).steps
    assert step.incident == "i2"


def test_a_refusal_is_said_and_changes_nothing(server: NodesServer) -> None:
    kubernetes, step = cluster(server), drain(server, "n1")
    server.change("n1", {"metadata": {"labels": {"a": "b"}}}, "somebody")
    with pytest.raises(KubernetesError, match="n1 has changed meanwhile"):
        kubernetes.do(step)
    server.forbidden = {"patch"}
    with pytest.raises(KubernetesError, match=r"cannot patch .*overlays/actions"):
        kubernetes.do(drain(server, "n1"))
    server.forbidden = {"list"}
    with pytest.raises(KubernetesError, match=r"nodes cannot be read: 403: .*overlays/actions"):
        kubernetes.machines()
    server.forbidden, server.expired = set(), True
    with pytest.raises(KubernetesError, match="too old"):
        kubernetes.machines()  # half of the nodes are not all of them
    assert cordoned(server) == set()


def test_no_server_is_no_empty_cluster() -> None:
    with NodesServer() as gone:
        url = gone.url
    with pytest.raises(KubernetesError, match="nodes cannot be read"):
        Kubernetes(ApiServer(url, None, None)).machines()


@pytest.mark.server
def test_only_what_was_cordoned_here_is_given_back_and_never_too_much_is_taken(
    server: NodesServer, tmp_path: Path
) -> None:
    with QuickHub(tmp_path / "hub") as process:
        hub = process.hub()
        hub.write_records([lost_gpu(node, NOON).to_record() for node in ("n2", "n3", "n4", "cpu1")])
        server.change("n1", CORDON, PERSON)

        def actor(settings: ActionsSettings) -> Actor:
            return Actor(hub, cluster(server), settings, "c")

        assert len(actor(replace(LIVE, dry_run=True)).run_once(NOON).steps) == 1
        assert server.patches == 0

        server.before_patch = [("n2", {"metadata": {"labels": {"a": "b"}}}, "somebody")]
        with pytest.raises(KubernetesError, match="changed meanwhile"):
            actor(LIVE).run_once(NOON)
        assert cordoned(server) == {"n1"}

        found = actor(LIVE).run_once(NOON)
        assert {(it.node, it.why) for it in found.refused} == {
            ("n3", DrainRefusal.SHARE),
            ("n4", DrainRefusal.SHARE),
            ("cpu1", DrainRefusal.UNKNOWN_NODE),
        }
        assert cordoned(server) == {"n1", "n2"}
        said = server.nodes["n2"]["metadata"]["annotations"][ANNOTATION]
        assert said.startswith("gpuvigil [gpu_lost n2-1] GPU fell off the bus: PCI device: gone")
        assert not actor(LIVE).run_once(NOON).steps  # again changes nothing

        over = [
            replace(lost_gpu(node, NOON), state="resolved", resolved_at=NOON, version=2)
            for node in ("n2", "n3", "n4", "cpu1")
        ]
        hub.write_records([one.to_record() for one in over])
        assert not actor(LIVE).run_once(NOON + timedelta(minutes=5)).steps
        pulse = Record(kind=RecordKind.PULSE, id="analyzer", at=NOON, subject="analyzer", version=1)
        hub.write_records([pulse])
        with pytest.raises(ActionError, match="the analyzer is silent"):
            actor(LIVE).run_once(NOON + timedelta(hours=1))
        hub.write_records([replace(pulse, at=NOON + timedelta(hours=1), version=2)])
        actor(LIVE).run_once(NOON + timedelta(hours=1))
        assert cordoned(server) == {"n1", "n2"}  # nobody has tested it yet
        hub.write_records([accepted("n2", NOON + timedelta(minutes=30)).to_record()])
        actor(LIVE).run_once(NOON + timedelta(hours=1))
        assert cordoned(server) == {"n1"}
        assert ANNOTATION not in server.nodes["n2"]["metadata"]["annotations"]
