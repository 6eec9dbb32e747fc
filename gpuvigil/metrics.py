"""One catalogue of every number that is collected.

The collector's fields, the store's columns, the Prometheus names, the dashboard's labels and
`docs/metrics.md` all come from this table. A metric that nothing reads is not in it.
"""

from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """How a metric behaves over time."""

    GAUGE = "gauge"  # goes up and down
    COUNTER = "counter"  # only grows: made monotone by the collector
    STATE = "state"  # a whole number that stands for something


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One column of one measurement."""

    measurement: str
    name: str  # with its unit
    kind: Kind
    integer: bool
    source: str  # the call or the file it is read from
    used_by: str
    sentence: str
    dcgm: str | None = None  # the name under which dcgm-exporter publishes the same thing

    @property
    def prometheus(self) -> str:
        """The name on `/metrics`: counters end in `_total`."""
        suffix = "_total" if self.kind is Kind.COUNTER else ""
        return f"gpuvigil_{self.measurement}_{self.name}{suffix}"

    def misfit(self, value: float | int | bool | str) -> str | None:
        """Why a store must refuse this value, None when it fits.

        A whole number fits everywhere, a float where a whole number belongs only if it is whole.
        """
        name = f"field {self.measurement}.{self.name}"
        if isinstance(value, bool | str):
            return f"{name} is not a number"
        if not self.integer:
            return None
        if value != int(value):
            return f"{name} is not a whole number"
        return None if -(2**63) <= value < 2**63 else f"{name} is out of range"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A table of the store: the tags name a subject, one line per subject and tick."""

    name: str
    tags: tuple[str, ...]
    metrics: tuple[Metric, ...]
    sentence: str

    def metric(self, name: str) -> Metric:
        """The metric of that name; KeyError when there is none."""
        return {metric.name: metric for metric in self.metrics}[name]


def _table(measurement: str, rows: str) -> tuple[Metric, ...]:
    """Metrics from `name | kind | source | used by | DCGM name or - | sentence` lines.

    `gauge` holds a float; `integer`, `counter` and `state` hold whole numbers, `float counter` a
    counter with a fraction.
    """
    metrics = []
    for row in rows.strip().splitlines():
        name, kind, source, used_by, dcgm, sentence = (cell.strip() for cell in row.split("|"))
        metrics.append(
            Metric(
                measurement=measurement,
                name=name,
                kind=Kind(kind.replace("float ", "").replace("integer", "gauge")),
                integer=kind in {"integer", "counter", "state"},
                source=source,
                used_by=used_by,
                dcgm=None if dcgm == "-" else dcgm,
                sentence=sentence,
            )
        )
    return tuple(metrics)


GPU = Measurement(
    name="gpu",
    tags=("cluster", "node", "uuid", "model"),
    sentence="One line per GPU and tick; its NVLinks are summed up here.",
    metrics=_table(
        "gpu",
        """
up                          | state   | handle lookup and first read          | lost-GPU detector, map, state    | -                                 | 1 when the GPU answered in this tick, 0 when the driver says that it is lost; absent when the driver does not answer.
unmeasured_reason           | state   | return code of the call that failed   | state, details                   | -                                 | Why the other fields are absent, as a number of `gpuvigil.model.Unmeasured`.
unmeasured_seconds          | gauge   | the supervisor's clock                | state                            | -                                 | For how long the other fields have been absent for this reason; over a restart of the collector for a GPU that is lost.
pcie_present                | state   | sysfs bus/pci/devices                 | lost-GPU detector, details       | -                                 | 1 while the PCI bus lists the GPU, 0 when it did and does not any more; read from the kernel, also while the driver hangs.
index                       | state   | nvmlDeviceGetIndex                    | labels for people                | -                                 | NVML index; it moves when a GPU is missing at boot, so the UUID is the subject.
utilization_percent         | integer | nvmlDeviceGetUtilizationRates         | idle detector, map, status strip | DCGM_FI_DEV_GPU_UTIL              | Share of the last sample period in which at least one kernel ran.
memory_utilization_percent  | integer | nvmlDeviceGetUtilizationRates         | idle detector, details           | DCGM_FI_DEV_MEM_COPY_UTIL         | Share of the last sample period in which device memory was read or written.
memory_used_bytes           | integer | nvmlDeviceGetMemoryInfo v2            | idle detector, details           | DCGM_FI_DEV_FB_USED               | Device memory in use, without what the driver reserves.
memory_total_bytes          | integer | nvmlDeviceGetMemoryInfo v2            | details                          | -                                 | Device memory in all.
power_watts                 | gauge   | field 186, or nvmlDeviceGetPowerUsage | status strip, details            | DCGM_FI_DEV_POWER_USAGE           | Power drawn now by the board, in W.
power_limit_watts           | gauge   | field 190, or nvmlDeviceGetEnforcedPowerLimit | status strip, details            | DCGM_FI_DEV_ENFORCED_POWER_LIMIT  | The limit that the driver enforces now.
energy_joules               | float counter | nvmlDeviceGetTotalEnergyConsumption | GPU reset event, details      | DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION | Energy since the collector first saw the GPU; resets of the driver's own counter are bridged.
temperature_celsius         | integer | nvmlDeviceGetTemperatureV             | map, details                     | DCGM_FI_DEV_GPU_TEMP              | Core temperature.
memory_temperature_celsius  | integer | field 82 MEMORY_TEMP                  | details                          | DCGM_FI_DEV_MEMORY_TEMP           | Hottest memory (HBM) sensor.
sm_clock_hertz              | integer | nvmlDeviceGetClockInfo SM             | details                          | DCGM_FI_DEV_SM_CLOCK              | Streaming-multiprocessor clock.
memory_clock_hertz          | integer | nvmlDeviceGetClockInfo MEM            | details                          | DCGM_FI_DEV_MEM_CLOCK             | Memory clock.
clock_event_reasons         | state   | nvmlDeviceGetCurrentClocksEventReasons | idle detector, details          | DCGM_FI_DEV_CLOCKS_EVENT_REASONS  | Bit mask of why the clocks are not higher.
performance_state           | state   | nvmlDeviceGetPerformanceState         | details                          | -                                 | P-state, 0 is the fastest.
ecc_corrected_errors        | counter | nvmlDeviceGetTotalEccErrors           | details                          | DCGM_FI_DEV_ECC_SBE_VOL_TOTAL     | Corrected memory errors.
ecc_uncorrected_errors      | counter | nvmlDeviceGetTotalEccErrors           | details                          | DCGM_FI_DEV_ECC_DBE_VOL_TOTAL     | Uncorrected memory errors.
pcie_generation             | state   | nvmlDeviceGetCurrPcieLinkGeneration   | details                          | -                                 | PCIe generation in use; low on an idle GPU is power saving.
pcie_generation_max         | state   | nvmlDeviceGetMaxPcieLinkGeneration    | details                          | -                                 | PCIe generation that GPU and slot can do.
pcie_width                  | state   | nvmlDeviceGetCurrPcieLinkWidth        | details                          | -                                 | PCIe lanes in use.
pcie_width_max              | state   | nvmlDeviceGetMaxPcieLinkWidth         | details                          | -                                 | PCIe lanes that GPU and slot can do.
pcie_replays                | counter | nvmlDeviceGetPcieReplayCounter        | details                          | DCGM_FI_DEV_PCIE_REPLAY_COUNTER   | PCIe packets that had to be sent again.
nvlink_links_up             | state   | field 165, or nvmlDeviceGetNvLinkState | details                          | -                                 | NVLinks that are active.
nvlink_links_expected       | state   | field 91 NVLINK_LINK_COUNT            | details                          | -                                 | NVLinks that the GPU has.
nvlink_receive_bytes        | counter | field 139, all links                  | details                          | -                                 | Data received over all NVLinks.
nvlink_transmit_bytes       | counter | field 138, all links                  | details                          | -                                 | Data sent over all NVLinks.
nvlink_errors               | counter | fields 161, 162, 163, all links       | details                          | -                                 | Replays, recoveries and CRC errors over all NVLinks.
compute_processes           | integer | nvmlDeviceGetComputeRunningProcesses_v3 | idle detector, state, status strip | -                             | Processes that hold a compute context on the GPU.
read_seconds                | gauge   | the collector's clock                 | details, collector health        | -                                 | Time that reading this GPU took in this tick.
""",
    ),
)

PORT = Measurement(
    name="port",
    tags=("cluster", "node", "device", "port", "kind", "role"),
    sentence="One line per network port and tick.",
    metrics=_table(
        "port",
        """
up                    | state   | infiniband ports/N/state, net operstate                | port detector, details | - | 1 when the link is active, 0 when it is not.
physical_state        | state   | infiniband ports/N/phys_state                          | details                | - | InfiniBand physical state: 5 is link up, 2 polling, 3 disabled.
speed_bits_per_second | integer | infiniband ports/N/rate, net speed                     | port detector, details | - | Speed that the link negotiated.
receive_bytes         | counter | port_rcv_data (4-byte words), net statistics/rx_bytes  | details                | - | Data received.
transmit_bytes        | counter | port_xmit_data (4-byte words), net statistics/tx_bytes | details                | - | Data sent.
receive_errors        | counter | port_rcv_errors, net statistics/rx_errors              | details                | - | Packets received with an error.
transmit_discards     | counter | port_xmit_discards, net statistics/tx_dropped          | details                | - | Packets dropped before they were sent.
link_downed           | counter | link_downed, net carrier_down_count                    | port detector          | - | Times the link went down.
symbol_errors         | counter | symbol_error                                           | details                | - | InfiniBand symbol errors.
""",
    ),
)

NODE = Measurement(
    name="node",
    tags=("cluster", "node"),
    sentence="One line per node and tick, lost GPU or not: the collector's own health.",
    metrics=_table(
        "node",
        """
gpus_expected          | integer | the node's own history                  | status strip, node state  | - | GPUs that this node should have.
gpus_answering         | integer | the reader                              | status strip, node state  | - | GPUs that answered in this tick.
driver_answering       | state   | the reader                              | driver detector           | - | 1 when the driver answers, 0 when calls hang; absent without a driver.
driver_silent_seconds  | gauge   | the supervisor's clock                  | driver detector           | - | How long no call to the driver has come back; 0 when it answers.
reader_restarts        | counter | the supervisor                          | collector health          | - | Reader processes started after the first.
sweep_seconds          | gauge   | the collector's clock                   | collector health          | - | Time from the start of a sweep over all GPUs to its last answer.
spool_bytes            | integer | the spool                               | collector health          | - | Bytes that wait on disk to be sent.
spool_oldest_seconds   | gauge   | the spool                               | collector health          | - | Age of the oldest body that waits.
dropped_bodies         | counter | the spool                               | collector health          | - | Bodies given up: no room in the spool, a torn file, or refused by the hub.
load_average           | gauge   | /proc/loadavg, 1 minute                 | details                   | - | Runnable and uninterruptible tasks, 1-minute average.
memory_available_bytes | integer | /proc/meminfo MemAvailable              | details                   | - | Host memory that can be had without swapping.
memory_total_bytes     | integer | /proc/meminfo MemTotal                  | details                   | - | Host memory in all.
""",
    ),
)

MEASUREMENTS: dict[str, Measurement] = {m.name: m for m in (GPU, PORT, NODE)}
