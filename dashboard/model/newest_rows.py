"""Tables of the newest rows, with the fields that pages need."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from gpuvigil.metrics import GPU, NODE, PORT, Measurement

Row = Mapping[str, Any]

# The fields that map and strip need of every GPU; others are asked for when a GPU is opened.
CELL_FIELDS = (
    "up",
    "unmeasured_reason",
    "unmeasured_seconds",
    "index",
    "utilization_percent",
    "compute_processes",
    "power_watts",
    "power_limit_watts",
    "temperature_celsius",
)
PORT_FIELDS = ("up", "speed_bits_per_second")
NODE_FIELDS = tuple(metric.name for metric in NODE.metrics)[:1]


def table(measurement: Measurement, fields: Iterable[str], rows: Iterable[Row] = ()) -> pa.Table:
    """Return rows of a measurement as `Store.latest` does: with its tags, `at` and `fields`."""
    columns = [(tag, pa.string()) for tag in measurement.tags]
    columns += [("at", pa.timestamp("ns", tz="UTC"))]
    columns += [
        (name, pa.int64() if measurement.metric(name).integer else pa.float64()) for name in fields
    ]
    return pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(columns))


def gpu_table(rows: Iterable[Row] = ()) -> pa.Table:
    """Return rows of GPUs with the fields that the map needs."""
    return table(GPU, CELL_FIELDS, rows)


def port_table(rows: Iterable[Row] = ()) -> pa.Table:
    """Return rows of network ports."""
    return table(PORT, PORT_FIELDS, rows)


def node_table(rows: Iterable[Row] = ()) -> pa.Table:
    """Return rows of nodes, of which only the existence matters."""
    return table(NODE, NODE_FIELDS, rows)
