"""The subjects of a table's rows, worked out once as long as the same subjects send."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..model.gpus import Column

NodeName = tuple[str, str]  # cluster and node


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Keys:
    """The tags of a table's rows, in the table's order."""

    tags: pa.Table
    rows: tuple[tuple[str, ...], ...]  # the tags of each row
    nodes: tuple[NodeName, ...]  # distinct
    node: Column  # per row: index into `nodes`

    def latest(self, times: Column) -> Column:
        """Return per node in `nodes` the latest time of its rows."""
        latest = np.full(len(self.nodes), np.iinfo(np.int64).min // 2)
        np.maximum.at(latest, self.node, times)
        return latest

    def newest(self, times: Column) -> dict[NodeName, int]:
        """Return the latest time of each node's rows, by node."""
        return dict(zip(self.nodes, self.latest(times).tolist(), strict=True))


def keys_of(table: pa.Table, tags: tuple[str, ...], before: Keys | None) -> Keys:
    """Return the keys of `table`, or `before` itself if they are the same. The first two tags name the node."""
    columns = table.select(list(tags))
    if before is not None and columns.equals(before.tags):
        return before
    rows = tuple(zip(*(column.to_pylist() for column in columns.columns), strict=True))
    places: dict[NodeName, int] = {}
    node = [places.setdefault((row[0], row[1]), len(places)) for row in rows]
    return Keys(tags=columns, rows=rows, nodes=tuple(places), node=np.array(node, np.int64))


def times(table: pa.Table) -> Column:
    """Return the rows' times in microseconds since 1970."""
    micro = table.column("at").cast(pa.timestamp("us", tz="UTC"), safe=False)
    found: Column = micro.cast(pa.int64()).to_numpy()
    return found
