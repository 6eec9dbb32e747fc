"""Check by its origin whether a request comes from our own pages.

An origin is scheme, host and port (RFC 6454); without a port, the scheme's default counts.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
# The scheme of the page that opens a WebSocket, by the socket's scheme.
_PAGES = {"ws": "http", "wss": "https"}


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a page; the host is in lower case, without a trailing dot."""

    scheme: str
    host: str
    port: int


def origin_of(address: str) -> Origin | None:
    """Return the origin of an http or https address; None if it cannot be parsed."""
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
    """Return the origin of pages requested at this `Host`; None if it is not valid.

    A request for the public address has that address's scheme, though its proxy may come without TLS.
    """
    if public is not None and _bare(f"{public.scheme}://{host}") == public:
        return public
    return _bare(f"{_PAGES.get(scheme, scheme)}://{host}")


def is_own(origin: str, here: Origin | None, public: Origin | None) -> bool:
    """Return whether an `Origin` header names one of our origins; False if it is empty or `null`."""
    found = _bare(origin)
    return found is not None and found in {here, public}


def _bare(address: str) -> Origin | None:
    """Return the origin of an address without path or query, else None."""
    _, _, place = address.partition("://")
    return None if not place or set(place) & set("/?#\\ \t\r\n") else origin_of(address)
