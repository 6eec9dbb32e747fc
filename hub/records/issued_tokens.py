"""The issued tokens, kept beside the records: one set for all hubs of a database.

Only the SHA-256 of a token is kept. A token has 256 random bits, so that no dictionary holds it and
a slow hash would protect nothing; whoever reads the database cannot authenticate with it.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    func,
    insert,
    or_,
    select,
    true,
    update,
)

from gpuvigil.clock import from_text, to_text
from gpuvigil.errors import ConfigError, StoreError
from gpuvigil.hub_client import joining
from gpuvigil.log import Log

from ..http.bearer import Bearer, Issued, Scope
from .join_tokens import Wanted, given_before, made_id
from .revoked import RevocationFile
from .tables import token
from .transactions import Transactions
from .validation import storable

_LOG = Log("hub")

# Ended tokens are listed for this long. They are kept for ever: nothing revives them.
_LISTED = timedelta(days=30)

# Changes made by another hub, or by `gpuvigil token` beside a hub, take effect after this long.
REFRESH_SECONDS = 1.0

_FILE_FORMAT = 1
_COLUMNS = [it for it in token.c if it is not token.c.changed]


class IssuedTokens:
    """The issued tokens, looked up in memory; StoreError when the database cannot make a change."""

    def __init__(
        self,
        transactions: Transactions,
        now: Callable[[], datetime],
        ends: RevocationFile | None = None,
    ) -> None:
        """`ends`: a second place for the ends of tokens, so that no older database revives one."""
        self._transactions = transactions
        self._now = now
        self._ends = ends
        self._refreshing = threading.Lock()
        self._state: tuple[int, int | None] | None = None
        self._by_hash: dict[str, Issued] = {}
        self.refresh()

    def bearer(self, given: bytes) -> Bearer | None:
        """Return the bearer of a token that is valid now; None for any other."""
        # The time that a look-up by a hash takes says nothing about any token.
        found = self._by_hash.get(_hash(given))
        return found.bearer if found is not None and found.holds(self._now()) else None

    def refresh(self) -> None:
        """Read the tokens again when any of them has changed."""
        with self._refreshing:
            with self._transactions.read() as connection:
                query = select(func.count(), func.max(token.c.changed)).select_from(token)
                count, changed = connection.execute(query).one()
                if (count, changed) == self._state:
                    return
                issued = _read(connection)
            if self._ends is not None:
                issued = self._ended_again(issued, self._ends)
            self._by_hash = {it.sha256: it for it in issued}
            if self._ends is not None:
                self._ends.add((it.sha256, it.ends_at) for it in issued if it.ends_at is not None)
            self._state = count, changed

    def _ended_again(self, issued: Sequence[Issued], ends: RevocationFile) -> list[Issued]:
        """Return the tokens, and end those again that an older database has as still valid."""
        found = [_no_later(it, ends.of(it.sha256)) for it in issued]
        revived = [it for it, was in zip(found, issued, strict=True) if it is not was]
        if revived:
            with self._transactions.write() as connection:
                for it in revived:
                    self._set_end(connection, it)
            _LOG.warning("tokens ended again that an older database had alive", count=len(revived))
        return found

    def _set_end(self, connection: Connection, ended: Issued) -> None:
        row = {**asdict(ended), "changed": _next(connection)}
        connection.execute(update(token).where(token.c.id == ended.id).values(row))
        self._transactions.changes.tokens.append(row)

    def _add(self, connection: Connection, issued: Sequence[Issued]) -> None:
        if issued:
            changed = _next(connection)
            rows = [{**asdict(it), "changed": changed} for it in issued]
            connection.execute(insert(token), rows)
            self._transactions.changes.tokens += rows

    def _refresh_if_possible(self) -> None:
        """Refresh after a commit; a failure is only logged, as it is tried again in a moment."""
        try:
            self.refresh()
        except StoreError as error:
            _LOG.error("tokens' ends not kept", error=str(error))

    def all(self) -> list[Issued]:
        """Return every token, oldest first; those that ended stay for a month."""
        since = self._now() - _LISTED
        with self._transactions.read() as connection:
            return [it for it in _read(connection) if it.holds(since)]

    def create(
        self, scope: Scope, name: str, cluster: str = "", node: str = ""
    ) -> tuple[Issued, str]:
        """Issue a token; return it and its text, shown only now. ValueError for an invalid bearer."""
        if (scope is Scope.NODE) != bool(cluster and node) or (scope is not Scope.NODE and node):
            raise ValueError("a node's token needs a cluster and a node, and no other has them")
        if scope is Scope.JOIN:
            raise ValueError("a join token has uses and an end: 'gpuvigil token join' makes one")
        if scope in {Scope.OWN, Scope.TEAM} and not name:
            raise ValueError("a person's and a team's token need the name of whose jobs they show")
        if cluster and scope not in {Scope.NODE, Scope.SCHEDULER}:
            raise ValueError("only a node's and a scheduler's token can be of one cluster")
        storable(name, cluster, node)
        issued, given = self._made(Bearer(scope=scope, name=name, cluster=cluster, node=node))
        with self._transactions.write() as connection:
            self._add(connection, [issued])
        self._refresh_if_possible()
        return issued, given

    def create_join(
        self, uses: int, lasts: timedelta, name: str = "", cluster: str = ""
    ) -> tuple[Issued, str]:
        """Issue a token by which `uses` nodes, of one cluster or any, get one. ValueError as above."""
        storable(name, cluster)
        bearer = Bearer(scope=Scope.JOIN, name=name, cluster=cluster, join=made_id(uses, lasts))
        issued, given = self._made(bearer, self._now() + lasts)
        with self._transactions.write() as connection:
            self._add(connection, [issued])
        self._refresh_if_possible()
        return issued, given

    def join(self, id_: str, wanted: Wanted) -> Issued:
        """Take a use of a join token and keep a node's token; the same request again takes none.

        NotGivenError when there is no use left, or the node has a token.
        """
        storable(wanted.cluster, wanted.node)
        of_node = and_(
            token.c.scope == Scope.NODE.value,
            token.c.cluster == wanted.cluster,
            token.c.node == wanted.node,
        )
        given = and_(token.c.scope == Scope.NODE.value, token.c.name == id_)
        with self._transactions.write() as connection:
            offered = _one(connection, id_)
            related = _read(connection, or_(token.c.id == wanted.id, of_node))
            used = connection.execute(select(func.count()).select_from(token).where(given)).scalar()
            now = self._now()
            issued = given_before(offered, wanted, related, used or 0, now)
            if issued is None:
                made = {**asdict(wanted), "scope": Scope.NODE.value, "name": id_}
                issued = Issued(**made, created_at=to_text(now))
                self._add(connection, [issued])
        self._refresh_if_possible()
        return issued

    def revoke(self, id_: str) -> Issued:
        """End a token now; KeyError when there is none with that id."""
        with self._transactions.write() as connection:
            ended = self._end(connection, id_, self._now())
        self.refresh()
        return ended

    def rotate(self, id_: str, overlap: timedelta) -> tuple[Issued, str]:
        """Issue another token for a bearer; the old one lasts for `overlap`. KeyError as above."""
        with self._transactions.write() as connection:
            if id_.startswith(joining.PREFIX):
                raise ValueError("a join token is not rotated: revoke it, and make another")
            old = self._end(connection, id_, self._now() + overlap)
            issued, given = self._made(old.bearer)
            self._add(connection, [issued])
        self._refresh_if_possible()
        return issued, given

    def import_file(self, file: Path) -> None:
        """Import the tokens of a file, as an older gpuvigil kept them, and rename the file.

        Tokens that are known already stay as they are here. ConfigError when the file cannot be
        read.
        """
        found = _in_file(file)
        if found is None:
            return
        with self._transactions.write() as connection:
            known = set(connection.execute(select(token.c.id)).scalars())
            new = [it for it in found if it.id not in known]
            self._add(connection, new)
        self.refresh()
        with suppress(OSError):
            file.replace(file.with_name(f"{file.name}.moved"))
        if new:
            _LOG.info("tokens moved into the records", count=len(new), file=str(file))

    def _made(self, bearer: Bearer, ends_at: datetime | None = None) -> tuple[Issued, str]:
        given = joining.made(bearer.join)
        issued = Issued(
            id=joining.id_of(given),
            scope=bearer.scope.value,
            name=bearer.name,
            cluster=bearer.cluster,
            node=bearer.node,
            sha256=_hash(given.encode()),
            created_at=to_text(self._now()),
            ends_at=None if ends_at is None else to_text(ends_at),
        )
        return issued, given

    def _end(self, connection: Connection, id_: str, at: datetime) -> Issued:
        found = _one(connection, id_)
        if found is None or not found.holds(self._now()):
            raise KeyError(id_)
        # A token that was to end sooner is not prolonged.
        if found.holds(at):
            found = replace(found, ends_at=to_text(at))
            self._set_end(connection, found)
        return found


class TokenRefresher:
    """A thread that reads the changes that others make."""

    def __init__(self, issued_tokens: IssuedTokens) -> None:
        self._issued_tokens = issued_tokens
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="issued-tokens", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(REFRESH_SECONDS):
            # Without the database nobody can revoke any token; requests say that it is away.
            with suppress(StoreError):
                self._issued_tokens.refresh()


def _one(connection: Connection, id_: str) -> Issued | None:
    return next(iter(_read(connection, token.c.id == id_)), None)


def _read(connection: Connection, which: ColumnElement[bool] = true()) -> list[Issued]:  # noqa: B008
    query = select(*_COLUMNS).where(which).order_by(token.c.created_at, token.c.id)
    return [Issued(**row._mapping) for row in connection.execute(query)]


def _no_later(issued: Issued, ends_at: str | None) -> Issued:
    """Return the token, ending at `ends_at` if it would end later or never."""
    if ends_at is None or not issued.holds(from_text(ends_at)):
        return issued
    return replace(issued, ends_at=ends_at)


def _next(connection: Connection) -> int:
    """Return the number of the next change; changes follow one another, as all writes do."""
    return int(connection.execute(select(func.max(token.c.changed))).scalar() or 0) + 1


def _hash(given: bytes) -> str:
    return hashlib.sha256(given).hexdigest()


def _in_file(file: Path) -> list[Issued] | None:
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        if tree["format"] > _FILE_FORMAT:
            raise ConfigError(f"{file} was written by a newer gpuvigil; start that one")
        found = [Issued(**entry) for entry in tree["tokens"]]
        for it in found:
            Scope(it.scope)
            it.check()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read the tokens in {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{file} does not hold tokens; put back a good copy") from None
    return found
