"""Many field values in one call, into a reused buffer."""

import itertools
from collections.abc import Iterable

import pynvml

from ..samples.field_values import Entry, FieldValues, decode, latencies, question
from ..samples.gpu_sample import CallCost
from .calls import Calls
from .codes import OF_ALL, DriverError

_CALL = "nvmlDeviceGetFieldValues"


class Fields:
    """A reused buffer for one nvmlDeviceGetFieldValues call: (field, scope) pairs."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = list(entries)
        # Packed at once: of a thousand members, each would cost a call.
        asked = b"".join(itertools.starmap(question, self.entries))
        self._buffer = (pynvml.c_nvmlFieldValue_t * len(self.entries)).from_buffer_copy(asked)
        self._bytes = memoryview(self._buffer).cast("B")

    def read(self, calls: Calls) -> FieldValues | None:
        """Return the field values; None when the whole call failed, or there is no field.

        Raises DriverError when a field reports that the GPU is lost or the driver is gone.
        """
        count = len(self.entries)
        if not count or not calls.call(_CALL, _CALL, count, self._buffer):
            return None
        found = decode(self._bytes)
        if found.failure in OF_ALL:
            raise DriverError(_CALL, found.failure)
        return found

    def count_latencies(self, calls: Calls) -> None:
        """Add the latencies that the driver reports for each field of the last call to the costs."""
        for number, (count, seconds, slowest) in latencies(self._bytes).items():
            cost = CallCost(calls=count, seconds=seconds, slowest_seconds=slowest)
            calls.costs.setdefault(f"field {number}", CallCost()).add(cost)


def unknown(calls: Calls) -> bool:
    """Return whether this driver refuses field values altogether."""
    return calls.refuses(_CALL)
