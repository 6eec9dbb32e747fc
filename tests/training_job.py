"""A job of eight ranks on a node of the fake driver: the collector reads it, the analyzer judges it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from analyzer.detectors import gpu_hung, gpu_slow
from collector.nccl.dump_files import STABLE_SECONDS, StartRank, read
from collector.nccl.flight_recorder import collectives
from collector.owners.processes import ProcessTable
from collector.rows.events import EventMaker
from collector.rows.gpu_changes import Silence
from collector.rows.gpu_history import GpuBook
from collector.rows.monotone_counters import MonotoneCounters
from collector.samples.messages import Tick
from collector.sensors.steps import Steps
from gpuvigil.model import Collective, Finding, Subject
from tests.analyzer.scene import SETTINGS, Sample, Scene, allocation
from tests.collector.test_reader import Reader
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until

ROOT = Path(__file__).parent.parent
RANKS, TICK_SECONDS = 8, 1.0
NODE = Subject(cluster="c", node="n1")


class TrainingJob:
    """Ranks of `tests.training`, one on each GPU, with what the detectors find."""

    def __init__(self, directory: Path, driver: FakeDriver) -> None:
        self.directory = directory / "steps"
        self.directory.mkdir()
        self.driver = driver
        self._launcher = subprocess.Popen(
            [
                *("nice", "-n", "5", sys.executable, "-m", "tests.training"),
                str(RANKS),
                str(self.directory),
            ],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._launcher.stdout is not None
        self.ranks = [int(self._launcher.stdout.readline()) for _ in range(RANKS)]
        for number, pid in enumerate(self.ranks):
            driver.set_processes(number, {pid: 10**9})
        self.reader: Reader | None = None
        self._sensor = Steps(self.directory, Path("/proc"), ProcessTable(Path("/proc")).start_ticks)
        events = EventMaker(node=NODE, boot="b")
        silence = Silence(unknown_seconds=9.0, event_seconds=9.0)
        self._book = GpuBook(events, {}, MonotoneCounters(), silence)
        self._scene = Scene(settings=replace(SETTINGS, window_seconds=20.0))
        self.gpus: dict[int, Subject] = {}  # by rank

    def begin(self) -> None:
        """Wait until all ranks have reported a step, and read the node from then on."""
        # Eight starting ranks leave a small machine little time for a reader.
        wait_until("the ranks' first steps", self._has_begun, timeout_seconds=240.0)
        self.reader = Reader(self.driver.environment())

    def _has_begun(self) -> bool:
        assert self._launcher.poll() is None
        return all((self.directory / str(pid)).exists() for pid in self.ranks)

    def look(self) -> list[Finding]:
        """Return what is found a tick later."""
        last = self._scene.now
        assert self.reader is not None
        tick = self.reader.tick_with(
            lambda it: (it.at - last).total_seconds() >= TICK_SECONDS and bool(it.gpus)
        )
        self._take(tick)
        window = self._scene.window((gpu_hung.DETECTOR, gpu_slow.DETECTOR))
        return [*gpu_hung.hung_jobs(window), *gpu_slow.slow_gpus(window)]

    def _take(self, tick: Tick) -> None:
        of_gpus = {gpu.identity.uuid: gpu for gpu in tick.gpus if gpu.identity is not None}
        self.gpus = {gpu.index: replace(NODE, gpu=uuid) for uuid, gpu in of_gpus.items()}
        on = {uuid: gpu.processes for uuid, gpu in of_gpus.items() if gpu.processes is not None}
        self._book.see_jobs(self._sensor.read(on, tick.at), {})
        news = self._book.update(tick, tick.at, None)
        samples = [
            Sample(subject=replace(NODE, gpu=row.tags["uuid"]), at=row.at, fields=row.fields)
            for row in news.rows
            if row.measurement.name == "gpu"
        ]
        since = tick.at - timedelta(minutes=2)
        self._scene = replace(
            self._scene,
            now=tick.at + timedelta(microseconds=1),
            samples=(*(s for s in self._scene.samples if s.at > since), *samples),
            allocations=tuple(allocation(gpu, "job 7") for gpu in self.gpus.values()),
        )

    def until(
        self, wanted: Callable[[list[Finding]], bool], within_seconds: float
    ) -> tuple[list[Finding], float]:
        """Return the first findings that are as wanted, and after how many seconds they came."""
        began = time.monotonic()
        while True:
            found, seconds = self.look(), time.monotonic() - began
            if wanted(found):
                return found, seconds
            assert seconds < within_seconds, found

    def step(self) -> int:
        """Return the last step that all ranks have reported."""
        newest = [s.fields.get("step") for s in self._scene.samples[-RANKS:]]
        return min((int(step or 0) for step in newest), default=0)

    def send(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to a rank; the driver no longer reports a killed one."""
        os.kill(self.ranks[rank], number)
        if number is signal.SIGKILL:
            self.driver.set_processes(rank, {})

    def dumped(self, ranks: int) -> Sequence[Collective]:
        """Return what the Flight Recorders of the ranks that are left say, which they are asked for."""
        folder = self.directory.with_name("dumps")
        folder.mkdir()
        wait_until("the dumps", lambda: len(list(folder.glob("trace_rank_*"))) == ranks, 60.0)
        time.sleep(STABLE_SECONDS)  # a younger file may still be being written
        dumps = read([str(folder)], os.getuid(), 60.0, time.sleep, StartRank())
        return collectives(dumps, "job 7")

    def end(self) -> None:
        self._launcher.kill()
        self._launcher.communicate()
        if self.reader is not None:
            self.reader.end()
