"""Checks, before anything is written, that the hub is the intended one and accepts our token."""

import hmac
import http.client
import json
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gpuvigil.errors import ConfigError, GpuvigilError, HubRefused
from gpuvigil.hub_client import Hub, joining
from gpuvigil.hub_client.authority import PATH, as_pin, certificate_in, pin_of
from gpuvigil.hub_client.tls import Trust
from gpuvigil.model import Record, Subject

_PORT = 8428
_SECONDS = 10.0
_LARGEST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A hub and the token for it; `authority` is its CA in PEM, or None for those of the system."""

    url: str
    token: str
    authority: str | None


def address(given: str) -> str:
    """Return the hub's address as a URL: `hub1` means https://hub1:8428."""
    text = given.strip()
    try:
        parts = urlsplit(text if re.match(r"https?://", text) else f"https://{text}")
        port = parts.port
    except ValueError:
        raise ConfigError(f"{given!r} is not an address like hub1 or https://hub1:8428") from None
    if not parts.hostname or parts.username or parts.query or parts.path not in {"", "/"}:
        raise ConfigError(f"{given!r} is not an address like hub1 or https://hub1:8428")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port or _PORT}"


def pinned(url: str, pin: str) -> str:
    """Return the CA that the hub shows, in PEM, if it matches the pin; else GpuvigilError.

    Somebody in between can show another CA, but not one with the same pin.
    """
    wanted = as_pin(pin)
    if not url.startswith("https:"):
        raise ConfigError(f"--pin goes with an https address, and not with {url}")
    found = certificate_in(_shown(url))
    if found is None:
        raise GpuvigilError(
            f"the hub at {url} shows no certificate to compare with the pin: give its CA with"
            " --ca-file, or neither where this machine's system knows the CA"
        )
    if not hmac.compare_digest(pin_of(found), wanted):
        raise GpuvigilError(
            f"the certificate of {url} is not the one of the pin: it has {pin_of(found)}. Take the"
            " line that 'gpuvigil server init' prints there now; if that has the pin that you gave,"
            " somebody stands between this node and the hub"
        )
    return found


def check_known(url: str) -> None:
    """Raise GpuvigilError, which says what to add, if this machine does not know who signed the certificate."""
    if not url.startswith("https:"):
        return
    try:
        _get(url, ssl.create_default_context())
    except ssl.SSLCertVerificationError as error:
        raise GpuvigilError(
            f"nobody whom this machine trusts has signed the certificate of {url}"
            f" ({error.verify_message.rstrip('.')}): add --pin sha256:..., as the line has it that 'gpuvigil"
            " server init' prints there, or --ca-file"
        ) from None


def _shown(url: str) -> str:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return _get(url, context)


def _get(url: str, context: ssl.SSLContext) -> str:
    """Return the CA's certificate that the hub shows, or an empty text; GpuvigilError if nobody answers."""
    parts = urlsplit(url)
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=_SECONDS, context=context
    )
    try:
        connection.request("GET", PATH)
        answer = connection.getresponse()
        text = answer.read(_LARGEST_BYTES).decode("ascii", "replace")
    except ssl.SSLCertVerificationError:
        raise
    except (OSError, http.client.HTTPException) as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise GpuvigilError(
            f"no hub answers at {url}: {said}. Is 'gpuvigil server init' done there, is the name right, does"
            f" a firewall let port {parts.port} through?"
        ) from None
    finally:
        connection.close()
    return text if answer.status == 200 else ""


@contextmanager
def trusting(authority: str | None) -> Iterator[Trust]:
    """Yield the trust of a client whose CA is in no file yet."""
    if authority is None:
        yield Trust()
        return
    with tempfile.NamedTemporaryFile("w", prefix="gpuvigil-", suffix=".pem") as file:
        file.write(authority)
        file.flush()
        yield Trust(ca_file=Path(file.name))


@contextmanager
def _speaking_to(asked: Asked) -> Iterator[Hub]:
    with trusting(asked.authority) as trust:
        hub = Hub(asked.url, lambda: asked.token, _SECONDS, trust=trust)
        try:
            yield hub
        finally:
            hub.close()


def inventory(asked: Asked, node: Subject) -> Record | None:
    """Return the node's last inventory in the hub; GpuvigilError says why the hub refuses."""
    with _speaking_to(asked) as hub:
        try:
            return hub.inventory(node)
        except HubRefused as error:
            if error.status == 401:
                raise GpuvigilError(
                    f"{error}. Take the line that 'gpuvigil server init' prints on the hub's machine"
                ) from None
            if error.status == 403:
                raise GpuvigilError(f"{error}. A token of another node, or not a node's") from None
            raise


def accepts(asked: Asked, node: Subject) -> bool:
    """Return whether the hub accepts the token for that node."""
    with _speaking_to(asked) as hub:
        try:
            hub.inventory(node)
        except HubRefused as error:
            if error.status in {401, 403}:
                return False
            raise
    return True


def exchange(asked: Asked, node: Subject, token: str) -> None:
    """Exchange a join token for `token`, which this node made; HubRefused says why the hub refuses.

    Where the answer is lost, the same request can be repeated and takes no second use.
    """
    wanted = {
        "cluster": node.cluster,
        "node": node.node,
        "id": joining.id_of(token),
        "sha256": joining.sha256_of(token),
    }
    with _speaking_to(asked) as hub:
        hub.request("POST", joining.PATH, json.dumps(wanted).encode())
