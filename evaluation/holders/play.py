"""`python -m evaluation.holders.play PART [FLEETS]`: play fleets of a part, and add the results.

Fleets have each kind of fault once (`evaluation.fleets`), with the scenes of `evaluation.holders.scenes` in them. The
seeds of the report follow from the commit, so that nobody knew them before; a tree with changes is refused. A fleet
that the same commit has played is not played again. Writes `evaluation/holders.json`; `make docs` makes
`docs/idle-accuracy.md` from it.
"""

import argparse
import fcntl
import json
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from analyzer.correlation.all_detectors import DETECTORS
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Allocation, Event, Incident, RecordKind, Transition, job_holder
from simulator.fleet import Block, FleetSettings
from simulator.fleet.kinds import KINDS

from ..fingerprint import ROOT, hash_of, is_committed
from ..fleets import EveryKind, release_seed
from ..replay import Replay
from ..run import stamp
from .endings import Over, asked_at, judged, over
from .idle import LOOK, NOTICES, IdleJudge
from .scenes import CLUSTER, PARTITION, STANDBY_PARTITION, Staged, real, staged
from .spans import rows
from .truth import Truth

RESULT = ROOT / "evaluation/holders.json"
_BLOCK = timedelta(minutes=30)
# What the fleets of one part have in common.
_SAME = ("commit", "fleet", "code")
# Half an hour of idleness needs no more than a pass a minute; events are handled when they come.
_PASS_SECONDS = 60.0
# Healthy nodes added to those of the part, each of which has a fault: small jobs go there.
_SOUND_NODES = 12
_FIRST_LOOK = timedelta(minutes=35)
# The code that is judged here, beside the analyzer and its incidents, and the judge.
_JUDGED = (
    "accounting/efficiency/idle_reason.py",
    "accounting/efficiency/idle_query.py",
    "gpuvigil/faults/gpu_states.py",
    "alerts/idle/idle_notice.py",
    "alerts/idle/idle_samples.py",
    "accounting/job_ending.py",
    "dashboard/lists/idle_reasons.py",
    *(
        f"evaluation/holders/{name}.py"
        for name in ("endings", "idle", "measured", "play", "scenes", "spans", "truth")
    ),
)
REPORT = "report"
# A small fleet that the tests play again, with what the judges need.
SLICE = "slice"
_SLICE_SEED = 14500
_SLICE_KINDS = (
    *("off the bus", "ECC contained", "disk full", "dead node", "GSP hang", "VBIOS drift"),
    "stale mount",
)
_SLICE_WORKLOADS = (
    "cpu offload",
    "data starved",
    "fine-tuning",
    "notebook",
    "steady inference",
    "sweep",
)


class Watched(Replay):
    """A replay that keeps every version of every incident."""

    def __init__(self) -> None:
        super().__init__(AnalyzerSettings(tick_seconds=_PASS_SECONDS), DETECTORS, _BLOCK)
        self._versions: list[Incident] = []

    def said(self) -> list[Incident]:
        """Return the versions since the last call."""
        found, self._versions = self._versions, []
        return found

    def _keep(self) -> None:
        for unit in self._analysis.to_write():
            for record in unit:
                if record.kind is RecordKind.INCIDENT:
                    self._versions.append(Incident.from_record(record))
                elif record.kind is RecordKind.TRANSITION:
                    self.transitions.append(Transition.from_record(record))


def code_hash() -> str:
    """Return 16 hex digits that change with the code that plays and judges here."""
    return hash_of(_JUDGED)


def settings_of(part: str, seed: int) -> FleetSettings:
    """Return a fleet with a fault of each kind, and healthy nodes; the slice has a few kinds and no healthy nodes."""
    chosen = EveryKind(kinds=tuple(KINDS))
    if part == SLICE:
        chosen = EveryKind(kinds=_SLICE_KINDS, workloads=_SLICE_WORKLOADS)
    # As collectors do by default: storage that does not answer shows nowhere else.
    fleet = replace(chosen(seed), host_sensors=True)
    return fleet if part == SLICE else replace(fleet, nodes=fleet.nodes + _SOUND_NODES)


def seed_of(part: str, number: int, commit: str) -> int:
    """Return the seed of a part's fleet of that number; that of the slice is the same for every commit."""
    return _SLICE_SEED + number if part == SLICE else release_seed(commit, number, "holders")


def play(settings: FleetSettings) -> dict[str, Any]:
    """Play one fleet: return what was reported beside what is true, as rows of `spans`, and counts of endings."""
    scene = staged(settings)
    fleet, replay = scene.fleet, Watched()
    for happening in fleet.happenings():
        if happening.kind == "hub restart":
            replay.hub_away(happening.start, happening.end)
    playing = _Playing(scene)
    for block in _marked(fleet.blocks(block_seconds=_BLOCK.total_seconds()), scene):
        replay.feed(block)
        playing.go_through(block, replay.said())
    counted = judged(playing.ends, playing.events, playing.asked)
    return {
        "idle": [one.to_json() for one in rows(playing.judge, playing.truth)],
        "endings": [[*key, count] for key, count in sorted(counted.items())],
    }


class _Playing:
    """The knowledge from moment to moment, and the questions asked then."""

    def __init__(self, scene: Staged) -> None:
        self._settings = scene.fleet.settings
        self.truth = Truth(scene)
        self.judge = IdleJudge(self.truth, AnalyzerSettings(), self._settings.start)
        self.events: list[Event] = []
        self.ends = over(scene.fleet, scene.hanging | frozenset(scene.scenes))
        self._asks = sorted(self.ends, key=self._asked_at)
        self.asked: dict[int, tuple[Incident, ...]] = {}
        self._allocations: dict[str, Allocation] = {}
        self._coming: list[Allocation] = []
        self._incidents: dict[str, Incident] = {}

    def _asked_at(self, one: Over) -> datetime:
        return asked_at(one, self._settings.end)

    def go_through(self, block: Block, versions: Iterable[Incident]) -> None:
        """Go through the minutes of a block; `versions` are those of incidents within it."""
        self.judge.rows.take(block.tables["gpu"], block.arrivals["gpu"])
        self._coming += block.allocations
        self.events += block.events
        waiting = deque(sorted(versions, key=lambda one: one.updated_at))
        now = block.start + NOTICES
        while now <= block.end:
            while waiting and waiting[0].updated_at <= now:
                newer = waiting.popleft()
                self._incidents[newer.id] = newer
            self._minute(now)
            now += NOTICES

    def _minute(self, now: datetime) -> None:
        while self._asks and self._asked_at(self._asks[0]) <= now:
            self.asked[self._asks.pop(0).job.number] = tuple(self._incidents.values())
        self._tell(now)
        held = [one for one in self._allocations.values() if one.ended_at is None]
        stood = tuple(self._incidents.values())
        self.judge.notices(now, held, stood)
        since = now - self._settings.start
        if since >= _FIRST_LOOK and not since % LOOK:
            self.judge.look(now, held, stood)

    def _tell(self, now: datetime) -> None:
        """Take the allocations that were reported until now."""
        later = []
        for one in self._coming:
            if (one.ended_at or one.started_at) <= now:
                self._allocations[one.id] = one
            else:
                later.append(one)
        self._coming = later


def _marked(blocks: Iterable[Block], scene: Staged) -> Iterator[Block]:
    """Yield the blocks under a real cluster's name, with the partition of each job."""
    standby = {
        job_holder(10_000 + number)
        for number, of_job in scene.scenes.items()
        if of_job.name == "standby by declaration"
    }

    for block in blocks:
        yield replace(
            block,
            tables={name: _named(table) for name, table in block.tables.items()},
            events=tuple(replace(one, subject=real(one.subject)) for one in block.events),
            inventories=tuple(replace(one, subject=real(one.subject)) for one in block.inventories),
            allocations=tuple(
                replace(
                    one,
                    subject=real(one.subject),
                    partition=STANDBY_PARTITION if one.holder in standby else PARTITION,
                )
                for one in block.allocations
            ),
        )


def _named(table: pa.Table) -> pa.Table:
    place = table.column_names.index("cluster")
    names = pa.DictionaryArray.from_arrays(pa.array([0] * len(table), pa.int32()), [CLUSTER])
    return table.set_column(place, "cluster", names)


def main(arguments: Sequence[str]) -> int:
    """Play the fleets that are not there yet; return 2 for a tree with changes."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.holders.play", description=__doc__)
    parser.add_argument("part", choices=(REPORT, SLICE))
    parser.add_argument("fleets", type=int, nargs="?", default=1)
    chosen = parser.parse_args(arguments)
    mine = {**stamp(), "code": code_hash()}
    if chosen.part == REPORT and not is_committed(mine["commit"]):
        return 2
    command = f"python -m evaluation.holders.play {chosen.part} {chosen.fleets}"
    for number in range(chosen.fleets):
        seed = seed_of(chosen.part, number, mine["commit"])
        before = read()["runs"].get(f"{chosen.part}/{seed}")
        if before and all(before[key] == mine[key] for key in _SAME):
            continue
        found = play(settings_of(chosen.part, seed))
        _keep({"part": chosen.part, "seed": seed, **mine, "command": command, **found})
        print(f"{chosen.part}/{seed} played", flush=True)
    return 0


def read(path: Path = RESULT) -> dict[str, Any]:
    """Return the results; empty when there are none yet."""
    if not path.exists():
        return {"runs": {}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _keep(entry: Mapping[str, Any], path: Path = RESULT) -> None:
    """Add the entry; results of the part by another commit are removed. Several programs may play at a time."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _put(entry, path)


def _put(entry: Mapping[str, Any], path: Path) -> None:
    runs = {
        key: one
        for key, one in read(path)["runs"].items()
        if one["part"] != entry["part"] or all(one[it] == entry[it] for it in _SAME)
    }
    runs[f"{entry['part']}/{entry['seed']}"] = entry
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(one)}" for key, one in sorted(runs.items()))
    aside = path.with_suffix(".part")
    aside.write_text(f'{{"runs": {{\n{lines}\n}}}}\n', encoding="utf-8")
    os.replace(aside, path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
