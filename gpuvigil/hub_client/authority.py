"""The CA that signed the hub's certificate, for a machine that knows only its pin.

The pin is the SHA-256 of the CA's certificate, as `openssl x509 -fingerprint -sha256` prints it.
"""

import hashlib
import re
import ssl

from ..errors import ConfigError

PATH = "/ca.pem"
"""Where the hub serves its CA certificate to everybody: nobody has to trust it without the pin."""

_SEQUENCE = b"\x30"  # the first byte of a certificate in DER
_PIN = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.IGNORECASE)
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def certificate_in(text: str) -> str | None:
    """Return the first certificate of a text in PEM; None when there is none that can be read."""
    found = _CERTIFICATE.search(text)
    if found is None:
        return None
    try:
        content = ssl.PEM_cert_to_DER_cert(found[0])
    except ValueError:  # binascii.Error is a ValueError
        return None
    return f"{found[0]}\n" if content[:1] == _SEQUENCE else None


def pin_of(certificate: str) -> str:
    """Return the pin of a certificate in PEM."""
    return f"sha256:{hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()}"


def as_pin(text: str) -> str:
    """Return a typed pin in canonical form, with or without colons; raise ConfigError for an invalid one."""
    found = _PIN.fullmatch(text.strip().replace(":", "").replace("sha256", "sha256:"))
    if found is None:
        raise ConfigError(f"{text!r} is not a pin like sha256: and 64 hexadecimal digits")
    return f"sha256:{found[1].lower()}"
