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
    """The outcome of a body: nothing was stored if it has an `error` or is `forbidden`."""

    refused: Sequence[Refusal] = ()
    lines: int = 0
    duplicate: bool = False
    error: str | None = None
    forbidden: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A body of line protocol as it arrived, and the callback for its outcome.

    `shift_ns` is added to its times, so that they are of the hub's clock. A body that is not
    `prompt` may have waited here before it was seen, so that it says nothing about its sender's
    clock.
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
        """Whether the body is from its collector's backlog, which has more of them."""
        return self.identity is not None and self.identity.lane.lane == BACKLOG

    @property
    def sender(self) -> Hashable:
        """The sender whose share of the queue the body takes."""
        return sender_of(self.bearer, self.identity)


def sender_of(bearer: Bearer, who: Identity | None) -> Hashable:
    """Return who takes a share: a token's bearer, or each node where one token is for many."""
    of_many = who is not None and bearer.writes_for_any_node
    node = (who.lane.cluster, who.lane.node) if who and of_many else (bearer.cluster, bearer.node)
    # A tuple of texts, not the bearer: it is looked up several times for each body.
    return bearer.scope.value, bearer.name, *node
