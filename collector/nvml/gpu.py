"""One GPU, and the sweep over it."""

import ctypes
from dataclasses import replace

from gpuvigil.gpu_identity import GpuIdentity

from ..samples.field_values import FAST_FIELDS, SLOW_FIELDS, FieldValues, Values
from ..samples.gpu_sample import CallCost, Reading
from .calls import Calls
from .codes import DriverError
from .fabric import Fabric
from .field_query import Fields, unknown
from .getters import FAST, INSTEAD_OF_FIELD, LASTING, SLOW, Read, drop_impossible
from .gpm import Gpm
from .links import LINK_COUNT, Links
from .mig import Migs
from .processes import COMPUTE, GRAPHICS, Processes

# A higher fan speed means "not known", whatever the driver says.
_FASTEST_FAN_PERCENT = 200


class Gpu:
    """One GPU and the buffers to read it with; for one thread."""

    def __init__(
        self,
        library: ctypes.CDLL,
        handle: "ctypes._Pointer[ctypes.Structure]",
        identity: GpuIdentity,
    ) -> None:
        self.identity = identity
        self.handle = handle
        self._calls = Calls(library, handle)
        self._fast = [each.bind(self._calls) for each in FAST]
        self._lasting = [each.bind(self._calls) for each in LASTING]
        self._slow = [each.bind(self._calls) for each in SLOW]
        self._slow_values: Values = {}
        self._kept: Values = {}  # as last reported
        self._instead: list[Read] = []
        self._links = Links(self._calls)
        self._fields = Fields([])
        self._slow_fields = Fields([(number, 0) for number in SLOW_FIELDS])
        self._processes = Processes(COMPUTE)
        self._graphics = Processes(GRAPHICS)
        self._gpm = Gpm(self._calls)
        self._migs = Migs(self._calls)
        self._fabric = Fabric(self._calls)
        self._fan_speed = ctypes.c_uint()

    def read(self, *, slow: bool, lasting: bool = False) -> Reading:
        """Make one sweep; the first must be `slow`. A value that the GPU does not give is left out.

        `lasting`: read also the values that rarely change. Raises DriverError when the GPU is lost,
        the driver is gone, or no call at all succeeded.
        """
        calls = self._calls
        calls.begin_sweep()
        if slow:
            calls.retry()
            self._plan()
        values: Values = {}
        if self.identity.index is not None:
            values["index"] = self.identity.index
        for read in self._fast:
            read(values)
        news = self._read_fields(values)
        self._gpm.read(values)
        pids = self._processes.read(calls)
        if pids is not None:
            values["compute_processes"] = len(pids)
        drop_impossible(values)
        if slow:
            self._slow_values = self._read_slow()
        rest = self._read_kept(slow=slow) if slow or lasting else None
        links = self._links.each() if slow or news else None
        self._links.add_worst(values)
        migs = self._migs.read()
        if not calls.succeeded:
            raise DriverError("every call of the sweep", calls.failure)
        return Reading(
            values=values,
            processes=pids,
            slow=rest,
            links=links,
            migs=migs,
            costs=self._pop_costs() if slow else None,
        )

    @property
    def calls_made(self) -> int:
        """The number of calls that have returned; safe to read in another thread during a call."""
        return self._calls.made

    def refused(self) -> dict[str, int]:
        """Return the functions that this GPU's driver refuses, as far as is known, with NVML codes."""
        return self._calls.refused()

    def _plan(self) -> None:
        """Find out which fields this GPU has, and how it counts its links."""
        asked = Fields([(number, 0) for number in (*FAST_FIELDS, LINK_COUNT)])
        found = asked.read(self._calls)
        if found is None and unknown(self._calls):
            found = FieldValues(unsupported={(number, 0) for number in FAST_FIELDS})
        if found is None:
            return
        asked.count_latencies(self._calls)
        known = [number for number in FAST_FIELDS if (number, 0) not in found.unsupported]
        self._instead = [
            INSTEAD_OF_FIELD[field.metric].bind(self._calls)
            for number, field in FAST_FIELDS.items()
            if number not in known and field.metric in INSTEAD_OF_FIELD
        ]
        links = self._links.plan(int(found.values.get((LINK_COUNT, 0), 0)))
        self._fields = Fields([*((number, 0) for number in known), *links])

    def _read_fields(self, values: Values) -> bool:
        """Add the values that come as fields; return true when a link's state or errors changed."""
        for read in self._instead:
            read(values)
        found = self._fields.read(self._calls)
        if found is None:
            return False
        for number, field in FAST_FIELDS.items():
            raw = found.values.get((number, 0))
            if raw is not None:
                values[field.metric] = field.value(raw)
        return self._links.sum_up(found, values)

    def _read_kept(self, *, slow: bool) -> Values | None:
        """Return the values that hold until the next report; None while none has changed."""
        values = dict(self._slow_values)
        for read in self._lasting:
            read(values)
        drop_impossible(values)
        if values == self._kept and not slow:
            return None
        self._kept = values
        return values

    def _read_slow(self) -> Values:
        values: Values = {}
        for read in self._slow:
            read(values)
        self._fabric.read(values)
        self._note_domain()
        found = self._slow_fields.read(self._calls)
        if found is not None:
            self._slow_fields.count_latencies(self._calls)
            for (number, _), raw in found.values.items():
                values[SLOW_FIELDS[number].metric] = SLOW_FIELDS[number].value(raw)
        self._read_fans(values)
        pids = self._graphics.read(self._calls)
        if pids is not None:
            values["graphics_processes"] = len(pids)
        if "mig_mode" in values:
            values["mig_devices"] = self._migs.find(enabled=values["mig_mode"] == 1)
        return values

    def _note_domain(self) -> None:
        """Update the identity's fabric domain: a fabric may come up long after its GPU was found."""
        cluster, clique = self._fabric.domain or (None, None)
        own = self.identity
        if (own.fabric_cluster, own.fabric_clique) != (cluster, clique):
            self.identity = replace(own, fabric_cluster=cluster, fabric_clique=clique)

    def _read_fans(self, values: Values) -> None:
        """Add the speed of the slowest fan: a fan that stands still is what matters."""
        speeds = []
        name = "nvmlDeviceGetFanSpeed_v2"
        for fan in range(int(values.get("fans", 0))):
            if not self._calls.call(name, name, fan, ctypes.byref(self._fan_speed)):
                continue
            # A fan may be asked for more than its nominal speed.
            if self._fan_speed.value <= _FASTEST_FAN_PERCENT:
                speeds.append(self._fan_speed.value)
        if speeds:
            values["fan_speed_percent"] = min(speeds)

    def _pop_costs(self) -> dict[str, CallCost]:
        costs = dict(self._calls.costs)
        self._calls.costs.clear()
        return costs
