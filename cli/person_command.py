"""`gpuvigil person`: who may sign in to the dashboard by name and password, and in which role."""

import argparse
import getpass
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from accounting.people.roles import Role
from accounting.people.typist import audit_of_command
from dashboard.auth.accounts import Account, Accounts, new_person
from dashboard.auth.keys import Keys
from gpuvigil.clock import SystemClock
from gpuvigil.config import Config, read_secret
from gpuvigil.config.startup import configured_anywhere, parser, run_command
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.hub_client import service_hubs
from gpuvigil.model import AuditedAction
from gpuvigil.private_files import UMASK, as_owner_of


def main(arguments: Sequence[str]) -> int:
    """Add, list, change or remove people; return the exit code."""
    options = parser("person", "Manage who signs in to the dashboard by name and password.")
    verbs = options.add_subparsers(dest="verb", required=True, metavar="VERB")
    add = verbs.add_parser("add", help="add a person; asks for a password", allow_abbrev=False)
    add.add_argument("name", help="the name to sign in with")
    _with_rights(add, required=True)
    _with_password(add)
    verbs.add_parser("list", help="show everybody with role, users and teams")
    passwd = verbs.add_parser(
        "passwd", help="set another password; ends the person's sessions", allow_abbrev=False
    )
    passwd.add_argument("name")
    _with_password(passwd)
    role = verbs.add_parser("role", help="change role, users or teams; takes effect at once")
    role.add_argument("name")
    _with_rights(role, required=False)
    verbs.add_parser("remove", help="remove a person; ends their sessions").add_argument("name")
    end = verbs.add_parser(
        "end-sessions", help="end a person's sessions, however they signed in", allow_abbrev=False
    )
    end.add_argument("name", help="the name they signed in with")
    configured_anywhere(verbs.choices.values())

    def run(config: Config, chosen: argparse.Namespace) -> None:
        os.umask(UMASK)
        chosen.secrets = config.dashboard.secrets_directory
        if "password_file" in chosen:  # which may be root's
            chosen.password = _password(chosen.password_file)
        with as_owner_of(chosen.secrets):
            done = _VERBS[chosen.verb](Accounts(chosen.secrets), chosen)
        if done:
            _audit(config, chosen.name, done, options.prog)

    return run_command(options, arguments, run)


def _with_rights(verb: argparse.ArgumentParser, *, required: bool) -> None:
    verb.add_argument(
        "--role",
        choices=[role.value for role in Role],
        required=required,
        help="operator: everything; viewer: everything but names; team: their teams' jobs; own: their jobs",
    )
    verb.add_argument(
        "--user",
        action="append",
        default=[],
        help="user name on the clusters, if not NAME; repeatable",
    )
    verb.add_argument(
        "--team",
        action="append",
        default=[],
        help="account of the scheduler; repeatable",
    )


def _with_password(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="file with the password in its first line; - is standard input",
    )


def _add(accounts: Accounts, chosen: argparse.Namespace) -> str:
    person = new_person(chosen.name, Role(chosen.role), chosen.user, chosen.team)
    accounts.add(person, chosen.password)
    print(f"{chosen.name} may sign in as {chosen.role}")
    return f"added as {chosen.role}"


def _list(accounts: Accounts, _: argparse.Namespace) -> str:
    people = accounts.all()
    for name in sorted(people):
        print(line(people[name]))
    if not people:
        print("no accounts yet; 'gpuvigil person add NAME --role operator' adds the first")
    return ""


def line(account: Account) -> str:
    """Return a person as one line of the list."""
    person = account.person
    users = f"  users: {', '.join(sorted(person.users))}" if person.users != {person.name} else ""
    teams = f"  teams: {', '.join(sorted(person.teams))}" if person.teams else ""
    return f"{person.name}  {person.role.value}{users}{teams}"


def _passwd(accounts: Accounts, chosen: argparse.Namespace) -> str:
    accounts.change_password(chosen.name, chosen.password)
    print(f"the password of {chosen.name} is changed; their sessions have ended")
    return "password changed"


def _role(accounts: Accounts, chosen: argparse.Namespace) -> str:
    account = accounts.of(chosen.name)
    if account is None:
        raise ConfigError(f"there is no person {chosen.name!r}; see 'gpuvigil person list'")
    person = account.person
    changed = replace(
        person,
        role=Role(chosen.role) if chosen.role else person.role,
        users=frozenset(chosen.user) or person.users,
        teams=frozenset(chosen.team) or person.teams,
    )
    accounts.change_person(changed)
    said = line(replace(account, person=changed))
    print(said)
    return f"is now: {said}"


def _remove(accounts: Accounts, chosen: argparse.Namespace) -> str:
    accounts.remove(chosen.name)
    print(f"{chosen.name} is removed")
    return "removed"


def _end_sessions(_: Accounts, chosen: argparse.Namespace) -> str:
    """End a person's sessions; they need no account here if an identity provider or a proxy signs them in."""
    Keys(chosen.secrets).end_all(chosen.name, SystemClock().now())
    print(f"{chosen.name} has to sign in again")
    return "sessions ended"


def _password(file: Path | None) -> str:
    """Read the password from a file or the terminal; other users of the machine can read a command line."""
    if file is not None and str(file) == "-":
        return sys.stdin.readline().rstrip("\n")
    if file is not None:
        return read_secret(file, "password")
    first = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != first:
        raise ConfigError("the two passwords differ")
    return first


def _audit(config: Config, name: str, done: str, program: str) -> None:
    """Write what was done into the audit log; if the hub does not take the entry, only warn."""
    entry = audit_of_command(AuditedAction.PERSON, name, done, SystemClock().now())
    try:
        with closing(service_hubs(config.hub)()) as hub:
            hub.write_records([entry.to_record()])
    except GpuvigilError as error:
        print(f"{program}: done, but not in the audit log: {error}", file=sys.stderr)


_VERBS = {
    "add": _add,
    "list": _list,
    "passwd": _passwd,
    "role": _role,
    "remove": _remove,
    "end-sessions": _end_sessions,
}
