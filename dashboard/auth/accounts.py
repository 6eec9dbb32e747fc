"""Local accounts: names, roles and argon2 hashes in one file that only its owner may read."""

import fcntl
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from accounting.people.roles import Person, Role
from gpuvigil.errors import ConfigError
from gpuvigil.private_files import write_private

SHORTEST_PASSWORD, LONGEST_PASSWORD = 12, 1024
# OWASP, Password Storage Cheat Sheet: Argon2id with at least 19 MiB, 2 passes and 1 lane.
HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
_NAME = re.compile(r"[\w][\w.@+-]{0,99}")
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One person and their password hash."""

    person: Person
    password: str

    @property
    def version(self) -> str:
        """An ID that changes with the password, so that sessions of the old password end."""
        return self.password[-16:]


class Accounts:
    """The accounts file. It is read again when it has changed, so that a command's change counts at once."""

    def __init__(self, directory: Path, hasher: PasswordHasher = HASHER) -> None:
        self._file = directory / "people.json"
        self._hasher = hasher
        self._lock = threading.Lock()
        self._read: tuple[_Stamp, Mapping[str, Account]] | None = None
        # The hash to check a password against if there is no such account, so that it takes as long.
        self._nobody = hasher.hash(os.urandom(16).hex())

    def all(self) -> Mapping[str, Account]:
        """Return the accounts by name; ConfigError for a file that cannot be read as ours."""
        try:
            found = self._file.stat()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"cannot read {self._file}: {error.strerror}") from None
        stamp = found.st_mtime_ns, found.st_size, found.st_ino
        with self._lock:
            if self._read is None or self._read[0] != stamp:
                self._read = stamp, self._parsed()
            return self._read[1]

    def of(self, name: str) -> Account | None:
        return self.all().get(name)

    def matching(self, name: str, password: str) -> Account | None:
        """Return the account with this name and password, else None; an unknown name takes as long."""
        account = self.of(name)
        hashed = self._nobody if account is None else account.password
        try:
            fits = self._hasher.verify(hashed, password[:LONGEST_PASSWORD])
        except (Argon2Error, InvalidHashError):
            return None
        return account if fits else None

    def add(self, person: Person, password: str) -> None:
        """Add a person; ConfigError for a taken or invalid name or a password of a wrong length."""
        if _NAME.fullmatch(person.name) is None:
            raise ConfigError(f"{person.name!r} is not a name: use letters, digits and . _ - @ +")
        hashed = self._hashed(password)

        def changed(people: dict[str, Account]) -> None:
            if person.name in people:
                raise ConfigError(f"there is a person {person.name!r} already")
            people[person.name] = Account(person=person, password=hashed)

        self._change(changed)

    def change_password(self, name: str, password: str) -> None:
        """Set a password; ConfigError for an unknown person or a password of a wrong length."""
        hashed = self._hashed(password)

        def changed(people: dict[str, Account]) -> None:
            people[name] = Account(person=_known(people, name).person, password=hashed)

        self._change(changed)

    def change_person(self, person: Person) -> None:
        """Replace a person's role, users and teams, which count at once; ConfigError if unknown."""

        def changed(people: dict[str, Account]) -> None:
            kept = _known(people, person.name).password
            people[person.name] = Account(person=person, password=kept)

        self._change(changed)

    def remove(self, name: str) -> None:
        """Remove a person, which ends their sessions; ConfigError if unknown."""

        def changed(people: dict[str, Account]) -> None:
            _known(people, name)
            del people[name]

        self._change(changed)

    def _hashed(self, password: str) -> str:
        if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
            raise ConfigError(
                f"a password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters"
            )
        return self._hasher.hash(password)

    def _change(self, change: Callable[[dict[str, Account]], None]) -> None:
        with self._alone():
            people = dict(self._parsed() if self._file.exists() else {})
            change(people)
            told = {
                name: {**one.person.to_json(), "password": one.password}
                for name, one in sorted(people.items())
            }
            write_private(self._file, json.dumps({"people": told}, indent=1) + "\n")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the file, so that of two commands at once neither loses its change."""
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = self._file.with_name(".people.lock")
        number = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            yield
        finally:
            os.close(number)

    def _parsed(self) -> Mapping[str, Account]:
        try:
            told: dict[str, Any] = json.loads(self._file.read_text(encoding="utf-8"))["people"]
            return {
                name: Account(person=Person.from_json(one), password=str(one["password"]))
                for name, one in told.items()
            }
        except OSError as error:
            raise ConfigError(f"cannot read {self._file}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{self._file} is not what 'gpuvigil person' writes: {error!r}"
            ) from None


def new_person(name: str, role: Role, users: list[str], teams: list[str]) -> Person:
    """Return a person whose user name on the clusters is the sign-in name, unless others are given."""
    return Person(name=name, role=role, users=frozenset(users or [name]), teams=frozenset(teams))


def _known(people: Mapping[str, Account], name: str) -> Account:
    if name not in people:
        raise ConfigError(f"there is no person {name!r}; see 'gpuvigil person list'")
    return people[name]
