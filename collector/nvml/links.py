"""The NVLinks of one GPU: sums over all links in every tick, each link when something changed."""

import ctypes
from dataclasses import dataclass, field

from ..samples.field_values import Entry, Field, FieldValues, Values
from .calls import Calls
from .field_query import Fields
from .getters import drop_impossible

LINK_COUNT = 91
LINK_STATE = 165
EVERY_LINK = 0xFFFFFFFF
_MOST_LINKS = 64
# Throughput fields, older generations' (in KiB) before NVLink 5's; the first that is known is read.
_SENT, _RECEIVED = (138, 202), (139, 204)
_KIB = {138: 1024, 139: 1024, 202: 1, 204: 1}
# The sums that every tick reads: the GPU's metric, and the fields that may give it.
_SUMS: dict[str, tuple[int, ...]] = {
    "nvlink_transmit_bytes": _SENT,
    "nvlink_receive_bytes": _RECEIVED,
    "nvlink_replay_errors": (161,),
    "nvlink_recovery_errors": (162,),
    "nvlink_crc_errors": (163,),
}
_ERRORS = ("nvlink_replay_errors", "nvlink_recovery_errors", "nvlink_crc_errors")
# Fields of each link, as metrics of measurement `nvlink`; a later field of a metric stands in where
# the earlier is not known. The 200s are NVLink 5's counters.
LINK_FIELDS: dict[int, Field] = {
    LINK_STATE: Field("up"),
    164: Field("speed_bits_per_second", times=8_000_000),  # the driver gives MB/s
    166: Field("version"),
    138: Field("transmit_bytes", times=1024),
    139: Field("receive_bytes", times=1024),
    140: Field("raw_transmit_bytes", times=1024),
    141: Field("raw_receive_bytes", times=1024),
    160: Field("ecc_errors"),
    161: Field("replay_errors"),
    162: Field("recovery_errors"),
    163: Field("crc_errors"),
    202: Field("transmit_bytes"),
    204: Field("receive_bytes"),
    206: Field("malformed_packets"),
    207: Field("buffer_overruns"),
    208: Field("receive_errors"),
    209: Field("remote_errors"),
    210: Field("general_errors"),
    211: Field("integrity_errors"),
    212: Field("transmit_discards"),
    213: Field("recoveries_succeeded"),
    214: Field("recoveries_failed"),
    219: Field("effective_errors"),
    221: Field("symbol_errors"),
}
# Errors that count towards the worst link. Not symbol errors: forward error correction is there
# for them, and every fast link has them.
ERRORS_OF_A_LINK = (
    "ecc_errors",
    "replay_errors",
    "recovery_errors",
    "crc_errors",
    "malformed_packets",
    "buffer_overruns",
    "receive_errors",
    "integrity_errors",
    "recoveries_failed",
    "effective_errors",
)


@dataclass(slots=True)
class Links:
    """The state of a GPU's links; a count holds until the link gives another."""

    calls: Calls
    count: int = 0
    _states: tuple[Entry, ...] = ()
    _sums: dict[Entry, tuple[str, int]] = field(default_factory=dict)  # metric, and bytes per unit
    _last: dict[Entry, int] = field(default_factory=dict)
    _last_sum: tuple[object, ...] | None = None
    _each: Fields | None = None
    _worst: tuple[int, int] | None = None
    _number: ctypes.c_uint = field(default_factory=ctypes.c_uint)

    def plan(self, count: int) -> list[Entry]:
        """Return the entries that every tick reads of this many links, if the driver has them."""
        if min(count, _MOST_LINKS) != self.count:
            self._each = None
        self.count = min(count, _MOST_LINKS)
        self._sums, self._states = {}, ()
        if not self.count:
            return []
        candidates = {number for numbers in _SUMS.values() for number in numbers}
        links = range(self.count)
        whole = [(number, EVERY_LINK) for number in candidates]
        single = [(number, link) for number in candidates for link in links]
        probe = Fields([*whole, *single]).read(self.calls) or FieldValues()
        entries: list[Entry] = []
        for metric, numbers in _SUMS.items():
            for number in numbers:
                found = [(number, link) for link in links if (number, link) in probe.values]
                if (number, EVERY_LINK) in probe.values:
                    found = [(number, EVERY_LINK)]
                if found:
                    self._sums |= {entry: (metric, _KIB.get(number, 1)) for entry in found}
                    entries += found
                    break
        self._last = {entry: was for entry, was in self._last.items() if entry in self._sums}
        self._states = tuple((LINK_STATE, link) for link in links)
        return [*entries, *self._states]

    def sum_up(self, found: FieldValues, values: Values) -> bool:
        """Add the sums over all links to a sweep's values.

        Returns true when a link went up or down, or an error was counted, since the sweep before.
        """
        if not self.count:
            return False
        given = found.values.get
        values["nvlink_links_expected"] = self.count
        states = tuple(map(given, self._states))
        if states.count(None) < self.count:
            values["nvlink_links_up"] = sum(map(bool, states))
        else:
            self._ask_states(values)
        for entry, (metric, times) in self._sums.items():
            count = given(entry, self._last.get(entry))
            if count is not None:
                self._last[entry] = count = int(count)
                values[metric] = values.get(metric, 0) + count * times
        counted = [values[metric] for metric in _ERRORS if metric in values]
        if counted:
            values["nvlink_errors"] = sum(counted)
        before, self._last_sum = self._last_sum, (*states, values.get("nvlink_errors"))
        return before is not None and self._last_sum != before

    def each(self) -> dict[int, Values] | None:
        """Return the values of every link; None when there is none, or the driver gives none."""
        if not self.count:
            return None
        if self._each is None:
            every = range(self.count)
            self._each = Fields([(number, link) for link in every for number in LINK_FIELDS])
        found = self._each.read(self.calls)
        if found is None:
            return None
        self._each.count_latencies(self.calls)
        links: dict[int, Values] = {}
        for (number, link), value in found.values.items():
            of = LINK_FIELDS[number]
            links.setdefault(link, {}).setdefault(of.metric, of.value(value))
        self._forget_unknown(found)
        for values in links.values():
            drop_impossible(values)
            if "up" in values:
                values["up"] = int(values["up"] != 0)
        self._worst = _worst(links)
        return links

    def add_worst(self, values: Values) -> None:
        """Add the link that had most errors when the links were last read."""
        if self._worst is not None:
            link, errors = self._worst
            values["nvlink_worst_link_errors"] = errors
            if errors:
                values["nvlink_worst_link"] = link

    def _forget_unknown(self, found: FieldValues) -> None:
        """Stop reading link fields that this driver lacks; the others stay until it is reloaded."""
        if self._each is not None and found.unsupported:
            known = [entry for entry in self._each.entries if entry not in found.unsupported]
            self._each = Fields(known)

    def _ask_states(self, values: Values) -> None:
        """Read states link by link, for drivers without a field for them; all or none are counted."""
        states = []
        for link in range(self.count):
            reference = ctypes.byref(self._number)
            if not self.calls.call("link state", "nvmlDeviceGetNvLinkState", link, reference):
                return
            states.append(self._number.value)
        values["nvlink_links_up"] = sum(1 for state in states if state)


def _worst(links: dict[int, Values]) -> tuple[int, int] | None:
    """Return the link with most errors and their number; None without links."""
    errors = {
        link: sum(int(values.get(metric, 0)) for metric in ERRORS_OF_A_LINK)
        for link, values in links.items()
    }
    if not errors:
        return None
    link = max(sorted(errors), key=lambda it: errors[it])
    return link, errors[link]
