"""A backup of the whole store into another folder, taken while it is in use."""

import shutil
from pathlib import Path

import duckdb

from gpuvigil.file_sync import sync

from .schema import quoted, text
from .sealed_files import Unit, make_folder


def copy_tables(cursor: duckdb.DuckDBPyConnection, path: Path, to: Path) -> None:
    """Copy the DuckDB file at `path`, as it is now, into a new file."""
    # DuckDB names an open file by its stem.
    cursor.execute(f"ATTACH {text(str(to))} AS backup")
    try:
        cursor.execute(f"COPY FROM DATABASE {quoted(path.stem)} TO backup")
    finally:
        cursor.execute("DETACH backup")  # which syncs it


def copy_units(units: list[Unit], folder: Path, to: Path) -> int:
    """Copy the files of units and return their bytes; names of files and folders are synced."""
    copied = 0
    for unit in units:
        make_folder(to / unit.measurement)
        for file, (size, _) in unit.files(folder).items():
            target = to / unit.measurement / file.name
            shutil.copyfile(file, target)
            sync(target)
            copied += size
    measurements = {to / unit.measurement for unit in units}
    for names in (*measurements, to.parent, to.parent.parent):
        sync(names)
    return copied
