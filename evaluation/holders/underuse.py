"""`python -m evaluation.holders.underuse FLEETS`: who is told that little of a GPU is used, and who should be.

Realistic fleets (missing samples and columns, faults, inference, notebooks, ragged work) for some hours, in
which some jobs are changed in the plan: used low and steadily, in short bursts, just above the limit, with pauses,
or after a long start. The truth comes from the plan; near a limit either answer is right. Seeds are drawn from the
commit, and `evaluation/underuse.json` keeps what came of them, for `docs/idle-accuracy.md`; with `--first` seeds
from there on are played to tune with, and nothing is kept. Prints a line of JSON for each seed, and one for all.
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from itertools import groupby
from random import Random

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accounting.efficiency.idle_reason import IDLE
from gpuvigil.clock import micros
from gpuvigil.faults import Blame, where
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import Incident, Subject
from simulator.fleet import Block, Fleet
from simulator.fleet.changes import Change, Operation, Quantity, apply
from simulator.fleet.holding import Holding
from simulator.fleet.jobs import Job
from simulator.fleet.plan import make
from simulator.fleet.world import world

from ..fingerprint import ROOT, is_committed
from ..fleets import release_seed
from ..run import stamp
from .play import Watched
from .scenes import Staged
from .truth import TICK_SECONDS, Truth

RESULT, _USE = ROOT / "evaluation/underuse.json", "underuse"
MINUTE, HOUR = 60.0, 3600.0
(FAULT,) = where(lambda row: row.blame is Blame.USE)
NODES, HOURS = 16, 8.0
# More faults than a site has, so that jobs wait for them here as well.
_FAULTS_PER_1000_NODE_DAYS = 300.0
_LOOK, _BLOCK = timedelta(minutes=5), timedelta(minutes=30)
SPAN, START = 2.0 * HOUR, 0.5 * HOUR
# An incident may stand until the next look.
_IDLE_WINS = timedelta(seconds=SPAN + START) + 2 * _LOOK
# Workloads that serve requests.
_ON_CALL = frozenset({"steady", "bursty", "quiet", "autoscaled", "notebook"})
# Changed jobs last at least this long; the share of them that are changed.
_LEAST_SECONDS, _CHANGED = 3.5 * HOUR, 0.6
# With fewer of the samples than this, or a longer gap, nobody can tell.
_PRESENT, _GAP_LOOKS = 0.3, 2
_HARDLY = 10.0  # percent: from here on the multiprocessors decide


class Right(str, Enum):
    """What should be reported about a GPU at a moment."""

    LITTLE = "little"
    EITHER = "either"
    ENOUGH = "enough"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a job is made to do: `percent` of the time is used, or it stands still except for some spans."""

    name: str
    percent: tuple[float, float] | None = None
    works: tuple[float, float] = (0.0, 0.0)  # seconds
    rests: tuple[float, float] = (0.0, 0.0)
    only_start: bool = False


SCENES = (
    Scene(name="low and steady", percent=(2.0, 8.0)),
    Scene(name="in bursts", works=(20.0, 60.0), rests=(12 * MINUTE, 20 * MINUTE)),
    Scene(name="just above", percent=(14.0, 30.0)),
    Scene(name="pauses of checkpoints", works=(15 * MINUTE, 40 * MINUTE), rests=(120.0, 600.0)),
    Scene(name="a start of 25 minutes", rests=(25 * MINUTE, 25 * MINUTE), only_start=True),
)


def staged(seed: int) -> tuple[Staged, Mapping[int, float], Mapping[int, str]]:
    """Return the fleet, and by rows of its jobs the percent that is read, and what they do."""
    settings = world(
        seed,
        nodes=NODES,
        days=HOURS / 24.0,
        faults_per_1000_node_days=_FAULTS_PER_1000_NODE_DAYS,
    )
    plan, chance = make(settings), Random(f"underuse {seed}")
    own: list[Change] = []
    percents: dict[int, float] = {}
    names: dict[int, str] = {}
    for row, job in enumerate(plan.jobs):
        start, end = max(job.start, 0.0), min(job.end, HOURS * HOUR)
        scene, share = chance.choice(SCENES), chance.random()
        fits = end - start >= _LEAST_SECONDS and not _is_on_call(job) and job.stopped is None
        if not fits or share >= _CHANGED:
            continue
        names[row] = scene.name
        if scene.percent is not None:
            percents[row] = chance.uniform(*scene.percent)
            own += _reads(job, percents[row], start, end)
        else:
            own += _stands_still(scene, job, start, end, chance)
    played = replace(plan, changes=(*plan.changes, *own))
    fleet = Fleet(settings, played)
    return (
        Staged(fleet=fleet, scenes={}, idle_gpus={}, hanging=frozenset(), changes=plan.changes),
        percents,
        names,
    )


def _is_on_call(job: Job) -> bool:
    return job.workload.key.split()[0] in _ON_CALL


def _reads(job: Job, percent: float, start: float, end: float) -> Iterator[Change]:
    fields = {"utilization_percent": percent, "memory_utilization_percent": percent / 2.0}
    fields["sm_activity_percent"] = percent / 2.0
    for name, value in fields.items():
        yield Change(
            on=Quantity.GPU,
            name=name,
            targets=job.gpus,
            start=start,
            end=end,
            how=Operation.SET,
            value=value,
        )


def _stands_still(
    scene: Scene, job: Job, start: float, end: float, chance: Random
) -> Iterator[Change]:
    at = job.start if scene.only_start else start
    while at < end:
        until = min(at + _ticks(chance.uniform(*scene.rests)), end)
        if until > 0.0:
            yield Change(
                on=Quantity.WORK,
                name="stall",
                targets=job.gpus,
                start=at,
                end=until,
                how=Operation.SET,
            )
        if scene.only_start:
            return
        at = until + _ticks(chance.uniform(*scene.works))


def _ticks(seconds: float) -> float:
    return max(round(seconds / TICK_SECONDS), 1) * TICK_SECONDS


class UnderuseTruth:
    """The truth at each look, for every GPU."""

    def __init__(self, scene: Staged, percents: Mapping[int, float]) -> None:
        self.truth = truth = Truth(scene)
        plan = truth.plan
        ticks = np.arange(len(truth.seconds), dtype=np.int64)
        holding = Holding(plan.jobs, plan.topology)
        nobody = np.zeros((len(ticks), plan.topology.gpus), dtype=np.uint64)
        asked = holding.ask(truth.seconds, ticks, nobody, 0.0)
        self.memory = asked.memory
        self.used = 100.0 * truth.used
        self.sm = np.where(truth.used > 0.0, 100.0 * asked.sm, 0.0)
        for row, percent in percents.items():
            mine = truth.jobs == row
            self.used[mine], self.sm[mine] = percent, percent / 2.0
        self.spun = np.zeros(self.used.shape)
        for change in plan.changes:
            if change.on is Quantity.WORK and change.name == "spin":
                apply(change, self.spun, truth.seconds)
        # Number of samples of utilisation and of SM activity in each look's time.
        looks = int(HOURS * HOUR / _LOOK.total_seconds())
        self.measured = np.zeros((2, looks, plan.topology.gpus))
        self._uuids = {uuid: number for number, uuid in enumerate(plan.topology.uuids)}

    def take(self, block: Block, start: datetime) -> None:
        """Count the samples that were measured and arrived before the next look."""
        table = block.tables["gpu"]
        if not len(table):
            return
        uuids = [self._uuids[uuid] for uuid in table.column("uuid").to_pylist()]
        at = table.column("at").cast(pa.int64()).to_numpy()
        late = block.arrivals["gpu"].cast(pa.int64()).to_numpy(zero_copy_only=False) - at
        looks = ((at - micros(start)) / _LOOK.total_seconds() / 1e6).astype(np.int64)
        there = (looks >= 0) & (looks < self.measured.shape[1])
        there &= late <= _LOOK.total_seconds() * 1e6
        for place, field in enumerate(("utilization_percent", "sm_activity_percent")):
            if field in table.column_names:
                known = there & table.column(field).is_valid().to_numpy()
                np.add.at(self.measured[place], (looks[known], np.array(uuids)[known]), 1.0)

    def at(self, seconds: float) -> dict[int, tuple[int, Right]]:
        """Return for every held GPU its job's row and the right report."""
        truth, end = self.truth, int(seconds / TICK_SECONDS)
        begin, first = (
            max(end - int(span / TICK_SECONDS), 0) for span in (SPAN, SPAN + START + 5 * MINUTE)
        )
        used, sm = self.used[begin:end].mean(axis=0), self.sm[begin:end].mean(axis=0)
        excused: NDArray[np.bool_] = np.any(
            truth.blocked[first:end] | truth.touched[first:end], axis=0
        )
        still = _longest(self.used[first:end] <= 0.0) >= (START - 5 * MINUTE) / TICK_SECONDS
        found, known = {}, self._known(seconds)
        for gpu in np.flatnonzero(truth.jobs[end - 1] != truth.none).tolist():
            row = int(truth.jobs[end - 1, gpu])
            job = truth.plan.jobs[row]
            memory = float(self.memory[begin:end, gpu].max())
            right = _little(float(used[gpu]), float(sm[gpu]), memory)
            held = seconds - job.start - SPAN - START
            if self.spun[first:end, gpu].any():
                right = Right.EITHER  # kernels that only wait for a broken GPU are no work
            elif _is_on_call(job) or held < -5 * MINUTE:
                right = Right.ENOUGH
            elif right is Right.LITTLE and (
                held < 5 * MINUTE
                or seconds < SPAN + 5 * MINUTE
                or job.stopped is not None
                or excused[list(job.gpus)].any()
                or still[gpu]
                # A node of the job that is not heard may be down, and all its job with it.
                or not known[0, list(job.gpus)].all()
                or not known[int(used[gpu] >= _HARDLY), gpu]
            ):
                right = Right.EITHER
            found[gpu] = row, right
        return found

    def _known(self, seconds: float) -> NDArray[np.bool_]:
        """Return whether enough was measured of utilisation and of SM activity, by GPU."""
        last = int(seconds / _LOOK.total_seconds())
        span = slice(max(last - int(SPAN / _LOOK.total_seconds()), 0), last)
        counted = self.measured[:, span]
        expected = counted.shape[1] * _LOOK.total_seconds() / TICK_SECONDS
        gaps = np.array([_longest(of_place == 0.0) for of_place in counted])
        enough = counted.sum(axis=1) >= _PRESENT * expected
        found: NDArray[np.bool_] = enough & (gaps < _GAP_LOOKS)
        return found


def _little(used: float, sm: float, memory: float) -> Right:
    if used < 9.0 or (used >= 82.0 and sm < 47.0) or (sm < 23.0 and memory < 0.24):
        return Right.LITTLE
    # An incident goes on until a quarter more is used.
    near = used < 13.0 or (used >= 62.0 and sm < 64.0) or (sm < 32.0 and memory < 0.32)
    return Right.EITHER if near else Right.ENOUGH


def _longest(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return, by column, the most consecutive rows that are true."""
    run = np.zeros(mask.shape[1], dtype=np.int64)
    most = run.copy()
    for row in mask:
        run = np.where(row, run + 1, 0)
        most = np.maximum(most, run)
    return most


_Look = tuple[datetime, int, Right, bool]  # time, job, right report, whether it is reported


def play(seed: int) -> Counter[str]:
    """Play one fleet and return the counts."""
    scene, percents, names = staged(seed)
    fleet, replay, told = scene.fleet, Watched(), UnderuseTruth(scene, percents)
    for happening in fleet.happenings():
        if happening.kind == "hub restart":
            replay.hub_away(happening.start, happening.end)
    known: dict[str, Incident] = {}
    idle_at: dict[int, datetime] = {}
    of_gpu: dict[int, list[_Look]] = defaultdict(list)
    start, uuids = fleet.settings.start, list(told.truth.plan.topology.uuids)
    numbers = {uuid: number for number, uuid in enumerate(uuids)}
    for block in fleet.blocks(block_seconds=_BLOCK.total_seconds()):
        replay.feed(block)
        told.take(block, start)
        versions = sorted(replay.said(), key=lambda one: one.updated_at)
        now = block.start + _LOOK
        while now <= block.end:
            known |= {one.id: one for one in versions if one.updated_at <= now}
            versions = [one for one in versions if one.updated_at > now]
            said = {numbers[uuid] for uuid in _told_of(known.values(), FAULT) if uuid in numbers}
            idle = _told_of(known.values(), IDLE)
            idle_at |= {numbers[uuid]: now for uuid in idle if uuid in numbers}
            for gpu, (row, right) in told.at((now - start).total_seconds()).items():
                # By the readings it was idle for half an hour: then only that is reported.
                was_idle = gpu in idle_at and now - idle_at[gpu] <= _IDLE_WINS
                is_either = was_idle and right is Right.LITTLE
                # A report about a holder that has just gone does not count for the next one.
                before = of_gpu[gpu][-1] if of_gpu[gpu] else None
                is_old = before is not None and before[1] != row and before[3]
                its_right = Right.EITHER if is_either else right
                of_gpu[gpu].append((now, row, its_right, gpu in said and not is_old))
            now += _LOOK
    kinds = {row: names.get(row, job.workload.key) for row, job in enumerate(told.truth.plan.jobs)}
    return _counted(of_gpu.values(), kinds)


def _told_of(incidents: Iterable[Incident], fault: str) -> Iterator[str]:
    for one in incidents:
        if one.fault == fault and State(one.state) in ACTIVE:
            for key in {one.subject.key, *one.members}:
                yield Subject.parse(key).gpu or ""


def _counted(gpus: Iterable[Sequence[_Look]], kinds: Mapping[int, str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for looks in gpus:
        for row, of_job in groupby(looks, key=lambda one: one[1]):
            found += _of_holder(list(of_job), kinds[row])
    return found


def _of_holder(looks: Sequence[_Look], kind: str) -> Counter[str]:
    """Count the spans of one GPU in one job."""
    found: Counter[str] = Counter()
    rights = [right for *_, right, _ in looks]
    for right, run in groupby(range(len(looks)), key=lambda n: rights[n]):
        places = list(run)
        if right is Right.LITTLE and len(places) > 1:
            said = [n for n in places if looks[n][3]]
            found["little"] += 1
            found["little, said"] += bool(said)
            if said:
                found["minutes late"] += 5 * (said[0] - places[0])
            else:
                found[f"missed: {kind}"] += 1
    for is_said, run in groupby(range(len(looks)), key=lambda n: looks[n][3]):
        if is_said:
            places = list(run)
            right_so = all(rights[n] is not Right.ENOUGH for n in places)
            found["said"] += 1
            found["said, rightly"] += right_so
            if not right_so:
                found[f"wrong: {kind}"] += 1
    if all(right is Right.ENOUGH for right in rights):
        found["look-alikes"] += 1
        found["look-alikes blamed"] += any(said for *_, said in looks)
    return found


def main(arguments: Sequence[str]) -> int:
    """Play the seeds, a line for each, then the sums; 2 for a tree with changes."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.holders.underuse")
    parser.add_argument("fleets", type=int)
    parser.add_argument("--first", type=int, help="to tune with: nothing is kept")
    chosen = parser.parse_args(arguments)
    stamped = stamp()
    if chosen.first is None and not is_committed(stamped["commit"]):
        return 2
    numbers = range(chosen.fleets)
    seeds = (
        [release_seed(stamped["commit"], number, _USE) for number in numbers]
        if chosen.first is None
        else [chosen.first + number for number in numbers]
    )
    total: Counter[str] = Counter()
    for number, seed in enumerate(seeds, 1):
        found = play(seed)
        total += found
        print(json.dumps({"seed": seed, **dict(sorted(found.items()))}), flush=True)
        if chosen.first is None:
            kept = {**stamped, "seeds": seeds[:number], "counts": dict(sorted(total.items()))}
            RESULT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({"all": chosen.fleets, **dict(sorted(total.items()))}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
