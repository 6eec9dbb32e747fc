"""What the collector last read, where a check has no answer of its own."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from collector.agent.newest_samples import NewestSamples
from collector.check.agent_samples import CollectorAnswer, completed, parse
from collector.check.driver_silence import unjudged
from collector.check.facts import DriverFacts, Facts
from collector.check.rules import findings
from collector.samples.messages import LOADED, NO_DRIVER, RELEASED, GpuTick, Tick
from gpuvigil.clock import ManualClock, to_text
from gpuvigil.model import Unmeasured
from tests.collector.check.nodes import HEALTHY, a_node, identity

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Collector:
    """A collector that ticks every 10 s."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.newest = NewestSamples(self.clock, 10.0)

    def answer(self, **status: Any) -> CollectorAnswer:
        return parse({"ok": True, **status, "newest": self.newest.plain()}, NOW)


def read(index: int, **changes: Any) -> GpuTick:
    values = {"values": {"utilization_percent": 90}, "slow": dict(HEALTHY), **changes}
    return GpuTick(index=index, identity=identity(index), **values)


def tick(*gpus: GpuTick, state: str = LOADED, **more: Any) -> Tick:
    return Tick(at=NOW, state=state, driver="570", gpus=gpus, **more)


def busy(**changes: Any) -> Facts:
    """A check of two GPUs whose calls had no time."""
    return a_node(2, **{"driver": None, "gpus": {}, "called": {"driver": 0.1}, **changes})


@pytest.fixture
def collector() -> Collector:
    collector = Collector()
    collector.newest.update(tick(read(0), read(1)))
    return collector


def faults(facts: Facts) -> list[tuple[str, bool]]:
    return [(finding.fault, finding.certain) for finding in findings(facts)]


def test_where_a_check_had_no_answer_the_collectors_stands(collector: Collector) -> None:
    facts = completed(busy(), collector.answer())
    assert faults(facts) == []
    assert unjudged(facts) == {}
    assert facts.gpus[1].values is not None
    assert facts.gpus[1].values["pcie_width"] == HEALTHY["pcie_width"]
    collector.newest.update(tick(read(0), read(1, values=None, slow=None, reason=Unmeasured.LOST)))
    facts = completed(busy(), collector.answer())
    assert faults(facts) == [("gpu_lost", True)]
    assert facts.gpus[1].failure == "lost, as the collector read it 0 s ago"


@pytest.mark.parametrize(("seconds", "left"), [(30.0, []), (30.1, ["driver"])])
def test_what_is_older_than_three_ticks_says_nothing_of_now(
    collector: Collector, seconds: float, left: list[str]
) -> None:
    collector.clock.advance(seconds)
    assert list(unjudged(completed(busy(), collector.answer()))) == left


def test_a_gpu_whose_sweep_is_under_way_keeps_the_age_of_its_numbers(collector: Collector) -> None:
    for _ in range(4):
        collector.clock.advance(10.0)
        collector.newest.update(tick(read(0), read(1, values=None, slow=None)))
    facts = completed(busy(), collector.answer())
    assert list(unjudged(facts)) == ["GPU 1"]
    collector.newest.update(tick(read(0), read(1, values=None, slow=None, silent_seconds=40.0)))
    assert faults(completed(busy(), collector.answer())) == [("gpu_silent", True)]


def test_the_checks_own_answer_stands_before_the_collectors(collector: Collector) -> None:
    collector.newest.update(tick(read(0), read(1, values=None, slow=None, reason=Unmeasured.LOST)))
    assert faults(completed(a_node(2), collector.answer())) == []


def test_a_call_that_hangs_since_after_the_collectors_reading_is_the_newer_word(
    collector: Collector,
) -> None:
    collector.clock.advance(5.0)
    hangs = busy(called={"driver": 4.9})
    assert faults(completed(hangs, collector.answer())) == [("driver_silent", False)]
    assert faults(completed(busy(called={"driver": 5.1}), collector.answer())) == []


def test_a_driver_that_the_collector_has_no_answer_of_is_silent(collector: Collector) -> None:
    since = to_text(NOW - timedelta(seconds=45))
    collector.newest.update(tick(state=LOADED, silent_seconds=45.0))
    said = collector.answer(driver_silent_since=since)
    assert faults(completed(busy(), said)) == [("driver_silent", True)]


def test_states_without_gpus(collector: Collector) -> None:
    collector.newest.update(tick(state=NO_DRIVER))
    facts = completed(busy(), collector.answer())
    assert facts.driver is not None
    assert facts.driver.reason is Unmeasured.DRIVER_NOT_LOADED
    collector.newest.update(tick(state="nvmlInit: read error (NVML code 18)"))
    assert faults(completed(busy(), collector.answer())) == [("driver_mismatch", True)]
    collector.newest.update(tick(state=RELEASED))
    until = to_text(NOW + timedelta(minutes=9))
    facts = completed(busy(), collector.answer(released_until=until))
    assert faults(facts) == [("driver_released", True)]


def test_a_gpu_that_is_not_listed_any_more_is_said_no_more(collector: Collector) -> None:
    collector.newest.update(tick(read(0)))
    said = collector.answer()
    assert [gpu.index for gpu in said.gpus] == [0]
    facts = completed(busy(), said)
    assert facts.driver == DriverFacts(version="570", gpus=1)
    assert faults(facts) == [("gpu_lost", True)]  # the other one is on the bus


def test_an_older_collector_says_no_numbers_and_what_is_no_answer_is_refused() -> None:
    assert parse({"ok": True, "driver_silent_since": None}, NOW) == CollectorAnswer()
    assert unjudged(completed(busy(), CollectorAnswer())) != {}
    assert completed(busy(), None) == busy()
    with pytest.raises(ValueError, match="not what a collector says"):
        parse({"newest": {"gpus": [{"index": "x"}]}}, NOW)


def test_numbers_are_the_drivers_own_whoever_changes_them_later(collector: Collector) -> None:
    gpu = read(0)
    collector.newest.update(tick(gpu))
    assert gpu.values is not None
    gpu.values["utilization_percent"] = 1
    assert collector.answer().gpus[0].values == {**HEALTHY, "utilization_percent": 90}


def test_the_last_tick_once_more_is_as_the_driver_told_it(collector: Collector) -> None:
    """Whoever took it made its counters monotone, and added up what its calls cost."""
    first = tick(read(0), read(1, values=None, slow=None), silent_seconds=1.0)
    collector.newest.update(first)
    assert first.gpus[0].values is not None
    first.gpus[0].values["utilization_percent"] = 7
    repeated = collector.newest.repeat(NOW + timedelta(seconds=3))
    assert repeated is not None
    assert (repeated.at, repeated.silent_seconds) == (NOW + timedelta(seconds=3), 1.0)
    assert repeated.gpus[0].values == {"utilization_percent": 90}
    assert (repeated.gpus[0].slow, repeated.gpus[1].values) == (None, None)
    assert NewestSamples(collector.clock, 10.0).repeat(NOW) is None
