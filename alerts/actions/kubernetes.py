"""Nodes of a Kubernetes cluster: which take pods, and how that is changed.

A node is ours while its annotation carries our mark and nobody else has set `spec.unschedulable`
since: the API server keeps in `metadata.managedFields` who set a field last ("Server-Side Apply" in
kubernetes.io/docs, kept for patches, too). Every change names the version that it was decided on,
so that it is refused if the node has changed in between.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gpuvigil.model import Act
from gpuvigil.schedulers.kubernetes_api import (
    ApiError,
    ApiServer,
    Conflict,
    Forbidden,
    NotThere,
    Object,
    path_of,
)

from .drain_rules import ActionError, Machine, Step

MANAGER = "gpuvigil"
ANNOTATION = "gpuvigil/cordoned"
_NODES = "/api/v1/nodes"
_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-")


class KubernetesError(ActionError):
    """The API server did not answer, or refused: says what was asked, and why."""


class Kubernetes:
    """The cluster of an API server; only nodes that have, or had, GPUs are returned."""

    name = "Kubernetes"

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def machines(self, node: str = "") -> Mapping[str, Machine]:
        """Return all nodes by name, or one; KubernetesError when the API server does not answer.

        A missing answer never gives an empty result.
        """
        try:
            if node:
                found: Iterable[Object] = [self._api.get(path_of("v1", "nodes", None, node))]
            else:
                found = [one for page in self._api.pages(_NODES) for one in page.objects]
        except NotThere:
            return {}
        except ApiError as error:
            raise KubernetesError(f"nodes cannot be read: {_why(error, 'get, list')}") from None
        known = (_machine(one) for one in found)
        return {one.name: one for one in known if one is not None}

    def do(self, step: Step) -> None:
        """Cordon or uncordon a node; KubernetesError when refused, or if the node has changed."""
        out = step.what is Act.DRAIN
        change = {
            "metadata": {
                "resourceVersion": step.version,
                "annotations": {ANNOTATION: step.reason if out else None},
            },
            "spec": {"unschedulable": True if out else None},
        }
        try:
            self._api.patch(path_of("v1", "nodes", None, step.node), change, MANAGER)
        except Conflict:
            raise KubernetesError(f"{step.node} has changed meanwhile") from None
        except ApiError as error:
            raise KubernetesError(f"{step.node} is left as it is: {_why(error, 'patch')}") from None

    def undo(self, step: Step) -> str:
        """Return the command that undoes a step."""
        verb = "uncordon" if step.what is Act.DRAIN else "cordon"
        return f"kubectl {verb} {step.node}"


def _why(error: ApiError, verbs: str) -> str:
    if isinstance(error, Forbidden):
        return (
            f"{error}; the account needs to {verbs} nodes (packaging/kubernetes/overlays/actions)"
        )
    return str(error) or type(error).__name__


def _machine(node: Object) -> Machine | None:
    """Return a node with GPUs in Slurm's terms: IDLE or DOWN, and DRAIN if it takes no pods."""
    metadata, status = node.get("metadata") or {}, node.get("status") or {}
    spec = node.get("spec") or {}
    capacity: Mapping[str, Any] = status.get("capacity") or {}
    gpus = [amount for name, amount in capacity.items() if name.startswith(_RESOURCES)]
    if not gpus or not metadata.get("name"):
        return None
    conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
    states = {"IDLE" if conditions.get("Ready") == "True" else "DOWN"}
    if metadata.get("deletionTimestamp"):
        states.add("DELETED")
    cordoned = bool(spec.get("unschedulable"))
    mark = (metadata.get("annotations") or {}).get(ANNOTATION, "")
    return Machine(
        name=str(metadata["name"]),
        states=frozenset(states | ({"DRAIN"} if cordoned else set())),
        reason=str(mark) if not cordoned or _set_by_us(metadata) else "",
        gpus=sum(int(amount) for amount in gpus if str(amount).isdigit()),
        version=str(metadata.get("resourceVersion", "")),
    )


def _set_by_us(metadata: Mapping[str, Any]) -> bool:
    """Return whether nobody else set `spec.unschedulable` last; False if that is unknown."""
    owners = {
        str(one.get("manager"))
        for one in metadata.get("managedFields") or ()
        if "f:unschedulable" in ((one.get("fieldsV1") or {}).get("f:spec") or {})
    }
    return owners == {MANAGER}
