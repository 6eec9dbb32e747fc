"""Names and units of dcgm-exporter and node_exporter for the catalogue's metrics.

DCGM's names are the catalogue's aliases, with the units in `metrics.dcgm`; node_exporter's names contain
their units. Read 2026-11.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..metrics import GPU, NODE, PORT, Measurement, dcgm
from ..model import Holder, job_holder, pod_holder

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The metric that provides a field, and the factor to the field's unit."""

    metric: str
    times: float = 1
    equals: float | None = None  # the field is 1 where the metric has this value, else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """One kind of target that provides lines of a measurement.

    A line exists where one of `presence` does: these metrics are in every scrape. `subject` gives the
    tags after cluster and node. `derived` are fields that follow from the labels. A `fallback` counts only
    for subjects that no other target provides.
    """

    measurement: Measurement
    presence: tuple[str, ...]
    columns: Mapping[str, Column]
    matchers: tuple[str, ...] = ()
    subject: Callable[[Labels], tuple[str, ...]] = lambda _: ()
    labels: Mapping[str, str] = field(default_factory=dict)  # tags that are labels: tag, label
    derived: Mapping[str, Callable[[Labels], int | None]] = field(default_factory=dict)
    fallback: bool = False


def node_of(labels: Labels) -> str:
    """Return the node's name: the label `node`, the exporter's own label, or the target's host."""
    named = labels.get("node") or labels.get("Hostname") or labels.get("nodename")
    return named or re.sub(r":\d+$", "", labels.get("instance", ""))


def holder_of(labels: Labels) -> tuple[Holder, str | None] | None:
    """Return holder and pod as in `Allocation` that dcgm-exporter names for a GPU; None for nobody.

    Jobs are in `hpc_job`; pods in `pod` and `namespace`, or `pod_name` and `pod_namespace` with
    --use-old-namespace. If Prometheus has labels of these names for its targets, it renames the
    exporter's to `exported_pod`; for a GPU without one, `pod` is then the exporter's own. Names: its
    internal/pkg/transformation/const.go, read 2026-11.
    """
    if job := labels.get("hpc_job"):
        return job_holder(job), None
    for pod, namespace in _PODS:
        name = labels.get(pod)
        if name and not any(own in name for own in _EXPORTERS_OWN):
            named = f"{labels.get(namespace, '')}/{name}"
            return pod_holder(named), named
    return None


# In the names of pods of dcgm-exporter, of nvidia_gpu_exporter (which names no holder, so that each of its series would
# have its own pod), and of gpuvigil's collector with `metrics_dcgm`.
_EXPORTERS_OWN = ("dcgm-exporter", "gpu-exporter", "gpuvigil-collector")
_PODS = (
    ("exported_pod", "exported_namespace"),
    ("pod_name", "pod_namespace"),
    ("pod", "namespace"),
)


def _dcgm_columns() -> dict[str, Column]:
    """Return columns by the catalogue's aliases; metrics whose unit depends on DCGM's version are left out."""
    columns = {}
    for metric in GPU.metrics:
        name = metric.dcgm
        times = None if name is None else dcgm.times(name)
        if name is not None and times is not None:
            columns[metric.name] = Column(metric=name, times=times)
    return columns


def _index(labels: Labels) -> int | None:
    text = labels.get("gpu", "")
    return int(text) if text.isascii() and text.isdigit() else None


_DCGM_PRESENCE = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL")
# MIG slices of a GPU have series of their own, under the GPU's UUID.
_WHOLE_GPU = ('UUID!=""', 'GPU_I_ID=""')

DCGM = Exporter(
    measurement=GPU,
    presence=_DCGM_PRESENCE,
    columns=_dcgm_columns(),
    matchers=_WHOLE_GPU,
    subject=lambda labels: (labels["UUID"], labels.get("modelName", "")),
    labels={"uuid": "UUID", "model": "modelName"},
    # DCGM has no series for a GPU that does not answer.
    derived={"up": lambda _: 1, "index": _index},
)
_HOSTS = Exporter(
    measurement=NODE,
    presence=("node_load1",),
    columns={
        "load_average": Column(metric="node_load1"),
        "memory_available_bytes": Column(metric="node_memory_MemAvailable_bytes"),
        "memory_total_bytes": Column(metric="node_memory_MemTotal_bytes"),
    },
)
# A node exists even if only its GPUs have series.
_GPU_HOSTS = Exporter(
    measurement=NODE,
    presence=_DCGM_PRESENCE,
    columns={},
    matchers=_WHOLE_GPU,
    fallback=True,
)
# Interfaces that are no network cards: node_exporter has series for every interface.
_VIRTUAL = "lo|veth.*|docker.*|br-.*|virbr.*|cali.*|cni.*|flannel.*|cilium.*|lxc.*|tun.*|tap.*|ib.*|bond.*|vlan.*|dummy.*|.*[.].*"
_ETHERNET = Exporter(
    measurement=PORT,
    presence=("node_network_up",),
    columns={
        "up": Column(metric="node_network_up"),
        "speed_bits_per_second": Column(metric="node_network_speed_bytes", times=8),
        "receive_bytes": Column(metric="node_network_receive_bytes_total"),
        "transmit_bytes": Column(metric="node_network_transmit_bytes_total"),
        "receive_errors": Column(metric="node_network_receive_errs_total"),
        "transmit_discards": Column(metric="node_network_transmit_drop_total"),
        "link_downed": Column(metric="node_network_carrier_down_changes_total"),
    },
    matchers=(f'device!~"{_VIRTUAL}"',),
    subject=lambda labels: (labels.get("device", ""), "1", "ethernet", "management"),
    labels={"device": "device"},
)
_INFINIBAND = Exporter(
    measurement=PORT,
    presence=("node_infiniband_state_id", "node_infiniband_physical_state_id"),
    columns={
        # ibv_port_state: 4 is active (rdma-core, verbs.h).
        "up": Column(metric="node_infiniband_state_id", equals=4),
        "physical_state": Column(metric="node_infiniband_physical_state_id"),
        "speed_bits_per_second": Column(metric="node_infiniband_rate_bytes_per_second", times=8),
        "receive_bytes": Column(metric="node_infiniband_port_data_received_bytes_total"),
        "transmit_bytes": Column(metric="node_infiniband_port_data_transmitted_bytes_total"),
        "receive_errors": Column(metric="node_infiniband_port_errors_received_total"),
        "transmit_discards": Column(metric="node_infiniband_port_discards_transmitted_total"),
        "link_downed": Column(metric="node_infiniband_link_downed_total"),
        "symbol_errors": Column(metric="node_infiniband_symbol_error_total"),
        "link_recoveries": Column(metric="node_infiniband_link_error_recovery_total"),
        "local_integrity_errors": Column(
            metric="node_infiniband_local_link_integrity_errors_total"
        ),
        "buffer_overruns": Column(metric="node_infiniband_excessive_buffer_overrun_errors_total"),
        "receive_remote_errors": Column(
            metric="node_infiniband_port_receive_remote_physical_errors_total"
        ),
        "transmit_wait_ticks": Column(metric="node_infiniband_port_transmit_wait_total"),
    },
    subject=lambda labels: (
        labels.get("device", ""),
        labels.get("port", ""),
        "infiniband",
        "fabric",
    ),
    labels={"device": "device", "port": "port"},
)
EXPORTERS: tuple[Exporter, ...] = (DCGM, _HOSTS, _GPU_HOSTS, _ETHERNET, _INFINIBAND)


def _smi(name: str, times: float = 1.0) -> Column:
    return Column(metric=f"nvidia_smi_{name}", times=times)


def _uuid(labels: Labels) -> str:
    uuid = labels.get("uuid", "")
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"


# nvidia_gpu_exporter, which runs nvidia-smi: names as in its METRICS.md, read 2026-11. It is not in
# EXPORTERS: where dcgm-exporter runs as well, each GPU would appear twice.
NVIDIA_SMI = Exporter(
    measurement=GPU,
    presence=("nvidia_smi_utilization_gpu_ratio",),
    columns={
        "utilization_percent": _smi("utilization_gpu_ratio", 100.0),
        "memory_utilization_percent": _smi("utilization_memory_ratio", 100.0),
        "memory_used_bytes": _smi("memory_used_bytes"),
        "power_watts": _smi("power_draw_watts"),
        "power_limit_watts": _smi("enforced_power_limit_watts"),
        "temperature_celsius": _smi("temperature_gpu"),
        "sm_clock_hertz": _smi("clocks_current_sm_clock_hz"),
        "sm_clock_max_hertz": _smi("clocks_max_sm_clock_hz"),
        "pcie_width": _smi("pcie_link_width_current"),
        "pcie_width_max": _smi("pcie_link_width_max"),
        "ecc_corrected_errors": _smi("ecc_errors_corrected_volatile_total"),
        "ecc_uncorrected_errors": _smi("ecc_errors_uncorrected_volatile_total"),
    },
    subject=lambda labels: (_uuid(labels), labels.get("modelName", "")),
    derived={"up": lambda _: 1},
    fallback=True,
)
