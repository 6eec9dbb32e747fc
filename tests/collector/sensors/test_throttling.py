"""How long heat slowed the processors down, as Intel's machines count it."""

from pathlib import Path

from collector.sensors.throttling import Throttling

MILLISECONDS, TIMES = "package_throttle_total_time_ms", "package_throttle_count"


class Machine:
    """A /sys of CPUs in packages, and the seconds between looks."""

    def __init__(self, folder: Path, packages: dict[int, int]) -> None:
        self.sys, self.now = folder, 0.0
        self.cpus = folder / "devices/system/cpu"
        (self.cpus / "cpufreq").mkdir(parents=True)
        for cpu, package in packages.items():
            (self.cpus / f"cpu{cpu}/topology").mkdir(parents=True)
            (self.cpus / f"cpu{cpu}/topology/physical_package_id").write_text(f"{package}\n")
        self.throttling = Throttling(folder, lambda: self.now)

    def counts(self, cpu: int, times: int, milliseconds: int | None = None) -> None:
        folder = self.cpus / f"cpu{cpu}/thermal_throttle"
        folder.mkdir(exist_ok=True)
        (folder / TIMES).write_text(f"{times}\n")
        if milliseconds is not None:
            (folder / MILLISECONDS).write_text(f"{milliseconds}\n")

    def look(self, seconds: float = 10.0) -> dict[str, int]:
        self.now += seconds
        return dict(self.throttling.read())


def of(milliseconds: int, times: int) -> dict[str, int]:
    return {"cpu_throttled_milliseconds": milliseconds, "cpu_throttles": times}


def test_each_look_counts_what_the_package_gained_that_gained_most(tmp_path: Path) -> None:
    it = Machine(tmp_path, {0: 0, 1: 0, 2: 1, 10: 1})
    for cpu in (0, 1, 2, 10):
        it.counts(cpu, 70, 9000)
    assert it.look() == of(0, 0), "what was before is not of this run"
    it.counts(0, 71, 9500)
    it.counts(2, 73, 9100)
    assert it.look() == of(500, 3)
    it.counts(2, 73, 9400)
    assert it.look() == of(800, 3)


def test_one_cpu_of_a_package_is_read_and_no_more_often_than_every_ten_seconds(
    tmp_path: Path,
) -> None:
    it = Machine(tmp_path, {0: 0, 1: 0})
    it.counts(0, 1, 100)
    it.counts(1, 1, 100)
    it.look()
    it.counts(1, 5, 600)
    assert it.look() == of(0, 0)
    it.counts(0, 2, 300)
    assert it.look(9.9) == of(0, 0)
    assert it.look(0.1) == of(200, 1)


def test_a_kernel_that_counts_no_time_tells_none(tmp_path: Path) -> None:
    it = Machine(tmp_path, {0: 0, 1: 1})
    it.counts(0, 1)
    it.counts(1, 1)
    it.look()
    it.counts(1, 3)
    assert it.look() == {"cpu_throttles": 2}


def test_a_processor_without_such_files_tells_nothing(tmp_path: Path) -> None:
    assert Throttling(tmp_path / "none").read() == {}
    it = Machine(tmp_path, {0: 0, 1: 1})
    assert it.look() == {}
    (it.cpus / "cpu0/thermal_throttle").mkdir()
    (it.cpus / "cpu0/thermal_throttle/core_throttle_count").write_text("7\n")
    assert it.look() == {}


def test_a_cpu_that_is_switched_off_is_replaced_by_another_of_its_package(tmp_path: Path) -> None:
    it = Machine(tmp_path, {0: 0, 1: 0})
    it.counts(0, 1, 100)
    it.counts(1, 1, 100)
    it.look()
    it.counts(0, 2, 400)
    assert it.look() == of(300, 1)
    for name in (TIMES, MILLISECONDS):
        (it.cpus / "cpu0/thermal_throttle" / name).write_text("")  # as of a CPU that is off
    assert it.look() == {}
    assert it.look(500.0) == {}, "a search is not made again so soon"
    assert it.look(100.0) == of(300, 1)
    it.counts(1, 2, 150)
    assert it.look() == of(350, 2)


def test_a_processor_that_tells_nothing_is_looked_for_again_after_ten_minutes(
    tmp_path: Path,
) -> None:
    it = Machine(tmp_path, {0: 0})
    assert it.look() == {}
    it.counts(0, 1, 100)
    assert it.look(590.0) == {}
    assert it.look(10.0) == of(0, 0)
