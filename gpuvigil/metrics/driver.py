"""What the driver's own calls cost on a node."""

from .model import Measurement, table

DRIVER_CALL = Measurement(
    name="driver_call",
    tags=("cluster", "node", "call"),
    sentence=(
        "One line per driver call, over all GPUs of the node, on `/metrics` only; `field N` is what"
        " the driver itself says of a field value."
    ),
    metrics=table(
        "driver_call",
        """
calls           | counter       | the collector's clock                 | `/metrics`: what slows a sweep | nvml.h | - | Times the call was made.
seconds         | float counter | the collector's clock, or latencyUsec | `/metrics`: what slows a sweep | nvml.h | - | Time that these calls took.
slowest_seconds | gauge         | the collector's clock, or latencyUsec | `/metrics`: what slows a sweep | nvml.h | - | Longest of them since the collector started.
""",
    ),
)
