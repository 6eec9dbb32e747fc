"""Whether the folders of a site can be written to, before anything is."""

import os
import shutil
from pathlib import Path

from gpuvigil.errors import ConfigError

# Ours: a hub writes some 10 MB before its first node, and nothing should fail in its first hours.
LEAST_BYTES = 100_000_000


def check_place(folder: Path, least_bytes: int = LEAST_BYTES) -> None:
    """Raise ConfigError unless files fit into `folder`, which need not exist yet.

    Room is what users other than root have: file systems keep a reserve for root (tune2fs(8), -m).
    """
    there = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    if not there.exists():
        raise ConfigError(f"{there} is a link that leads nowhere: create its target, or remove it")
    if not there.is_dir():
        raise ConfigError(
            f"{there} is not a directory, and {folder} has to be one: move it away first"
        )
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(
            f"nothing can be written to {there}: is its file system mounted read-only?"
        )
    free = shutil.disk_usage(there).free
    if free < least_bytes:
        raise ConfigError(
            f"the disk of {there} has {free / 1e6:,.0f} MB free, and at least {least_bytes / 1e6:,.0f} MB"
            f" are needed: make room, or mount another disk at {folder}"
        )
