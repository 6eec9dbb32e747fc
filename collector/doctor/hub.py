"""The hub as seen from this node: its reachability, its address's source, its clock, our token."""

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path

from gpuvigil.config import Config, HubSettings, read_secret, sets_key
from gpuvigil.errors import ConfigError, HubError, HubRefused
from gpuvigil.hub_client import Hub, addresses
from gpuvigil.hub_client.tls import trust
from gpuvigil.model import Subject

from ..agent.node_config import token_file
from .diagnosis import Diagnosis, State, limited, missing, ok

_PATIENCE_SECONDS = 4.0
# The header Date counts whole seconds: half a second is the best guess of the rest.
_DATE_REST_SECONDS = 0.5
_OFFSET_SECONDS = 2.0
_TOKEN = "hub.collector_token_file"
_MAKE_TOKEN = "copy the hub's collector token here and name its file"


def diagnose(config: Config, file: Path | None, node: str) -> list[Diagnosis]:
    """Return the diagnoses of the hub's addresses, its clock and our token."""
    where = address_source(config.hub, file, os.environ)
    found = [line for url in addresses(config.hub.url) for line in _address(url, where, config.hub)]
    if all(line.state is State.MISSING for line in found):
        return found
    # One address that answers is enough.
    at_work = [
        replace(line, state=State.LIMITED) if line.state is State.MISSING else line
        for line in found
    ]
    return [*at_work, _token(config, node)]


def _address(url: str, where: str, settings: HubSettings) -> list[Diagnosis]:
    try:
        hub = Hub(url, lambda: "", _PATIENCE_SECONDS, trust=trust(settings))
        began = time.time()
        answer = hub.request("GET", "/ping")
    except ConfigError as error:
        return [missing("hub", f"{error} (from {where})", "set it right, or hub.url")]
    except HubError as error:
        todo = "is it up, is the address right, does a firewall stand between?"
        return [missing("hub", f"{error} (address from {where})", todo)]
    taken = time.time() - began
    found = [ok("hub", f"{url} answers in {1000 * taken:.0f} ms (address from {where})")]
    offset = clock_offset(answer.headers, began + taken / 2)
    if offset is not None:
        found.append(_clock(offset))
    return found


def address_source(hub: HubSettings, file: Path | None, environment: Mapping[str, str]) -> str:
    """Return where the hub's address was found."""
    if "GPUVIGIL_HUB_URL" in environment:
        return "GPUVIGIL_HUB_URL"
    if file is None or (hub.url == HubSettings().url and not sets_key(file, "hub", "url")):
        return "the default"
    return str(file)


def clock_offset(headers: Mapping[str, str], at: float) -> float | None:
    """Return how far our clock, `at`, is ahead of the header Date, in seconds; None without one."""
    try:
        theirs = parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return None
    return at - (theirs + _DATE_REST_SECONDS)


def _clock(offset: float) -> Diagnosis:
    if abs(offset) <= _OFFSET_SECONDS:
        return ok("clock", f"within {_OFFSET_SECONDS:.0f} s of the hub's")
    ahead = "ahead of" if offset > 0 else "behind"
    text = f"{abs(offset):.0f} s {ahead} the hub's: what is sent has that time"
    return limited("clock", text, "synchronise both: chrony, systemd-timesyncd or ptp4l")


def _token(config: Config, node: str) -> Diagnosis:
    file = token_file(config.hub.collector_token_file)
    if file is None:
        return missing("token", f"{_TOKEN} is not set", _MAKE_TOKEN)
    try:
        token = read_secret(file, "collector token")
    except ConfigError as error:
        return missing("token", str(error), _MAKE_TOKEN)
    try:
        believed = trust(config.hub)
    except ConfigError as error:
        return missing("token", str(error), "see docs/security.md")
    hub = Hub(config.hub.url, lambda: token, _PATIENCE_SECONDS, trust=believed)
    return _asked(hub, config, node, file)


def _asked(hub: Hub, config: Config, node: str, file: Path) -> Diagnosis:
    """Return how the hub answers a request that a collector may make."""
    try:
        had = hub.inventory(Subject(cluster=config.collector.cluster, node=node))
    except HubRefused as error:
        if error.status in {401, 403}:
            text = f"the hub refuses the one in {file}: {error}"
            return missing("token", text, _MAKE_TOKEN)
        return limited("token", str(error), "is the hub of another version?")
    except HubError as error:
        return limited("token", str(error), "try again")
    known = "knows this node" if had is not None else "has not heard of this node yet"
    return ok("token", f"accepted ({file}); the hub {known}")
