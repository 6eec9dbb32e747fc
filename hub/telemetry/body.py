"""A body of line protocol, and its outcome."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuvigil.lineprotocol import Precision, Refusal

from ..bodies.deduplication import BACKLOG, Identity
from ..http.bearer import Bearer, Scope

ANYBODY = Bearer(scope=Scope.COLLECTOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a body: an error means that nothing was kept, and so does `forbidden`."""

    refused: Sequence[Refusal] = ()
    lines: int = 0
    duplicate: bool = False
    error: str | None = None
    forbidden: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """Line protocol as it arrived, and whom to tell what became of it.

    `shift_ns` is what its times must be changed by to be of the hub's clock. A body that is not
    `prompt` may have waited here before it was seen, so that its sender's clock is not told by it.
    """

    text: bytes
    precision: Precision
    received_at: datetime
    identity: Identity | None
    done: Callable[[Outcome], None]
    shift_ns: int = 0
    bearer: Bearer = ANYBODY
    rows: int = 1
    prompt: bool = True

    @property
    def is_backlog(self) -> bool:
        """Whether its collector had kept it, and has more of them."""
        return self.identity is not None and self.identity.lane.lane == BACKLOG

    @property
    def sender(self) -> Hashable:
        """Whose share of the queue it takes."""
        return sender_of(self.bearer, self.identity)


def sender_of(bearer: Bearer, who: Identity | None) -> Hashable:
    """Who shares with others: a token's bearer, each node by itself where one token is of many."""
    of_many = who is not None and bearer.writes_for_any_node
    node = (who.lane.cluster, who.lane.node) if who and of_many else (bearer.cluster, bearer.node)
    # Of texts, and not the bearer: it is looked up several times for each body.
    return bearer.scope.value, bearer.name, *node
