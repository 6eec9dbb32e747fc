"""`gpuvigil infiniband`: reads a fabric from one machine, and ships what it sees as a collector does."""

import threading
from argparse import Namespace
from collections.abc import Sequence
from functools import partial

from gpuvigil.clock import SystemClock
from gpuvigil.config import Config, startup
from gpuvigil.errors import ConfigError
from gpuvigil.log import Log

from ..fabric.seen import Seen
from ..fabric.switches import Switches
from ..fabric.watch import Watch, repeat
from ..shipping import shipping
from .printed import read
from .tools import Fabric

log = Log("infiniband")

_SOONEST_SECONDS = 5.0


def read_switches(fabric: Fabric, before: Switches) -> Seen:
    """The switches that answer; NotReadError and ValueError say why nothing can be said."""
    said = fabric.query()
    names = {guid: it.subject.node for guid, it in before.items()}
    return Seen(switches=read(said.links, said.errors, names))


def _run(config: Config, _: Namespace, stop: threading.Event) -> None:
    settings, clock = config.infiniband, SystemClock()
    if settings.interval_seconds < _SOONEST_SECONDS:
        raise ConfigError(
            f"infiniband.interval_seconds is {settings.interval_seconds:g}: at least {_SOONEST_SECONDS:g}"
        )
    directory = settings.spool_directory
    with shipping(config, "infiniband", directory, settings.spool_bytes, clock) as out:
        fabric = Fabric(directory, settings.timeout_seconds, settings.directory, settings.port)
        memory = directory / "switches.json"
        watch = Watch(partial(read_switches, fabric), out.told_by.cluster, memory, clock, log)
        log.info(
            "reading the fabric",
            cluster=out.told_by.cluster,
            every_seconds=settings.interval_seconds,
        )
        repeat([partial(watch.round, out.put)], stop, settings.interval_seconds, clock)
    log.info("stopped", spool_bytes=out.spool.bytes)


def main(arguments: Sequence[str]) -> int:
    """Read until SIGTERM; returns the exit code."""
    parser = startup.parser(
        "infiniband", "Read the switches of an InfiniBand fabric, and tell the hub."
    )
    return startup.run_service(parser, arguments, _run)
