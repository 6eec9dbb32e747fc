"""`/metrics` also in DCGM's names, units and labels, so that dashboards for dcgm-exporter work.

Form: dcgm-exporter 3.3, its README's example and pkg/dcgmexporter (labels `gpu`, `UUID`,
`pci_bus_id`, `device`, `modelName`, `Hostname`, `DCGM_FI_DRIVER_VERSION`; `hpc_job`, or `pod` and
`namespace`, where somebody holds the GPU), read 2026-11. A GPU that does not answer is absent, as
with DCGM.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from gpuvigil.metrics import GPU, GPU_INFO, Kind, Metric
from gpuvigil.metrics.dcgm import times
from gpuvigil.model import Allocation, HolderKind
from gpuvigil.web.metrics_page import labels_text

from .catalogue_rows import Number, Row

_MIB = 1024 * 1024
_XID, _FREE = "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_FB_FREE"


def dcgm(rows: Sequence[Row], xids: Mapping[str, int], held: Iterable[Allocation]) -> str:
    """Return the text for the GPUs among a page's rows; `xids` is each GPU's last code, by UUID."""
    infos = {row.tags["uuid"]: row.tags for row in rows if row.measurement is GPU_INFO}
    holders = _holders(held)
    told = [
        (_labels(row.tags, infos, holders), row.tags["uuid"], row.every)
        for row in rows
        if row.measurement is GPU and row.every.get("up") == 1
    ]
    parts = []
    for metric, name, factor in _named():
        samples = [
            f"{name}{labels} {_number(value / factor)}\n"
            for labels, _, fields in told
            if (value := fields.get(metric.name)) is not None
        ]
        parts += _family(name, metric.kind is Kind.COUNTER, metric.sentence, samples)
    free = [
        f"{_FREE}{labels} {_number(it)}\n" for labels, _, f in told if (it := _free(f)) is not None
    ]
    parts += _family(_FREE, False, "Device memory that is free, in MiB.", free)
    codes = [f"{_XID}{labels} {xids.get(uuid, 0)}\n" for labels, uuid, _ in told]
    parts += _family(_XID, False, "The last Xid of the GPU; 0 for none.", codes)
    return "".join(parts)


@cache
def _named() -> tuple[tuple[Metric, str, float], ...]:
    """Return the catalogue's metrics that have a DCGM name with one unit, with name and factor."""
    return tuple(
        (metric, metric.dcgm, factor)
        for metric in GPU.metrics
        if metric.dcgm is not None and (factor := times(metric.dcgm)) is not None
    )


def _family(name: str, counter: bool, sentence: str, samples: Sequence[str]) -> list[str]:
    if not samples:
        return []
    kind = "counter" if counter else "gauge"
    return [f"# HELP {name} {sentence}\n# TYPE {name} {kind}\n", *samples]


def _free(fields: Mapping[str, Number | None]) -> float | None:
    total, used = fields.get("memory_total_bytes"), fields.get("memory_used_bytes")
    if total is None or used is None:
        return None
    return max(total - used - (fields.get("memory_reserved_bytes") or 0), 0) / _MIB


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.9g}"


def _holders(held: Iterable[Allocation]) -> dict[str, dict[str, str]]:
    """Return the labels of a job or a pod by UUID; a process has none in DCGM."""
    found: dict[str, dict[str, str]] = {}
    for one in held:
        uuid = one.subject.gpu
        if uuid is None or one.ended_at is not None:
            continue
        if one.pod is not None:
            namespace, _, pod = one.pod.partition("/")
            found[uuid] = {"container": "", "namespace": namespace, "pod": pod}
        elif one.holder.kind is HolderKind.JOB:
            found[uuid] = {"hpc_job": one.holder.name}
    return found


def _labels(
    tags: Mapping[str, str],
    infos: Mapping[str, Mapping[str, str]],
    holders: Mapping[str, Mapping[str, str]],
) -> str:
    info = infos.get(tags["uuid"], {})
    index = info.get("index", "")
    return labels_text(
        {
            "gpu": index,
            "UUID": tags["uuid"],
            "pci_bus_id": _bus(info.get("pci_address", "")),
            "device": f"nvidia{index}",
            "modelName": tags.get("model", ""),
            "Hostname": tags["node"],
            "DCGM_FI_DRIVER_VERSION": info.get("driver_version", ""),
            **holders.get(tags["uuid"], {}),
        }
    )


def _bus(address: str) -> str:
    """Return the address as DCGM writes it: `00000000:1B:00.0`."""
    domain, _, rest = address.partition(":")
    return f"{domain.zfill(8)}:{rest}".upper() if rest else ""
