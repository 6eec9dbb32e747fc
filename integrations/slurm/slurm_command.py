"""`gpuvigil slurm`: asks Slurm's controller from one machine, and ships what it says as a collector does."""

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
from gpuvigil.model import Record, Subject

from ..scheduler_token import scheduler_token
from .changes import Jobs
from .client import Slurm
from .pace import Pace
from .watch import Watch

log = Log("slurm")

_DRAIN_SECONDS = 5.0
_SOONEST_SECONDS = 5.0
_REQUESTS_OF_A_ROUND = 3  # jobs, once more where there is no JSON, nodes


def _run(config: Config, _: Namespace, stop: threading.Event) -> None:
    settings, clock = config.slurm, SystemClock()
    if settings.interval_seconds < _SOONEST_SECONDS:
        raise ConfigError(
            f"slurm.interval_seconds is {settings.interval_seconds:g}: at least {_SOONEST_SECONDS:g}"
        )
    if settings.requests_per_minute < _REQUESTS_OF_A_ROUND:
        raise ConfigError(f"slurm.requests_per_minute must be at least {_REQUESTS_OF_A_ROUND}")
    directory = settings.spool_directory
    spool = Spool(
        directory, settings.spool_bytes, limit_seconds=config.collector.spool_hours * 3600
    )
    told_by = Subject(
        cluster=config.collector.cluster, node=config.collector.node or socket.gethostname()
    )
    before = config.hub.collector_token_file
    token = scheduler_token(config.hub, told_by.cluster, "slurm", before)
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
    pace = Pace(settings.interval_seconds, settings.requests_per_minute)
    slurm = Slurm(told_by, pace, clock.monotonic, settings.timeout_seconds, settings.directory)
    watch = Watch(slurm, pace, Jobs(told_by, directory / "jobs.json"), told_by, clock)

    def tell(records: Sequence[Record]) -> None:
        spool.put(sender.records(records, clock.now()))

    log.info("asking Slurm", cluster=told_by.cluster, every_seconds=settings.interval_seconds)
    ended = threading.Event()
    shipping = threading.Thread(target=shipper.run, args=(ended,), name="shipper", daemon=True)
    shipping.start()
    try:
        watch.run(stop, tell)
    finally:
        ended.set()
        shipping.join(_DRAIN_SECONDS)
        log.info("stopped", requests=slurm.requests, spool_bytes=spool.bytes)


def main(arguments: Sequence[str]) -> int:
    """Ask until SIGTERM; returns the exit code."""
    parser = startup.parser(
        "slurm", "Ask Slurm's controller about jobs and nodes, and tell the hub."
    )
    return startup.run_service(parser, arguments, _run)
