"""The tables in `gpuvigil/data`."""

import csv
import pkgutil
from collections.abc import Iterable, Mapping


def table(name: str) -> Iterable[Mapping[str, str]]:
    """The rows of a file, each by the names in its first line."""
    # `importlib.resources` would stay with half a MiB on every node.
    content = pkgutil.get_data("gpuvigil", f"data/{name}")
    assert content is not None, "the package has a loader that gives no data"
    return csv.DictReader(content.decode().splitlines())
