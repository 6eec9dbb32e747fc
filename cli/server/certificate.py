"""The hub's certificate if a site brings none: openssl makes a CA and a certificate that the CA signs.

Nodes trust the CA, so the certificate can be renewed without touching them.
"""

import ipaddress
import os
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpuvigil.errors import GpuvigilError

CA_DAYS, DAYS = 3650, 825
_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
_SECONDS = 30
_OWN = ("localhost", "127.0.0.1", "::1")


def names(given: Iterable[str]) -> list[str]:
    """Return all names and addresses by which clients may reach this machine, each once."""
    host = socket.gethostname()
    return list(dict.fromkeys([*given, host, socket.getfqdn(), *_addresses(), *_OWN]))


def _addresses() -> list[str]:
    try:
        done = subprocess.run(
            ["hostname", "-I"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split()


def alternative(name: str) -> str:
    """Return a name or address as a certificate's subjectAltName (RFC 5280)."""
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


def make_authority(certificate: Path, key: Path, host: str) -> None:
    """Make a new CA whose key only root can read."""
    with _drafts(certificate.parent) as folder:
        made, own = Path(folder) / "ca.pem", Path(folder) / "ca.key"
        _openssl(
            [
                "req",
                "-x509",
                *_KEY,
                "-days",
                str(CA_DAYS),
                "-subj",
                f"/CN=gpuvigil CA of {host[:40]}",
            ],
            ["-addext", "basicConstraints=critical,CA:TRUE,pathlen:0"],
            ["-addext", "keyUsage=critical,keyCertSign,cRLSign"],
            ["-keyout", str(own), "-out", str(made)],
        )
        made.chmod(0o644)
        own.replace(key)
        made.replace(certificate)


def make_certificate(
    certificate: Path, key: Path, signer: tuple[Path, Path], of: Sequence[str]
) -> None:
    """Make a key and a certificate for the names `of`, signed by the CA; replace both files at once."""
    with _drafts(certificate.parent) as folder:
        place = Path(folder)
        made, own, asked, more = (place / it for it in ("hub.pem", "hub.key", "hub.csr", "hub.ext"))
        more.write_text(
            f"subjectAltName={','.join(alternative(name) for name in of)}\n"
            "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
            "extendedKeyUsage=serverAuth\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n",
            encoding="ascii",
        )
        _openssl(
            ["req", *_KEY, "-subj", f"/CN={of[0][:60]}", "-keyout", str(own), "-out", str(asked)]
        )
        authority, its_key = signer
        _openssl(
            ["x509", "-req", "-in", str(asked), "-CA", str(authority), "-CAkey", str(its_key)],
            ["-set_serial", f"0x{secrets.token_hex(16)}", "-days", str(DAYS)],
            ["-extfile", str(more), "-out", str(made)],
        )
        made.chmod(0o644)
        own.replace(key)
        made.replace(certificate)


def _drafts(beside: Path) -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix=".certificate-", dir=beside)


def _openssl(*words: Sequence[str]) -> None:
    command = ["openssl", *(word for part in words for word in part)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise GpuvigilError("there is no openssl to make a certificate with: install it") from None
    except subprocess.TimeoutExpired:
        raise GpuvigilError("openssl does not end: is there too little entropy?") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise GpuvigilError(f"openssl {command[1]}: {last}")
