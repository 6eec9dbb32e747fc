"""`gpuvigil join`: make this node report to a hub, in one command, and check that it does."""

import argparse
import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpuvigil.config import load, read_secret, startup
from gpuvigil.errors import ConfigError, GpuvigilError, HubUnavailable
from gpuvigil.hub_client.authority import certificate_in
from gpuvigil.hub_client.joining import is_join_token
from gpuvigil.model import Inventory, Record, Subject
from gpuvigil.numbers_in_words import counted
from gpuvigil.systemd import gives_up, last_line

from ..agent.node_config import SERVICE_CONFIG
from ..doctor.diagnosis import can_work, lines
from ..doctor.doctor_command import diagnose
from . import unit
from .node_files import TOKEN, Joining, check, write
from .own_token import own_token
from .trusted_hub import Asked, address, check_known, inventory, pinned

_DOCTOR_SECONDS = 15.0
_WAIT_SECONDS = 120.0
_POLL_SECONDS = 1.0
_DIRECTORY = SERVICE_CONFIG.parent


def main(arguments: Sequence[str]) -> int:
    """Join; return 0 once the hub has data of this node and nothing essential is missing here."""
    options = _options()
    chosen = options.parse_args(arguments)
    try:
        return _join(chosen)
    except GpuvigilError as error:
        return startup.fail(options.prog, error)


def _options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="gpuvigil join",
        description="Make this node report to a hub: writes the configuration and the token, starts the"
        " collector's unit, runs the doctor, and waits until the hub has heard of this node.",
    )
    options.add_argument("hub", metavar="HUB", help="the hub: hub1, or https://hub1:8428")
    given = options.add_mutually_exclusive_group()
    given.add_argument("--token", help="a join token, a collector's, or this node's")
    given.add_argument(
        "--token-file", type=Path, metavar="FILE", help="file with the token; - is standard input"
    )
    signed = options.add_mutually_exclusive_group()
    signed.add_argument("--pin", help="sha256:... of the CA of the hub's certificate")
    signed.add_argument(
        "--ca-file", type=Path, metavar="FILE", help="the CA's certificate in PEM, instead of a pin"
    )
    options.add_argument("--cluster", default="", help="name of this node's cluster")
    options.add_argument("--node", default="", help="name of this node; default: the host name")
    options.add_argument("--rack", default="", help="name of its rack")
    options.add_argument("--replace", action="store_true", help="replace a different configuration")
    options.add_argument(
        "--wait",
        type=float,
        default=_WAIT_SECONDS,
        metavar="SECONDS",
        help="how long to wait for the first data; default: 120",
    )
    return options


def _join(chosen: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise GpuvigilError("only root may do this: put sudo before it")
    unit.check()
    joining = _asked_for(chosen)
    node = Subject(cluster=joining.cluster, node=joining.node or socket.gethostname())
    if is_join_token(joining.token):
        # A file that may not be replaced is reported before a use of the token is spent.
        check(joining, _DIRECTORY, replace=chosen.replace)
        joining = replace(joining, token=own_token(_asking(joining), node, _DIRECTORY, print))
    asked = _asking(joining)
    before = inventory(asked, node)
    print(f"{'hub':<10} {joining.url} answers, and takes the token")
    for line in write(joining, _DIRECTORY, replace=chosen.replace):
        print(line)
    unit.start()
    print(f"{'started':<10} {unit.UNIT}, now and at every boot", flush=True)
    try:
        seen = _first_data(asked, node, before, chosen.wait)
    finally:
        found = diagnose(load(SERVICE_CONFIG), SERVICE_CONFIG, _DOCTOR_SECONDS)
        print("\n".join(lines(found)), flush=True)
    print(f"joined: the hub has {node.key}, with {_with_what(seen)}")
    if can_work(found):
        return 0
    print("Lines above that begin with 'missing' say what is left to do.", file=sys.stderr)
    return 1


def _asking(joining: Joining) -> Asked:
    return Asked(url=joining.url, token=joining.token, authority=joining.authority)


def _asked_for(chosen: argparse.Namespace) -> Joining:
    url = address(chosen.hub)
    authority = None
    if chosen.pin:
        authority = pinned(url, chosen.pin)
    elif chosen.ca_file:
        authority = _authority_in(chosen.ca_file)
    else:
        check_known(url)
    return Joining(
        url=url,
        token=_token(chosen),
        authority=authority,
        cluster=chosen.cluster or _configured_cluster(),
        node=chosen.node,
        rack=chosen.rack,
    )


def _configured_cluster() -> str:
    """Return the cluster of a node that joined before, else the default."""
    file = SERVICE_CONFIG if SERVICE_CONFIG.is_file() else None
    return load(file, {}).collector.cluster


def _token(chosen: argparse.Namespace) -> str:
    if chosen.token:
        return str(chosen.token).strip()
    if chosen.token_file == Path("-"):
        return sys.stdin.readline().strip()
    file = chosen.token_file or _DIRECTORY / TOKEN
    if chosen.token_file is None and not file.is_file():
        raise ConfigError("--token or --token-file is missing; 'gpuvigil server init' prints it")
    return read_secret(file, "collector token")


def _authority_in(file: Path) -> str:
    try:
        found = certificate_in(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--ca-file: cannot read {file}: {error}") from None
    if found is None:
        raise ConfigError(f"--ca-file: {file} holds no certificate in PEM")
    return found


def _first_data(asked: Asked, node: Subject, before: Record | None, seconds: float) -> Record:
    """Return the first new inventory that the hub has of this node; GpuvigilError if none arrives."""
    deadline = time.monotonic() + seconds
    while True:
        said = "the hub has heard nothing of this node"
        try:
            now = inventory(asked, node)
        except HubUnavailable as error:  # it may be restarted just now
            now, said = None, str(error)
        if now is not None and (before is None or now.version != before.version):
            return now
        if gives_up(unit.UNIT):
            raise GpuvigilError(f"the collector does not stay up; {last_line(unit.UNIT)}")
        if time.monotonic() >= deadline:
            raise GpuvigilError(f"{said} after {seconds:.0f} s; {last_line(unit.UNIT)}")
        time.sleep(_POLL_SECONDS)


def _with_what(record: Record) -> str:
    found = Inventory.from_record(record)
    return f"{counted(len(found.gpus), 'GPU')} and {counted(len(found.ports), 'network port')}"
