"""Which node the rows are of that name none: nvidia-smi cannot say where it ran."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

_NODE = "node"
# Only an index or a bus's address is there again on the next node.
_OF_ALL_THE_WORLD = r"^(GPU|MIG)-"


def with_nodes(paths: Sequence[Path], parts: Sequence[pa.Table]) -> list[pa.Table]:
    """Rows without a node get one: the same, until two files have one GPU at the same time.

    Then each file is of a node of its own, by its name.
    """
    unnamed = [part.filter(pc.is_null(part["node"])) for part in parts]
    names = [_NODE] * len(parts)
    if _meet(unnamed):
        names = [path.stem for path in paths]
        own = [name for name, rows in zip(names, unnamed, strict=True) if len(rows)]
        if len(set(own)) < len(own):
            raise ValueError(
                f"{', '.join(map(str, paths))}: the same GPUs at the same time, without a column for the node; call each file by its node"
            )
    place = parts[0].column_names.index("node")
    return [
        part.set_column(place, "node", pc.fill_null(part["node"], name))
        for part, name in zip(parts, names, strict=True)
    ]


def _meet(parts: Sequence[pa.Table]) -> bool:
    """Whether one GPU is in several at the same time, which no GPU can be."""
    spans = []
    for part in parts:
        rows = part.filter(pc.invert(pc.match_substring_regex(part["uuid"], _OF_ALL_THE_WORLD)))
        found = rows.group_by("uuid").aggregate([("at", "min"), ("at", "max")])
        spans += [(row["uuid"], row["at_min"], row["at_max"]) for row in found.to_pylist()]
    return any(
        one == other and begin <= end
        for (one, _, end), (other, begin, _) in pairwise(sorted(spans))
    )
