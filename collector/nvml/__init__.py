"""NVIDIA's management library, read through reused buffers; the only package that touches it.

Rare calls go through `pynvml`. Frequent reads are bound once and decoded with `struct`, since
pynvml's field-value helper costs a hundred times as much as a reused buffer. Semantics of calls,
fields and codes: NVIDIA, "NVML API Reference Guide" and the header nvml.h (API version 13).
`nvmlDeviceGetPcieThroughput` is never called: it samples for 20 ms.
"""

from ..samples.gpu_sample import CallCost, Reading
from .codes import DriverError
from .driver import Driver, load_library
from .events import Events
from .gpu import Gpu

__all__ = ["CallCost", "Driver", "DriverError", "Events", "Gpu", "Reading", "load_library"]
