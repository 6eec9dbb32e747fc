"""Whether a browser says that a request comes from our own pages.

An origin is scheme, host and port (RFC 6454); one without a port has its scheme's.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
# A WebSocket's page has the scheme that the socket's stands for.
_PAGES = {"ws": "http", "wss": "https"}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a page is from; the host in lower case, without the last dot."""

    scheme: str
    host: str
    port: int


def origin_of(address: str) -> Origin | None:
    """The origin of an http or https address; None where there is none to be read."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return None
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme not in _PORTS or not host or "@" in parts.netloc:
        return None
    return Origin(parts.scheme, host, port if port is not None else _PORTS[parts.scheme])


def site(scheme: str, host: str, public: Origin | None) -> Origin | None:
    """The origin of pages that are asked for at this `Host`; None where it names none.

    Whoever asks for the public address has its scheme, although its proxy may ask without TLS.
    """
    if public is not None and _bare(f"{public.scheme}://{host}") == public:
        return public
    return _bare(f"{_PAGES.get(scheme, scheme)}://{host}")


def is_own(origin: str, here: Origin | None, public: Origin | None) -> bool:
    """Whether an `Origin` header names one of our own; False for an empty one and for `null`."""
    found = _bare(origin)
    return found is not None and found in {here, public}


def _bare(address: str) -> Origin | None:
    """The origin of an address that consists of nothing else."""
    _, _, place = address.partition("://")
    return None if not place or set(place) & set("/?#\\ \t\r\n") else origin_of(address)
