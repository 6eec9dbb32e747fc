"""Addresses of inference servers, as given in the settings."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from gpuvigil.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of one server."""

    url: str
    host: str
    port: int
    path: str

    @property
    def name(self) -> str:
        """The address as it appears in rows: `127.0.0.1:8000`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether the address is certainly on this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def address(url: str, *, anywhere: bool) -> Address:
    """Parse `http://127.0.0.1:8000/metrics`; ConfigError if malformed, or not on this machine.

    With `anywhere`, other machines are allowed.
    """
    setting = "collector.inference_urls"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme != "http" or "@" in parts.netloc or parts.fragment:
        raise ConfigError(f"{setting}: {url!r} is not like http://127.0.0.1:8000/metrics")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"{setting}: {url!r} has signs that no address has")
    path = (parts.path or "/metrics") + (f"?{parts.query}" if parts.query else "")
    found = Address(url=url, host=host, port=port or 80, path=path)
    if not anywhere and not found.loopback:
        raise ConfigError(
            f"{setting}: {url!r} is not on this machine; set collector.inference_anywhere = true"
            " to ask it all the same"
        )
    return found
