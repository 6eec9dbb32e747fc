"""Which hub a node believes: by a pin, by a CA, by the system; and that the token is sent to no other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.server.certificate import make_authority, make_certificate
from collector.join.trusted_hub import Asked, address, check_known, inventory, pinned
from gpuvigil.errors import ConfigError, GpuvigilError, HubUnavailable
from gpuvigil.hub_client.authority import PATH, as_pin, certificate_in, pin_of
from gpuvigil.model import Subject
from tests.hub.in_process import HubThread
from tests.hub.test_tls import TlsHub

NODE = Subject(cluster="main", node="gpu-1")
DIGITS = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("hub1", "https://hub1:8428"),
        ("hub1:9", "https://hub1:9"),
        ("https://hub1/", "https://hub1:8428"),
        ("http://10.0.0.1:8428", "http://10.0.0.1:8428"),
        ("https://[fd00::1]", "https://[fd00::1]:8428"),
    ],
)
def test_a_name_is_enough_of_an_address(given: str, meant: str) -> None:
    assert address(given) == meant


@pytest.mark.parametrize("given", ["", "https://", "hub1:port", "https://me@hub1", "hub1/path"])
def test_what_is_no_address_is_told(given: str) -> None:
    with pytest.raises(ConfigError, match="is not an address like hub1"):
        address(given)


def test_a_pin_has_64_digits_with_colons_or_without() -> None:
    colons = ":".join(DIGITS[at : at + 2] for at in range(0, 64, 2)).upper()
    for text in (DIGITS, f"sha256:{DIGITS}", colons, f"sha256:{colons}", f" {DIGITS}\n"):
        assert as_pin(text) == f"sha256:{DIGITS}"
    for text in (DIGITS[:-1], f"{DIGITS}0", "g" * 64, "", f"sha1:{DIGITS}"):
        with pytest.raises(ConfigError, match="is not a pin like"):
            as_pin(text)


def test_a_text_without_a_certificate_has_none() -> None:
    assert certificate_in("") is None
    assert certificate_in("-----BEGIN CERTIFICATE-----\n\n!\n-----END CERTIFICATE-----") is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    make_authority(made / "ca.pem", made / "ca.key", "hub1")
    signer = (made / "ca.pem", made / "ca.key")
    make_certificate(made / "hub.pem", made / "hub.key", signer, ["127.0.0.1", "localhost"])
    return made


class SecureHub(HubThread, TlsHub):
    """A hub that speaks HTTPS alone, in this process."""


@pytest.fixture(scope="module")
def hub(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureHub]:
    files = {"tls_certificate_file": "hub.pem", "tls_key_file": "hub.key", "ca_file": "ca.pem"}
    settings = {key: folder / name for key, name in files.items()}
    running = SecureHub(tmp_path_factory.mktemp("hub"), folder / "ca.pem", settings)
    with running:
        yield running


@pytest.mark.server
def test_the_pin_of_the_hubs_ca_is_enough_to_ask_with_the_token(
    hub: SecureHub, folder: Path
) -> None:
    authority = (folder / "ca.pem").read_text()
    shown = pinned(hub.url, pin_of(authority))
    assert shown == authority
    token = hub.collector_token
    assert inventory(Asked(url=hub.url, token=token, authority=shown), NODE) is None
    with pytest.raises(GpuvigilError, match=r"token is missing or wrong.*gpuvigil server init"):
        inventory(Asked(url=hub.url, token="other", authority=shown), NODE)
    with pytest.raises(HubUnavailable, match="its certificate is not trusted"):
        inventory(Asked(url=hub.url, token=token, authority=None), NODE)


@pytest.mark.server
def test_without_a_pin_an_unknown_ca_comes_with_what_to_add(
    hub: SecureHub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GpuvigilError, match=r"nobody whom this machine trusts .* --pin sha256:"):
        check_known(hub.url)
    with pytest.raises(GpuvigilError, match=r"no hub answers at https://127\.0\.0\.1:1"):
        check_known("https://127.0.0.1:1")
    check_known("http://127.0.0.1:1")
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.pem"))
    check_known(hub.url)


@pytest.mark.server
def test_another_pin_is_refused_with_what_the_hub_has(hub: SecureHub, folder: Path) -> None:
    have = pin_of((folder / "ca.pem").read_text())
    with pytest.raises(GpuvigilError, match=f"is not the one of the pin: it has {have}"):
        pinned(hub.url, DIGITS)


@pytest.mark.server
def test_who_shows_the_right_ca_and_has_not_its_key_gets_no_token(
    folder: Path, tmp_path: Path
) -> None:
    """One that stands in between can show the CA's certificate, as anybody can, and no more."""
    make_authority(tmp_path / "ca.pem", tmp_path / "ca.key", "hub1")
    signer = (tmp_path / "ca.pem", tmp_path / "ca.key")
    make_certificate(tmp_path / "hub.pem", tmp_path / "hub.key", signer, ["127.0.0.1"])
    settings = {
        "tls_certificate_file": tmp_path / "hub.pem",
        "tls_key_file": tmp_path / "hub.key",
        "ca_file": folder / "ca.pem",  # the other's
    }
    with SecureHub(tmp_path / "hub", tmp_path / "ca.pem", settings) as between:
        shown = pinned(between.url, pin_of((folder / "ca.pem").read_text()))
        asked = Asked(url=between.url, token=between.collector_token, authority=shown)
        with pytest.raises(HubUnavailable, match="its certificate is not trusted"):
            inventory(asked, NODE)


@pytest.mark.server
def test_a_hub_without_a_certificate_has_none_to_show(tmp_path: Path) -> None:
    with HubThread(tmp_path) as plain:
        with pytest.raises(ConfigError, match="--pin goes with an https address"):
            pinned(plain.url, DIGITS)
        with pytest.raises(GpuvigilError, match="no certificate of its own to show"):
            plain.hub().request("GET", PATH)
    with pytest.raises(GpuvigilError, match=r"no hub answers at .* does a firewall let port"):
        pinned(plain.url.replace("http:", "https:"), DIGITS)
