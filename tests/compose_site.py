"""A site of compose.yaml: one profile, a node with two GPUs, a receiver, and a witness of what was acknowledged."""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.compose_engine import TICK_SECONDS, UP_SECONDS, Project, Witness
from tests.composed import SERVICES, of_profile, substituted
from tests.containers import PROGRAMS, Machines, base_image
from tests.nvml_fake import FakeDriver, build
from tests.polling import wait_until

# A collector keeps samples in memory for this long (collector/spool/queue.py), so as to write nothing to
# disk.
COLLECTOR_SECONDS = 5.0
PROFILES = ("embedded", "victoriametrics", "influxdb")
WANTED = (*PROGRAMS, "victoria-metrics", "influxd")
MESSAGE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The built images, and the node's driver."""

    project: Project
    driver: FakeDriver


@contextmanager
def engine(cache: Path, folder: Path) -> Iterator[Engine]:
    """Build every image; steps that need a network or minutes use the cache of earlier runs."""
    for one in (folder, *folder.parents[:2]):
        one.chmod(one.stat().st_mode | 0o011)
    places = {name: folder / name for name in ("machines", "base", "node", "checkout")}
    for place in places.values():
        place.mkdir()
        place.chmod(0o755)
    library = places["node"] / "library"
    shutil.copytree(build(folder).parent, library)
    driver = FakeDriver(places["node"], library, gpus=2, node=1)
    image = base_image(cache, places["base"])
    with Machines(places["machines"], image) as machines:
        project = Project(machines, places["checkout"], cache, places["node"])
        project.build()
        project.build_stores()
        yield Engine(project=project, driver=driver)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A running profile, with the times in milliseconds at which its containers were killed."""

    profile: str
    project: Project
    driver: FakeDriver
    witness: Witness
    killed: dict[str, float] = field(default_factory=dict)
    incidents: set[str] = field(default_factory=set)

    @property
    def services(self) -> list[str]:
        """The services that keep running, each after those that it depends on."""
        all_ = of_profile(self.profile)
        return [one for one in all_ if SERVICES[one].get("restart") != "on-failure"]

    def await_health(self) -> None:
        for one in self.services:
            if "healthcheck" in SERVICES[one]:
                wait_until(f"{one} is healthy", lambda: self.project.is_healthy(one), UP_SECONDS)  # noqa: B023
                assert self.project.state(one, "State.Health.Status") == "healthy"

    def assert_bounded(self) -> None:
        """Assert that the engine limits and restarts every container as compose.yaml has it."""
        for one in self.services:
            wanted, state = SERVICES[one], partial(self.project.state, one)
            amount, unit = re.fullmatch(r"(\d+)([mg])", substituted(wanted["mem_limit"])).groups()  # type: ignore[union-attr]
            assert int(state("HostConfig.PidsLimit")) == wanted["pids_limit"]
            assert int(state("HostConfig.Memory")) == int(amount) * {"m": 2**20, "g": 2**30}[unit]
            assert state("HostConfig.RestartPolicy.Name") == wanted["restart"] == "unless-stopped"
            assert state("HostConfig.ReadonlyRootfs") == "true"
            assert state("HostConfig.LogConfig.Size") == "50MB"

    def told(self, gpu: int) -> None:
        """Wait for the message about a lost GPU, and remember the incidents so far."""
        uuid = f"GPU-00000001-0000-4000-8000-{gpu:012}"
        wait_until(
            f"a message about {uuid}",
            lambda: any(uuid in json.dumps(one) for one in self.project.messages()),
            MESSAGE_SECONDS,
        )
        self.incidents.update(self.project.found(self.profile)["incidents"])

    def versions(self) -> set[str]:
        """Return the versions of the hub and of the node's collector, as the hub reports them."""
        return set(self.project.found(self.profile).get("versions", ()))

    def kill(self, service: str) -> None:
        self.killed[service] = time.time() * 1000
        self.project.kill(service)

    def without_network(self, seconds: float, meanwhile: Callable[[], None]) -> int:
        """Pull the cables of hub and store for `seconds`, and return how many ticks there were meanwhile.

        `meanwhile` is called as soon as they are pulled.
        """
        before = len(self.witness.seen["tick"])
        pulled = [one for one in self.services if one in ("hub", self.profile)]
        for one in pulled:
            self.project.cable(one, "down")
        try:
            meanwhile()
            time.sleep(seconds)
            # The engine checks from inside the container, where nothing is wrong.
            assert self.project.is_healthy("hub")
        finally:
            for one in pulled:
                self.project.cable(one, "up")
        return len(self.witness.seen["tick"]) - before

    def assert_nothing_is_lost(self, seconds: float = UP_SECONDS) -> None:
        """Assert that every tick seen, every line acknowledged, and every incident is stored."""
        seen = {what: list(times) for what, times in self.witness.seen.items()}
        assert seen["tick"]
        assert seen["kept"]

        def is_all_there() -> bool:
            found = self.project.found(self.profile)
            if not found:
                return False
            missing["kept"] = _without(seen["kept"], found["kept"])
            lost = _without(seen["tick"], found["tick"])
            missing["tick"] = [at for at in lost if not self._may_be_lost(at)]
            missing["incidents"] = sorted(self.incidents - set(found["incidents"]))
            return not any(missing.values())

        missing: dict[str, list[int] | list[str]] = {}
        try:
            wait_until("everything is kept", is_all_there, seconds)
        except AssertionError as error:
            raise AssertionError(f"lost: {missing}, killed: {self.killed}") from error

    def _may_be_lost(self, at: int) -> bool:
        """Return whether a tick was read just before the collector was killed."""
        collector = "collector" if self.profile == "embedded" else f"collector-{self.profile}"
        ended = self.killed.get(collector)
        return ended is not None and 0 <= ended - at <= 1000 * (COLLECTOR_SECONDS + TICK_SECONDS)


def _without(seen: Iterable[int], found: Iterable[int]) -> list[int]:
    """Return the times in `seen` that are not in `found`; stores truncate milliseconds that `/metrics` rounds."""
    there = {at + off for at in found for off in (-1, 0, 1)}
    return sorted(set(seen) - there)


@contextmanager
def site(running: Engine, profile: str) -> Iterator[Site]:
    """Start a profile, and remove it afterwards."""
    project = running.project
    for gpu in (0, 1):
        running.driver.restore(gpu)
    try:
        project.up(profile)
        witness = project.watch()
        yield Site(profile=profile, project=project, driver=running.driver, witness=witness)
        witness.stop()
    finally:
        project.down(profile)
