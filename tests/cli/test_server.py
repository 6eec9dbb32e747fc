"""What `gpuvigil server init` makes, and that it keeps what is there."""

import shlex
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cli.server.certificate import alternative, names
from cli.server.server_command import join_line
from cli.server.site_files import Site, pin, prepare, renew
from gpuvigil.config import load, read_secret
from gpuvigil.errors import ConfigError


@pytest.fixture
def site(tmp_path: Path, needs: Callable[[str, str], str]) -> Site:
    needs("openssl", "apt-get install openssl")
    return Site(
        directory=tmp_path / "etc",
        state=tmp_path / "state",
        names=["hub1", "10.0.0.1", "127.0.0.1"],
        cluster="prod",
        external_url="https://gpus.example.com",
        receivers={"webhook": "https://example.com/hook"},
        group=None,
    )


def test_a_first_init_makes_all_that_the_services_read(site: Site) -> None:
    config, said = prepare(site)
    assert {line.split()[0] for line in said} == {"written"}
    assert load(site.directory / "gpuvigil.toml", {}) == config
    assert config.collector.cluster == "prod"
    assert config.alerts.external_url == "https://gpus.example.com"
    (webhook,) = config.alerts.webhooks
    assert webhook.url_file is not None
    assert read_secret(webhook.url_file, "url") == "https://example.com/hook"
    tokens = [config.hub.service_token_file, config.hub.collector_token_file]
    assert len({read_secret(file, "token") for file in tokens if file}) == 2
    for name in ("service-token", "collector-token", "webhook-url", "ca.key", "hub.key"):
        assert (site.directory / name).stat().st_mode & 0o777 == 0o600, name
    words = shlex.split(join_line(config, "hub1"))
    assert words[:3] == ["gpuvigil", "join", "https://hub1:8428"]
    assert words[words.index("--pin") + 1] == pin(config)


def test_the_certificate_is_for_all_names_and_of_its_ca(site: Site) -> None:
    config, _ = prepare(site)
    assert config.hub.tls_certificate_file is not None
    command = ["openssl", "verify", "-x509_strict", "-CAfile", str(config.hub.ca_file)]
    for kind, name in (("hostname", "hub1"), ("ip", "10.0.0.1")):
        given = [f"-verify_{kind}", name, "-purpose", "sslserver"]
        subprocess.run([*command, *given, str(config.hub.tls_certificate_file)], check=True)
    shown = ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", str(config.hub.ca_file)]
    digits = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    known = pin(config)
    assert known is not None
    assert digits.strip().rpartition("=")[2].replace(":", "").lower() == known[7:]


def test_a_second_init_keeps_everything(site: Site) -> None:
    before, _ = prepare(site)
    texts = {file.name: file.read_bytes() for file in site.directory.iterdir()}
    again, said = prepare(replace(site, receivers={}, cluster="other", names=["hub2"]))
    assert {line.split()[0] for line in said} == {"kept"}
    assert again == before
    assert {file.name: file.read_bytes() for file in site.directory.iterdir()} == texts
    with pytest.raises(ConfigError, match="is there already and is kept: put"):
        prepare(site)


def test_what_is_missing_of_a_sites_own_configuration_is_made(site: Site) -> None:
    site.directory.mkdir()
    file = site.directory / "gpuvigil.toml"
    file.write_text('[hub]\nservice_token_file = "a"\ncollector_token_file = "b"\n')
    config, said = prepare(replace(site, receivers={}))
    assert [line.split()[0] for line in said] == ["kept", "written", "written"]
    assert pin(config) is None
    assert join_line(config, "fd00::1").startswith(
        "gpuvigil join 'http://[fd00::1]:8428' --cluster"
    )
    with pytest.raises(ConfigError, match=r"there is no .*ca\.key"):
        renew(site, config)


def test_a_renewed_certificate_is_another_one_of_the_same_ca(site: Site) -> None:
    config, _ = prepare(site)
    assert config.hub.tls_certificate_file is not None
    before, known = config.hub.tls_certificate_file.read_bytes(), pin(config)
    renew(site, config)
    assert config.hub.tls_certificate_file.read_bytes() != before
    assert pin(config) == known
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(config.hub.tls_certificate_file, config.hub.tls_key_file)


def test_a_certificate_brought_by_the_site_is_not_replaced(site: Site) -> None:
    prepare(site)
    (site.directory / "ca.key").unlink()
    (site.directory / "hub.pem").unlink()
    with pytest.raises(ConfigError, match=r"ca\.pem is there without .*ca\.key: bring"):
        prepare(replace(site, receivers={}))


def test_names_of_this_machine_stand_once_each_the_given_first() -> None:
    found = names(["hub1", "127.0.0.1"])
    assert found[:2] == ["hub1", "127.0.0.1"]
    assert len(set(found)) == len(found)
    assert {"localhost", "::1"} <= set(found)
    assert (alternative("hub1"), alternative("::1")) == ("DNS:hub1", "IP:::1")
