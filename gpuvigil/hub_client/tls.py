"""TLS for clients of the hub: the trusted server certificates, and the client certificate."""

import http.client
import ssl
from dataclasses import dataclass
from pathlib import Path

from ..config.settings import HubSettings
from ..errors import ConfigError

_NO_KEY = "hub.client_key_file goes with hub.client_certificate_file"


# By OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
_TODO = {
    9: "set this machine's clock: timedatectl shows it",
    10: "'gpuvigil server renew' on the hub renews one of its own CA; or this machine's clock is ahead",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """PEM files for TLS; without `ca_file` the system's CAs are trusted."""

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    def context(self, section: str = "hub") -> ssl.SSLContext:
        """Return the SSL context for a new connection; files are read again, so a renewed one counts at once.

        `section` names the settings' section. ConfigError when a file cannot be read or is not
        valid.
        """
        if self.key_file is not None and self.certificate_file is None:
            raise ConfigError(_NO_KEY)
        try:
            found = ssl.create_default_context(cafile=_text(self.ca_file))
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{section}.ca_file: {_error_text(self.ca_file, error)}") from None
        if self.certificate_file is not None:
            load_pair(found, self.certificate_file, self.key_file, "hub.client_certificate_file")
        return found

    def doubt(self, scheme: str) -> str:
        """Return a likely reason why a hub closed a connection without a word."""
        if scheme != "https":
            return "it speaks TLS: then hub.url must begin with https://"
        if self.certificate_file is None:
            return "it wants to see a certificate: set hub.client_certificate_file"
        return f"it does not accept the certificate in {self.certificate_file}"


def trust(settings: HubSettings) -> Trust:
    """Return the configured trust; raise ConfigError at once when a file cannot be used."""
    found = Trust(
        ca_file=settings.ca_file,
        certificate_file=settings.client_certificate_file,
        key_file=settings.client_key_file,
    )
    if "https:" in settings.url:
        found.context()
    return found


def load_pair(context: ssl.SSLContext, certificate: Path, key: Path | None, setting: str) -> None:
    """Load a certificate and its key into `context`; ConfigError names `setting`."""
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{setting}: {_error_text(certificate, error)}") from None


def reason(error: Exception) -> str | None:
    """Return what a failed connection says about TLS, and what to do; None when TLS is not the cause."""
    if isinstance(error, ssl.SSLCertVerificationError):
        todo = _TODO.get(error.verify_code, "hub.ca_file names the CA that is")
        return f"its certificate is not trusted: {error.verify_message.rstrip('.')}; {todo}"
    if isinstance(error, http.client.BadStatusLine) and error.args[0].startswith("\x15\x03"):
        return "it speaks TLS there; hub.url must begin with https://"
    return _alert(error.reason or str(error)) if isinstance(error, ssl.SSLError) else None


def _alert(text: str) -> str:
    """Explain OpenSSL's name of an error to whoever set the hub's address."""
    if text in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"}:
        return "it does not speak TLS there; hub.url must begin with http://"
    if "CERTIFICATE_REQUIRED" in text or "HANDSHAKE_FAILURE" in text:
        return "it wants to see a certificate: set hub.client_certificate_file"
    words = text.lower().replace("_", " ")
    if "alert" in words and ("unknown ca" in words or "certificate" in words):
        return f"it does not accept our certificate ({words})"
    return f"TLS failed: {words}"


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _error_text(path: Path | None, error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        why = (error.reason or "no PEM in it").lower().replace("_", " ")
        return f"{path} cannot be used: {why}"
    return f"cannot read {path}: {error.strerror}"
