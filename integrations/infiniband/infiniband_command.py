"""`gpuvigil infiniband`: reads a fabric from one machine, and ships what it sees as a collector does."""

import os
import socket
import threading
from argparse import Namespace
from collections.abc import Sequence

from collector.spool.batches import Sender
from collector.spool.queue import Spool
from collector.spool.shipper import Shipper
from gpuvigil.clock import SystemClock
from gpuvigil.config import Config, startup
from gpuvigil.errors import ConfigError
from gpuvigil.hub_client.tls import trust
from gpuvigil.log import Log
from gpuvigil.model import Record

from ..scheduler_token import scheduler_token
from .tools import Fabric
from .watch import Watch

log = Log("infiniband")

_DRAIN_SECONDS = 5.0
_SOONEST_SECONDS = 5.0


def _run(config: Config, _: Namespace, stop: threading.Event) -> None:
    settings, clock, cluster = config.infiniband, SystemClock(), config.collector.cluster
    if settings.interval_seconds < _SOONEST_SECONDS:
        raise ConfigError(
            f"infiniband.interval_seconds is {settings.interval_seconds:g}: at least {_SOONEST_SECONDS:g}"
        )
    directory = settings.spool_directory
    spool = Spool(
        directory, settings.spool_bytes, limit_seconds=config.collector.spool_hours * 3600
    )
    token = scheduler_token(config.hub, cluster, "infiniband", config.hub.collector_token_file)
    shipper = Shipper(
        spool,
        config.hub.url,
        token.read,
        clock,
        connections=1,
        trust=trust(config.hub),
        token_todo=token.todo,
    )
    node = config.collector.node or socket.gethostname()
    sender = Sender(cluster=cluster, node=node, boot=os.urandom(8).hex())
    fabric = Fabric(directory, settings.timeout_seconds, settings.directory, settings.port)
    watch = Watch(fabric, cluster, directory / "switches.json", clock)

    def tell(records: Sequence[Record]) -> None:
        spool.put(sender.records(records, clock.now()))

    log.info("reading the fabric", cluster=cluster, every_seconds=settings.interval_seconds)
    ended = threading.Event()
    shipping = threading.Thread(target=shipper.run, args=(ended,), name="shipper", daemon=True)
    shipping.start()
    try:
        watch.run(stop, settings.interval_seconds, tell)
    finally:
        ended.set()
        shipping.join(_DRAIN_SECONDS)
        log.info("stopped", spool_bytes=spool.bytes)


def main(arguments: Sequence[str]) -> int:
    """Read until SIGTERM; returns the exit code."""
    parser = startup.parser(
        "infiniband", "Read the switches of an InfiniBand fabric, and tell the hub."
    )
    return startup.run_service(parser, arguments, _run)
