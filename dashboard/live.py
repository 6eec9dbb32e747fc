"""The one snapshot of this process, for the scripts that Streamlit runs."""

from .snapshot import Snapshot

_installed: list[Snapshot] = []


def install(snapshot: Snapshot) -> None:
    """Make this the snapshot that pages draw from."""
    _installed[:] = [snapshot]


def current() -> Snapshot:
    """The snapshot that pages draw from."""
    (snapshot,) = _installed
    return snapshot


def refresh_seconds() -> float:
    """How often an open page renews itself."""
    return current().refresh_seconds
