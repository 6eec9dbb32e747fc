"""Ships to the hub what a scheduler or a fabric answered: by a spool, as a collector does."""

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from collector.spool.batches import Sender
from collector.spool.queue import Spool
from collector.spool.shipper import Shipper
from gpuvigil.clock import Clock
from gpuvigil.config import Config
from gpuvigil.hub_client.tls import trust
from gpuvigil.model import Record, Subject

from .scheduler_token import scheduler_token

_DRAIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """Records on their way; `told_by` is this machine."""

    told_by: Subject
    spool: Spool
    sender: Sender
    clock: Clock

    def put(self, records: Sequence[Record]) -> None:
        """Keep them until the hub has them."""
        self.spool.put(self.sender.records(records, self.clock.now()))


@contextmanager
def shipping(
    config: Config, name: str, directory: Path, spool_bytes: int, clock: Clock
) -> Iterator[Outgoing]:
    """Ships with a scheduler's token called `name`, and a little while longer at the end.

    ConfigError where no file of a token is named, or the one that is cannot be read.
    """
    spool = Spool(directory, spool_bytes, limit_seconds=config.collector.spool_hours * 3600)
    told_by = Subject(
        cluster=config.collector.cluster, node=config.collector.node or socket.gethostname()
    )
    token = scheduler_token(config.hub, told_by.cluster, name, config.hub.collector_token_file)
    shipper = Shipper(
        spool,
        config.hub.url,
        token.read,
        clock,
        connections=1,
        trust=trust(config.hub),
        token_todo=token.todo,
    )
    sender = Sender(cluster=told_by.cluster, node=told_by.node, boot=os.urandom(8).hex())
    ended = threading.Event()
    thread = threading.Thread(target=shipper.run, args=(ended,), name="shipper", daemon=True)
    thread.start()
    try:
        yield Outgoing(told_by=told_by, spool=spool, sender=sender, clock=clock)
    finally:
        ended.set()
        thread.join(_DRAIN_SECONDS)
