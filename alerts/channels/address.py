"""Reads a channel's secret address as it is now, and rejects addresses that no receiver may have."""

import ipaddress
import os
from pathlib import Path

from gpuvigil.config import PROXY_EXAMPLE, PostSettings, is_proxy, read_secret, web_parts
from gpuvigil.errors import ConfigError

from .retired import retired

# Clouds' metadata services outside the link-local ranges: AWS over IPv6, Alibaba Cloud.
METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200")))


class ForbiddenAddressError(Exception):
    """The URL leads to an address that no receiver has."""


def secret_of(file: Path | None, variable: str, what: str) -> str:
    """Read a secret anew from its file or variable; ConfigError says where it is missing."""
    if file is not None:
        return read_secret(file, what)
    secret = os.environ.get(variable, "").strip()
    if not secret:
        raise ConfigError(f"the {what}: there is no variable {variable!r} in the environment")
    return secret


def in_ascii(secret: str, what: str) -> str:
    """Return a secret for a place that takes ASCII only; ConfigError when it has anything else."""
    if not secret.isascii():
        raise ConfigError(f"the {what} has a letter that is not ASCII: it cannot be sent")
    return secret


def url_of(settings: PostSettings) -> str:
    """Return the receiver's address as it is now; ConfigError when it cannot be read."""
    if settings.url_file is None and not settings.url_variable:
        return settings.url
    what = f"URL of the channel {settings.name}"
    return secret_of(settings.url_file, settings.url_variable, what)


def proxy_of(settings: PostSettings) -> str | None:
    """Return the proxy's address, None without one; ConfigError never quotes what a file holds."""
    channel = settings.name
    address = settings.proxy
    if settings.proxy_file is not None:
        address = read_secret(settings.proxy_file, f"proxy of the channel {channel}")
    if address and not is_proxy(address):
        raise ConfigError(f"the proxy of the channel {channel!r} is not like {PROXY_EXAMPLE}")
    return address or None


def is_forbidden(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether an address is link-local, multicast or cloud metadata: never a receiver's."""
    plain = getattr(address, "ipv4_mapped", None) or address
    return plain.is_link_local or plain.is_multicast or plain in METADATA


def check(url: str, settings: PostSettings) -> None:
    """Raise ConfigError for what is wrong with the URL itself, without quoting the URL."""
    channel = settings.name
    parts = web_parts(url)
    host = parts.hostname if parts else None
    if parts is None or host is None:
        raise ConfigError(f"the URL of the channel {channel!r} is not an http or https address")
    gone = retired(host, parts.path)
    if gone is not None:
        raise ConfigError(f"the channel {channel!r} leads nowhere any more: {gone}")
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        address = None  # a name: its address is checked once it is connected
    if address is not None and is_forbidden(address):
        raise ConfigError(f"the channel {channel!r} leads to {address}, a link-local address")
    here = host == "localhost" or (address is not None and address.is_loopback)
    if parts.scheme == "http" and not here and not settings.allow_http:
        raise ConfigError(
            f"the URL of the channel {channel!r} is http, which anybody on the way can read; use"
            " https, or say allow_http = true"
        )
