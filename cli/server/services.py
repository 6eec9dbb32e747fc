"""Start the services' systemd units and wait until they are ready."""

import http.client
import socket
import ssl
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from gpuvigil.config import Config
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.state_directory import SITE_CONFIG
from gpuvigil.systemd import gives_up, last_line, run

SERVICES = ("hub", "analyze", "alert", "dashboard", "report")
_SECONDS = 120.0
_ANSWER_SECONDS = 5.0
_LOOK_SECONDS = 0.5


def check() -> None:
    """Raise GpuvigilError unless systemd knows the unit."""
    if run(["systemctl", "cat", "gpuvigil@hub.service"])[0] != 0:
        raise GpuvigilError(
            "systemd knows no gpuvigil@.service: install the package gpuvigil-server first"
        )


def check_port(port: int) -> None:
    """Raise ConfigError if something listens on the hub's port already."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError as error:
            raise ConfigError(
                f"port {port} of this machine: {error.strerror} (VictoriaMetrics has 8428, too); end what"
                " listens there (ss -ltnp shows it), or choose another with --port"
            ) from None


def start() -> None:
    """Start all services, now and at every boot; those that run already are left alone."""
    units = [f"gpuvigil@{name}.service" for name in SERVICES]
    run(["systemctl", "reset-failed", *units])
    for verb in ("enable", "start"):
        code, said = run(["systemctl", verb, *units])
        if code != 0:
            # The first line names the unit and why, the others where to look for more.
            first = said.splitlines()[0] if said else f"exit code {code}"
            raise GpuvigilError(
                f"systemctl {verb}: {first.rstrip('.')}. See journalctl -u 'gpuvigil@*' -n 20"
            )


def wait_until_ready(config: Config) -> None:
    """Wait until hub and dashboard answer and all units run; GpuvigilError quotes a failed one's last line."""
    listen, port = config.dashboard.listen, config.dashboard.port
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(listen, listen)
    asked = {
        "hub": (f"{config.hub.url.split(',')[0].strip()}/readyz", config.hub.ca_file),
        "dashboard": (f"http://{host}:{port}/healthz", None),
    }
    deadline = time.monotonic() + _SECONDS
    for name, (url, authority) in asked.items():
        while not _answers(url, authority):
            if gives_up(f"gpuvigil@{name}"):
                last = last_line(f"gpuvigil@{name}")
                raise GpuvigilError(f"the {name} does not stay up; {last}")
            if time.monotonic() >= deadline:
                last = last_line(f"gpuvigil@{name}")
                raise GpuvigilError(f"the {name} is not ready after {_SECONDS:.0f} s; {last}")
            time.sleep(_LOOK_SECONDS)
    for name in SERVICES:
        if run(["systemctl", "is-active", f"gpuvigil@{name}.service"])[0] != 0:
            last = last_line(f"gpuvigil@{name}")
            raise GpuvigilError(f"gpuvigil@{name} does not run; {last}")


def _answers(url: str, authority: Path | None) -> bool:
    parts = urlsplit(url)
    place = (parts.hostname or "", parts.port)
    try:
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=authority)
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                *place, timeout=_ANSWER_SECONDS, context=context
            )
        else:
            connection = http.client.HTTPConnection(*place, timeout=_ANSWER_SECONDS)
        connection.request("GET", parts.path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False


def sign_in_link() -> str:
    """Return a link that signs in whoever opens it."""
    code, said = run([sys.executable, "-P", "-m", "gpuvigil", "url", "--config", str(SITE_CONFIG)])
    if code != 0:
        raise GpuvigilError(f"no sign-in link can be made: {said}")
    # Where people come from elsewhere, a second line has the address for this machine.
    return "\n  ".join(line.removeprefix("gpuvigil url: ") for line in said.splitlines())


def is_known(user: str) -> bool:
    """Return whether this machine has the user."""
    return run(["id", "-u", user])[0] == 0
