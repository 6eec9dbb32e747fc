"""What is taken from a pod and from a node, as the API server tells of them. Pure.

Fields and their words are those of the Kubernetes API reference, core/v1: PodSpec, PodStatus, NodeStatus.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuvigil.clock import from_text
from gpuvigil.model import ScheduledNode
from gpuvigil.schedulers.kubernetes_api import Object
from gpuvigil.schedulers.out_of_service import NOT_RESPONDING

# NVIDIA's device plugin and its GPU operator, with and without slices and replicas.
_GPU = re.compile(r"nvidia\.com/(gpu|mig-[\w.]+?)(\.shared)?")

# What Kubernetes says of a pod that it takes away (PodConditionType DisruptionTarget), in Slurm's words.
_DISRUPTED = {
    "PreemptionByScheduler": "PREEMPTED",
    "PreemptionByKubeScheduler": "PREEMPTED",  # its name in 1.25
    "DeletionByTaintManager": "NODE_FAIL",
    "DeletionByPodGC": "NODE_FAIL",
    "TerminationByKubelet": "NODE_FAIL",
    "EvictionByEvictionAPI": "CANCELLED",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A reference to the object that controls another."""

    group_version: str
    kind: str
    name: str
    uid: str


# Taints of what takes a node away on purpose: cluster-autoscaler, Karpenter (before 1.0 and since),
# the node termination handler of EKS, GKE's for machines that may be taken back.
_LEAVING = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disruption",
        "karpenter.sh/disrupted",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/scheduled-maintenance",
        "cloud.google.com/impending-node-termination",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that asks for GPUs."""

    uid: str
    namespace: str
    name: str
    created_at: datetime
    state: str  # Slurm's words: PENDING, RUNNING, COMPLETED, FAILED, PREEMPTED, NODE_FAIL ...
    gpus: int
    node: str | None = None
    owner: Owner | None = None
    marks: Mapping[str, str]  # labels, and annotations that no label has the name of
    reason: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: str | None = None

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


def pod(found: Object) -> Pod | None:
    """None for a pod that asks for no GPU, or that lacks what every pod has."""
    metadata, spec, status = (found.get(key) or {} for key in ("metadata", "spec", "status"))
    gpus, created = _gpus(spec), metadata.get("creationTimestamp")
    if not gpus or not created:
        return None
    state, reason = _state(metadata, spec, status)
    started = status.get("startTime")
    return Pod(
        uid=str(metadata["uid"]),
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        created_at=from_text(created),
        state=state,
        gpus=gpus,
        node=spec.get("nodeName"),
        owner=controller(found),
        marks={**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})},
        reason=reason,
        started_at=from_text(started) if started else None,
        ended_at=max(map(from_text, _finished(status)), default=None),
        exit_code=_exit_code(status),
    )


def controller(told: Object) -> Owner | None:
    """The one owner that manages an object; without such a mark the only one that there is."""
    owners = (told.get("metadata") or {}).get("ownerReferences") or []
    found = [one for one in owners if one.get("controller")] or (owners if len(owners) == 1 else [])
    if not found:
        return None
    one = found[0]
    return Owner(
        group_version=str(one["apiVersion"]),
        kind=str(one["kind"]),
        name=str(one["name"]),
        uid=str(one["uid"]),
    )


def node(found: Object) -> ScheduledNode | None:
    """A node with GPUs, with all that keeps it from taking pods; None for one without GPUs."""
    metadata, spec, status = (found.get(key) or {} for key in ("metadata", "spec", "status"))
    gpus = _count(status.get("capacity") or {})
    if not gpus:
        return None
    states, reasons = [], []
    conditions = {one.get("type"): one for one in status.get("conditions") or ()}
    ready = conditions.get("Ready") or {"message": "it never said that it is"}
    if ready.get("status") != "True":
        states.append("NOT_READY" if ready.get("status") == "False" else "UNKNOWN")
        reasons.append(str(ready.get("message") or ready.get("reason") or ""))
    # "Unknown if the node controller has not heard from the node in the last node-monitor-grace-period
    # (default is 50 seconds)": Kubernetes, Node Status, Conditions.
    if ready.get("status") == "Unknown":
        states.append(NOT_RESPONDING)
    if spec.get("unschedulable"):
        states.append("CORDONED")
    if metadata.get("deletionTimestamp"):
        states.append("DELETED")
    leaving = sorted(_LEAVING & {one.get("key") for one in spec.get("taints") or ()})
    if leaving:
        states.append("LEAVING")
        reasons += leaving
    allocatable = _count(status.get("allocatable") or {})
    if allocatable < gpus:
        reasons.append(f"{gpus - allocatable} of its {gpus} GPUs are not offered")
    return ScheduledNode(
        name=str(metadata["name"]),
        states=tuple(states),
        reason="; ".join(filter(None, reasons)) or None,
        gpus=gpus,
    )


def _gpus(spec: Object) -> int:
    """What the containers ask for; an init container's share is used again by those after it."""
    at_once = sum(_of_container(one) for one in spec.get("containers") or ())
    before = [_of_container(one) for one in spec.get("initContainers") or ()]
    return max([at_once, *before])


def _of_container(found: Object) -> int:
    # Of extended resources limits and requests are the same, and a request may be left out.
    return _count((found.get("resources") or {}).get("limits") or {})


def _count(resources: Mapping[str, Any]) -> int:
    found = [str(it) for name, it in resources.items() if _GPU.fullmatch(name)]
    return sum(int(it) for it in found if it.isdigit())


def _state(metadata: Object, spec: Object, status: Object) -> tuple[str, str | None]:
    phase = status.get("phase")
    conditions = {one.get("type"): one for one in status.get("conditions") or ()}
    disrupted = conditions.get("DisruptionTarget") or {}
    if disrupted.get("status") == "True":
        said = _DISRUPTED.get(str(disrupted.get("reason")), "CANCELLED")
        return said, _words(disrupted)
    if phase == "Succeeded":
        return "COMPLETED", None
    if phase == "Failed":
        return _failed(status)
    if phase == "Running":
        return ("RUNNING", "it is being deleted" if metadata.get("deletionTimestamp") else None)
    return "PENDING", _why_pending(conditions, spec, status)


def _failed(status: Object) -> tuple[str, str | None]:
    reasons = [one.get("reason") for one in _terminated(status)]
    if "OOMKilled" in reasons:
        return "OUT_OF_MEMORY", "OOMKilled"
    if status.get("reason") == "DeadlineExceeded":
        return "TIMEOUT", _words(status)
    return "FAILED", _words(status) or next(filter(None, reasons), None)


def _why_pending(conditions: Mapping[Any, Any], spec: Object, status: Object) -> str | None:
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False":
        return _words(scheduled)
    if spec.get("schedulingGates"):
        return "SchedulingGated"
    statuses = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    waiting = [(one.get("state") or {}).get("waiting") or {} for one in statuses]
    return next((words for one in waiting if (words := _words(one))), None)


def _terminated(status: Object) -> Iterable[Object]:
    for one in status.get("containerStatuses") or ():
        ended = (one.get("state") or {}).get("terminated")
        if ended:
            yield ended


def _finished(status: Object) -> Iterable[str]:
    # A pod that is taken away has containers that ended and such that have not yet.
    if any((it.get("state") or {}).get("running") for it in status.get("containerStatuses") or ()):
        return ()
    return (str(one["finishedAt"]) for one in _terminated(status) if one.get("finishedAt"))


def _exit_code(status: Object) -> str | None:
    """As Slurm writes it; of several containers the first that failed."""
    ended = list(_terminated(status))
    one = next((it for it in ended if it.get("exitCode")), ended[0] if ended else None)
    if one is None:
        return None
    code, number = int(one.get("exitCode") or 0), int(one.get("signal") or 0)
    # Runtimes tell a death by a signal as 128 and its number.
    number = number or (code - 128 if 128 < code < 192 else 0)
    return f"0:{number}" if number else f"{code}:0"


def _words(said: Object) -> str | None:
    return ": ".join(str(said[key]) for key in ("reason", "message") if said.get(key)) or None
