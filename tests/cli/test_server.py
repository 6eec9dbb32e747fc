"""What `gpuvigil server init` makes, and that it keeps what is there."""

import resource
import shlex
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cli.server.certificate import alternative, names
from cli.server.firewall import opening
from cli.server.places import check_place
from cli.server.server_command import alerts_summary, join_line
from cli.server.services import check_port
from cli.server.site_files import Site, check_settings, pin, prepare, renew
from gpuvigil.config import load, read_secret
from gpuvigil.errors import ConfigError, GpuvigilError


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
    # The same command once more, as after a first try that failed later on.
    assert prepare(site)[1][0] == f"kept     {site.directory / 'webhook-url'}"
    for receivers in (
        {"webhook": "https://example.com/other"},
        {"slack": "https://example.com/hook"},
    ):
        with pytest.raises(ConfigError, match="is there already and is kept: put"):
            prepare(replace(site, receivers=receivers))
    assert {file.name: file.read_bytes() for file in site.directory.iterdir()} == texts


@pytest.mark.parametrize(
    ("option", "same", "other", "key"),
    [
        ("cluster", "prod", "dev", "collector.cluster"),
        ("external-url", "https://gpus.example.com", "https://a.example", "alerts.external_url"),
        ("port", 8428, 8429, "hub.port"),
        ("proxy", None, "http://proxy.example.com:3128", "proxy of your channels"),
    ],
)
def test_what_a_kept_configuration_would_not_take_in_is_refused(
    site: Site, option: str, same: object, other: object, key: str
) -> None:
    file = site.directory / "gpuvigil.toml"
    check_settings(file, {option: other})
    prepare(site)
    check_settings(file, {option: same})
    with pytest.raises(ConfigError, match=rf"set {key}.* leave out --{option}"):
        check_settings(file, {option: other})


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("foo", "is not an address like"),
        ("https://", "is not an address like"),
        ("ftp://example.com/a", "is not an address like"),
        ("http://10.1.2.3/secret", "allow_http = true"),
    ],
)
def test_a_wrong_receiver_is_refused_before_anything_is_written(
    site: Site, url: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        prepare(replace(site, receivers={"webhook": url}))
    assert "secret" not in str(raised.value)
    assert not site.directory.exists()


def test_another_port_and_a_proxy_are_in_the_configuration(site: Site) -> None:
    proxy = "http://proxy.example.com:3128"
    slack = {
        "webhook": "http://127.0.0.1:9000/hook",
        "slack": "https://hooks.slack.com/services/T/B/x",
    }
    config, _ = prepare(replace(site, port=8430, proxy=proxy, receivers=slack))
    assert (config.hub.port, config.hub.url) == (8430, "https://127.0.0.1:8430")
    assert [one.proxy for one in (*config.alerts.webhooks, *config.alerts.slack)] == [proxy, proxy]
    assert shlex.split(join_line(config, "hub1"))[2] == "https://hub1:8430"
    assert [line.split()[-1] for line in alerts_summary(config).splitlines()[1:]] == [
        "webhook",
        "slack",
    ]
    check_settings(site.directory / "gpuvigil.toml", {"proxy": proxy, "port": 8430})
    with pytest.raises(ConfigError, match=r"--proxy: .*proxy\.example\.com:3128"):
        prepare(replace(site, proxy="proxy:3128"))
    with pytest.raises(ConfigError, match="goes with"):
        prepare(replace(site, proxy=proxy, receivers={}))


def test_a_taken_port_is_told_and_a_free_one_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} .*Address already in use.*--port"):
            check_port(port)
    check_port(port)


def test_a_place_that_cannot_take_a_site_is_refused_in_one_line(tmp_path: Path) -> None:
    check_place(tmp_path / "new" / "deeper")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place, least_bytes, why in (
        ("file", 0, "file is not a directory"),
        ("file/deeper", 0, "file is not a directory, and .*deeper has to be one"),
        ("link", 0, "leads nowhere"),
        ("new", 2**60, "MB free, and at least 1,152,921,504,607 MB are needed"),
    ):
        with pytest.raises(ConfigError, match=why) as raised:
            check_place(tmp_path / place, least_bytes)
        assert "\n" not in str(raised.value)


def test_a_full_disk_leaves_no_half_of_a_file(site: Site) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    # The kernel ends a write there as it does on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        with pytest.raises(GpuvigilError, match=r"cannot write .*/webhook-url: File too large"):
            prepare(site)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert list(site.directory.iterdir()) == []


def test_nobody_to_tell_is_said(site: Site) -> None:
    assert alerts_summary(prepare(replace(site, receivers={}))[0]).startswith(
        "Nobody is notified of incidents"
    )


@pytest.mark.parametrize(
    ("program", "answers", "opens"),
    [
        ("firewall-cmd", {"--state": (0, "running"), "--query-port=8428/tcp": (1, "no")}, True),
        ("firewall-cmd", {"--state": (0, "running"), "--query-port=8428/tcp": (0, "yes")}, False),
        ("firewall-cmd", {"--state": (252, "not running")}, False),
        ("ufw", {"status": (0, "Status: active\n\nTo  Action From\n22/tcp ALLOW Anywhere")}, True),
        (
            "ufw",
            {"status": (0, "Status: active\n\nTo  Action From\n8428/tcp ALLOW 10.0.0.0/8")},
            False,
        ),
        ("ufw", {"status": (0, "Status: inactive")}, False),
        ("nft", {}, False),
    ],
)
def test_a_firewall_that_is_on_and_closed_comes_with_the_command_that_opens_it(
    program: str, answers: Mapping[str, tuple[int, str]], opens: bool
) -> None:
    said = opening(
        8428, lambda words: answers[words[1]], lambda name: name if name == program else None
    )
    assert bool(said) is opens
    assert said.startswith(f"{program} " if opens else "")


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
