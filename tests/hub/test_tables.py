"""From line protocol to the store's tables."""

import json

import pyarrow as pa

from gpuvigil.lineprotocol import Refusal, parse_columns
from hub.bodies.tables import EXTRA, Assembly, fit

RECEIVED_NS = 7_000_000_000


def tables(*bodies: str) -> dict[str, pa.Table]:
    assembly = Assembly()
    for body in bodies:
        blocks, refused = fit(parse_columns(body.encode()), RECEIVED_NS)
        assert refused == []
        assembly.add(blocks)
    return assembly.tables()


def refusals(body: str) -> list[Refusal]:
    return fit(parse_columns(body.encode()), RECEIVED_NS)[1]


def test_bodies_of_different_schemas_become_one_table_with_gaps() -> None:
    found = tables(
        "node,cluster=c,node=a load_average=1i,spool_bytes=2i 5",
        "node,cluster=c,node=b load_average=1.5 6\nnode,node=d spool_bytes=3 7",
    )["node"]
    assert found.column("load_average").to_pylist() == [1.0, 1.5, None]
    assert found.column("spool_bytes").to_pylist() == [2, None, 3]
    assert found.column("cluster").to_pylist() == ["c", "c", ""]
    assert found.schema.field("spool_bytes").type == pa.int64()


def test_a_row_without_a_time_gets_the_time_of_its_arrival() -> None:
    times = tables("node,node=a load_average=1\nnode,node=a load_average=1 5")["node"]["at"]
    assert sorted(times.cast(pa.int64()).to_pylist()) == [5, RECEIVED_NS]


def test_what_the_catalogue_does_not_know_is_kept_field_by_field() -> None:
    found = tables('cpu,host=h,cpu=0 busy=0.5,idle=true,n=3u,state="x" 5', "node,node=a new=1i 6")
    assert set(found) == {EXTRA}
    rows = {(row["measurement"], row["field"]): row for row in found[EXTRA].to_pylist()}
    assert rows["cpu", "busy"]["value"] == 0.5
    assert rows["cpu", "idle"]["value"] == 1.0
    assert rows["cpu", "n"]["value"] == 3.0
    assert (rows["cpu", "state"]["value"], rows["cpu", "state"]["text"]) == (None, "x")
    assert json.loads(rows["cpu", "busy"]["tags"]) == {"cpu": "0", "host": "h"}
    assert rows["node", "new"]["value"] == 1.0


def test_rows_at_fault_are_refused_one_by_one_among_good_ones_of_their_schema() -> None:
    body = "\n".join(f"gpu,uuid=g up={value} 5" for value in ("1", "0.5", "1e30", "0"))
    found = refusals(f"{body}\nnonsense\ngpu,uuid=g up=t 5\ngpu,uuid=g up=1i -5")
    assert [it.number for it in found] == [2, 3, 5, 6, 7]
    assert [it.reason for it in found if it.number != 5] == [
        "field gpu.up is not a whole number",
        "field gpu.up is out of range",
        "field gpu.up is not a number",
        "the time is before 1970 or after 2200",
    ]


def test_floats_keep_whole_numbers_that_no_integer_column_could() -> None:
    found = tables(f"gpu,uuid=g power_watts={2**64 - 1}u 5")["gpu"]
    assert found["power_watts"].to_pylist() == [float(2**64 - 1)]
