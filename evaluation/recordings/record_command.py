"""`gpuvigil record`: write a span of a running hub as a recording, with or without its names."""

import argparse
import csv
import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from gpuvigil.clock import SystemClock, to_text
from gpuvigil.config import Config, load
from gpuvigil.config.startup import fail, parser
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.hub_client import Hub
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import Allocation, Event, Inventory, Subject
from gpuvigil.numbers_in_words import counted
from gpuvigil.private_files import UMASK
from gpuvigil.state_directory import config_of_up
from gpuvigil.store.configured import hubs
from gpuvigil.store.external import store_of

from ..backtest.backtest_command import span
from ..backtest.past import BLOCK, Past, lines, past
from . import hashing
from .files import INVENTORY
from .layout import TELEMETRY, fields, names
from .problems import meant, reason

_LAST = "2h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A hub's data of some nodes and a span."""

    tables: Mapping[str, pa.Table]  # by measurement, without fields that were never measured
    events: Sequence[Event]
    allocations: Sequence[Allocation]
    inventories: Sequence[Inventory]

    def hashed(self, salt: str) -> "Recorded":
        """Return the same without names of nodes, GPUs, users, jobs, accounts, racks and boots."""
        known = hashing.Names(salt)
        inventories = [hashing.inventory(one, known) for one in self.inventories]
        allocations = [hashing.allocation(one, known) for one in self.allocations]
        tables = {name: hashing.table(rows, known) for name, rows in self.tables.items()}
        for event in self.events:
            known.subject(event.subject)
        return Recorded(
            tables=tables,
            events=hashing.events(self.events, known),
            allocations=allocations,
            inventories=inventories,
        )


def main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil record`: 0 once written, 1 when the hub does not answer, 2 for wrong arguments."""
    commands = _parser()
    chosen = commands.parse_args(arguments)
    os.umask(UMASK)
    try:
        config = _config(chosen)
        start, end = span(chosen, SystemClock().now(), _LAST)
        with closing(hubs(config)()) as hub:
            found = recorded(hub, chosen.node, start, end)
        if chosen.hash_names:
            found = found.hashed(chosen.salt or secrets.token_hex(16))
        directory = chosen.output or Path(f"recording-{start:%Y%m%dT%H%M%SZ}")
        write(found, directory, chosen.format)
    except GpuvigilError as error:
        return fail(commands.prog, error)
    rows = sum(map(len, found.tables.values()))
    told = f"{counted(rows, 'row')}, {counted(len(found.events), 'event')}"
    print(f"wrote {directory}: {told}; gpuvigil replay {directory}")
    return 0


def recorded(hub: Hub, nodes: Sequence[str], start: datetime, end: datetime) -> Recorded:
    """Return the hub's data of these nodes, or of all nodes for an empty list; ConfigError for an unknown node."""
    known = past(hub, start, end)
    _check(nodes, known, hub)
    store, parts = store_of(hub), {name: list[pa.Table]() for name in TELEMETRY}
    for name, of in parts.items():
        for where in [{"node": node} for node in nodes] or [{}]:
            begin = start
            while begin < end:
                until = min(begin + BLOCK, end)
                of.append(lines(store, name, fields(name), (begin, until), where))
                begin = until
    tables = {name: _measured(name, pa.concat_tables(of)) for name, of in parts.items()}

    def own(subject: Subject) -> bool:
        return not nodes or subject.node in nodes

    return Recorded(
        tables={name: rows for name, rows in tables.items() if len(rows)},
        events=[it for it in known.events if own(it.subject)],
        allocations=[replace(it, command=None) for it in known.allocations if own(it.subject)],
        inventories=[it for it in known.inventories if own(it.subject)],
    )


def _check(nodes: Sequence[str], known: Past, hub: Hub) -> None:
    there = {it.subject.node for it in known.inventories}
    there |= {node["node"] for node in hub.status()["nodes"]}
    for node in nodes:
        if node not in there:
            raise ConfigError(f"the hub knows no node {node!r}{meant(node, there)}")


def _measured(name: str, rows: pa.Table) -> pa.Table:
    """Drop fields that no row has, and sort by time."""
    if not len(rows):
        return rows
    kept = [it for it in rows.column_names if rows[it].null_count < len(rows)]
    tags = [tag for tag in MEASUREMENTS[name].tags if tag in kept]
    return rows.select(kept).sort_by([(it, "ascending") for it in ["at", *tags] if it in kept])


def write(found: Recorded, directory: Path, form: str) -> None:
    """Write the layout of docs/recordings.md; ConfigError where that cannot be done."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ConfigError(f"{directory} is not empty: name another with --output")
        for name, rows in found.tables.items():
            _write_rows(rows, directory / f"{name}.{form}")
        _write_records(directory / "events.csv", map(_event, found.events), "events")
        _write_records(directory / "jobs.csv", map(_job, found.allocations), "jobs")
        with (directory / INVENTORY).open("w", encoding="utf-8") as file:
            for one in found.inventories:
                where = {"cluster": one.subject.cluster, "node": one.subject.node}
                record = one.to_record()
                file.write(json.dumps({**where, "at": to_text(one.at), **record.body}) + "\n")
    except OSError as error:
        raise ConfigError(f"cannot write {directory}: {reason(error)}") from None


def _write_rows(rows: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(rows, path)
        return
    at = pc.strftime(rows["at"], "%Y-%m-%dT%H:%M:%SZ")
    pyarrow.csv.write_csv(rows.set_column(rows.column_names.index("at"), "at", at), path)


def _write_records(path: Path, rows: Iterable[Mapping[str, Any]], kind: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names(kind), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _event(one: Event) -> dict[str, Any]:
    return {
        **_where(one.subject),
        "device": one.subject.device,
        "port": one.subject.port,
        "at": to_text(one.at),
        "event": one.kind.value,
        "xid": one.xid,
        "sxid": one.sxid,
        "count": one.count,
        "gone": int(one.gone),
        "message": one.message,
        "id": one.id,
    }


def _job(one: Allocation) -> dict[str, Any]:
    return {
        **_where(one.subject),
        "holder": str(one.holder),
        "started_at": to_text(one.started_at),
        "ended_at": None if one.ended_at is None else to_text(one.ended_at),
        "user": one.user,
        "account": one.account,
        "partition": one.partition,
        "array": one.array,
        "exit_code": one.exit_code,
        "pod": one.pod,
        "place": one.place,
        "part": one.part,
        "began_before": int(one.began_before),
    }


def _where(subject: Subject) -> dict[str, Any]:
    return {"cluster": subject.cluster, "node": subject.node, "gpu": subject.gpu}


def _config(chosen: argparse.Namespace) -> Config:
    """Return the hub's configuration, with another token where one is given."""
    if chosen.salt is not None and not chosen.hash_names:
        raise ConfigError("--salt is for --hash-names")
    given = dict(os.environ)
    if chosen.token_file is not None:
        given["GPUVIGIL_HUB_SERVICE_TOKEN_FILE"] = str(chosen.token_file)
    return load(config_of_up(chosen.config), given)


def _parser() -> argparse.ArgumentParser:
    commands = parser(
        "record",
        "Write what the hub has of nodes and a span as a recording, which `gpuvigil replay` plays.",
    )
    commands.add_argument(
        "--node", action="extend", nargs="+", default=[], metavar="NODE", help="default: all"
    )
    commands.add_argument("--last", metavar="LENGTH", help=f"15m, 6h, 7d or 2w until --to; {_LAST}")
    commands.add_argument("--from", dest="start", metavar="TIME", help="2026-11-14, in UTC")
    commands.add_argument("--to", dest="end", metavar="TIME", help="the same; default: now")
    commands.add_argument("--output", type=Path, metavar="DIR", help="a new directory")
    commands.add_argument("--format", choices=("csv", "parquet"), default="csv", help="of numbers")
    commands.add_argument(
        "--hash-names",
        action="store_true",
        help="hash names of nodes, GPUs, users and jobs, also within messages",
    )
    commands.add_argument("--salt", help="use the same in several recordings to get the same names")
    commands.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file with a reader's token; default: the service token",
    )
    return commands
