"""Bearers of issued tokens: who they are, what they may do, until when."""

from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from gpuvigil.clock import from_text
from gpuvigil.config import HubSettings


class Scope(Enum):
    """What a token may do."""

    SERVICE = "service"  # everything
    COLLECTOR = "collector"  # write, of any node
    NODE = "node"  # write, of one node
    READER = "reader"  # read
    VIEWER = "viewer"  # read, without names of people
    TEAM = "team"  # read, with people and jobs of one team only
    OWN = "own"  # read, with people and jobs of one person only
    SCHEDULER = (
        "scheduler"  # write jobs and nodes as a scheduler has them, of one cluster or of any
    )
    JOIN = "join"  # get a token for a node, as often as it has uses, and nothing else


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """The bearer of a token.

    A node's token may write for `cluster` and `node` alone, a scheduler's for its `cluster`, if it
    has one. `name` names the holder; for `OWN` and `TEAM` it is the user or the account whose jobs
    the token shows. `join` is the id of a join token, and empty for all others.
    """

    scope: Scope
    name: str = ""
    cluster: str = ""
    node: str = ""
    join: str = ""

    @property
    def writes_for_any_node(self) -> bool:
        return self.scope is Scope.COLLECTOR or self.scope is Scope.SERVICE


def foreign(bearer: Bearer, whose: str) -> str:
    """Return the error text for a node that writes for another, or a scheduler for another cluster."""
    of = f"node {bearer.node} in {bearer.cluster}" if bearer.node else f"cluster {bearer.cluster}"
    return f"this token is of {of}, and not for {whose}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """An issued token; `ends_at` is None while nobody has set an end."""

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
        join = self.id if scope is Scope.JOIN else ""
        return Bearer(scope=scope, name=self.name, cluster=self.cluster, node=self.node, join=join)

    def check(self) -> None:
        """Raise ValueError or TypeError when a field is malformed."""
        from_text(self.created_at)
        texts = (self.id, self.name, self.cluster, self.node, self.sha256)
        if not all(isinstance(it, str) for it in texts):
            raise TypeError("texts")
        if self.ends_at is not None:
            from_text(self.ends_at)

    def to_json(self) -> dict[str, Any]:
        """Return the fields that may be shown: all but the hash."""
        return {key: value for key, value in asdict(self).items() if key != "sha256"}


def tokens_file(settings: HubSettings) -> Path:
    """Return the path of the tokens that an older gpuvigil has issued."""
    return settings.tokens_file or settings.data_directory / "tokens.json"
