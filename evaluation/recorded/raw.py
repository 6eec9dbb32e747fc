"""The columns of a file as they stand in it: CSV, Parquet or JSON.

JSON is what Prometheus and VictoriaMetrics answer to `/api/v1/query_range`, kept as it came.
"""

import json
import re
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

# nvidia-smi writes its unit into the header and, without `nounits`, behind every value.
_HEADER_UNIT = re.compile(r"\s*\[[^\]]*\]$")


def raw(path: Path) -> tuple[pa.Table, int]:
    """The first column of each name, and how many lines of the file are no rows of it."""
    suffix, torn = path.suffix.lower(), 0
    if suffix == ".parquet":
        with path.open("rb") as file:
            table = pyarrow.parquet.read_table(file)
    elif suffix == ".json":
        table = _answer(json.loads(path.read_text(encoding="utf-8")))
    elif suffix == ".csv":
        table, torn = _csv(path)
    else:
        raise ValueError("is none of .csv, .parquet and .json")
    names = table.column_names
    return table.select([names.index(name) for name in dict.fromkeys(names)]), torn


def _csv(path: Path) -> tuple[pa.Table, int]:
    with pyarrow.csv.open_csv(path, parse_options=_leaving_out([])) as reader:
        names = reader.schema.names
    # Everything is read as text: what a value means is the map's business.
    options = pyarrow.csv.ConvertOptions(column_types={name: pa.string() for name in names})
    torn: list[str] = []
    table = pyarrow.csv.read_csv(path, parse_options=_leaving_out(torn), convert_options=options)
    # A log that several runs were appended to has the header of each.
    pairs = zip(table.columns, names, strict=True)
    headers = (pc.equal(pc.utf8_trim_whitespace(column), name.strip()) for column, name in pairs)
    rows = table.filter(pc.invert(reduce(pc.and_, headers)))
    return rows.rename_columns([_HEADER_UNIT.sub("", name.strip()) for name in names]), len(torn)


def _leaving_out(torn: list[str]) -> pyarrow.csv.ParseOptions:
    """Lines of too few or too many columns: a power cut's last one, or the driver's complaint."""

    def leave_out(row: pyarrow.csv.InvalidRow) -> str:
        torn.append(row.text)
        return "skip"

    return pyarrow.csv.ParseOptions(invalid_row_handler=leave_out)


def _answer(found: Any) -> pa.Table:
    """A range query's series, a row for each value: labels, `timestamp` and `value`."""
    try:
        rows = [
            {**series["metric"], "timestamp": str(at), "value": value}
            for series in found["data"]["result"]
            for at, value in series["values"]
        ]
    except (KeyError, TypeError, ValueError):
        raise ValueError("is no answer of /api/v1/query_range") from None
    names = sorted({name for row in rows for name in row})
    return pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in names]))
