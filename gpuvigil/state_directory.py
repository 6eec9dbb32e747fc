"""Where `gpuvigil up` keeps its state, and how other commands find a running one."""

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

from .errors import ConfigError

# In the directory: what `up` wrote for its parts, and what it holds a lock on for as long as it runs.
CONFIG_NAME, LOCK_NAME = "gpuvigil.toml", "lock"
SITE_CONFIG = Path("/etc/gpuvigil/gpuvigil.toml")
"""What a site's units read."""


def state_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """`$XDG_STATE_HOME/gpuvigil`, by default `~/.local/state/gpuvigil`.

    XDG Base Directory Specification 0.8: a value that is not an absolute path is ignored.
    """
    given = Path(environment.get("XDG_STATE_HOME", ""))
    home = given if given.is_absolute() else Path.home() / ".local" / "state"
    return home / "gpuvigil"


def config_of_up(chosen: Path | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The chosen configuration, the one that `up` wrote, or the site's; None where variables say everything.

    ConfigError when there is nothing of it. In a container there are only variables.
    """
    if chosen is not None:
        return chosen
    written = state_directory(environment) / CONFIG_NAME
    if not _is_there(written):
        if "GPUVIGIL_HUB_URL" in environment:
            return None
        if _is_there(SITE_CONFIG):
            return SITE_CONFIG
        raise ConfigError(
            f"there is no {written}: start 'gpuvigil up' first, or name a file with --config"
        )
    return written


def _is_there(file: Path) -> bool:
    """False also in a home that is another's, as under `runuser`."""
    try:
        return file.is_file()
    except OSError:
        return False


def is_at_rest(config: Path | None) -> bool:
    """Whether `up` wrote this configuration and runs no more; False where that cannot be seen."""
    if config is None or config.name != CONFIG_NAME:
        return False
    try:
        with (config.parent / LOCK_NAME).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held, or nobody's
        return False
    return True
