"""Labels with which Kubernetes, clouds and topograph say where a node is, nearest first.

Kubernetes' own labels name region and zone, which are not part of a fabric. Sources: topograph,
docs/providers and its README (`fabric.topograph.run/tier-N`, `network.topology.nvidia.com/tier-N`
before, 0 nearest); NVIDIA GPU feature discovery (`nvidia.com/gpu.clique`); AWS, EC2 instance topology
(`topology.k8s.aws/network-node-layer-N`, 1 on top); GKE, `cloud.google.com/gce-topology-*`; Oracle,
`oci.oraclecloud.com/rdma.*`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from .model import Imported, Placed, Source, Uplink

# Each is a series of labels, nearest to the node first; a node may have only some of them.
_SERIES: tuple[tuple[str, ...], ...] = (
    tuple(f"fabric.topograph.run/tier-{n}" for n in range(6)),
    tuple(f"network.topology.nvidia.com/tier-{n}" for n in range(6)),
    tuple(f"topology.k8s.aws/network-node-layer-{n}" for n in (4, 3, 2, 1)),
    tuple(f"cloud.google.com/gce-topology-{part}" for part in ("host", "subblock", "block")),
    tuple(
        f"oci.oraclecloud.com/rdma.{part}_id"
        for part in ("local_block", "network_block", "hpc_island")
    ),
)
# A rack of GPUs on one NVLink domain: a place, not a switch of the network.
_CLIQUE = "nvidia.com/gpu.clique"
# This label names the machine that hosts a virtual one: no other node is there.
_OWN = "cloud.google.com/gce-topology-host"


def from_json(text: str) -> Imported:
    """Parse `kubectl get nodes -o json` or topograph's graph; raise ValueError or TypeError for others."""
    whole = json.loads(text)
    if not isinstance(whole, Mapping):
        raise TypeError("neither nodes of Kubernetes nor a graph of topograph")
    found = Imported()
    for node, layers in (*_kubernetes(whole.get("items")), *_topograph(whole.get("instances"))):
        found += _chain(node, layers)
    return Imported(
        places=found.places,
        uplinks=tuple({(it.lower, it.upper): it for it in found.uplinks}.values()),
    )


def layers(labels: Mapping[str, str]) -> list[str]:
    """Return the names of what a labelled node is in, nearest first; from the first series that it has."""
    for series in _SERIES:
        found = [labels[key] for key in series if labels.get(key) and key != _OWN]
        if found:
            return found
    clique = labels.get(_CLIQUE)
    return [clique] if clique else []


def _kubernetes(items: Any) -> Iterator[tuple[str, Sequence[str]]]:
    for item in items if isinstance(items, list) else ():
        about = item.get("metadata", {})
        yield str(about["name"]), layers(about.get("labels") or {})


def _topograph(instances: Any) -> Iterator[tuple[str, Sequence[str]]]:
    for one in instances if isinstance(instances, list) else ():
        told = [str(layer) for layer in one.get("network_layers") or ()]
        yield str(one["id"]), told or layers(one.get("labels") or {})


def _chain(node: str, names: Sequence[str]) -> Imported:
    return Imported(
        places=tuple(Placed(node=node, place=name, source=Source.LABELS) for name in names[:1]),
        uplinks=tuple(
            Uplink(lower=lower, upper=upper, source=Source.LABELS)
            for lower, upper in pairwise(names)
        ),
    )
