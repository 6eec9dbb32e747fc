"""TLS for the hub: its certificate, and the client certificates that it asks for."""

import ssl
from pathlib import Path

from gpuvigil.config import HubSettings
from gpuvigil.errors import ConfigError
from gpuvigil.hub_client.tls import load_pair
from gpuvigil.log import Log

_LOG = Log("hub")

_Stamp = tuple[tuple[int, int, int] | None, ...]


class ServerTls:
    """The TLS context of every connection; `renew` reloads files that were replaced.

    `context` is the one that the server keeps for good. A context never forgets a CA, so each
    handshake switches to the newest context made from the files.
    """

    def __init__(self, settings: HubSettings) -> None:
        """ConfigError when a file cannot be used."""
        assert settings.tls_certificate_file is not None
        self._certificate = settings.tls_certificate_file
        self._key = settings.tls_key_file
        self._client_ca = settings.tls_client_ca_file
        self._stamp = self._state()
        self._authorities = self._read_authorities()
        self._are_changed = False
        self._newest = self.context = self._made()
        self.context.sni_callback = self._hand_over

    def renew(self) -> bool:
        """Read the files again when they have changed; return whether the client CA is another one.

        Open connections are left alone.
        """
        stamp = self._state()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            authorities = self._read_authorities()
            self._newest = self._made()
        except ConfigError as error:
            # In the middle of a renewal: the old pair is kept until both files are there.
            _LOG.warning("certificate kept", reason=str(error))
            return False
        others = authorities != self._authorities
        self._authorities = authorities
        self._are_changed |= others
        _LOG.info("certificate renewed", client_ca_changed=others)
        return others

    def _hand_over(
        self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> int | None:
        """Switch a handshake to the newest context; refuse sessions from before a change of CA.

        Called in every handshake, with or without a server name from the client.
        """
        if self._are_changed and connection.session_reused:
            # Its certificate was verified when another CA was trusted.
            return ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE
        connection.context = self._newest
        return None

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_pair(context, self._certificate, self._key, "hub.tls_certificate_file")
        if self._client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            # A resumed session is not verified again.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
            try:
                context.load_verify_locations(self._client_ca)
            except (OSError, ssl.SSLError) as error:
                raise self._unusable(error) from None
        return context

    def _read_authorities(self) -> bytes:
        if self._client_ca is None:
            return b""
        try:
            return self._client_ca.read_bytes()
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> ConfigError:
        said = error.strerror or error
        return ConfigError(f"hub.tls_client_ca_file: {self._client_ca} cannot be used: {said}")

    def _state(self) -> _Stamp:
        files = (self._certificate, self._key, self._client_ca)
        return tuple(None if file is None else _stamp(file) for file in files)


def server_tls(settings: HubSettings) -> ServerTls | None:
    """Return the hub's TLS, None for plain HTTP; ConfigError for settings that conflict."""
    if settings.tls_certificate_file is not None:
        return ServerTls(settings)
    for key in ("tls_key_file", "tls_client_ca_file"):
        if getattr(settings, key) is not None:
            raise ConfigError(f"hub.{key} goes with hub.tls_certificate_file")
    return None


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
