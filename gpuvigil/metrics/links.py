"""Metrics of single NVLinks, and of MIG devices."""

from .model import Measurement, table

NVLINK = Measurement(
    name="nvlink",
    tags=("cluster", "node", "uuid", "model", "link"),
    sentence=(
        "One line per NVLink when it has changed or counts an error, and every hour: no line means"
        " that it is unchanged. With `collector.metrics_links` `/metrics` shows every link as last read."
    ),
    metrics=table(
        "nvlink",
        """
up                    | state   | field 165                     | GPU page                 | nvml.h | - | 1 when the link is active, 0 when it is not.
speed_bits_per_second | integer | field 164 (MB/s)              | GPU page                 | nvml.h | - | Speed that the link runs at.
version               | state   | field 166                     | GPU page                 | nvml.h | - | NVLink version, as a number of the driver's enumeration: 6 is NVLink 4.
receive_bytes         | counter | field 139 (KiB), or 204       | GPU page                 | nvml.h | - | Data received.
transmit_bytes        | counter | field 138 (KiB), or 202       | GPU page                 | nvml.h | - | Data sent.
raw_receive_bytes     | counter | field 141 (KiB)               | GPU page                 | nvml.h | - | Data received, with what the protocol adds: how full the link is.
raw_transmit_bytes    | counter | field 140 (KiB)               | GPU page                 | nvml.h | - | Data sent, with what the protocol adds: how full the link is.
ecc_errors            | counter | field 160                     | GPU page                 | nvml.h | - | ECC errors of the link's data.
replay_errors         | counter | field 161                     | GPU page                 | nvml.h | - | Data-link replays.
recovery_errors       | counter | field 162                     | GPU page                 | nvml.h | - | Data-link recoveries.
crc_errors            | counter | field 163                     | GPU page                 | nvml.h | - | Data-link CRC errors.
malformed_packets     | counter | field 206 (NVLink 5)          | GPU page                 | -      | - | Malformed packets.
buffer_overruns       | counter | field 207 (NVLink 5)          | GPU page                 | -      | - | Packets lost to a full buffer.
receive_errors        | counter | field 208 (NVLink 5)          | GPU page                 | nvml.h | - | Packets received with an error.
remote_errors         | counter | field 209 (NVLink 5)          | GPU page                 | -      | - | Packets received with an error of the far end.
general_errors        | counter | field 210 (NVLink 5)          | GPU page                 | -      | - | Other errors while receiving.
integrity_errors      | counter | field 211 (NVLink 5)          | GPU page                 | -      | - | Times local errors passed the threshold of link integrity.
transmit_discards     | counter | field 212 (NVLink 5)          | GPU page                 | -      | - | Packets dropped before they were sent.
recoveries_succeeded  | counter | field 213 (NVLink 5)          | GPU page                 | nvml.h | - | Link recoveries that succeeded.
recoveries_failed     | counter | field 214 (NVLink 5)          | GPU page                 | nvml.h | - | Link recoveries that failed.
effective_errors      | counter | field 219 (NVLink 5)          | GPU page                 | nvml.h | - | Errors that forward error correction left.
symbol_errors         | counter | field 221 (NVLink 5)          | GPU page                 | nvml.h | - | Symbol errors before correction; every fast link has some.
""",
    ),
)

MIG = Measurement(
    name="mig",
    tags=("cluster", "node", "uuid", "mig", "profile"),
    sentence="One line per MIG device and tick; `uuid` is the GPU's, `mig` its own.",
    metrics=table(
        "mig",
        """
memory_used_bytes         | integer | nvmlDeviceGetMemoryInfo v2              | GPU page                | nvml.h | - | Device memory in use.
memory_total_bytes        | integer | nvmlDeviceGetMemoryInfo v2              | GPU page                | nvml.h | - | Device memory in all.
compute_processes         | integer | nvmlDeviceGetComputeRunningProcesses_v3 | GPU page                | nvml.h | - | Processes that hold a compute context.
graphics_activity_percent | gauge   | GPM 1                                   | GPU page                | nvml.h | - | Share of time in which the graphics or compute engine was busy.
sm_activity_percent       | gauge   | GPM 2                                   | GPU page                | nvml.h | - | Share of its multiprocessors that had work, on average.
sm_occupancy_percent      | gauge   | GPM 3                                   | GPU page                | nvml.h | - | Warps that were resident, of those that fit.
tensor_activity_percent   | gauge   | GPM 5                                   | GPU page                | nvml.h | - | Share of time in which a tensor pipe was busy.
dram_activity_percent     | gauge   | GPM 10                                  | GPU page                | nvml.h | - | Memory bandwidth used.
""",
    ),
)
