"""What a detector is, and the one table of them.

A detector looks at all subjects at once and at few of them closely:

    rows = window.get("gpu", Span.RECENT)              # one row per subject that has lines there
    hot = rows.values("temperature_celsius_max") > 90  # a column: float64, NaN is not measured
    hot &= window.get("gpu", Span.NOW).beside(rows, "up") == 1   # the same subjects' newest lines
    hot &= window.get("node", Span.NOW).beside(rows, "driver_answering") == 1    # their nodes'
    hot &= window.of_allocations(rows, _held_since) <= micros(window.now)        # their records
    return [_finding(window, gpu, row) for gpu, row in rows.where(hot)]

A comparison with what was not measured does not hold, so NaN needs no care of its own. Only the
rows that are left become `Row`s, whose cells are plain values and None. `Row`s, events and strings
of every subject in every pass are what makes a pass over a large fleet slow.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from gpuvigil.model import Finding

from .detectors import (
    clock_wrong,
    driver_drift,
    driver_not_loaded,
    driver_silent,
    fabric_down,
    gpu_clocks,
    gpu_hot,
    gpu_hung,
    gpu_idle_held,
    gpu_lost,
    gpu_memory,
    gpu_memory_held,
    gpu_nvlink,
    gpu_pcie,
    gpu_power,
    gpu_settings,
    gpu_silent,
    gpu_slow,
    gpu_xid,
    gpus_missing,
    host_disk,
    host_memory,
    host_sensors,
    node_silent,
    nvswitch_error,
    port_down,
    port_errors,
    switch_down,
)
from .window import Key, Need, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """A pure function from a window to findings, with what it reads and where its rule comes from.

    One that reads events runs again as soon as an event comes; the findings of the others stand
    until the next pass. `next_due` says when one will find something that it waits with until then.
    """

    name: str
    find: Callable[[Window], list[Finding]]
    faults: tuple[str, ...]
    needs: tuple[Need, ...]
    reads_events: bool
    sentence: str
    source: str
    next_due: Callable[[Window], datetime | None] | None = None


DETECTORS: tuple[Detector, ...] = (
    Detector(
        name="gpu_lost",
        find=gpu_lost.lost_gpus,
        faults=("gpu_lost",),
        needs=gpu_lost.NEEDS,
        reads_events=True,
        sentence="A GPU that the driver lost, or that reported an Xid which says so.",
        source="NVIDIA Xid catalogue, Xid 79; NVML_ERROR_GPU_IS_LOST",
    ),
    Detector(
        name="gpu_xid",
        find=gpu_xid.xid_faults,
        faults=("gpu_xid", "gpu_program"),
        needs=gpu_xid.NEEDS,
        reads_events=True,
        sentence="A GPU with an Xid that no reset, reboot or return has cured, or that repeats.",
        source="NVIDIA Xid catalogue, a row per code",
    ),
    Detector(
        name="nvswitch_error",
        find=nvswitch_error.sxid_faults,
        faults=("nvswitch_error",),
        needs=(),
        reads_events=True,
        sentence="A node with an SXid that no boot has cured, or that repeats.",
        source="NVIDIA Fabric Manager guide, a class per SXid",
    ),
    Detector(
        name="gpu_idle_held",
        find=gpu_idle_held.idle_held_gpus,
        faults=("gpu_idle_held",),
        needs=gpu_idle_held.NEEDS,
        reads_events=False,
        sentence="A GPU that was held and computed nothing over the whole idle span.",
        source="job_defense_shield: 0 % at every sample",
    ),
    Detector(
        name="port_down",
        find=port_down.broken_ports,
        faults=("port_down", "port_flapping"),
        needs=port_down.NEEDS,
        reads_events=True,
        sentence="A network port that was seen up and is down, or that goes down again and again.",
        source="gpud: a drop, and three of them a flap",
        next_due=port_down.next_due,
    ),
    Detector(
        name="driver_silent",
        find=driver_silent.silent_drivers,
        faults=("driver_silent",),
        needs=driver_silent.NEEDS,
        reads_events=True,
        sentence="A node on which no call to the NVIDIA driver comes back.",
        source="the supervisor's clock beside the reader",
    ),
    Detector(
        name="driver_not_loaded",
        find=driver_not_loaded.nodes_without_driver,
        faults=("driver_not_loaded",),
        needs=(),
        reads_events=False,
        sentence="A node with NVIDIA GPUs on its PCI bus for which no driver is loaded.",
        source="the PCI bus in sysfs, and NVML_ERROR_DRIVER_NOT_LOADED",
    ),
    Detector(
        name="gpu_silent",
        find=gpu_silent.silent_gpus,
        faults=("gpu_silent",),
        needs=gpu_silent.NEEDS,
        reads_events=True,
        sentence="One GPU whose driver calls do not come back, by event and line or for two ticks.",
        source="NVIDIA Xid catalogue, Xid 119",
    ),
    Detector(
        name="node_silent",
        find=node_silent.silent_nodes,
        faults=("node_silent",),
        needs=node_silent.NEEDS,
        reads_events=False,
        sentence="A node that reported before and of which the hub hears nothing any more.",
        source="three ticks without a body",
    ),
    Detector(
        name="gpu_memory",
        find=gpu_memory.failing_memory,
        faults=("gpu_memory",),
        needs=gpu_memory.NEEDS,
        reads_events=False,
        sentence="A GPU whose memory failed, waits for a repair, or corrects errors again and again.",
        source="NVIDIA, A100 GPU memory error management; DCGM health",
    ),
    Detector(
        name="gpu_pcie",
        find=gpu_pcie.degraded_links,
        faults=("gpu_pcie",),
        needs=gpu_pcie.NEEDS,
        reads_events=False,
        sentence="A GPU whose PCIe link has lost lanes or speed, or repeats packets.",
        source="NVML's current and maximum link; DCGM's limit for replays",
    ),
    Detector(
        name="gpu_nvlink",
        find=gpu_nvlink.broken_links,
        faults=("gpu_nvlink",),
        needs=gpu_nvlink.NEEDS,
        reads_events=False,
        sentence="A GPU with fewer NVLinks up than its peers, or whose NVLinks count errors.",
        source="DCGM health, NVLink",
    ),
    Detector(
        name="fabric_down",
        find=fabric_down.fabrics_down,
        faults=("fabric_down",),
        needs=fabric_down.NEEDS,
        reads_events=False,
        sentence="A node whose GPUs have not joined the NVLink fabric.",
        source="nvmlDeviceGetGpuFabricInfoV",
    ),
    Detector(
        name="gpu_hot",
        find=gpu_hot.hot_gpus,
        faults=("gpu_hot",),
        needs=gpu_hot.NEEDS,
        reads_events=False,
        sentence="A GPU that heat slows down, or that is hotter than its power and its peers explain.",
        source="nvml.h, clock event reasons; degrees per watt against peers",
    ),
    Detector(
        name="gpu_power",
        find=gpu_power.held_back,
        faults=("gpu_power",),
        needs=gpu_power.NEEDS,
        reads_events=False,
        sentence="A GPU that the power brake slows down, or whose power limit somebody lowered.",
        source="nvml.h, clock event reason 0x80; the board's default limit",
    ),
    Detector(
        name="gpu_clocks",
        find=gpu_clocks.stuck_clocks,
        faults=("gpu_clocks",),
        needs=gpu_clocks.NEEDS,
        reads_events=False,
        sentence="A GPU whose clocks stay low under load, though neither power nor heat says why.",
        source="clock event counters, and the cluster's other GPUs of the model",
    ),
    Detector(
        name="gpu_slow",
        find=gpu_slow.slow_gpus,
        faults=("gpu_slow",),
        needs=gpu_slow.NEEDS,
        reads_events=False,
        sentence="A GPU that its job's other GPUs began to wait for.",
        source="what a GPU draws at its clock, against its job's others and its own past",
    ),
    Detector(
        name="gpu_settings",
        find=gpu_settings.odd_settings,
        faults=("gpu_settings",),
        needs=gpu_settings.NEEDS,
        reads_events=False,
        sentence="A GPU that alone in its node has ECC off or MIG on.",
        source="nvmlDeviceGetEccMode, nvmlDeviceGetMigMode",
    ),
    Detector(
        name="gpu_hung",
        find=gpu_hung.hung_jobs,
        faults=("gpu_hung",),
        needs=gpu_hung.NEEDS,
        reads_events=False,
        sentence="A job whose GPUs are fully used at low power and move nothing.",
        source="what kernels do that spin in a collective",
    ),
    Detector(
        name="gpu_memory_held",
        find=gpu_memory_held.held_memory,
        faults=("gpu_memory_held",),
        needs=gpu_memory_held.NEEDS,
        reads_events=False,
        sentence="A GPU whose memory is in use although the scheduler has ended its job.",
        source="memory in use, and no allocation for five minutes",
    ),
    Detector(
        name="gpus_missing",
        find=gpus_missing.nodes_with_too_few,
        faults=("gpus_missing",),
        needs=(),
        reads_events=False,
        sentence="A node with fewer GPUs than most nodes with the same model.",
        source="the majority of the cluster's inventories",
    ),
    Detector(
        name="driver_drift",
        find=driver_drift.drifted_drivers,
        faults=("driver_drift",),
        needs=(),
        reads_events=False,
        sentence="A node with another driver version than most of its rack.",
        source="the majority of the rack's inventories",
    ),
    Detector(
        name="host_memory",
        find=host_memory.failing_hosts,
        faults=("host_memory",),
        needs=host_memory.NEEDS,
        reads_events=True,
        sentence="A node whose kernel reports or counts memory errors again and again.",
        source="mcelog acts on ten of a DIMM within a day",
    ),
    Detector(
        name="host_disk",
        find=host_disk.full_disks,
        faults=("host_disk",),
        needs=host_disk.NEEDS,
        reads_events=False,
        sentence="A node whose collector cannot write its spool, or has to give up what it measured.",
        source="writes that the spool's disk refused, and bodies given up",
    ),
    Detector(
        name="host_sensors",
        find=host_sensors.failing_parts,
        faults=("host_power", "host_fan", "host_mount", "host_space"),
        needs=host_sensors.NEEDS,
        reads_events=False,
        sentence="A node of which a power supply, a fan, a mount or a file system fails.",
        source="the kernel's hwmon, power_supply and statvfs",
    ),
    Detector(
        name="clock_wrong",
        find=clock_wrong.wrong_clocks,
        faults=("clock_wrong",),
        needs=(),
        reads_events=False,
        sentence="A node whose clock is too far off to be put right.",
        source="when its bodies were sent, and when they reached the hub",
    ),
    Detector(
        name="switch_down",
        find=switch_down.switches_down,
        faults=("switch_down",),
        needs=switch_down.NEEDS,
        reads_events=False,
        sentence="Fabric ports of several nodes that went down together.",
        source="three nodes at once are no cables",
    ),
    Detector(
        name="port_errors",
        find=port_errors.bad_ports,
        faults=("port_errors", "port_congested"),
        needs=port_errors.NEEDS,
        reads_events=False,
        sentence="A network port with physical errors that its peers do not have, or that drops packets.",
        source="NVSentinel's limits, and the cluster's other ports",
    ),
)


def questions(detectors: Iterable[Detector]) -> dict[Key, Need]:
    """What to ask the store so that one answer per measurement and span serves all detectors."""
    asked: dict[Key, Need] = {}
    for need in (need for detector in detectors for need in detector.needs):
        key = (need.measurement, need.span)
        before = asked.get(key, Need(measurement=need.measurement, span=need.span))
        asked[key] = Need(
            measurement=need.measurement,
            span=need.span,
            fields=tuple(sorted({*before.fields, *need.fields})),
            aggregates=tuple(sorted({*before.aggregates, *need.aggregates})),
        )
    return asked
