"""Join tokens: each use gives one node a token of its own.

The number of uses is part of a join token's id; those spent are counted by the tokens that it gave.
These are never deleted, so that no use comes back, and the layout of the records did not have to
change.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.hub_client.joining import PREFIX
from gpuvigil.model import Subject

from ..http.bearer import Issued, Scope

MOST_USES = 10_000
LONGEST = timedelta(days=90)

_ID = re.compile(rf"{PREFIX}([0-9]{{1,5}})-[0-9a-f]{{8}}")
_NODES_ID = re.compile(r"[0-9a-f]{8}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class NotGivenError(Exception):
    """A join token gives no token; `taken` when the node has one, or the id is another's."""

    def __init__(self, message: str, *, in_use: bool = False) -> None:
        super().__init__(message)
        self.in_use = in_use


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The token a node made itself and asks for, by id and hash. ValueError when malformed."""

    cluster: str
    node: str
    id: str
    sha256: str

    def __post_init__(self) -> None:
        if not _NODES_ID.fullmatch(self.id) or not _SHA256.fullmatch(self.sha256):
            raise ValueError("id and sha256 must be 8 and 64 lower-case hexadecimal digits")
        if not self.cluster or not self.node:
            raise ValueError("a node's token needs a cluster and a node")
        if not Subject(cluster=self.cluster, node=self.node).real:
            raise ValueError(f"the cluster {self.cluster!r} is of no node that there is")


def made_id(uses: int, lasts: timedelta) -> str:
    """Make the id of a join token; ValueError for a number of uses or a time that makes no sense."""
    if not 1 <= uses <= MOST_USES:
        raise ValueError(f"a join token has from 1 to {MOST_USES} uses")
    if not timedelta(seconds=1) <= lasts <= LONGEST:
        raise ValueError(f"a join token lasts from 1 s to {LONGEST.days} days")
    return f"{PREFIX}{uses}-{secrets.token_hex(4)}"


def uses(id_: str) -> int:
    """Return how many tokens the join token with an id gives in all."""
    found = _ID.fullmatch(id_)
    return 0 if found is None else int(found[1])


def given_before(
    offered: Issued | None, wanted: Wanted, related: Sequence[Issued], used: int, now: datetime
) -> Issued | None:
    """Return the token that the same request gave this node before; None when it is to get one now.

    `related`: the tokens with the wanted one's id, and those of its node; `used`: how many tokens
    the join token gave. NotGivenError says why the node gets none.
    """
    if offered is None or offered.scope != Scope.JOIN.value or not offered.holds(now):
        raise NotGivenError("this join token has ended")
    if offered.cluster and offered.cluster != wanted.cluster:
        raise NotGivenError(
            f"this join token is for nodes of the cluster {offered.cluster}, and not of {wanted.cluster}"
        )
    for it in related:
        if it.id == wanted.id:
            return _same(it, wanted, now)
    whole = f"{wanted.node} in {wanted.cluster}"
    for it in related:
        if it.holds(now):
            raise NotGivenError(
                f"node {whole} has a token already: where it was lost, or the node is another now, end it first"
                f" with 'gpuvigil token revoke {it.id}'",
                in_use=True,
            )
    if used >= uses(offered.id):
        raise NotGivenError(f"all {uses(offered.id)} uses of this join token are spent")
    return None


def _same(it: Issued, wanted: Wanted, now: datetime) -> Issued:
    whole = (it.sha256, it.cluster, it.node) == (wanted.sha256, wanted.cluster, wanted.node)
    if not whole or not it.holds(now):
        raise NotGivenError("another token has had this id: make another", in_use=True)
    return it
