"""The parts of a GPU that are reported one by one: NVLinks and MIG devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import moment
from gpuvigil.hub_client import Hub
from gpuvigil.metrics import MIG, NVLINK, Measurement
from gpuvigil.model import Subject
from gpuvigil.numbers_in_words import natural, of_many, percent, speed
from gpuvigil.store.external import store_of
from gpuvigil.web.markup import Html, joined, tag

# A link has a row when something changes, and hourly.
LINKS_BACK = timedelta(minutes=70)
_LINE_BY_LINE = timedelta(milliseconds=1)
_LINK_ERRORS = {
    "crc_errors": "CRC",
    "replay_errors": "replays",
    "recovery_errors": "recoveries",
    "ecc_errors": "ECC",
    # What NVLink 5 counts.
    "malformed_packets": "malformed packets",
    "buffer_overruns": "buffer overruns",
    "receive_errors": "receive errors",
    "remote_errors": "errors of the far end",
    "general_errors": "other errors",
    "integrity_errors": "times over the integrity threshold",
    "transmit_discards": "discards",
    "recoveries_succeeded": "recoveries that succeeded",
    "recoveries_failed": "recoveries that failed",
    "effective_errors": "errors past correction",
    "symbol_errors": "symbol errors before correction",
}
# The payload of a link, and below the raw traffic with the protocol's share, which fills the link.
_RECEIVED, _SENT = "receive_bytes", "transmit_bytes"
_RAW = ("raw_receive_bytes", "raw_transmit_bytes")
_LINK_FIELDS = (
    *("up", "version", "speed_bits_per_second", _RECEIVED, _SENT, *_RAW),
    *_LINK_ERRORS,
)
_MIG_ACTIVITIES = {
    "graphics_activity_percent": "Active",
    "sm_activity_percent": "SMs",
    "sm_occupancy_percent": "Occupancy",
    "tensor_activity_percent": "Tensor pipes",
    "dram_activity_percent": "Memory bandwidth",
}
_MIG_FIELDS = (
    *("memory_used_bytes", "memory_total_bytes", "compute_processes"),
    *_MIG_ACTIVITIES,
)
# nvml.h, nvmlNvlinkVersion_t.
_VERSIONS = {1: "1", 2: "2", 3: "2.2", 4: "3", 5: "3.1", 6: "4", 7: "5"}
_SHORTEST = timedelta(seconds=30)

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The newest row of each NVLink and each MIG device, sorted by name."""

    links: tuple[Line, ...]
    slices: tuple[Line, ...]
    before: Mapping[str, Line] = field(default_factory=dict)  # by link: its oldest row in the span


def parts(hub: Hub, gpu: Subject, now: datetime, fresh: timedelta) -> Parts:
    """Return each link's last row, and the MIG devices' rows that are not older than `fresh`."""
    links = _lines(hub, NVLINK, _LINK_FIELDS, gpu, (now - LINKS_BACK, now))
    slices = _lines(hub, MIG, _MIG_FIELDS, gpu, (now - fresh, now))
    return Parts(
        links=_newest(links, "link"),
        slices=_newest(slices, "mig"),
        before={line["link"]: line for line in reversed(links)},
    )


def _lines(
    hub: Hub,
    of: Measurement,
    fields: Sequence[str],
    gpu: Subject,
    span: tuple[datetime, datetime],
) -> list[Line]:
    """Return the rows of the span, oldest first."""
    where = {"cluster": gpu.cluster, "node": gpu.node, "uuid": gpu.gpu or ""}
    until = span[1] + timedelta(minutes=5)  # for a clock that is ahead
    found = store_of(hub).series(of.name, fields, where, (span[0], until), _LINE_BY_LINE)
    lines: list[Line] = found.to_pylist()
    return sorted(lines, key=lambda line: line["at"])


def _newest(lines: Sequence[Line], name: str) -> tuple[Line, ...]:
    newest = {line[name]: line for line in lines}
    return tuple(newest[key] for key in sorted(newest, key=natural))


def drawn(found: Parts) -> Html:
    """Return both as tables; nothing if the GPU reports neither."""
    said = []
    if found.links:
        up = sum(line["up"] == 1 for line in found.links)
        names: Sequence[str] = (
            "Link",
            "State",
            "Speed",
            "In, out",
            "Full",
            "Errors, counted so far",
            "As of",
        )
        title = tag("h2", "NVLinks", tag("small", f"{up} of {len(found.links)} up"))
        said.append(_table(title, names, [_link(line, found.before) for line in found.links]))
    if found.slices:
        names = ("MIG device", "Profile", *_MIG_ACTIVITIES.values(), "Memory", "Processes")
        title = tag("h2", "MIG devices", tag("small", f"{len(found.slices)}"))
        said.append(_table(title, names, [_slice(line) for line in found.slices]))
    return joined(*said)


def _table(title: Html, names: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    head = tag("tr", *(tag("th", name, scope="col") for name in names))
    body = (tag("tr", *(tag("td", cell) for cell in row)) for row in rows)
    table = tag("table", tag("thead", head), tag("tbody", *body))
    return tag("section", title, table, class_="gv-ports")


def _link(line: Line, before: Mapping[str, Line]) -> tuple[str, ...]:
    state = {1: "up", 0: "down"}.get(line["up"], "not known")
    counted = {word: line[name] for name, word in _LINK_ERRORS.items() if line[name] is not None}
    errors = ", ".join(of_many(count, word) for word, count in counted.items() if count)
    missing = "none" if counted else "not measured"
    version = _VERSIONS.get(line["version"] or 0)
    pace = speed(line["speed_bits_per_second"]) + (f" (NVLink {version})" if version else "")
    told, rates = moment(line["at"]), _rates(line, before[line["link"]])
    traffic = "–" if not {_RECEIVED, _SENT} <= rates.keys() else _traffic(rates)
    full = _full(rates, line["speed_bits_per_second"])
    return line["link"], state, pace, traffic, full, errors or missing, told


def _rates(line: Line, before: Line) -> dict[str, float]:
    """Return bytes per second between two rows, of the counters that both have; empty under 30 s."""
    span = line["at"] - before["at"]
    if span < _SHORTEST:
        return {}
    return {
        name: (line[name] - before[name]) / span.total_seconds()
        for name in (_RECEIVED, _SENT, *_RAW)
        if line[name] is not None and before[name] is not None
    }


def _traffic(rates: Mapping[str, float]) -> str:
    return f"{rates[_RECEIVED] / 1e9:.2f}, {rates[_SENT] / 1e9:.2f} GB/s"


def _full(rates: Mapping[str, float], bits_per_second: float | None) -> str:
    """Return the busier direction's share of the link's speed; a dash if raw traffic is not counted."""
    raw = [rates[name] for name in _RAW if name in rates]
    return percent(100.0 * max(raw) * 8.0 / bits_per_second if raw and bits_per_second else None)


def _slice(line: Line) -> tuple[str, ...]:
    used, whole = line["memory_used_bytes"], line["memory_total_bytes"]
    memory = (
        "–" if used is None or whole is None else f"{used / 2**30:.1f} of {whole / 2**30:.1f} GiB"
    )
    processes = line["compute_processes"]
    return (
        line["mig"],
        line["profile"],
        *(percent(line[name]) for name in _MIG_ACTIVITIES),
        memory,
        "–" if processes is None else f"{processes:.0f}",
    )
