"""The command `gpuvigil simulate`: one process that plays every node of a simulated cluster."""

import argparse
import math
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from collector.spool.body import Body
from collector.spool.queue import Spool
from collector.spool.remote_write import direct_store
from collector.spool.shipper import Shipper
from gpuvigil.clock import Clock, SystemClock
from gpuvigil.config import Config, SimulatorSettings, secret_source
from gpuvigil.config.startup import parser, run_service
from gpuvigil.errors import ConfigError
from gpuvigil.hub_client.tls import trust
from gpuvigil.log import Log
from gpuvigil.web.metrics_page import Exporter

from .cluster import build
from .exporter import Nodes, ShownSpool
from .faults import FaultsFile, InjectedFault
from .player import Player, Story, SwitchReporter, switches_file

log = Log("simulator")

# How soon an injected fault is seen, and how finely the nodes' turns are spread.
_STEP_SECONDS = 0.1
_STORY_NAME = "story.json"
_SPOOL_BYTES = 256 * 1024 * 1024
_MOST_CONNECTIONS = 128
_STOP_SECONDS = 5.0


def main(arguments: Sequence[str]) -> int:
    """Play until told to stop; return 0 after a clean stop."""
    commands = parser("simulate", "Run a simulated cluster against the hub.")
    return run_service(commands, arguments, run)


def run(config: Config, chosen: argparse.Namespace, stop: threading.Event) -> None:
    """Ship what the simulated nodes send until `stop`."""
    settings = config.simulator
    if settings.nodes < 1:
        raise ConfigError("simulator.nodes is 0, so there is nothing to simulate")
    token = secret_source(
        config.hub.collector_token_file, "hub.collector_token_file", "collector token"
    )
    clock = SystemClock()
    shown = Nodes(clock, settings.tick_seconds)
    directory, is_shown = settings.spool_directory, settings.metrics_port >= 0
    spool = (
        ShownSpool(directory, _SPOOL_BYTES, shown) if is_shown else Spool(directory, _SPOOL_BYTES)
    )
    # The hub acknowledges telemetry with its next commit, so a connection carries one body a second.
    per_second = settings.nodes / settings.tick_seconds
    shipper = Shipper(
        spool,
        config.hub.url,
        token,
        clock,
        direct_store=direct_store(config.store),
        connections=min(max(math.ceil(per_second * 1.5), 4), _MOST_CONNECTIONS),
        trust=trust(config.hub),
    )
    shipping = threading.Thread(target=shipper.run, args=(stop,), name="shipper")
    shipping.start()
    try:
        with (
            _metrics(settings, shown),
            _switches_told(config, clock, stop) as switches,
        ):
            _player(settings)(config, spool, clock, stop, switches)
    finally:
        stop.set()
        shipping.join(_STOP_SECONDS)


def _metrics(settings: SimulatorSettings, shown: Nodes) -> AbstractContextManager[object]:
    """Serve `/metrics` of the simulated nodes where a port is set."""
    if settings.metrics_port < 0:
        return nullcontext()
    return Exporter(settings.metrics_listen, settings.metrics_port, shown.text, "simulator")


@contextmanager
def _switches_told(config: Config, clock: Clock, stop: threading.Event) -> Iterator[Spool | None]:
    """Yield the spool for reports on switches, which need a service's token, since no collector may send them.

    Yield None without that token: then nobody reads the simulated switches.
    """
    if config.hub.service_token_file is None:
        yield None
        return
    token = secret_source(config.hub.service_token_file, "hub.service_token_file", "service token")
    spool = Spool(config.simulator.spool_directory / "switches", _SPOOL_BYTES)
    shipper = Shipper(spool, config.hub.url, token, clock, connections=1, trust=trust(config.hub))
    shipping = threading.Thread(target=shipper.run, args=(stop,), name="switches")
    shipping.start()
    try:
        yield spool
    finally:
        stop.set()
        shipping.join(_STOP_SECONDS)


def _player(
    settings: SimulatorSettings,
) -> Callable[[Config, Spool, Clock, threading.Event, Spool | None], None]:
    if not settings.fleet:
        return play
    try:
        from . import live  # noqa: PLC0415 - needs numpy and Arrow, which the rest does without
    except ImportError as error:
        raise ConfigError(
            f"simulator.fleet needs numpy and pyarrow ({error}): in a checkout, pip install '.[hub]'"
        ) from error
    watched = _Faults(FaultsFile(settings.faults_file))
    return lambda config, spool, clock, stop, switches: live.play(
        config.simulator, spool, clock, stop, watched.faults, switches
    )


def play(
    config: Config,
    spool: Spool,
    clock: Clock,
    stop: threading.Event,
    switches: Spool | None = None,
) -> None:
    """Put into the spools what the simulated nodes, and the reader of their switches, would send, until `stop`."""
    settings = config.simulator
    now, path = clock.now(), settings.spool_directory / _STORY_NAME
    before = Story.read(path)
    story = Story.begin(settings, now if before is None else before.origin)
    cluster = build(settings.nodes, settings.gpus_per_node, settings.seed)
    player = Player(settings, cluster, story.origin, secrets.token_hex(4))
    _put(spool, player.opening(now, {} if before is None else before.held()))
    replace(story, told_at=now).write(path)
    log.info("simulating", nodes=settings.nodes, gpus=settings.nodes * settings.gpus_per_node)
    watched = _Faults(FaultsFile(settings.faults_file))
    known = switches_file(settings.spool_directory, before, story)
    reader = SwitchReporter(cluster, secrets.token_hex(4), known)
    while not stop.is_set():
        now, faults = clock.now(), watched.faults()
        _put(spool, player.events(now, faults))
        if _put(spool, player.jobs(now)):
            replace(story, told_at=now).write(path)
        _put(spool, player.telemetry(now, faults, spool.oldest_seconds(now), spool.bytes))
        if switches is not None:
            _put(switches, reader.bodies(now, faults))
        clock.wait(stop, _STEP_SECONDS)


class _Faults:
    """The faults of the file; while it cannot be read, the last ones, with one line of log on why."""

    def __init__(self, file: FaultsFile) -> None:
        self._file = file
        self._last: tuple[InjectedFault, ...] = ()
        self._told = ""

    def faults(self) -> tuple[InjectedFault, ...]:
        try:
            self._last = self._file.faults()
        except (OSError, ValueError) as error:
            if str(error) != self._told:
                log.warning("faults file cannot be read", why=str(error))
            self._told = str(error)
        return self._last


def _put(spool: Spool, bodies: Iterable[Body]) -> int:
    count = 0
    for body in bodies:
        spool.put(body)
        count += 1
    return count
