"""Whose a pod is: the object at the top of its chain of owners, which people know it by.

A Deployment and not its ReplicaSet, a PyTorchJob, a RayCluster or what made it, a CronJob's Job of its own.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from gpuvigil.clock import from_text
from gpuvigil.log import Log
from gpuvigil.model import UNREADABLE
from gpuvigil.schedulers.kubernetes_api import (
    ApiError,
    ApiServer,
    Forbidden,
    NotThere,
    Unauthorized,
    path_of,
)

from .objects import Owner, Pod, controller

log = Log("kubernetes")

_DEEPEST = 6
_MOST_OWNERS = 10_000
# Rights may be given and objects come to be: a refusal is asked about again after this time.
_REFUSED_SECONDS = 600.0
_FAILED_SECONDS = 30.0
# So many questions may fail in a round: a server that does not answer takes a long time for each.
_FAILURES_A_ROUND = 3

# By group and kind, as paths name them: what may stand between a pod and its workload, or be one. Each
# is read by name only (packaging/kubernetes/base/watcher.yaml gives these rights and no more).
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """What was heard of one owner, and until when that is believed."""

    above: Owner | None = None
    created_at: datetime | None = None
    failed: str = ""  # why nothing is known
    until: float = math.inf


class Workloads:
    """Finds them, and asks for each object on the way once; again after a while where that failed."""

    def __init__(self, api: ApiServer, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._monotonic = monotonic
        self._known: dict[str, _Looked] = {}
        self._used: set[str] = set()
        self._failures = 0
        self._refused: set[str] = set()

    def begin(self) -> None:
        """A new round over all pods."""
        self._used.clear()
        self._failures = 0

    def of(self, pod: Pod) -> Workload:
        """The pod's workload; ApiError while that is not known, and Unauthorized when nothing can be."""
        found = Workload(
            kind="Pod", namespace=pod.namespace, name=pod.name, created_at=pod.created_at
        )
        owner = pod.owner
        for _ in range(_DEEPEST):
            if owner is None or owner.kind in _MAKERS:
                break
            looked = self._cached(pod.namespace, owner)
            found = Workload(
                kind=owner.kind,
                namespace=pod.namespace,
                name=owner.name,
                created_at=looked.created_at,
            )
            owner = looked.above
        return found

    def forget_unused(self) -> None:
        """When many are known, drop the owners that no pod of this round has."""
        if len(self._known) > _MOST_OWNERS:
            self._known = {uid: it for uid, it in self._known.items() if uid in self._used}

    def _cached(self, namespace: str, owner: Owner) -> _Looked:
        self._used.add(owner.uid)
        known = self._known.get(owner.uid)
        if known is None or known.until <= self._monotonic():
            if self._failures >= _FAILURES_A_ROUND:
                raise ApiError("too many questions failed: asked later")
            known = self._known[owner.uid] = self._try(namespace, owner)
        if known.failed:
            raise ApiError(known.failed)
        return known

    def _try(self, namespace: str, owner: Owner) -> _Looked:
        try:
            return self._ask(namespace, owner)
        except Unauthorized:
            raise
        except ApiError as error:
            self._failures += 1
            return _Looked(failed=str(error), until=self._monotonic() + _FAILED_SECONDS)

    def _ask(self, namespace: str, owner: Owner) -> _Looked:
        refused = _Looked(until=self._monotonic() + _REFUSED_SECONDS)
        group = owner.group_version.rpartition("/")[0]
        plural = PLURALS.get((group, owner.kind))
        if plural is None:
            return _Looked()  # a sort that we know nothing of is the job itself
        try:
            told = self._api.get(path_of(owner.group_version, plural, namespace, owner.name))
        except NotThere:
            return refused
        except Unauthorized:
            raise
        except Forbidden as error:
            if owner.kind not in self._refused:
                self._refused.add(owner.kind)
                log.warning("may not see what owns a pod", kind=owner.kind, why=str(error))
            return refused
        try:
            created = (told.get("metadata") or {}).get("creationTimestamp")
            at = from_text(created) if created else None
            return _Looked(above=controller(told), created_at=at)
        except UNREADABLE as error:
            log.warning("what owns a pod cannot be read", name=owner.name, why=repr(error))
            return refused
