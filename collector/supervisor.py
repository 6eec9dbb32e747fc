"""`gpuvigil collect`: the agent's parts, put together and run until it is told to stop."""

import os
import socket
import threading
from argparse import Namespace
from collections.abc import Sequence

from gpuvigil import command
from gpuvigil.clock import SystemClock
from gpuvigil.config import Config, secret_source
from gpuvigil.log import Log

from . import frugal
from .agent import Agent
from .envelope import Sender
from .shipper import Shipper
from .spool import Spool

log = Log("collector")

_DRAIN_SECONDS = 5.0


def _run(config: Config, _: Namespace, stop: threading.Event) -> None:
    frugal.settle()
    settings, clock = config.collector, SystemClock()
    token = secret_source(
        config.hub.collector_token_file, "hub.collector_token_file", "collector token"
    )
    spool = Spool(settings.spool_directory, settings.spool_bytes)
    shipper = Shipper(spool, config.hub.url, token, clock)
    node = settings.node or socket.gethostname()
    sender = Sender(cluster=settings.cluster, node=node, boot=os.urandom(8).hex())
    agent = Agent(settings, sender, spool, clock)
    if settings.metrics_port >= 0:
        agent.exporter.serve(settings.metrics_listen, settings.metrics_port)
    log.info("collecting", node=node, cluster=settings.cluster, metrics_port=agent.exporter.port)
    ended = threading.Event()
    shipping = threading.Thread(target=shipper.run, args=(ended,), name="ship", daemon=True)
    shipping.start()
    try:
        agent.run(stop)
    finally:
        ended.set()
        shipping.join(_DRAIN_SECONDS)


def main(arguments: Sequence[str]) -> int:
    """Run the agent until SIGTERM; returns the exit code."""
    parser = command.parser("collect", "Read this node's sensors and send them to the hub.")
    return command.run_service(parser, arguments, _run)
