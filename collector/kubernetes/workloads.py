"""Whose a pod is: the object at the top of its chain of owners, which people know it by.

A Deployment and not its ReplicaSet, a PyTorchJob, a RayCluster or what made it, a CronJob's Job of its own.
"""

from dataclasses import dataclass
from datetime import datetime

from gpuvigil.clock import from_text
from gpuvigil.log import Log

from .api import ApiServer, Forbidden, NotThere, path_of
from .objects import Owner, Pod, controller

log = Log("kubernetes")

_DEEPEST = 6

# By group and kind, as paths name them: what may stand between a pod and its workload, or be one. Each
# is read by name only (packaging/kubernetes/watcher.yaml gives these rights and no more).
PLURALS = {
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "Deployment"): "deployments",
    ("apps", "StatefulSet"): "statefulsets",
    ("apps", "DaemonSet"): "daemonsets",
    ("batch", "Job"): "jobs",
    ("batch.volcano.sh", "Job"): "jobs",
    ("jobset.x-k8s.io", "JobSet"): "jobsets",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "leaderworkersets",
    ("kubeflow.org", "PyTorchJob"): "pytorchjobs",
    ("kubeflow.org", "TFJob"): "tfjobs",
    ("kubeflow.org", "MPIJob"): "mpijobs",
    ("kubeflow.org", "Notebook"): "notebooks",
    ("trainer.kubeflow.org", "TrainJob"): "trainjobs",
    ("ray.io", "RayCluster"): "rayclusters",
    ("ray.io", "RayJob"): "rayjobs",
    ("ray.io", "RayService"): "rayservices",
    ("serving.kserve.io", "InferenceService"): "inferenceservices",
}
# What makes one job after another, each a job of its own; and nodes, which own their static pods.
_MAKERS = {"CronJob", "Node"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What people know a pod by."""

    kind: str
    namespace: str
    name: str
    created_at: datetime | None = None  # None: the object itself could not be read

    @property
    def number(self) -> str:
        """Its name among jobs: `PyTorchJob/training/llama`."""
        return f"{self.kind}/{self.namespace}/{self.name}"


class Workloads:
    """Finds them, and asks for each object on the way once."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._known: dict[str, tuple[Owner | None, datetime | None]] = {}
        self._refused: set[str] = set()

    def of(self, pod: Pod) -> Workload:
        """The pod's workload; ApiError while the server does not answer, then ask again later."""
        found = Workload(
            kind="Pod", namespace=pod.namespace, name=pod.name, created_at=pod.created_at
        )
        owner = pod.owner
        for _ in range(_DEEPEST):
            if owner is None or owner.kind in _MAKERS:
                break
            above, created_at = self._look(pod.namespace, owner)
            found = Workload(
                kind=owner.kind,
                namespace=pod.namespace,
                name=owner.name,
                created_at=created_at,
            )
            owner = above
        return found

    def forget_but(self, uids: set[str]) -> None:
        """Drop owners that no pod has any more: those are the direct ones that are still in use."""
        if len(self._known) > 10_000 > len(uids):
            self._known.clear()

    def _look(self, namespace: str, owner: Owner) -> tuple[Owner | None, datetime | None]:
        known = self._known.get(owner.uid)
        if known is None:
            known = self._known[owner.uid] = self._ask(namespace, owner)
        return known

    def _ask(self, namespace: str, owner: Owner) -> tuple[Owner | None, datetime | None]:
        group = owner.group_version.rpartition("/")[0]
        plural = PLURALS.get((group, owner.kind))
        if plural is None:
            return None, None  # a sort that we know nothing of is the job itself
        try:
            told = self._api.get(path_of(owner.group_version, plural, namespace, owner.name))
        except NotThere:
            return None, None
        except Forbidden as error:
            if owner.kind not in self._refused:
                self._refused.add(owner.kind)
                log.warning("may not see what owns a pod", kind=owner.kind, why=str(error))
            return None, None
        created = (told.get("metadata") or {}).get("creationTimestamp")
        return controller(told), from_text(created) if created else None
