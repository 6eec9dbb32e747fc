"""Which configuration a command on a node uses when none is named: the one that the service uses."""

from pathlib import Path

SERVICE_CONFIG = Path("/etc/gpuvigil/collector.toml")
SERVICE_TOKEN = Path("/etc/gpuvigil/collector-token")


def config_file(named: Path | None) -> Path | None:
    """The file that was named, else the service's, else none."""
    return named if named is not None or not SERVICE_CONFIG.exists() else SERVICE_CONFIG


def token_file(configured: Path | None) -> Path | None:
    """The collector's token: the service gets it from systemd, so its configuration names none."""
    return configured if configured is not None or not SERVICE_TOKEN.exists() else SERVICE_TOKEN
