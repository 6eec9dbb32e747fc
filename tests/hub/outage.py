"""The hub was away while a simulated cluster went on, and comes back to all that waited."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import duckdb

from collector.spool.queue import Spool
from gpuvigil.config import SimulatorSettings
from gpuvigil.model import Incident, RecordKind
from gpuvigil.store.hub import HubStore
from simulator.cluster import build, node_name
from simulator.faults import InjectedFault, change
from simulator.player import Player, Story
from tests.polling import wait_until
from tests.receiver import Received, Receiver
from tests.servers import HubProcess
from tests.services import commands, running

GPUS_PER_NODE = 8
# A node, one start of its collector, a lane: bodies are numbered in each from 1 on.
Lane = tuple[str, str, str]
_SETTINGS = """
[hub]
url = "{url}"
service_token_file = "{service}"
collector_token_file = "{collector}"
[simulator]
nodes = {nodes}
tick_seconds = {tick_seconds}
spool_directory = "{directory}/spool"
faults_file = "{directory}/faults.json"
[analyzer]
tick_seconds = 1
late_after_seconds = 20
# GPUs that are idle now are told rightly, and are no matter of an outage.
idle_after_seconds = 86400
[alerts]
update_seconds = 1
[[alerts.webhooks]]
name = "ops"
url = "{webhook}"
minimum_severity = "info"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """How many nodes, for how long the hub was away, and how often each was read."""

    nodes: int
    span: timedelta
    tick_seconds: float

    def past_faults(self, start: datetime) -> tuple[InjectedFault, ...]:
        """What went wrong meanwhile, and was over before the hub came back."""

        def fault(name: str, node: int, begin: float, gpu: int | None = None) -> InjectedFault:
            port = {} if gpu is not None else {"device": "mlx5_0", "port": "1"}
            at = start + begin * self.span
            place = {"node": node_name(node), "gpu": gpu, **port}
            return InjectedFault(name=name, at=at, cleared_at=at + 0.2 * self.span, **place)  # type: ignore[arg-type]

        return (
            fault("xid79", 1, 0.2, gpu=5),
            fault("xid95", 2, 0.3, gpu=2),
            fault("port-down", 3, 0.4),
        )


def come_back(directory: Path, outage: Outage) -> None:
    """Fill a spool as the outage would have, start everybody, then the hub, and look."""
    with HubProcess(directory / "hub", {"commit_seconds": 0.1}) as hub, Receiver() as receiver:
        start = datetime.now(timezone.utc) - outage.span
        _begin(hub, outage, start)
        hub.stop()
        sent = _fill(directory, outage, start)
        config = configured(directory, hub, receiver, outage)
        with running(directory, config, commands("simulate", "analyze", "alert")):
            time.sleep(2 * outage.tick_seconds)
            hub.start()
            _assert_live_is_fresh(hub, outage)
            _assert_backlog_is_drained(directory, hub, sent, (start, outage))
            assert_nobody_was_told(hub, receiver)
            assert_what_is_new_is_told(directory, receiver, outage)
        hub.stop()
        _assert_lanes_in_order(hub, outage)


def _player(outage: Outage, start: datetime, boot: str) -> Player:
    settings = SimulatorSettings(nodes=outage.nodes, tick_seconds=outage.tick_seconds)
    return Player(settings, build(outage.nodes, GPUS_PER_NODE, settings.seed), start, boot)


def _begin(hub: HubProcess, outage: Outage, start: datetime) -> None:
    """Before the outage all was well: the hub knows every node, and its last numbers."""
    client, player = hub.collector_hub(), _player(outage, start, "before")
    for body in player.opening(start, {}):
        client.request("POST", body.path, body.content, body.headers)
    for body in player.telemetry(start, ()):
        lane = {"Gpuvigil-Lane": "live", "Gpuvigil-Sequence": "1"}
        client.request("POST", body.path, body.content, {**body.headers, **lane})


def _fill(directory: Path, outage: Outage, start: datetime) -> Counter[str]:
    """What the collectors put into their spool meanwhile; lines of telemetry per node."""
    faults, player = outage.past_faults(start), _player(outage, start, "meanwhile")
    spool = Spool(directory / "spool", 256 * 1024 * 1024)
    sent: Counter[str] = Counter()
    ticks = int(outage.span.total_seconds() / outage.tick_seconds)
    list(player.opening(start, {}))
    for tick in range(ticks):
        now = start + timedelta(seconds=tick * outage.tick_seconds)
        for body in (*player.events(now, faults), *player.jobs(now)):
            spool.put(body)
        for body in player.telemetry(now, faults):
            if body.at > start:  # what was before the start is of nobody
                spool.put(body)
                sent[body.headers["Gpuvigil-Node"]] += 1
    spool.close()
    story = Story(
        nodes=outage.nodes,
        gpus_per_node=GPUS_PER_NODE,
        seed=SimulatorSettings().seed,
        origin=start,
        told_at=datetime.now(timezone.utc),
    )
    story.write(directory / "spool" / "story.json")
    with change(directory / "faults.json") as kept:
        kept.extend(faults)
    return sent


def configured(directory: Path, hub: HubProcess, receiver: Receiver, outage: Outage) -> Path:
    config = directory / "everybody.toml"
    config.write_text(
        _SETTINGS.format(
            url=hub.url,
            service=hub.service_token_file,
            collector=hub.collector_token_file,
            nodes=outage.nodes,
            tick_seconds=outage.tick_seconds,
            directory=directory,
            webhook=receiver.url,
        ),
        encoding="utf-8",
    )
    return config


def _assert_live_is_fresh(hub: HubProcess, outage: Outage) -> None:
    """Every node's newest numbers are there while the backlog still comes in."""
    store = HubStore(hub.hub())
    tick = timedelta(seconds=outage.tick_seconds)

    def fresh() -> bool:
        rows = store.latest("node", [], datetime.now(timezone.utc) - 2 * tick)
        return int(rows.num_rows) == outage.nodes

    wait_until("live numbers of every node", fresh, 2 * outage.tick_seconds + 10.0)


def _assert_backlog_is_drained(
    directory: Path, hub: HubProcess, sent: Counter[str], what: tuple[datetime, Outage]
) -> None:
    """The spool is empty, and every line of it is in the store, once."""
    start, outage = what
    spool = directory / "spool"
    now = datetime.now(timezone.utc).timestamp()

    def waiting() -> list[str]:
        """What was measured before now; a file's name says when."""
        names = [file.name for file in spool.glob("*.body")]
        return [name for name in names if int(name.split("-")[1]) < now * 1e6]

    patience = 60.0 + sum(sent.values()) / 20.0
    wait_until("no backlog in the spool", lambda: not waiting(), patience)
    store = HubStore(hub.hub())
    # The last tick was filled up to its beginning only, and the first before it began.
    ticks = int(outage.span.total_seconds() / outage.tick_seconds)
    end = start + timedelta(seconds=(ticks - 1) * outage.tick_seconds, microseconds=1)
    span = (start + timedelta(microseconds=1), end)
    kept = {row["node"]: row["samples"] for row in store.window("node", [], *span).to_pylist()}
    assert kept == sent
    # Each line has a time of its own, so as many times as lines says that none is there twice.
    shortest = timedelta(milliseconds=1)
    for node, lines in sent.items():
        found = store.series("node", [], {"node": node}, span, shortest)
        assert found.num_rows == lines, node


def assert_nobody_was_told(hub: HubProcess, receiver: Receiver) -> None:
    """Two passes later: what was over is over, and no node is called silent for the hub's absence."""
    client = hub.hub()
    sequence = client.changes(-1, [RecordKind.PULSE], 0.0).sequence
    seen = 0

    def passed() -> bool:
        nonlocal seen, sequence
        changes = client.changes(sequence, [RecordKind.PULSE], 1.0)
        sequence = changes.sequence
        seen += sum(record.id == "analyzer" for record in changes.records)
        return seen >= 2

    wait_until("two passes of the analyzer", passed, 180.0)
    told = receiver.wait(lambda _: True, 0.1)
    assert not told, [one.payload["alerts"][0] for one in told]

    def active() -> list[Incident]:
        incidents = [Incident.from_record(it) for it in client.records(RecordKind.INCIDENT)]
        return [it for it in incidents if it.resolved_at is None]

    # What a counter tells is over once it was not seen for the 30 s of `Patience.clear`.
    wait_until("the end of every incident of the past", lambda: not active(), 60.0)
    told = receiver.wait(lambda _: True, 0.1)
    assert not told, [one.payload["alerts"][0] for one in told]


def assert_what_is_new_is_told(directory: Path, receiver: Receiver, outage: Outage) -> None:
    """The silence before was not that of a broken chain."""
    node = node_name(outage.nodes - 1)
    fault = InjectedFault(name="xid79", node=node, gpu=1, at=datetime.now(timezone.utc))
    with change(directory / "faults.json") as kept:
        kept.append(fault)

    def told(all_: list[Received]) -> bool:
        return any(one.payload["alerts"][0]["labels"]["node"] == node for one in all_)

    receiver.wait(told, 120.0)
    with change(directory / "faults.json") as kept:
        kept[-1] = replace(fault, cleared_at=datetime.now(timezone.utc))


def _assert_lanes_in_order(hub: HubProcess, outage: Outage) -> None:
    """Bodies of a lane were committed in the order of their numbers, each once, none missing."""
    lanes = committed(hub)
    assert len({node for node, _, lane in lanes if lane == "backlog"}) == outage.nodes
    for lane, numbers in lanes.items():
        assert sorted(numbers) == list(range(1, len(numbers) + 1)), (lane, numbers)
        assert out_of_order(lane, numbers) == 0, (lane, numbers)


def committed(hub: HubProcess) -> dict[Lane, list[int]]:
    """The numbers of all bodies in the order of their commits; the hub must be down."""
    with duckdb.connect(str(hub.data / "telemetry.duckdb"), read_only=True) as connection:
        rows = connection.execute(
            "SELECT node, boot, lane, first, last FROM seen ORDER BY rowid"
        ).fetchall()
    lanes: dict[Lane, list[int]] = {}
    for node, boot, lane, first, last in rows:
        lanes.setdefault((node, boot, lane), []).extend(range(first, last + 1))
    return lanes


def out_of_order(lane: Lane, numbers: Sequence[int]) -> int:
    """How many bodies were overtaken by a later one of their lane.

    A live body that was tried before the hub was back has waited with the backlog since, in order.
    """
    newest, waited, overtaken = 0, 0, 0
    for number in numbers:
        if number > newest:
            newest = number
        else:
            overtaken += lane[2] != "live" or number <= waited
            waited = number
    return overtaken
