"""The configuration that a command on a node uses when none is named: that of the service."""

import os
from collections.abc import Mapping
from pathlib import Path

from gpuvigil.state_directory import CONFIG_NAME, state_directory

SERVICE_CONFIG = Path("/etc/gpuvigil/collector.toml")
SERVICE_TOKEN = Path("/etc/gpuvigil/collector-token")


_CONTAINER_SIGNS = ("/.dockerenv", "/run/.containerenv")


def is_contained(sysfs_root: Path) -> bool:
    """Return whether this is a container whose sysfs shows GPUs that it was not given.

    A host sysfs that is mounted elsewhere stands for the whole machine.
    """
    inside = any(os.path.exists(sign) for sign in _CONTAINER_SIGNS)
    return sysfs_root == Path("/sys") and (inside or "KUBERNETES_SERVICE_HOST" in os.environ)


def config_file(named: Path | None) -> Path | None:
    """Return the named file, else the service's, else None."""
    return named if named is not None or not SERVICE_CONFIG.exists() else SERVICE_CONFIG


def token_file(configured: Path | None) -> Path | None:
    """Return the collector's token file, else the service's, else None.

    The service gets its token from systemd, so its configuration names none.
    """
    return configured if configured is not None or not SERVICE_TOKEN.exists() else SERVICE_TOKEN


def file_of_up(used: Path | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file that this user's `gpuvigil up` wrote; None when a file or hub is named."""
    if used is not None or "GPUVIGIL_HUB_URL" in environment:
        return None
    try:
        written = state_directory(environment) / CONFIG_NAME
        return written if written.is_file() else None
    except (OSError, RuntimeError):  # a user without a home
        return None
