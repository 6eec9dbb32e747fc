"""`gpuvigil collect`: the agent's parts, put together and run until told to stop."""

import os
import socket
import threading
from argparse import Namespace
from collections.abc import Sequence

from gpuvigil.clock import Clock, SystemClock
from gpuvigil.config import CollectorSettings, Config, secret_source, startup
from gpuvigil.hub_client import Hub
from gpuvigil.hub_client.tls import trust
from gpuvigil.log import Log
from gpuvigil.model import Subject

from .agent import privileges, release_command
from .agent.agent import Agent
from .agent.control_socket import ControlServer
from .agent.hub_restore import restore
from .processes import memory_trim
from .spool.batches import Sender
from .spool.queue import Spool
from .spool.remote_write import direct_store
from .spool.shipper import Shipper

log = Log("collector")

_DRAIN_SECONDS = 5.0
_LAST_WORD_SECONDS = 1.0
_SPREAD = 0.5  # share of a tick after the start within which nodes begin to send


def _run(config: Config, _: Namespace, stop: threading.Event) -> None:
    memory_trim.settle()
    privileges.log_lacks(config.collector)
    settings, clock = config.collector, SystemClock()
    token_file = config.hub.collector_token_file
    token = secret_source(token_file, "hub.collector_token_file", "collector token")
    spool = Spool(
        settings.spool_directory,
        settings.spool_bytes,
        limit_seconds=settings.spool_hours * 3600,
    )
    shipper = Shipper(
        spool,
        config.hub.url,
        token,
        clock,
        direct_store=direct_store(config.store),
        spread_seconds=settings.tick_seconds * _SPREAD,
        trust=trust(config.hub),
        token_todo=f"write a collector token that this hub knows into {token_file}",
    )
    node = settings.node or socket.gethostname()
    sender = Sender(cluster=settings.cluster, node=node, boot=os.urandom(8).hex())
    agent = Agent(settings, sender, spool, clock)
    if settings.metrics_port >= 0:
        agent.exporter.serve(settings.metrics_listen, settings.metrics_port)
    log.info("collecting", node=node, cluster=settings.cluster, metrics_port=agent.exporter.port)
    ended = threading.Event()
    server = _open_control_server(settings, agent)
    if agent.needs_restore:
        of = Subject(cluster=sender.cluster, node=sender.node)
        _start_restore(Hub(config.hub.url, token, trust=trust(config.hub)), of, agent, clock, ended)
    shipping = threading.Thread(target=shipper.run, args=(ended,), name="shipper", daemon=True)
    shipping.start()
    try:
        agent.run(stop)
    finally:
        _wait_for(spool, shipper, clock)
        ended.set()
        if server is not None:
            server.close()
        shipping.join(_DRAIN_SECONDS)
        log.info("stopped", spool_bytes=spool.bytes, dropped_bodies=spool.dropped)


def _wait_for(spool: Spool, shipper: Shipper, clock: Clock) -> None:
    """Wait briefly until the hub has everything in the spool, if it is reachable at all."""
    never, deadline = threading.Event(), clock.monotonic() + _LAST_WORD_SECONDS
    while spool.bytes and shipper.reachable and clock.monotonic() < deadline:
        clock.wait(never, 0.02)


def _open_control_server(settings: CollectorSettings, agent: Agent) -> ControlServer | None:
    try:
        return ControlServer(settings.spool_directory, agent.handle)
    except OSError as error:
        log.warning("the agent cannot be told to release the driver", why=str(error))
        return None


def _start_restore(
    hub: Hub, node: Subject, agent: Agent, clock: Clock, stop: threading.Event
) -> None:
    """Ask the hub what this node had, in a thread of its own."""
    arguments = (hub, node, agent.restore, clock, stop)
    threading.Thread(target=restore, args=arguments, name="restore", daemon=True).start()


def main(arguments: Sequence[str]) -> int:
    """Run the agent until SIGTERM, or send a request to a running one; return the exit code."""
    parser = startup.parser("collect", "Read this node's sensors and send them to the hub.")
    release_command.add_options(parser)
    chosen = parser.parse_args(arguments)
    if release_command.is_asked(chosen):
        return release_command.run(parser, chosen)
    return startup.run_service(parser, arguments, _run)
