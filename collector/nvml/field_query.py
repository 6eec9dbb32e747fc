"""Many field values in one call, into a kept buffer."""

from collections.abc import Iterable

import pynvml

from ..samples.field_values import Entry, FieldValues, decode, latencies
from ..samples.gpu_sample import CallCost
from .calls import Calls
from .codes import OF_ALL, DriverError

_CALL = "nvmlDeviceGetFieldValues"


class Fields:
    """A kept buffer for one nvmlDeviceGetFieldValues call: (field, scope) pairs."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = list(entries)
        self._buffer = (pynvml.c_nvmlFieldValue_t * len(self.entries))()
        self._bytes = memoryview(self._buffer).cast("B")
        for slot, (number, scope) in zip(self._buffer, self.entries, strict=True):
            slot.fieldId, slot.scopeId = number, scope

    def read(self, calls: Calls) -> FieldValues | None:
        """The values of the fields; None when the call as a whole failed, or there is no field.

        DriverError when a field says that the GPU is lost or the driver is gone.
        """
        count = len(self.entries)
        if not count or not calls.call(_CALL, _CALL, count, self._buffer):
            return None
        found = decode(self._bytes)
        if found.failure in OF_ALL:
            raise DriverError(_CALL, found.failure)
        return found

    def count_latencies(self, calls: Calls) -> None:
        """Add to the costs what the driver itself says of each field of the last call."""
        for number, (count, seconds, slowest) in latencies(self._bytes).items():
            cost = CallCost(calls=count, seconds=seconds, slowest_seconds=slowest)
            calls.costs.setdefault(f"field {number}", CallCost()).add(cost)


def unknown(calls: Calls) -> bool:
    """Whether this driver refuses field values altogether."""
    return calls.refuses(_CALL)
