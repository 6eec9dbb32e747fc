"""TLS for the hub: its certificate, and whose certificates it asks to see."""

import ssl
from pathlib import Path

from gpuvigil.config import HubSettings
from gpuvigil.errors import ConfigError
from gpuvigil.log import Log
from gpuvigil.trust import load_pair

_LOG = Log("hub")

_Stamp = tuple[tuple[int, int, int] | None, ...]


class ServerTls:
    """The context of every connection; `renew` takes in files that were replaced."""

    def __init__(self, settings: HubSettings) -> None:
        """ConfigError when a file cannot be used."""
        assert settings.tls_certificate_file is not None
        self._certificate = settings.tls_certificate_file
        self._key = settings.tls_key_file
        self._client_ca = settings.tls_client_ca_file
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._client_ca is not None:
            self.context.verify_mode = ssl.CERT_REQUIRED
        self._stamp = self._state()
        self._load()

    def renew(self) -> None:
        """Read the files again when they have changed; connections that stand are left alone."""
        stamp = self._state()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._load()
        except ConfigError as error:
            # In the middle of a renewal: the old pair holds until both are there.
            _LOG.warning("certificate kept", reason=str(error))
        else:
            _LOG.info("certificate renewed")

    def _load(self) -> None:
        # Tried elsewhere first: of a pair that does not fit the live context would keep one half.
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(trial, self._certificate, self._key, "hub.tls_certificate_file")
        load_pair(self.context, self._certificate, self._key, "hub.tls_certificate_file")
        if self._client_ca is not None:
            try:
                self.context.load_verify_locations(self._client_ca)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(
                    f"hub.tls_client_ca_file: {self._client_ca} cannot be used:"
                    f" {error.strerror or error}"
                ) from None

    def _state(self) -> _Stamp:
        files = (self._certificate, self._key, self._client_ca)
        return tuple(None if file is None else _stamp(file) for file in files)


def server_tls(settings: HubSettings) -> ServerTls | None:
    """None when the hub speaks plain HTTP; ConfigError for settings that make no sense together."""
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
