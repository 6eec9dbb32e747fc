"""Faults of simulated nodes through their own `/metrics` into the shipped rules, as they are shipped.

A page each 15 s, as Prometheus scrapes it. On one node a fault lasts for as long as its rules ask for, on another one
that is just short of it, or is none. What fires on the first is the whole list, and nothing does on the second.
"""

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from gpuvigil.clock import ManualClock
from gpuvigil.config import SimulatorSettings
from simulator.cluster import build
from simulator.exporter import Nodes
from simulator.faults import InjectedFault
from simulator.player import Player
from tests.test_prometheus_rules import RULES, read

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
SCRAPE = timedelta(seconds=15)
CALM_MINUTES = 11
BAD, WELL = "sim-000", "sim-001"
PLAYED = re.compile(f'node="({BAD}|{WELL})"')
# The first half of them is held by a training each.
pytestmark = pytest.mark.slow
SETTINGS = SimulatorSettings(nodes=4, gpus_per_node=1, tick_seconds=SCRAPE.total_seconds())
ASKED = frozenset(re.findall(r"\bgpuvigil_\w+", RULES.read_text(encoding="utf-8")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What happens where for how many seconds; and what would have to last for less, or is another fault."""

    name: str
    fires: Sequence[str]
    seconds: float = 3600.0
    short: float = 3600.0  # on the other node
    other: str = ""  # there; the same, unless said otherwise
    minutes: int = 8  # until it is looked at
    port: bool = False
    node: bool = False


STORIES = (
    Story(
        name="xid79",
        fires=("GpuvigilXidCritical", "GpuvigilGpuLost", "GpuvigilGpusMissing"),
        other="xid13",
    ),
    Story(name="xid48", fires=("GpuvigilXidCritical", "GpuvigilEccUncorrected"), other="xid31"),
    Story(name="xid95", fires=("GpuvigilXidCritical", "GpuvigilEccUncorrected"), other="xid13"),
    Story(name="heat", fires=("GpuvigilGpuHot",), seconds=75, short=15),
    Story(name="nvlink-errors", fires=("GpuvigilNvlinkErrors",), seconds=15, short=9, minutes=3),
    Story(name="gpu-lost", fires=("GpuvigilGpuLost",), seconds=105, short=45, minutes=4),
    Story(name="gpu-lost", fires=("GpuvigilGpuLost", "GpuvigilGpusMissing"), seconds=345, short=45),
    Story(name="idle", fires=("GpuvigilGpuIdleHeld",), seconds=3660, short=3540, minutes=65),
    Story(
        name="port-down", fires=("GpuvigilPortDown",), seconds=105, short=45, minutes=4, port=True
    ),
    Story(
        name="bad-cable", fires=("GpuvigilPortErrors",), seconds=30, short=15, minutes=3, port=True
    ),
    Story(
        name="driver-hang",
        fires=("GpuvigilDriverSilent",),
        seconds=165,
        short=105,
        minutes=5,
        node=True,
    ),
    Story(
        name="node-silent",
        fires=("GpuvigilNodeSilent",),
        seconds=450,
        short=300,
        minutes=9,
        node=True,
    ),
)


def faults(story: Story) -> tuple[InjectedFault, InjectedFault]:
    at = NOON + timedelta(minutes=CALM_MINUTES)
    port = {"device": "mlx5_0", "port": "1"}
    place: dict[str, Any] = port if story.port else {} if story.node else {"gpu": 0}
    bad = InjectedFault(
        name=story.name, node=BAD, at=at, cleared_at=at + timedelta(seconds=story.seconds), **place
    )
    end = at + timedelta(seconds=story.short)
    return bad, replace(bad, name=story.other or story.name, node=WELL, cleared_at=end)


def pages(story: Story) -> Iterator[str]:
    """What Prometheus would be shown, from the calm before on."""
    clock = ManualClock(NOON)
    player = Player(SETTINGS, build(4, 1, 1), NOON, "boot")
    nodes = Nodes(clock, SETTINGS.tick_seconds)
    for body in player.opening(NOON, {}):
        nodes.take(body)
    for _ in range(scrapes(story)):
        now = clock.now()
        known = [one for one in faults(story) if one.at <= now]
        for body in (*player.events(now, known), *player.telemetry(now, known)):
            nodes.take(body)
        yield nodes.text()
        clock.advance(SCRAPE.total_seconds())


def scrapes(story: Story) -> int:
    return int(timedelta(minutes=CALM_MINUTES + story.minutes) / SCRAPE)


def series(story: Story) -> list[dict[str, str]]:
    """The same in promtool's notation; a series that is gone is stale, as Prometheus has it."""
    values: defaultdict[str, list[str]] = defaultdict(list)
    for number, page in enumerate(pages(story)):
        for line in page.splitlines():
            name, _, value = line.rpartition(" ")
            if name.partition("{")[0] in ASKED and PLAYED.search(name):
                told = values[name]
                missed = number - len(told)
                told += ["stale" if told and told[-1][0] not in "s_" else "_"][:missed]
                told += ["_"] * (number - len(told))
                told.append(value)
    for told in values.values():
        if len(told) < scrapes(story):
            told.append("stale")
    return [{"series": name, "values": " ".join(told)} for name, told in values.items()]


def test_each_fault_fires_its_rules_and_what_is_just_short_of_it_none(
    needs: Callable[[str, str], str], tmp_path: Path
) -> None:
    program = needs("promtool", "scripts/install-test-servers")
    fired = 'count by (alertname, node) (max_over_time(ALERTS{alertstate="firing"}[3h]))'
    tests = [
        {
            "name": f"{story.name} for {story.seconds:g} s",
            "interval": "15s",
            "input_series": series(story),
            "promql_expr_test": [
                {
                    "expr": fired,
                    "eval_time": f"{CALM_MINUTES + story.minutes}m",
                    "exp_samples": [
                        {"labels": f'{{alertname="{alert}",node="{BAD}"}}', "value": 1}
                        for alert in story.fires
                    ],
                }
            ],
        }
        for story in STORIES
    ]
    file = tmp_path / "tests.yml"
    whole = {"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": tests}
    # YAML holds JSON.
    file.write_text(json.dumps(whole), encoding="utf-8")
    done = subprocess.run(
        [program, "test", "rules", file], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ten_sorts_of_faults_and_every_rule_about_them_are_played() -> None:
    assert len({story.name for story in STORIES}) >= 10
    told = {alert for story in STORIES for alert in story.fires}
    assert told <= {rule["alert"] for rule in read(RULES)}
