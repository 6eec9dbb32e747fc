"""Events, jobs, kernel lines, inventories and truths of a recording, as the product's own values."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from collector.sensors.kernel_log_parser import pci_address
from gpuvigil.clock import EPOCH, to_text
from gpuvigil.model import (
    Allocation,
    Event,
    EventKind,
    GpuIdentity,
    Holder,
    HolderKind,
    Inventory,
    Record,
    RecordKind,
    Severity,
    Subject,
    job_holder,
    pod_holder,
)
from simulator.fleet import Truth

from .files import INVENTORY
from .kernel_lines import Forms, Line, split
from .layout import CLUSTER, FILES, NODE
from .problems import Problems, meant, reason
from .values import Raw, texts, times

Cells = Mapping[str, Any]  # a row's texts and times; None for an empty cell
_TIMES = frozenset({"at", "started_at", "ended_at", "from", "to"})
_NAMED = 5
RECORDED = "recorded"  # the version of an inventory that no collector wrote
_OF_JOURNAL = "-- "  # journalctl's own words: `-- Boot 0f3... --`
# `3`; `3.0`, as a column of numbers with empty cells is written; and `gpu3` or `nvidia3`.
_INDEX = re.compile(r"(?:(?:gpu|nvidia)[ _-]?)?(\d+)(?:\.0+)?", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a file of records, and its place in the file."""

    raw: Raw
    number: int
    cells: Cells
    node: Subject

    def text(self, name: str) -> str | None:
        """Return a cell's text; None for an empty cell."""
        found: str | None = self.cells.get(name)
        return found

    def error(self, problems: Problems, text: str, column: str = "") -> None:
        """Report an error of this row."""
        problems.error(self.raw.path, text, self.raw.line(self.number), column)


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a recording by node; both a UUID and an index name one."""

    by_node: Mapping[Subject, Sequence[GpuIdentity]]

    def named(self, node: Subject, text: str) -> Subject | None:
        """Return the GPU of a node that a cell names; None when the node has no such GPU."""
        gpus = self.by_node.get(node, ())
        index = _INDEX.fullmatch(text)
        found = [
            *(it.uuid for it in gpus if it.uuid == text),
            *(it.uuid for it in gpus if index and it.index == int(index[1])),
        ]
        return replace(node, gpu=found[0]) if found else None


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes that have numbers; a row without a cluster is about one of them."""

    known: Sequence[Subject]

    def named(self, cluster: str | None, node: str | None) -> Subject:
        """Return the node of that name; without a name, the only node there is."""
        here = [it for it in self.known if cluster in {None, it.cluster}]
        near = [it for it in here if node in {None, it.node}]
        near = near or [it for it in here if is_host_of(it.node, node or "")]
        if len(near) == 1:
            return near[0]
        return Subject(cluster=cluster or CLUSTER, node=node or NODE)


def is_host_of(one: str, other: str) -> bool:
    """Return whether one of two names is the other plus a domain; an address has no domain."""
    short, long = sorted((one, other), key=len)
    return long.startswith(f"{short}.") and not short.isdigit()


def rows(
    kind: str, raws: Sequence[Raw], nodes: Nodes, problems: Problems, zone: ZoneInfo | None
) -> list[Row]:
    """Return all rows of a kind of records; an empty needed cell is an error."""
    found = []
    needed = [it.name for it in FILES[kind] if it.needed]
    strange: dict[str, Row] = {}
    for raw in raws:
        columns: dict[str, list[Any]] = {}
        for name in raw.table.column_names:
            column: pa.ChunkedArray | pa.Array = (
                times(raw, name, problems, zone, needed=name in needed)
                if name in _TIMES
                else texts(raw.table[name])
            )
            columns[name] = column.to_pylist()
        for number in range(len(raw.table)):
            cells = {name: them[number] for name, them in columns.items()}
            node = nodes.named(cells.get("cluster"), cells.get("node"))
            row = Row(raw, number, cells, node)
            strange.setdefault(node.node, row)
            empty = [it for it in needed if row.cells[it] is None]
            if empty and not problems.errors:
                row.error(problems, "every row needs one", empty[0])
            found.append(row)
    _note_strange(strange, nodes, problems)
    return [] if problems.errors else found


def _note_strange(named: Mapping[str, Row], nodes: Nodes, problems: Problems) -> None:
    """Note, for each file, the nodes it names that have no rows of numbers."""
    known = {it.node for it in nodes.known}
    of_file: dict[Path, list[str]] = {}
    for node in sorted(named.keys() - known):
        of_file.setdefault(named[node].raw.path, []).append(node)
    for path, them in of_file.items():
        more = f" and {len(them) - _NAMED} more" if len(them) > _NAMED else ""
        near = meant(them[0], known) if len(them) == 1 else ""
        problems.note(path, f"no row has numbers of {', '.join(them[:_NAMED])}{more}{near}")


# Several indices in one cell: `0-7`, `0,1`.
_SEVERAL = re.compile(r"\d+(?:[\s,;|:+-]+\d+)+")


def subject(row: Row, gpus: Gpus, problems: Problems) -> Subject:
    """Return the subject of a row: a GPU, a port, or the node."""
    node = row.node
    if (gpu := row.text("gpu")) is not None:
        found = gpus.named(node, gpu)
        if found is None and node in gpus.by_node:
            if gpu.isdigit():
                row.error(problems, f"node {node.node} has no GPU {gpu}", "gpu")
            elif _SEVERAL.fullmatch(gpu):
                text = f"{gpu!r} is no GPU: give each a row, or leave it empty for all of the node"
                row.error(problems, text, "gpu")
            else:
                problems.note(row.raw.path, f"node {node.node} has no GPU {gpu}")
        return found or replace(node, gpu=gpu)
    if (device := row.text("device")) is not None:
        return replace(node, device=device, port=row.text("port") or "1")
    return node


def events(found: Sequence[Row], gpus: Gpus, problems: Problems) -> list[Event]:
    """Return the rows of `events` as events."""
    made: list[Event] = []
    for row in found:
        word = (row.text("event") or "").lower()
        if word not in {kind.value for kind in EventKind}:
            near = meant(word, [kind.value for kind in EventKind])
            row.error(problems, f"{word!r} is no event{near}", "event")
            continue
        if word in {"xid", "sxid"} and row.text(word) is None:
            row.error(problems, "says no code", word)
        about, at = subject(row, gpus, problems), row.cells["at"]
        made.append(
            Event(
                kind=EventKind(word),
                subject=about,
                at=at,
                id=row.text("id") or f"{about.key}|{word}|{to_text(at)}|{row.text('xid')}",
                xid=_whole(row, "xid", problems),
                sxid=_whole(row, "sxid", problems),
                count=_whole(row, "count", problems) or 1,
                message=row.text("message") or "",
                gone=_yes(row, "gone"),
            )
        )
    return made


def jobs(found: Sequence[Row], gpus: Gpus, problems: Problems) -> list[Allocation]:
    """Return the rows of `jobs` as allocations; a row without a GPU holds all GPUs of its node."""
    made = []
    for row in found:
        node = row.node
        held = [subject(row, gpus, problems)]
        if row.text("gpu") is None:
            held = [replace(node, gpu=gpu.uuid) for gpu in gpus.by_node.get(node, ())]
        if row.cells.get("ended_at") and row.cells["ended_at"] < row.cells["started_at"]:
            row.error(problems, "is before started_at", "ended_at")
        made += [
            Allocation(
                subject=gpu,
                holder=_holder(row.text("holder") or ""),
                user=row.text("user"),
                command=None,
                started_at=row.cells["started_at"],
                ended_at=row.cells.get("ended_at"),
                began_before=_yes(row, "began_before"),
                **{name: row.text(name) for name in _OF_JOBS},
            )
            for gpu in held
        ]
    return made


def _holder(text: str) -> Holder:
    """Parse a holder; a name without a kind is a pod where it has a namespace, else a job."""
    found = Holder.parse(text)
    if found.kind is not HolderKind.OTHER:
        return found
    return pod_holder(text) if "/" in text else job_holder(text)


_OF_JOBS = ("partition", "account", "array", "exit_code", "pod", "place", "part")


def kernel(
    found: Sequence[Row],
    logs: Sequence[Path],
    nodes: Nodes,
    problems: Problems,
    forms: Forms,
) -> list[Line]:
    """Return the rows of `kernel`, and the lines of `kernel/NODE.log`."""
    made = []
    for row in found:
        line = _line(row.node, row.text("line") or "", row.cells.get("at"), forms)
        if isinstance(line, str):
            row.error(problems, line, "at")
            return []
        made.append(line)
    for path in logs:
        name = None if path.name == "kernel.log" else path.stem
        made += _lines_of_log(path, nodes.named(None, name), problems, forms)
    return sorted(made, key=lambda line: (line.node, line.at))


def _lines_of_log(path: Path, node: Subject, problems: Problems, forms: Forms) -> Iterator[Line]:
    before = None
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        problems.error(path, reason(error))
        return
    for number, one in enumerate(text.splitlines(), 1):
        if not one.strip() or one.startswith(_OF_JOURNAL):
            continue
        line = _line(node, one, before, forms)
        if isinstance(line, str):
            problems.error(path, line, number)
            return
        # Further lines of a message have no time of their own.
        before = line.at
        yield line


def _line(node: Subject, text: str, at: datetime | None, forms: Forms) -> Line | str:
    """Return the line, or a text on what is wrong with its time."""
    try:
        own, words = split(text, forms)
    except ValueError as error:
        return str(error)
    when = own if at is None else at
    if own is not None and at is not None and own != at:
        when = own
    if when is None:
        return "a kernel line needs a time: in the column at, or an absolute one at its begin"
    return Line(node=node, at=when, text=words)


def truths(
    found: Sequence[Row],
    gpus: Gpus,
    recorded: tuple[datetime, datetime],
    known: frozenset[str],
    problems: Problems,
) -> list[Truth]:
    """Return the rows of `truth`; `known` are the causes that an incident can name."""
    made = []
    for number, row in enumerate(found, 1):
        cause, about = _cause(row, known, problems), subject(row, gpus, problems)
        start, until = row.cells["from"], row.cells.get("to")
        if until is not None and until <= start:
            row.error(problems, "is not after from", "to")
        until = until or max(recorded[1], start)
        if start >= recorded[1] or until <= recorded[0]:
            text = f"the recording is from {to_text(recorded[0])} to {to_text(recorded[1])}: this is missed"
            problems.note(row.raw.path, text, row.raw.line(row.number), "from")
        made.append(
            Truth(
                id=f"{number}",
                fault=cause,
                subject=about,
                start=start,
                end=until,
                detectable_from=start,
                cause=row.text("what") or cause or "something is wrong",
                symptoms=(),
                # A recording does not state severity or action; neither is judged.
                severity=Severity.WARNING,
                action="",
                affected=tuple(
                    replace(about.of_node(), node=name)
                    for name in (row.text("affected") or "").replace(",", " ").split()
                ),
            )
        )
    return made


def _cause(row: Row, known: frozenset[str], problems: Problems) -> str:
    found = row.text("cause") or ""
    if found and found not in known:
        if found.lower() in known:
            return found.lower()
        row.error(problems, f"no incident names {found!r}{meant(found, known)}", "cause")
    return found


def inventories(directory: Path, problems: Problems) -> list[Inventory]:
    """Read `inventory.jsonl`, which has one object per line."""
    path = directory / INVENTORY
    if not path.exists():
        return []
    made = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            made.append(inventory(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            problems.error(path, f"is no inventory: {why}", number)
    return made


def inventory(values: Mapping[str, Any]) -> Inventory:
    """Return the inventory in an object of `inventory.jsonl`; an invalid object raises an error."""
    body = {"boot": "recorded", "tick_seconds": 0.0, "version": RECORDED, "ports": [], **values}
    node = Subject(cluster=body.get("cluster") or CLUSTER, node=body["node"])
    body["gpus"] = [
        {"index": None, "pci_address": None, "model": "unknown", **gpu}
        for gpu in values.get("gpus", ())
    ]
    body["ports"] = [
        {"port": "1", "kind": "infiniband", "role": "fabric", "was_up": True, **port}
        for port in values.get("ports", ())
    ]
    body.setdefault("driver_state", "loaded" if body["gpus"] else "no driver")
    at = values.get("at", to_text(EPOCH))
    record = {"kind": RecordKind.INVENTORY.value, "id": node.key, "at": at, "subject": node.key}
    return Inventory.from_record(Record.from_json({**record, "body": body}))


def same_place(address: str | None) -> str | None:
    """Return a PCI address in the kernel's spelling."""
    return None if address is None else pci_address(address)


def place(gpu: GpuIdentity) -> tuple[bool, int, str]:
    """Return a key that sorts GPUs by their indices."""
    return gpu.index is None, gpu.index or 0, gpu.uuid


def _whole(row: Row, name: str, problems: Problems) -> int | None:
    text = row.text(name)
    if text is None:
        return None
    try:
        return int(float(text))
    except ValueError:
        row.error(problems, f"{text!r} is no whole number", name)
        return None


def _yes(row: Row, name: str) -> bool:
    return (row.text(name) or "").lower() in {"1", "true", "yes"}
