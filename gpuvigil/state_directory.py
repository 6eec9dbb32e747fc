"""Where `gpuvigil up` keeps its state, and how other commands find a running instance."""

import fcntl
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .errors import ConfigError

# In the directory: the configuration that `up` wrote, and a file that it holds a lock on while it
# runs.
CONFIG_NAME, LOCK_NAME = "gpuvigil.toml", "lock"
SITE_CONFIG = Path("/etc/gpuvigil/gpuvigil.toml")
"""The configuration that a site's systemd units read."""
SERVICE_UNIT = "gpuvigil@.service"
# systemd.unit(5), "Unit File Load Path": a package's, and an administrator's.
UNIT_DIRECTORIES = (Path("/usr/lib/systemd/system"), Path("/etc/systemd/system"))


def state_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return `$XDG_STATE_HOME/gpuvigil`, by default `~/.local/state/gpuvigil`.

    XDG Base Directory Specification 0.8: a value that is not an absolute path is ignored.
    """
    given = Path(environment.get("XDG_STATE_HOME", ""))
    home = given if given.is_absolute() else Path.home() / ".local" / "state"
    return home / "gpuvigil"


def config_of_up(
    chosen: Path | None,
    environment: Mapping[str, str] = os.environ,
    site: Path = SITE_CONFIG,
    units: Sequence[Path] = UNIT_DIRECTORIES,
) -> Path | None:
    """Return the chosen configuration, else the one that `up` wrote, else the site's.

    None means that environment variables alone configure everything, as in a container. ConfigError
    when there is no configuration at all.
    """
    if chosen is not None:
        return chosen
    written = state_directory(environment) / CONFIG_NAME
    if not _is_there(written):
        if "GPUVIGIL_HUB_URL" in environment:
            return None
        if _is_there(site):
            return site
        missing, first = (
            (site, "run 'gpuvigil server init'")
            if _has_unit(units)
            else (written, "start 'gpuvigil up'")
        )
        raise ConfigError(f"there is no {missing}: {first} first, or name a file with --config")
    return written


def _has_unit(directories: Iterable[Path]) -> bool:
    return any(_is_there(one / SERVICE_UNIT) for one in directories)


def _is_there(file: Path) -> bool:
    """Return whether the file exists; False also in a home that we may not read, as under `runuser`."""
    try:
        return file.is_file()
    except OSError:
        return False


def is_run_by_systemd(
    environment: Mapping[str, str] = os.environ,
    site: Path = SITE_CONFIG,
    units: Sequence[Path] = UNIT_DIRECTORIES,
) -> bool:
    """Return whether commands here read the site's configuration, and units start its services."""
    try:
        read = config_of_up(None, environment, site)
    except ConfigError:
        return False
    return read == site and _has_unit(units)


def is_at_rest(config: Path | None) -> bool:
    """Return whether `up` wrote this configuration and no longer runs; False where that cannot be seen."""
    if config is None or config.name != CONFIG_NAME:
        return False
    try:
        with (config.parent / LOCK_NAME).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # locked, or not there
        return False
    return True
