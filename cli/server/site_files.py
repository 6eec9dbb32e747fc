"""The files that `gpuvigil server init` writes into /etc/gpuvigil if they are missing."""

import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuvigil.config import Config, PostSettings, load, web_parts
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.hub_client.authority import certificate_in, pin_of

from .certificate import make_authority, make_certificate

CONFIGURATION = "gpuvigil.toml"
RECEIVERS = {"webhook": "webhooks", "slack": "slack"}
PORT = 8428


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a person chose; `group` is the services' group ID, None if files keep the caller's group."""

    directory: Path
    state: Path
    names: Sequence[str]
    """The hub's names; the first is the one that nodes use."""
    cluster: str
    external_url: str
    receivers: Mapping[str, str]
    """Webhook addresses, by kind of receiver."""
    group: int | None
    port: int = PORT
    proxy: str = ""
    """HTTP proxy on the way to the receivers."""


def configuration(site: Site) -> str:
    """Return the text of `gpuvigil.toml`."""
    etc, state = site.directory, site.state
    hub: dict[str, object] = {
        # The loopback address is in the certificate, so this machine need not resolve any name.
        "url": f"https://127.0.0.1:{site.port}",
        "listen": "0.0.0.0",
        **({} if site.port == PORT else {"port": site.port}),
        "service_token_file": etc / "service-token",
        "collector_token_file": etc / "collector-token",
        "tls_certificate_file": etc / "hub.pem",
        "tls_key_file": etc / "hub.key",
        "ca_file": etc / "ca.pem",
        "data_directory": state / "hub",
    }
    parts = [
        "# Written by gpuvigil server init, which leaves it alone from now on. Other settings: docs/settings.md.",
        _table("[hub]", hub),
        _table("[collector]", {"cluster": site.cluster}),
        _table("[dashboard]", {"secrets_directory": state / "secrets"}),
    ]
    if site.external_url:
        parts.append(_table("[alerts]", {"external_url": site.external_url}))
    for kind in site.receivers:
        given = {"name": kind, "url_file": etc / f"{kind}-url"}
        given |= {"proxy": site.proxy} if site.proxy else {}
        parts.append(_table(f"[[alerts.{RECEIVERS[kind]}]]", given))
    return "\n".join(parts)


def _table(header: str, values: Mapping[str, object]) -> str:
    # A JSON string is also a TOML string.
    texts = {key: it if isinstance(it, int) else str(it) for key, it in values.items()}
    return "\n".join([header, *(f"{key} = {json.dumps(it)}" for key, it in texts.items()), ""])


def prepare(site: Site) -> tuple[Config, list[str]]:
    """Make the missing files; return the configuration in force, and a line per file on what was done.

    An existing configuration is kept; files that it names are made if they are missing. What was
    chosen and is not in it is a ConfigError, before anything is written.
    """
    file = site.directory / CONFIGURATION
    _check_receivers(site)
    if file.exists():
        _check_kept(site, file)
    try:
        site.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        said = [_private(site, f"{kind}-url", url) for kind, url in site.receivers.items()]
        said.append(_configured(site, file))
        config = load(file, {})
        for token in (config.hub.service_token_file, config.hub.collector_token_file):
            if token is not None:
                said.append(_private(site, str(token), secrets.token_hex(32)))
        said += _certified(site, config)
    except OSError as error:
        raise GpuvigilError(f"cannot write {error.filename}: {error.strerror}") from None
    return config, said


def _check_receivers(site: Site) -> None:
    """Raise ConfigError for an address to which alerts would not post, without quoting its path."""
    for kind, url in site.receivers.items():
        parts = web_parts(url)
        if parts is None:
            raise ConfigError(f"--{kind} is not an address like https://example.com/hook")
        local = parts.hostname in {"localhost", "127.0.0.1", "::1"}
        if parts.scheme == "http" and not local:
            raise ConfigError(
                f"--{kind} is http, which anybody on the way to {parts.hostname} can read: give an https address, or leave"
                f" it away and put [[alerts.{RECEIVERS[kind]}]] with allow_http = true into"
                f" {site.directory / CONFIGURATION} afterwards"
            )
    if site.proxy and not site.receivers:
        raise ConfigError("--proxy goes with --webhook or --slack")
    for key, why in PostSettings(name="site", url="-", proxy=site.proxy).wrong():
        raise ConfigError(f"--{key}: {why}")


def _check_kept(site: Site, file: Path) -> None:
    for kind, url in site.receivers.items():
        try:
            known = (site.directory / f"{kind}-url").read_text(encoding="utf-8").strip()
        except OSError:
            known = ""
        if known != url:
            raise ConfigError(
                f"{file} is there already and is kept: put [[alerts.{RECEIVERS[kind]}]] into it yourself"
                f" (docs/alerts.md), and leave out --{kind}"
            )


def check_settings(file: Path, given: Mapping[str, object]) -> None:
    """Raise ConfigError if an existing configuration, which is kept, says other than what was given.

    `given` holds values by the option's name, None where it was left out.
    """
    if not file.exists():
        return
    config = load(file, {})
    channels = (*config.alerts.webhooks, *config.alerts.slack)
    proxies = {one.proxy for one in channels}
    there: dict[str, tuple[str, object]] = {
        "cluster": ("collector.cluster", config.collector.cluster),
        "external-url": ("alerts.external_url", config.alerts.external_url),
        "port": ("hub.port and the port in hub.url", config.hub.port),
        "proxy": (
            "proxy of your channels",
            given.get("proxy") if given.get("proxy") in proxies else "",
        ),
    }
    for option, (key, value) in there.items():
        if given.get(option) not in {None, value}:
            raise ConfigError(
                f"{file} is there already and is kept: set {key} there yourself, and leave"
                f" out --{option}"
            )


def _configured(site: Site, file: Path) -> str:
    if file.exists():
        return f"kept     {file}"
    _write(file, configuration(site), 0o644, None)
    return f"written  {file}"


def _private(site: Site, name: str, text: str) -> str:
    """Write a secret that only root and the services can read, unless the file exists."""
    file = site.directory / name
    if file.exists():
        return f"kept     {file}"
    _write(file, f"{text}\n", 0o600 if site.group is None else 0o640, site.group)
    return f"written  {file}"


def _write(file: Path, text: str, mode: int, group: int | None) -> None:
    draft = file.with_name(f".{file.name}.new")
    draft.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(text)
            if group is not None:
                os.fchown(stream.fileno(), -1, group)
            os.fchmod(stream.fileno(), mode)
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        # A full disk is told of without the file's name.
        raise OSError(error.errno, error.strerror, str(file)) from None


def _certified(site: Site, config: Config) -> list[str]:
    """Make the hub's certificate if the configuration names one and the file is missing."""
    certificate = config.hub.tls_certificate_file
    if certificate is None:
        return []
    if certificate.exists():
        return [f"kept     {certificate}"]
    return _renewed(site, config)


def renew(site: Site, config: Config) -> list[str]:
    """Renew the hub's certificate by the CA that nodes already trust; the hub reloads it by itself."""
    if not (site.directory / "ca.key").exists():
        raise ConfigError(
            f"there is no {site.directory / 'ca.key'}: the certificate was not made here, and who has"
            " signed it renews it"
        )
    try:
        return _renewed(site, config)
    except OSError as error:
        raise GpuvigilError(f"cannot write {error.filename}: {error.strerror}") from None


def _renewed(site: Site, config: Config) -> list[str]:
    certificate, authority = config.hub.tls_certificate_file, config.hub.ca_file
    if certificate is None or authority is None:
        raise ConfigError(
            "hub.tls_certificate_file and hub.ca_file name no files: bring a certificate, or name"
            " where one is to be made"
        )
    key, ca_key = config.hub.tls_key_file or certificate, site.directory / "ca.key"
    if key == certificate:
        raise ConfigError("hub.tls_key_file names no file for the certificate's key")
    said = []
    if not ca_key.exists():
        if authority.exists():
            raise ConfigError(
                f"{authority} is there without {ca_key}: bring {certificate} yourself"
            )
        make_authority(authority, ca_key, site.names[0])
        said.append(f"written  {authority}")
    make_certificate(certificate, key, (authority, ca_key), site.names)
    if site.group is not None:
        shutil.chown(key, group=site.group)
        key.chmod(0o640)
    return [*said, f"written  {certificate}"]


def pin(config: Config) -> str | None:
    """Return the CA's pin for nodes; None if there is no TLS or the nodes' system knows the CA."""
    authority = config.hub.ca_file
    if authority is None or config.hub.tls_certificate_file is None:
        return None
    try:
        found = certificate_in(authority.read_text(encoding="utf-8"))
    except OSError as error:
        raise GpuvigilError(f"cannot read {authority}: {error.strerror}") from None
    return None if found is None else pin_of(found)
