"""Sign-in by a reverse proxy's headers, which are only believed from named addresses."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address

from gpuvigil.config import PeopleSettings

from .groups import GroupMapping, IdentityClaims
from .replies import App, Message, Receive, Send

Network = IPv4Network | IPv6Network
# The scope's key for the address that the connection itself came from.
PEER = "gpuvigil.peer"


class KeepPeerAddress:
    """ASGI middleware that keeps a connection's address before a proxy's headers replace it."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        await self._app({**scope, PEER: client[0] if client else ""}, receive, send)


def is_within(networks: Sequence[Network], address: str) -> bool:
    """Return whether an address lies in one of the networks; False for a text that is no address."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in networks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyHeader:
    """The headers in which a proxy names people, and the proxies that are trusted."""

    user: str
    groups_header: str
    proxies: Sequence[Network]
    groups: GroupMapping

    @classmethod
    def of(cls, settings: PeopleSettings, proxies: Sequence[Network]) -> "ProxyHeader | None":
        """Return the headers from the settings; None if `proxy_user_header` is not set."""
        if not settings.proxy_user_header:
            return None
        return cls(
            user=settings.proxy_user_header.lower(),
            groups_header=settings.proxy_groups_header.lower(),
            proxies=proxies,
            groups=GroupMapping.of(settings),
        )

    def claims(self, scope: Message) -> IdentityClaims | None:
        """Return whom a trusted proxy names; None without a role, or if a header occurs twice."""
        if not is_within(self.proxies, str(scope.get(PEER, ""))):
            return None
        named = _values(scope, self.user)
        if len(named) != 1 or not named[0].strip():
            return None
        told = _values(scope, self.groups_header) if self.groups_header else []
        if len(told) > 1:
            return None
        groups = (one.strip() for one in "".join(told).replace(";", ",").split(","))
        return self.groups.claims(named[0].strip(), groups)


def _values(scope: Message, name: str) -> list[str]:
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("utf-8", "replace") for key, value in headers if key == name.encode()]
