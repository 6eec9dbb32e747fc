"""What a GPU has of its own and is told apart: its NVLinks and its MIG devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import moment
from gpuvigil.hub import Hub
from gpuvigil.metrics import MIG, NVLINK, Measurement
from gpuvigil.model import Subject
from gpuvigil.store.beside import store_of

from ..markup import Html, joined, tag
from ..words import natural, percent, speed

# A link has a line when something has changed, and hourly.
LINKS_BACK = timedelta(minutes=70)
_LINE_BY_LINE = timedelta(milliseconds=1)
_LINK_ERRORS = {
    "crc_errors": "CRC",
    "replay_errors": "replays",
    "recovery_errors": "recoveries",
    "ecc_errors": "ECC",
}
_LINK_FIELDS = ("up", "speed_bits_per_second", *_LINK_ERRORS)
_MIG_FIELDS = (
    "memory_used_bytes",
    "memory_total_bytes",
    "compute_processes",
    "graphics_activity_percent",
)

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The newest line of each NVLink and of each MIG device, in the order of their names."""

    links: tuple[Line, ...]
    slices: tuple[Line, ...]


def parts(hub: Hub, gpu: Subject, now: datetime, fresh: timedelta) -> Parts:
    """Of links what was told last, of MIG devices what is not older than `fresh`."""
    return Parts(
        links=_newest(hub, NVLINK, "link", _LINK_FIELDS, gpu, (now - LINKS_BACK, now)),
        slices=_newest(hub, MIG, "mig", _MIG_FIELDS, gpu, (now - fresh, now)),
    )


def _newest(
    hub: Hub,
    of: Measurement,
    name: str,
    fields: Sequence[str],
    gpu: Subject,
    span: tuple[datetime, datetime],
) -> tuple[Line, ...]:
    where = {"cluster": gpu.cluster, "node": gpu.node, "uuid": gpu.gpu or ""}
    until = span[1] + timedelta(minutes=5)  # of a clock that is ahead
    lines = store_of(hub).series(of.name, fields, where, (span[0], until), _LINE_BY_LINE)
    newest = {line[name]: line for line in lines.to_pylist()}
    return tuple(newest[key] for key in sorted(newest, key=natural))


def drawn(found: Parts) -> Html:
    """Both as tables; nothing where the GPU has told of neither."""
    said = []
    if found.links:
        up = sum(line["up"] == 1 for line in found.links)
        names = ("Link", "State", "Speed", "Errors, counted so far", "As of")
        title = tag("h2", "NVLinks", tag("small", f"{up} of {len(found.links)} up"))
        said.append(_table(title, names, [_link(line) for line in found.links]))
    if found.slices:
        names = ("MIG device", "Profile", "Active", "Memory", "Processes")
        title = tag("h2", "MIG devices", tag("small", f"{len(found.slices)}"))
        said.append(_table(title, names, [_slice(line) for line in found.slices]))
    return joined(*said)


def _table(title: Html, names: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    head = tag("tr", *(tag("th", name, scope="col") for name in names))
    body = (tag("tr", *(tag("td", cell) for cell in row)) for row in rows)
    table = tag("table", tag("thead", head), tag("tbody", *body))
    return tag("section", title, table, class_="gv-ports")


def _link(line: Line) -> tuple[str, ...]:
    state = {1: "up", 0: "down"}.get(line["up"], "not known")
    counted = {word: line[name] for name, word in _LINK_ERRORS.items() if line[name] is not None}
    errors = ", ".join(f"{count:,.0f} {word}" for word, count in counted.items() if count)
    missing = "none" if counted else "not measured"
    told = moment(line["at"])
    return line["link"], state, speed(line["speed_bits_per_second"]), errors or missing, told


def _slice(line: Line) -> tuple[str, ...]:
    used, whole = line["memory_used_bytes"], line["memory_total_bytes"]
    memory = (
        "–" if used is None or whole is None else f"{used / 2**30:.1f} of {whole / 2**30:.1f} GiB"
    )
    processes = line["compute_processes"]
    return (
        line["mig"],
        line["profile"],
        percent(line["graphics_activity_percent"]),
        memory,
        "–" if processes is None else f"{processes:.0f}",
    )
