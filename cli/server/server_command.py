"""`gpuvigil server`: set up hub, analyzer, alerts and dashboard on this machine as systemd units."""

import argparse
import grp
import os
import shlex
import socket
from collections.abc import Sequence
from pathlib import Path

from gpuvigil.config import Config, load, read_secret
from gpuvigil.config.startup import fail, parser
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.state_directory import SITE_CONFIG

from . import services
from .certificate import names
from .firewall import opening
from .places import check_place
from .site_files import PORT, Site, check_settings, pin, prepare, renew

USER = "gpuvigil-hub"
_CLUSTER = "main"
# Options of which a second init changes nothing.
_KEPT = ("cluster", "external-url", "port", "proxy")
STATE = Path("/var/lib/gpuvigil-hub")


def main(arguments: Sequence[str]) -> int:
    """Set up the services, or renew the hub's certificate; return the exit code."""
    options = _options()
    chosen = options.parse_args(arguments)
    try:
        _check_caller(chosen.config)
        chosen.act(chosen)
    except GpuvigilError as error:
        return fail(options.prog, error)
    return 0


def _check_caller(config: Path | None) -> None:
    if os.geteuid() != 0:
        raise GpuvigilError("only root may do this: put sudo before it")
    if config not in {None, SITE_CONFIG}:
        raise ConfigError(f"the units read {SITE_CONFIG}, and so does this: leave out --config")


def _options() -> argparse.ArgumentParser:
    options = parser("server", "Set up hub, analyzer, alerts and dashboard on this machine.")
    verbs = options.add_subparsers(dest="verb", required=True, metavar="VERB")
    init = verbs.add_parser(
        "init",
        help="create what is missing, start the services, print a sign-in link and the line for nodes",
        description="Makes the configuration, tokens and a certificate where there are none, starts the"
        " services now and at every boot, and prints a sign-in link and the line that joins a node."
        " What is there is kept; it can be run again.",
    )
    init.add_argument("--cluster", help="name of the nodes' cluster; default: main")
    init.add_argument(
        "--webhook", default="", metavar="URL", help="where messages about incidents go"
    )
    init.add_argument("--slack", default="", metavar="URL", help="a Slack webhook for them")
    init.add_argument("--proxy", metavar="URL", help="HTTP proxy for --webhook and --slack")
    init.add_argument(
        "--external-url", metavar="URL", help="address at which people reach the dashboard"
    )
    init.add_argument("--port", type=int, help=f"the hub's port; {PORT}, if left out")
    init.set_defaults(act=_init)
    renewal = verbs.add_parser(
        "renew",
        help="renew the hub's certificate by its own CA; nodes need no change",
        description="Renews the hub's certificate by the CA that init made. The hub loads it by itself;"
        " nodes trust the CA and need no change.",
    )
    renewal.set_defaults(act=_renew)
    for verb in (init, renewal):
        verb.add_argument(
            "--name",
            action="append",
            default=[],
            help="name or address by which nodes reach the hub; repeatable",
        )
    return options


def _site(chosen: argparse.Namespace) -> Site:
    given = {kind: getattr(chosen, kind, "") for kind in ("webhook", "slack")}
    return Site(
        directory=SITE_CONFIG.parent,
        state=STATE,
        names=names(chosen.name),
        cluster=getattr(chosen, "cluster", None) or _CLUSTER,
        external_url=getattr(chosen, "external_url", None) or "",
        receivers={kind: url for kind, url in given.items() if url},
        group=grp.getgrnam(USER).gr_gid,
        port=getattr(chosen, "port", None) or PORT,
        proxy=getattr(chosen, "proxy", None) or "",
    )


def _init(chosen: argparse.Namespace) -> None:
    services.check()
    _check_user()
    site = _site(chosen)
    for folder in (SITE_CONFIG.parent, STATE):
        check_place(folder)
    check_settings(SITE_CONFIG, {one: getattr(chosen, one.replace("-", "_")) for one in _KEPT})
    if not SITE_CONFIG.exists():
        services.check_port(site.port)
    config, said = prepare(site)
    print("\n".join(said), flush=True)
    services.start()
    services.wait_until_ready(config)
    print(f"started  {', '.join(services.SERVICES)}, now and at every boot\n")
    print(f"Sign in, once, within a day:\n  {services.sign_in_link()}")
    listen = config.dashboard.listen
    if listen in {"127.0.0.1", "::1", "localhost"}:
        port, host = config.dashboard.port, socket.gethostname()
        print(
            f"The dashboard listens on this machine alone. From elsewhere, first:\n  ssh -L {port}:127.0.0.1:{port} {host}"
        )
    print(f"\n{alerts_summary(config)}")
    if opens := opening(config.hub.port):
        print(f"\nThis machine's firewall keeps nodes out until:\n  {opens}")
    print(
        f"\nOn each node, once gpuvigil-collector is installed there:\n  {join_line(config, site.names[0])}"
    )


def _renew(chosen: argparse.Namespace) -> None:
    _check_user()
    print("\n".join(renew(_site(chosen), load(SITE_CONFIG, {}))))


def _check_user() -> None:
    if not services.is_known(USER):
        raise GpuvigilError(f"there is no user {USER}: install the package gpuvigil-server first")


def alerts_summary(config: Config) -> str:
    """Return who is told of incidents, and how to try it."""
    channels = config.alerts.names()
    if not channels:
        return f"Nobody is notified of incidents yet: put a channel into {SITE_CONFIG} (docs/alerts.md)"
    return "\n".join(
        [
            "Check that messages arrive:",
            *(f"  gpuvigil alert test {shlex.quote(one)}" for one in channels),
        ]
    )


def join_line(config: Config, name: str) -> str:
    """Return the command that makes a node report to this hub; ConfigError without a collector token."""
    token = config.hub.collector_token_file
    if token is None:
        raise ConfigError(
            "hub.collector_token_file is not set: issue a token with 'gpuvigil token create'"
        )
    scheme = "http" if config.hub.tls_certificate_file is None else "https"
    host = f"[{name}]" if ":" in name else name
    words = ["gpuvigil", "join", f"{scheme}://{host}:{config.hub.port}"]
    if known := pin(config):
        words += ["--pin", known]
    words += [
        "--cluster",
        config.collector.cluster,
        "--token",
        read_secret(token, "collector token"),
    ]
    return shlex.join(words)
