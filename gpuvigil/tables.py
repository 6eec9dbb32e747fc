"""Reads the tables in `gpuvigil/data`."""

import csv
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.abc import ResourceLoader


def table(name: str) -> Iterable[Mapping[str, str]]:
    """Return the rows of a file, keyed by the column names in its first line."""
    # As `pkgutil.get_data` does, which would keep an eighth of a MiB of memory on every node, and
    # `importlib.resources` half of one.
    loader = cast("ResourceLoader", __spec__.loader)
    content = loader.get_data(os.path.join(os.path.dirname(__file__), "data", name))
    return csv.DictReader(content.decode().splitlines())
