"""Reads the tables in `gpuvigil/data`."""

import csv
import pkgutil
from collections.abc import Iterable, Mapping


def table(name: str) -> Iterable[Mapping[str, str]]:
    """Return the rows of a file, keyed by the column names in its first line."""
    # `importlib.resources` would keep half a MiB of memory on every node.
    content = pkgutil.get_data("gpuvigil", f"data/{name}")
    assert content is not None, "the package has a loader that gives no data"
    return csv.DictReader(content.decode().splitlines())
