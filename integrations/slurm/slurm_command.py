"""`gpuvigil slurm`: asks Slurm's controller from one machine, and ships what it says as a collector does."""

import threading
from argparse import Namespace
from collections.abc import Sequence

from gpuvigil.clock import SystemClock
from gpuvigil.config import Config, startup
from gpuvigil.errors import ConfigError
from gpuvigil.log import Log

from ..shipping import shipping
from .client import Slurm
from .pace import Pace
from .watch import Watch

log = Log("slurm")

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
    with shipping(config, "slurm", directory, settings.spool_bytes, clock) as out:
        told_by = out.told_by
        pace = Pace(settings.interval_seconds, settings.requests_per_minute)
        slurm = Slurm(told_by, pace, clock.monotonic, settings.timeout_seconds, settings.directory)
        watch = Watch(slurm, pace, directory, told_by, clock)
        log.info("asking Slurm", cluster=told_by.cluster, every_seconds=settings.interval_seconds)
        watch.run(stop, out.put)
    log.info("stopped", requests=slurm.requests, spool_bytes=out.spool.bytes)


def main(arguments: Sequence[str]) -> int:
    """Ask until SIGTERM; returns the exit code."""
    parser = startup.parser(
        "slurm", "Ask Slurm's controller about jobs and nodes, and tell the hub."
    )
    return startup.run_service(parser, arguments, _run)
