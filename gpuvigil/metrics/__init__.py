"""The catalogue of all metrics that are collected.

The collector's fields, the store's columns, the Prometheus names, the dashboard's labels and
`docs/metrics.md` all come from these tables. A metric that nothing reads is not in them.
"""

from .exported import DRIVER_CALL, GPU_INFO, GPU_XID, NODE_TICK
from .gpu import GPU
from .host import NODE, PORT
from .inference import INFERENCE
from .links import MIG, NVLINK
from .model import Kind, Measurement, Metric, Seen

MEASUREMENTS: dict[str, Measurement] = {
    m.name: m for m in (GPU, NVLINK, MIG, PORT, NODE, INFERENCE)
}
# What `/metrics` shows: this includes what is only for a look at one node and is not stored.
EXPORTED: tuple[Measurement, ...] = (
    *MEASUREMENTS.values(),
    GPU_INFO,
    GPU_XID,
    NODE_TICK,
    DRIVER_CALL,
)

__all__ = [
    "DRIVER_CALL",
    "EXPORTED",
    "GPU",
    "GPU_INFO",
    "GPU_XID",
    "INFERENCE",
    "MEASUREMENTS",
    "MIG",
    "NODE",
    "NODE_TICK",
    "NVLINK",
    "PORT",
    "Kind",
    "Measurement",
    "Metric",
    "Seen",
]
