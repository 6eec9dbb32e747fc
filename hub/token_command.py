"""`gpuvigil token`: access tokens, through a running hub or in its database."""

import argparse
import json
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from gpuvigil.clock import SystemClock
from gpuvigil.config import Config, HubSettings
from gpuvigil.config.startup import configured_anywhere, parser, run_command
from gpuvigil.errors import ConfigError, GpuvigilError, HubUnavailable, StoreError
from gpuvigil.hub_client import Hub, addresses, service_hubs
from gpuvigil.private_files import UMASK, owned_as, write_private

from .http.bearer import Issued, Scope, tokens_file
from .records import IssuedTokens, RevocationFile, Transactions, ends_file, open_records
from .records.database import SQLITE_NAME

# Scopes chosen by the option that names whose jobs the token shows, and not by --scope.
_WHOSE = {Scope.OWN: "person", Scope.TEAM: "team"}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_NO_SUCH_TOKEN = "no token that holds has the id {!r}; see 'gpuvigil token list'"


def main(arguments: Sequence[str]) -> int:
    """Create, list, revoke or rotate tokens; returns the exit code."""
    options = parser("token", "Manage the access tokens of nodes and readers.")
    verbs = options.add_subparsers(dest="verb", required=True, metavar="VERB")
    create = verbs.add_parser("create", help="issue a token and print it, this once")
    create.add_argument("--node", default="", help="a node's token: it writes for this node only")
    create.add_argument(
        "--cluster",
        default="",
        help="the node's, as configured if left out; or the one that a scheduler's token is bound to",
    )
    create.add_argument(
        "--scope",
        choices=[it.value for it in Scope if it not in {Scope.JOIN, *_WHOSE}],
        help="what it may do: node (as with --node), viewer (read, without names of people; if left"
        " out), reader (read, with names), collector (write, for any node), scheduler (write jobs"
        " and nodes as a scheduler has them) or service (everything)",
    )
    whose = create.add_mutually_exclusive_group()
    whose.add_argument(
        "--person",
        metavar="USER",
        help="a person's token: it reads the jobs of this user, as clusters call them, and no other's name",
    )
    whose.add_argument(
        "--team",
        metavar="ACCOUNT",
        help="a team's token: the same for jobs of this account of a scheduler",
    )
    whose.add_argument("--name", default="", help="whose it is, in lists and in the log")
    create.add_argument(
        "--file",
        type=Path,
        help="write it there, for the owner of the file alone, instead of printing it",
    )
    _add_join(verbs.add_parser)
    verbs.add_parser("list", help="show each token's holder and expiry, never the token")
    for verb, text in (
        ("revoke", "end a token now"),
        ("rotate", "issue another token for the same bearer, and end the old one later"),
    ):
        added = verbs.add_parser(verb, help=text)
        added.add_argument("id", help="the token's id, the word after gpuvigil_ in it")
        if verb == "rotate":
            added.add_argument(
                "--overlap",
                type=_seconds,
                default=86_400,
                help="the old token holds on for 30s, 10m, 24h or 7d; 24h, if left out",
            )
    configured_anywhere(verbs.choices.values())
    return run_command(options, arguments, _run)


def _run(config: Config, chosen: argparse.Namespace) -> None:
    os.umask(UMASK)
    with owned_as(config.hub.data_directory):
        _VERBS[chosen.verb](_tokens_of(config.hub), config, chosen)


def _add_join(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    join = add_parser(
        "join",
        help="issue a token by which nodes get one each, and print it, this once",
        description="Issues a token that 'gpuvigil join' on a node exchanges for one of the node's own.",
    )
    join.add_argument(
        "--uses", type=int, default=1, help="how many nodes may join by it; 1, if left out"
    )
    join.add_argument(
        "--for",
        dest="lasts",
        type=_seconds,
        default=3600,
        metavar="TIME",
        help="how long: 30s, 10m, 24h or 7d; 1h, if left out",
    )
    join.add_argument("--cluster", default="", help="the nodes' cluster; as configured if left out")
    join.add_argument("--name", default="", help="what it is for, in lists and in the log")


class _Remote:
    """The tokens of a running hub, managed through its API."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def all(self) -> list[Mapping[str, Any]]:
        return list(self._ask("GET", "")["tokens"])

    def create(self, scope: Scope, name: str, cluster: str, node: str) -> tuple[str, str]:
        asked = {"scope": scope.value, "name": name, "cluster": cluster, "node": node}
        return _issued(self._ask("POST", "", asked))

    def create_join(self, uses: int, lasts: timedelta, name: str, cluster: str) -> tuple[str, str]:
        seconds = lasts.total_seconds()
        asked = {"uses": uses, "seconds": seconds, "name": name, "cluster": cluster}
        return _issued(self._ask("POST", "/join", asked))

    def revoke(self, id_: str) -> None:
        self._ask("POST", f"/{quote(id_, safe='')}/revoke", {})

    def rotate(self, id_: str, overlap: timedelta) -> tuple[str, str]:
        asked = {"overlap_seconds": overlap.total_seconds()}
        return _issued(self._ask("POST", f"/{quote(id_, safe='')}/rotate", asked))

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        content = None if body is None else json.dumps(body).encode()
        answer = self._hub.request(method, f"/api/v1/tokens{path}", content).body
        found: Mapping[str, Any] = json.loads(answer)
        return found


def _issued(answer: Mapping[str, Any]) -> tuple[str, str]:
    return str(answer["issued"]["id"]), str(answer["token"])


class _Local:
    """The tokens in the database of a stopped hub."""

    def __init__(self, issued_tokens: IssuedTokens) -> None:
        self._issued_tokens = issued_tokens

    def all(self) -> list[Mapping[str, Any]]:
        return [it.to_json() for it in self._issued_tokens.all()]

    def create(self, scope: Scope, name: str, cluster: str, node: str) -> tuple[str, str]:
        return _pair(_written(lambda: self._issued_tokens.create(scope, name, cluster, node)))

    def create_join(self, uses: int, lasts: timedelta, name: str, cluster: str) -> tuple[str, str]:
        return _pair(_written(lambda: self._issued_tokens.create_join(uses, lasts, name, cluster)))

    def revoke(self, id_: str) -> None:
        _written(lambda: self._issued_tokens.revoke(id_))

    def rotate(self, id_: str, overlap: timedelta) -> tuple[str, str]:
        return _pair(_written(lambda: self._issued_tokens.rotate(id_, overlap)))


def _pair(found: tuple[Issued, str]) -> tuple[str, str]:
    return found[0].id, found[1]


def _written(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except KeyError as error:
        raise GpuvigilError(_NO_SUCH_TOKEN.format(error.args[0])) from None
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _tokens_of(settings: HubSettings) -> _Remote | _Local:
    """Return the tokens through the hub, or through its database if nothing listens at its address.

    Any other error is raised: a hub may run elsewhere, and would not know what is written here.
    """
    hub = service_hubs(settings)()
    try:
        hub.request("GET", "/api/v1/tokens")
    except HubUnavailable as error:
        if not isinstance(error.__cause__, ConnectionRefusedError):
            raise
        in_postgresql = bool(settings.records_url or settings.records_url_file)
        if not in_postgresql:
            _check_here(settings, error)
        return _Local(_opened(settings))
    return _Remote(hub)


def _check_here(settings: HubSettings, error: HubUnavailable) -> None:
    """Raise GpuvigilError unless the stopped hub's addresses and its records are on this machine."""
    hosts = [urlsplit(one).hostname or "" for one in addresses(settings.url)]
    if not all(_is_of_this_machine(host) for host in hosts):
        raise GpuvigilError(
            f"{error}; its records are on its own machine: start it, or run this there"
        ) from None
    if not (settings.data_directory / SQLITE_NAME).is_file():
        raise GpuvigilError(
            f"{error}; and there is no {settings.data_directory / SQLITE_NAME} to write into:"
            " start the hub, or name its configuration with --config"
        ) from None


def _is_of_this_machine(host: str) -> bool:
    """Return whether a socket can be bound to an address of this host name."""
    try:
        places = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, _, _, address in places:
        with socket.socket(family, kind) as tried:
            try:
                tried.bind(address)
            except OSError:
                continue
            return True
    return False


def _opened(settings: HubSettings) -> IssuedTokens:
    try:
        ends = RevocationFile(ends_file(settings.data_directory))
        issued_tokens = IssuedTokens(Transactions(open_records(settings)), SystemClock().now, ends)
        issued_tokens.import_file(tokens_file(settings))
    except StoreError as error:
        raise GpuvigilError(str(error)) from None
    return issued_tokens


def _create(tokens: _Remote | _Local, config: Config, chosen: argparse.Namespace) -> None:
    scope, name = _whose(chosen)
    if (scope is Scope.NODE) != bool(chosen.node):
        raise ConfigError("--node NAME goes with the scope node, and with no other")
    if chosen.cluster and scope not in {Scope.NODE, Scope.SCHEDULER}:
        raise ConfigError("--cluster NAME goes with the scopes node and scheduler")
    cluster = chosen.cluster or (config.collector.cluster if chosen.node else "")
    id_, token = tokens.create(scope, name, cluster, chosen.node)
    if chosen.file is None:
        _show((id_, token))
    else:
        _keep(tokens, chosen.file, id_, token)


def _whose(chosen: argparse.Namespace) -> tuple[Scope, str]:
    """Return the new token's scope and its holder's name."""
    for scope, option in _WHOSE.items():
        name = getattr(chosen, option)
        if name is not None:
            if chosen.scope:
                raise ConfigError(
                    f"--{option} {name} says what the token may do: leave --scope out"
                )
            return scope, name
    return Scope(chosen.scope or ("node" if chosen.node else "viewer")), chosen.name


def _join(tokens: _Remote | _Local, config: Config, chosen: argparse.Namespace) -> None:
    cluster = chosen.cluster or config.collector.cluster
    _show(tokens.create_join(chosen.uses, timedelta(seconds=chosen.lasts), chosen.name, cluster))


def _list(tokens: _Remote | _Local, _config: Config, _chosen: argparse.Namespace) -> None:
    columns = ("id", "scope", "cluster", "node", "name", "created_at", "ends_at")
    rows = [columns, *([str(it[key] or "-") for key in columns] for it in tokens.all())]
    widths = [max(len(row[index]) for row in rows) for index in range(len(columns))]
    for row in rows:
        print(
            "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
        )


def _revoke(tokens: _Remote | _Local, _config: Config, chosen: argparse.Namespace) -> None:
    tokens.revoke(chosen.id)
    print(f"revoked {chosen.id}")


def _rotate(tokens: _Remote | _Local, _config: Config, chosen: argparse.Namespace) -> None:
    _show(tokens.rotate(chosen.id, timedelta(seconds=chosen.overlap)))


def _show(issued: tuple[str, str]) -> None:
    """Print the token alone on its line; it cannot be shown again."""
    print(issued[1])


def _keep(tokens: _Remote | _Local, file: Path, id_: str, token: str) -> None:
    """Write the token to the file; revoke it if that fails, as nobody could ever read it."""
    try:
        write_private(file, f"{token}\n")
    except ConfigError:
        tokens.revoke(id_)
        raise
    print(f"created {id_}: its token is in {file}")


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if found is None or int(found[1]) * _UNITS[found[2]] > 90 * 86_400:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time like 30s, 10m, 24h or 7d, at most 90d"
        )
    return int(found[1]) * _UNITS[found[2]]


_VERBS = {"create": _create, "join": _join, "list": _list, "revoke": _revoke, "rotate": _rotate}
