"""Tokens that the hub has issued: who bears each, what it may do, until when.

Of a token only its SHA-256 is kept. It has 256 random bits, so that no dictionary holds it and
a slow hash would protect nothing; who reads the file cannot come in with it.
"""

import fcntl
import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from gpuvigil.clock import from_text, to_text
from gpuvigil.config import HubSettings
from gpuvigil.errors import ConfigError
from gpuvigil.log import Log

_LOG = Log("hub")

_FORMAT = 1
# What is over is listed for so long, then forgotten.
_KEPT = timedelta(days=30)


class Scope(Enum):
    """What a token may do."""

    SERVICE = "service"  # everything
    COLLECTOR = "collector"  # write, of any node
    NODE = "node"  # write, of one node
    READER = "reader"  # read


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """Who comes with a token. A node's may write for `cluster` and `node` alone."""

    scope: Scope
    name: str = ""
    cluster: str = ""
    node: str = ""

    @property
    def writes_for_any_node(self) -> bool:
        return self.scope in {Scope.SERVICE, Scope.COLLECTOR}


def foreign(bearer: Bearer, whose: str) -> str:
    """What a node is told that writes for another."""
    return f"this token is of node {bearer.node} in {bearer.cluster}, and not for {whose}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """One token; `ends_at` is None while nobody has set an end."""

    id: str
    scope: str
    name: str
    cluster: str
    node: str
    sha256: str
    created_at: str
    ends_at: str | None = None

    def holds(self, now: datetime) -> bool:
        return self.ends_at is None or now < from_text(self.ends_at)

    @property
    def bearer(self) -> Bearer:
        scope = Scope(self.scope)
        return Bearer(scope=scope, name=self.name, cluster=self.cluster, node=self.node)

    def to_json(self) -> dict[str, Any]:
        """All that may be shown: without the hash."""
        return {key: value for key, value in asdict(self).items() if key != "sha256"}


class Keyring:
    """The tokens in one file, which `gpuvigil token` may change beside a hub."""

    def __init__(self, path: Path, now: Callable[[], datetime]) -> None:
        """ConfigError when the file is there and cannot be read."""
        self._path = path
        self._now = now
        self._stamp = self._state()
        self._by_hash = _by_hash(self._read())

    def bearer(self, token: bytes) -> Bearer | None:
        """Who comes with this token now; None for nobody."""
        stamp = self._state()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._by_hash = _by_hash(self._read())
            except ConfigError as error:
                _LOG.warning("tokens kept as they were", reason=str(error))
        # The time that a look-up by a hash takes says nothing about any token.
        found = self._by_hash.get(_hash(token))
        return found.bearer if found is not None and found.holds(self._now()) else None

    def all(self) -> list[Issued]:
        """Every token, the oldest first; those that ended stay for a month."""
        return self._read()

    def create(
        self, scope: Scope, name: str, cluster: str = "", node: str = ""
    ) -> tuple[Issued, str]:
        """A new token, told here and never again. ValueError for a bearer that makes no sense."""
        if (scope is Scope.NODE) != bool(cluster and node) or (scope is not Scope.NODE and node):
            raise ValueError("a node's token needs a cluster and a node, and no other has them")
        issued, token = self._issue(Bearer(scope=scope, name=name, cluster=cluster, node=node))
        with self._changing() as kept:
            kept.append(issued)
        return issued, token

    def revoke(self, id_: str) -> Issued:
        """End a token now; KeyError when there is none with that id."""
        return self._end(id_, self._now())

    def rotate(self, id_: str, overlap: timedelta) -> tuple[Issued, str]:
        """A new token for the same bearer; the old one holds on for `overlap`. KeyError as above."""
        old = self._end(id_, self._now() + overlap)
        issued, token = self._issue(old.bearer)
        with self._changing() as kept:
            kept.append(issued)
        return issued, token

    def _issue(self, bearer: Bearer) -> tuple[Issued, str]:
        id_ = secrets.token_hex(4)
        token = f"gpuvigil_{id_}_{secrets.token_urlsafe(32)}"
        issued = Issued(
            id=id_,
            scope=bearer.scope.value,
            name=bearer.name,
            cluster=bearer.cluster,
            node=bearer.node,
            sha256=_hash(token.encode()),
            created_at=to_text(self._now()),
        )
        return issued, token

    def _end(self, id_: str, at: datetime) -> Issued:
        with self._changing() as kept:
            for index, it in enumerate(kept):
                if it.id == id_ and it.holds(self._now()):
                    # What was to end sooner is not prolonged.
                    if it.holds(at):
                        kept[index] = replace(it, ends_at=to_text(at))
                    return it
        raise KeyError(id_)

    @contextmanager
    def _changing(self) -> Iterator[list[Issued]]:
        """The tokens, to be changed in place; others who change them wait."""
        lock = self._path.with_name(self._path.name + ".lock")
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            kept = self._read()
            yield kept
            since = self._now() - _KEPT
            self._write([it for it in kept if it.ends_at is None or it.holds(since)])

    def _read(self) -> list[Issued]:
        try:
            tree = json.loads(self._path.read_text(encoding="utf-8"))
            if tree["format"] > _FORMAT:
                raise ConfigError(f"{self._path} was written by a newer gpuvigil; start that one")
            tokens = [Issued(**entry) for entry in tree["tokens"]]
            for it in tokens:
                Scope(it.scope)
                it.holds(self._now())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(f"cannot read the tokens in {self._path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{self._path} does not hold tokens; put back a good copy") from None
        return tokens

    def _write(self, tokens: Sequence[Issued]) -> None:
        draft = self._path.with_name(self._path.name + ".new")
        draft.touch(mode=0o600)
        tree = {"format": _FORMAT, "tokens": [asdict(it) for it in tokens]}
        draft.write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")
        draft.replace(self._path)

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def tokens_file(settings: HubSettings) -> Path:
    """Where the tokens are that this hub has issued."""
    return settings.tokens_file or settings.data_directory / "tokens.json"


def _hash(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()


def _by_hash(tokens: Sequence[Issued]) -> dict[str, Issued]:
    return {it.sha256: it for it in tokens}
