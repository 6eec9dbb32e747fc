"""What a fleet went through: its incidents' steps as the analyzer wrote them, and what was true."""

import hashlib
import heapq
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from evaluation.fingerprint import DETECTORS, fleet_hash, hash_of, judge_hash
from evaluation.replay import Replay
from gpuvigil.config import AnalyzerSettings
from gpuvigil.lifecycle import Signal
from gpuvigil.model import (
    Acknowledgement,
    Inventory,
    Severity,
    Silence,
    Subject,
    Transition,
)
from simulator.fleet import Fleet, FleetSettings, Truth, build

BLOCK = timedelta(hours=1)
# The share of what asks for somebody that somebody takes, and after how many minutes.
TAKEN, MINUTES = 0.4, (2.0, 90.0)
# The share of drained nodes whose maintenance was told before.
PLANNED = 0.5
_BEGINS = frozenset({Signal.CONFIRMED.value, Signal.RETURNED.value, Signal.FLAPPED.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """All that alerts hears of, in the order in which it happened, and what a judge knows beside."""

    steps: tuple[Transition, ...]
    silences: tuple[Silence, ...]
    inventories: tuple[Inventory, ...]
    truths: tuple[Truth, ...]
    start: datetime
    end: datetime


class Attended(Replay):
    """An analyzer in fast time, and somebody who takes some of what it finds."""

    def __init__(self, seed: int, tick_seconds: float) -> None:
        window = max(AnalyzerSettings().window_seconds, tick_seconds)
        settings = AnalyzerSettings(tick_seconds=tick_seconds, window_seconds=window)
        super().__init__(settings, ahead=BLOCK)
        self._seed = seed
        self._read = 0
        self._coming: list[tuple[datetime, str, Subject]] = []

    def _go_to(self, now: datetime) -> None:
        super()._go_to(now)
        for step in self.transitions[self._read :]:
            if _asks_for_somebody(step):
                chance = Random(f"{self._seed} {step.incident} {step.number}")
                if chance.random() < TAKEN:
                    at = step.at + timedelta(minutes=chance.uniform(*MINUTES))
                    heapq.heappush(self._coming, (at, step.incident, step.subject))
        self._read = len(self.transitions)
        while self._coming and self._coming[0][0] <= now:
            _, incident, subject = heapq.heappop(self._coming)
            taken = Acknowledgement(
                id=f"taken-{incident}-{now.isoformat()}",
                incident=incident,
                subject=subject,
                by="somebody on call",
                note="",
                at=now,
            )
            self._analysis.acknowledge(taken, now)
            self._keep()


def play(settings: FleetSettings, tick_seconds: float) -> Played:
    """Play a fleet to its end, with a pass of the detectors every `tick_seconds`."""
    fleet = build(settings)
    replay = Attended(settings.seed, tick_seconds)
    for happening in fleet.happenings():
        if happening.kind == "hub restart":
            replay.hub_away(happening.start, happening.end)
    inventories: dict[str, Inventory] = {}
    for block in fleet.blocks(block_seconds=BLOCK.total_seconds()):
        inventories |= {one.subject.key: one for one in block.inventories}
        replay.feed(block)
    return Played(
        steps=tuple(sorted(replay.transitions, key=lambda one: one.at)),
        silences=tuple(_maintenance(fleet)),
        inventories=tuple(inventories.values()),
        truths=tuple(fleet.truths()),
        start=settings.start,
        end=settings.end,
    )


def kept(settings: FleetSettings, tick_seconds: float, folder: Path) -> Played:
    """As `play`, once: what came of it stays in `folder` until the fleet or the detectors change."""
    named = f"{settings} {tick_seconds} {fleet_hash()} {judge_hash()} {hash_of(DETECTORS)}"
    file = folder / f"{hashlib.sha256(named.encode()).hexdigest()[:16]}.pickle"
    if file.exists():
        found: Played = pickle.loads(file.read_bytes())
        return found
    played = play(settings, tick_seconds)
    folder.mkdir(parents=True, exist_ok=True)
    file.with_suffix(".part").write_bytes(pickle.dumps(played))
    file.with_suffix(".part").replace(file)
    return played


def _asks_for_somebody(step: Transition) -> bool:
    severity = Severity(step.snapshot["body"]["severity"])
    return step.signal in _BEGINS and severity is not Severity.INFO


def _maintenance(fleet: Fleet) -> Iterator[Silence]:
    """Of some of the drained nodes somebody said beforehand that nobody need hear of them."""
    for number, one in enumerate(fleet.happenings()):
        chance = Random(f"{fleet.settings.seed} maintenance {number}")
        if one.kind == "drain" and chance.random() < PLANNED:
            yield Silence(
                id=f"maintenance-{number}",
                matchers=(f'node="{one.subject.node}"',),
                by="somebody",
                reason="planned maintenance",
                at=one.start - timedelta(hours=1),
                starts_at=one.start,
                ends_at=min(one.end, one.start + timedelta(hours=12)),
            )
