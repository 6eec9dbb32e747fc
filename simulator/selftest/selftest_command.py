"""`gpuvigil selftest`: whether each rule still fires, through the running hub and analyzer.

A marked fault for each rule is sent as collectors would, and the incidents are awaited. They go no
further than that (`gpuvigil.model.selftest_nodes`), and end by themselves when the nodes fall silent.
"""

import argparse
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from collector.spool.remote_write import direct_store
from gpuvigil.clock import Clock, SystemClock, duration
from gpuvigil.config import AnalyzerSettings, Config, secret_source
from gpuvigil.config.startup import parser, run_command
from gpuvigil.errors import ConfigError, HubUnavailable
from gpuvigil.hub_client import Hub, service_hubs
from gpuvigil.hub_client.tls import trust
from gpuvigil.lifecycle import ACTIVE
from gpuvigil.model import (
    SELFTEST_CLUSTER,
    Allocation,
    AllocationState,
    Incident,
    RecordKind,
    readable,
)
from gpuvigil.model.selftest_nodes import OVER_AFTER

from .outcome import Outcome, outcomes, table
from .play import Play
from .sender import Wire

# The analyzer needs a pass to hear of the nodes; the first one that ends may be under way already.
_PASSES, _PASS_SECONDS = 2, 60.0
_LEAST_SECONDS = 120.0
# Incidents of earlier runs are ignored; those of this run may begin as long ago as its history.
_BEFORE = timedelta(hours=2)
_LOOK_SECONDS = 1.0
_MOST = 10_000
_NEVER = threading.Event()  # never set


def main(arguments: Sequence[str]) -> int:
    """Return 0 when every rule fired, 1 when one did not or the hub is away, 2 for a wrong configuration."""
    try:
        return run_command(_parser(), arguments, _run)
    except KeyboardInterrupt:
        print("ended early: what it left behind ends by itself within two minutes")
        return 1


def _run(config: Config, chosen: argparse.Namespace) -> int:
    wait = patience(config.analyzer) if chosen.wait is None else chosen.wait
    return run(config, wait, SystemClock(), print)


def _parser() -> argparse.ArgumentParser:
    commands = parser(
        "selftest", "Inject a marked fault for each rule, and list the rules that did not fire."
    )
    commands.add_argument(
        "--wait",
        type=float,
        metavar="SECONDS",
        help="how long a rule may take to fire; 120 if left out, and longer where a limit is longer",
    )
    return commands


def patience(settings: AnalyzerSettings) -> float:
    """Return how long any rule may take by its own limits and a few passes, in seconds."""
    longest = max(settings.silent_after_seconds, settings.window_seconds)
    return max(_LEAST_SECONDS, longest + 4.0 * settings.tick_seconds)


def run(config: Config, wait_seconds: float, clock: Clock, say: Callable[[str], None]) -> int:
    """Play the faults, wait, print the outcome, and make sure that all of it ends; return the exit code."""
    if config.store.kind == "prometheus":
        raise ConfigError("store.kind: a Prometheus is only read, so no fault can be written to it")
    now = clock.now()
    play = Play(run=f"t{now:%m%dT%H%M}{secrets.token_hex(2)}", began=now, settings=config.analyzer)
    with closing(service_hubs(config.hub)()) as hub, _wire(config, play.run) as wire:
        _end_former(hub, wire, now)
        _check_analyzer(hub, now, config.analyzer)
        say(f"{len(play.faults)} faults on {len(play.nodes)} nodes of cluster {SELFTEST_CLUSTER!r}")
        try:
            found = _played(play, wire, hub, clock, wait_seconds)
            for line in table(found):
                say(line)
        finally:
            _mend(play, wire, clock)
        left = _left_after(play, hub, clock, config)
    for one in left:
        say(f"still stands: {one.title} on {one.label or one.subject.key} ({one.id})")
    return 0 if all(one.seconds is not None for one in found) and not left else 1


def _wire(config: Config, run: str) -> Wire:
    """Return a connection as a collector, with a collector's token where there is one."""
    hub = config.hub
    if hub.collector_token_file is None:
        return Wire(service_hubs(hub), direct_store(config.store), run)
    token = secret_source(hub.collector_token_file, "hub.collector_token_file", "collector token")
    return Wire(partial(Hub, hub.url, token, trust=trust(hub)), direct_store(config.store), run)


def _end_former(hub: Hub, wire: Wire, now: datetime) -> None:
    """End the allocations that a killed earlier run left as held."""
    held = hub.records(
        RecordKind.ALLOCATION, subject=SELFTEST_CLUSTER, states=[AllocationState.HELD.value]
    )
    ended = [replace(one, ended_at=now) for one in readable(held, Allocation.from_record)]
    if ended:
        wire.records(one.to_record() for one in ended)


def _analyzer_at(hub: Hub) -> datetime | None:
    """Return when the analyzer last ended a pass; None before its first."""
    pulse = hub.record(RecordKind.PULSE, "analyzer")
    return None if pulse is None else pulse.at


def _check_analyzer(hub: Hub, now: datetime, settings: AnalyzerSettings) -> None:
    at, longest = _analyzer_at(hub), max(_PASS_SECONDS, 3.0 * settings.tick_seconds)
    if at is None or now - at > timedelta(seconds=longest):
        said = (
            "has never made a pass" if at is None else f"has been silent for {duration(now - at)}"
        )
        raise HubUnavailable(f"the analyzer {said}: start it first ('gpuvigil analyze')")


def _played(
    play: Play, wire: Wire, hub: Hub, clock: Clock, wait_seconds: float
) -> tuple[Outcome, ...]:
    """Send everything, and keep ticking until every rule has fired or the time is up.

    Events are sent once the analyzer has heard of the nodes: two passes have ended by then.
    """
    nodes = play.nodes
    ahead = {node.subject: node.fault.selftest.clock_ahead_seconds for node in nodes}
    wire.lines({node.subject: play.history(node) for node in nodes}, clock.now(), ahead)
    told = {node.subject: play.inventory(node).to_record() for node in nodes}
    wire.inventories(told, clock.now, ahead)
    wire.records(one.to_record() for one in play.allocations())
    speaking = [node for node in nodes if not node.fault.selftest.is_silent]
    passing = max(_PASS_SECONDS, (_PASSES + 2) * play.settings.tick_seconds)
    passes, told_at, seen = {_analyzer_at(hub)}, None, dict[str, float]()
    sent = ticked = began = clock.monotonic()
    while True:
        if told_at is None and len(passes) > _PASSES:
            told_at, began = clock.now(), clock.monotonic()
            wire.records(event.to_record() for event in play.events(told_at))
        incidents = _incidents(hub, play)
        for one in incidents:
            seen.setdefault(one.id, clock.monotonic() - sent)
        found = outcomes(play, incidents, seen, None if told_at is None else began - sent)
        if all(one.seconds is not None for one in found):
            return found
        waited = clock.monotonic() - began
        if told_at is None and waited > passing:
            raise HubUnavailable(f"the analyzer makes no pass in {passing:g} s; see its log")
        if told_at is not None and waited > wait_seconds:
            return found
        if clock.monotonic() - ticked >= play.tick_seconds:
            ticked, now = clock.monotonic(), clock.now()
            wire.lines({node.subject: play.lines(node, now) for node in speaking}, now, ahead)
        clock.wait(_NEVER, _LOOK_SECONDS)
        passes.add(_analyzer_at(hub))


def _incidents(hub: Hub, play: Play) -> list[Incident]:
    """Return the incidents of the run's nodes."""
    since = play.began - timedelta(seconds=play.settings.idle_after_seconds) - _BEFORE
    records = hub.records(RecordKind.INCIDENT, subject=SELFTEST_CLUSTER, since=since, limit=_MOST)
    nodes = {node.subject for node in play.nodes}
    return [
        one for one in readable(records, Incident.from_record) if one.subject.of_node() in nodes
    ]


def _mend(play: Play, wire: Wire, clock: Clock) -> None:
    """End the events and allocations; faults that rest on numbers end once the nodes are silent."""
    now = clock.now()
    held = [one for one in play.allocations() if one.ended_at is None]
    wire.records(
        [
            *(event.to_record() for event in play.cures(now)),
            *(replace(one, ended_at=now).to_record() for one in held),
        ]
    )


def _left_after(play: Play, hub: Hub, clock: Clock, config: Config) -> list[Incident]:
    """Return incidents that stand although their time is over: none, unless gpuvigil itself has a fault."""
    settings = config.analyzer
    most = 2 * OVER_AFTER.total_seconds() + settings.clear_seconds + 3 * settings.tick_seconds
    deadline = clock.monotonic() + most
    active = {state.value for state in ACTIVE}
    while True:
        left = [one for one in _incidents(hub, play) if one.state in active]
        if not left or clock.monotonic() > deadline:
            return left
        clock.wait(_NEVER, _LOOK_SECONDS)
