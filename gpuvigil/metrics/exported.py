"""Metrics that are only on a node's `/metrics` and not stored."""

from .model import Measurement, table

DRIVER_CALL = Measurement(
    name="driver_call",
    tags=("cluster", "node", "call"),
    sentence=(
        "One line per driver call, over all GPUs of the node, on `/metrics` only; `field N` is what"
        " the driver itself says of a field value. `collector.metrics_details` leaves it out."
    ),
    metrics=table(
        "driver",
        """
calls                | counter       | the collector's clock                 | `/metrics`: what slows a sweep | nvml.h | - | Times the call was made.
call_seconds         | float counter | the collector's clock, or latencyUsec | `/metrics`: what slows a sweep | nvml.h | - | Time that these calls took.
call_slowest_seconds | gauge         | the collector's clock, or latencyUsec | `/metrics`: what slows a sweep | nvml.h | - | Longest of them since the collector started.
""",
    ),
)

GPU_INFO = Measurement(
    name="gpu_info",
    tags=("cluster", "node", "uuid", "index", "pci_address", "model", "driver_version"),
    sentence="One line per GPU that the node has or misses, on `/metrics` only: its names, to join by `uuid`.",
    metrics=table(
        "gpu",
        """
info | state | the node's own history | `/metrics`: names of a GPU | nvml.h | - | Always 1; the labels say what the GPU is called.
""",
    ),
)

GPU_XID = Measurement(
    name="gpu_xids",
    tags=("cluster", "node", "uuid", "xid"),
    sentence="One line per GPU and Xid code that was reported, on `/metrics` only; without `uuid` where no GPU is known for it.",
    metrics=table(
        "gpu",
        """
xids | counter | the kernel log, nvmlEventTypeXidCriticalError | `/metrics`: alerts on Xids | nvml.h | DCGM_FI_DEV_XID_ERRORS | Xids since the collector started, each report of the kernel and the driver once.
""",
    ),
)

NODE_TICK = Measurement(
    name="node_tick",
    tags=("cluster", "node"),
    sentence="One line, on `/metrics` only: how old the page is.",
    metrics=table(
        "node",
        """
last_tick_timestamp_seconds | gauge | the collector's clock | `/metrics`: a page that stands still | nvml.h | - | When these numbers were read, in seconds since 1970.
""",
    ),
)
