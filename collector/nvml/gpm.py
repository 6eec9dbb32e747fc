"""GPM, the profiling counters that Hopper and later GPUs give without a profiler's rights.

A value is the mean between two samples, which must lie at least 0.1 s apart (nvml.h).
"""

import ctypes
import math
import struct
import time
from typing import TYPE_CHECKING

import pynvml

from ..samples.field_values import Field, Values
from .calls import Calls
from .codes import SUCCESS

if TYPE_CHECKING:
    _Sample = ctypes._Pointer[ctypes.Structure]
_APART_SECONDS = 0.1
_MIB = 1024 * 1024
# By GPM metric number: shares are percent, traffic is MiB/s.
METRICS: dict[int, Field] = {
    1: Field("graphics_activity_percent"),
    2: Field("sm_activity_percent"),
    3: Field("sm_occupancy_percent"),
    5: Field("tensor_activity_percent"),
    10: Field("dram_activity_percent"),
    11: Field("fp64_activity_percent"),
    12: Field("fp32_activity_percent"),
    13: Field("fp16_activity_percent"),
    20: Field("pcie_transmit_bytes_per_second", times=_MIB),
    21: Field("pcie_receive_bytes_per_second", times=_MIB),
    60: Field("nvlink_receive_bytes_per_second", times=_MIB),
    61: Field("nvlink_transmit_bytes_per_second", times=_MIB),
}
_METRIC = struct.Struct("=IId24x")  # id, return code, value, and three texts


class Gpm:
    """The GPM samples of one GPU, or of one of its MIG instances."""

    def __init__(self, calls: Calls, instance: int | None = None) -> None:
        """Set up; `calls` are on the GPU itself, even for the GPU instance `instance`."""
        self._calls = calls
        self._instance = instance
        self._key = "gpm" if instance is None else f"gpm {instance}"
        self._samples: tuple[_Sample, _Sample] | None = None
        self._sampled_at: float | None = None
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(METRICS)
        for slot, number in zip(self._request.metrics, METRICS, strict=False):
            slot.metricId = number
        start = pynvml.c_nvmlGpmMetricsGet_t.metrics.offset
        end = start + _METRIC.size * len(METRICS)
        self._bytes = memoryview(self._request).cast("B")[start:end]

    def read(self, values: Values) -> None:
        """Add the means since the previous sample; nothing in the first sweep."""
        if self._calls.refuses(self._key) or not self._ready():
            return
        assert self._samples is not None
        now = time.monotonic()
        if self._sampled_at is not None and now - self._sampled_at < _APART_SECONDS:
            return
        before, after = self._samples
        if not self._sample(after):
            self._sampled_at = None
            return
        compared = self._sampled_at is not None
        self._samples, self._sampled_at = (after, before), now
        if compared:
            self._request.sample1, self._request.sample2 = before, after
            request = ctypes.byref(self._request)
            if self._calls.code(self._key, "nvmlGpmMetricsGet", request) == SUCCESS:
                self._decode(values)

    def close(self) -> None:
        """Free the samples."""
        free = self._calls.bound("nvmlGpmSampleFree")
        if self._samples is not None and free is not None:
            for sample in self._samples:
                free(sample)
        self._samples = None

    def _ready(self) -> bool:
        """Return whether there are samples to fill; they are allocated once."""
        if self._samples is None:
            support = pynvml.c_nvmlGpmSupport_t(version=pynvml.NVML_GPM_SUPPORT_VERSION)
            asked = self._calls.call(self._key, "nvmlGpmQueryDeviceSupport", ctypes.byref(support))
            if not asked or not support.isSupportedDevice:
                self._calls.refuse(self._key)
                return False
            made = [pynvml.c_nvmlGpmSample_t(), pynvml.c_nvmlGpmSample_t()]
            for sample in made:
                reference = ctypes.byref(sample)
                if self._calls.code(self._key, "nvmlGpmSampleAlloc", reference) != SUCCESS:
                    return False
            self._samples = made[0], made[1]
        return True

    def _sample(self, into: "_Sample") -> bool:
        if self._instance is None:
            return self._calls.call(self._key, "nvmlGpmSampleGet", into)
        return self._calls.call(self._key, "nvmlGpmMigSampleGet", self._instance, into)

    def _decode(self, values: Values) -> None:
        for number, code, value in _METRIC.iter_unpack(self._bytes):
            if code == SUCCESS and math.isfinite(value) and value >= 0.0:
                values[METRICS[number].metric] = METRICS[number].value(value)
