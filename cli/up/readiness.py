"""Find out which services of a starting gpuvigil are ready, and since when."""

import http.client
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from dashboard.auth.keys import Keys, are_made
from gpuvigil import __version__
from gpuvigil.clock import from_text
from gpuvigil.errors import GpuvigilError
from gpuvigil.hub_client import Hub
from gpuvigil.model import SIMULATED_CLUSTER, RecordKind, Subject
from gpuvigil.private_files import write_private

_TIMEOUT_SECONDS = 1.0
# Streamlit's health endpoint, which only signed-in requests reach.
_BEHIND_THE_DOOR = "/_stcore/health"

Probe = Callable[[], bool]


def are_our_pages(url: str, secrets: Path, now: datetime) -> bool:
    """Return whether the dashboard at `url` has our secrets: another one may have the port.

    A dashboard with other secrets than those of the folder `secrets` answers 401.
    """
    if not are_made(secrets):
        return False
    keys, parts = Keys(secrets), urlsplit(url)
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS
    )
    try:
        cookie = f"{keys.cookie_name}={keys.new_cookie(now, {'named': True})}"
        connection.request("GET", _BEHIND_THE_DOOR, headers={"Cookie": cookie})
        return 200 <= connection.getresponse().status < 300
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def is_ours(hub: Hub) -> bool:
    """Return whether this hub takes our token: another hub may have the port."""
    try:
        hub.status()
    except GpuvigilError:
        return False
    return True


def has_sent(hub: Hub, since: datetime, *, simulated: bool) -> bool:
    """Return whether telemetry of a simulated, or of a real, node has reached the hub since then."""
    try:
        nodes = hub.status()["nodes"]
    except (GpuvigilError, KeyError):
        return False
    return any(
        (node["cluster"] == SIMULATED_CLUSTER) is simulated
        and from_text(node["received_at"]) >= since
        for node in nodes
    )


def has_reported(hub: Hub, since: datetime, *, simulated: bool) -> bool:
    """Return whether a simulated, or a real, node has sent its inventory since then.

    If telemetry goes to another store, the inventory is what the hub gets from a node.
    """
    try:
        told = hub.records(RecordKind.INVENTORY, since=since)
    except GpuvigilError:
        return False
    return any(Subject.parse(one.subject).simulated is simulated for one in told)


def has_beaten(hub: Hub, since: datetime, service: str) -> bool:
    """Return whether that service has written a pulse since then."""
    try:
        pulses = hub.records(RecordKind.PULSE, since=since)
    except GpuvigilError:
        return False
    return any(pulse.id.startswith(service) for pulse in pulses)


class Startup:
    """When each service was started and ready, in seconds since `began`; probes only those not ready yet."""

    def __init__(self, probes: Mapping[str, Probe], began: float) -> None:
        self._probes = dict(probes)
        self._began = began
        self.started: dict[str, float] = {}
        self.ready: dict[str, float] = {}

    @property
    def is_complete(self) -> bool:
        return not self._probes

    def note_start(self, name: str, now: float) -> None:
        self.started[name] = round(now - self._began, 3)

    def poll(self, clock: Callable[[], float]) -> list[str]:
        """Return the services that became ready since the last look."""
        fresh = []
        for name in [name for name in self._probes if name in self.started]:
            if self._probes[name]():
                del self._probes[name]
                self.ready[name] = round(clock() - self._began, 3)
                fresh.append(name)
        return fresh

    def write(self, path: Path, printed_seconds: float) -> None:
        """Write the times into a file, for measurements of the start."""
        steps = {"version": __version__, "url_printed": round(printed_seconds, 3)}
        lines = {**steps, "started": self.started, "ready": self.ready}
        write_private(path, json.dumps(lines, indent=1) + "\n")
