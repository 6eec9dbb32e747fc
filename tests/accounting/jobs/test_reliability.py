"""MTTF, best intervals, ETTR and work at risk, held against published figures; and what counts as a failure."""

from dataclasses import replace
from datetime import timedelta

import pytest

from accounting.jobs.reliability import (
    LEAST_NODE_DAYS,
    FailureRate,
    at_risk,
    best_interval,
    ends_jobs,
    ettr,
    failure_rate,
    mttf,
    mttr,
    sizes,
)
from gpuvigil.model import Severity
from tests.dashboard.scene import NOON, gpu, incident, node

DAY = timedelta(days=1)
# Kokolis et al.: 6.5 failures in 1,000 node-days.
META = FailureRate(failures=6_500, node_days=1e6)
NODES = [node(f"n-{n}", "prod") for n in range(3)]


def test_published_figures_come_out() -> None:
    until = mttf(META, 2048)
    assert until is not None
    assert until / timedelta(hours=1) == pytest.approx(1.80, abs=0.01)
    hour, five = timedelta(hours=1), timedelta(minutes=5)
    assert ettr(META, 2000, hour, 0.0, 300.0) == pytest.approx(0.69, abs=0.015)
    assert ettr(META, 2000, five, 0.0, 300.0) == pytest.approx(0.93, abs=0.005)


def test_the_best_interval_loses_least() -> None:
    best = best_interval(META, 64, 60.0)
    assert best is not None
    shares = [ettr(META, 64, best * times, 60.0, 0.0) or 0.0 for times in (0.7, 1.0, 1.4)]
    assert max(shares) == shares[1]
    assert best_interval(META, 256, 60.0) == best / 2


def test_without_time_or_failures_nothing_is_said() -> None:
    young = FailureRate(failures=1, node_days=LEAST_NODE_DAYS - 0.1)
    assert (young.per_node_day, mttf(young, 1), best_interval(young, 1)) == (None, None, None)
    assert mttf(FailureRate(failures=1, node_days=LEAST_NODE_DAYS), 1) == 7 * DAY
    calm = FailureRate(failures=0, node_days=1000.0)
    assert (calm.per_node_day, mttf(calm, 1), ettr(calm, 1, DAY)) == (0.0, None, None)
    assert calm.interval[1] == pytest.approx(3.69e-3, rel=0.01)
    assert [one.mttf for one in sizes(calm, (1, 4), 600.0)] == [None, None]
    assert [one.nodes for one in sizes(META, (16, 1, 16), 600.0)] == [1, 16]


def test_a_size_whose_jobs_took_longer_to_run_again_gets_less_done() -> None:
    hour = timedelta(hours=1)
    small, large = sizes(META, (1, 256), 600.0, {256: hour})
    assert (small.mttr, large.mttr) == (None, hour)
    assert small == sizes(META, (1,), 600.0)[0]
    usual, every = sizes(META, (256,), 600.0)[0], large.interval
    assert every is not None
    assert large.ettr == ettr(META, 256, every, 60.0, 3600.0)
    assert (usual.ettr or 0.0) > (large.ettr or 0.0) > 0.0


def test_work_at_risk_is_hours_of_all_gpus() -> None:
    assert at_risk(128, timedelta(minutes=72)) == pytest.approx(153.6)
    assert at_risk(128, timedelta(seconds=-5)) == 0.0


def test_failures_are_what_ends_jobs_once_an_hour_and_node() -> None:
    lost = incident("gpu_lost", gpu(0, NODES[0]), Severity.CRITICAL, since=NOON)
    again = replace(lost, id="b", since=NOON + timedelta(minutes=59))
    later = replace(lost, id="c", since=NOON + timedelta(hours=3))
    other = incident("gpu_lost", gpu(0, NODES[1]), Severity.CRITICAL, since=NOON)
    elsewhere = incident("gpu_lost", gpu(0, node("n", "test")), Severity.CRITICAL, since=NOON)
    before = replace(lost, id="d", since=NOON - timedelta(days=40))
    mild = replace(other, id="e", severity=Severity.WARNING)
    everything = [lost, again, later, other, elsewhere, before]
    found = failure_rate(everything, "prod", 10, (NOON - DAY, NOON + DAY))
    assert found == FailureRate(failures=3, node_days=20.0)
    assert ends_jobs(lost)
    assert not ends_jobs(replace(lost, state="dismissed"))
    assert not ends_jobs(replace(lost, fault="nobody_knows_it"))
    assert not ends_jobs(mild)


def test_a_rack_that_falls_silent_is_a_failure_of_each_of_its_nodes() -> None:
    rack = [node(f"r-{n}", "prod") for n in range(18)]
    silent = replace(
        incident("node_silent", rack[0], Severity.CRITICAL, since=NOON),
        members=tuple(one.key for one in rack),
    )
    span = (NOON - DAY, NOON + DAY)
    assert failure_rate([silent], "prod", 100, span).failures == 18
    # What is told of one of them by itself is no further one.
    own = incident("gpu_lost", gpu(0, rack[3]), Severity.CRITICAL, since=NOON + DAY / 48)
    assert failure_rate([silent, own], "prod", 100, span).failures == 18


def test_half_of_the_failures_were_over_within() -> None:
    lost = incident("gpu_lost", gpu(0, NODES[0]), Severity.CRITICAL, since=NOON)
    over = [replace(lost, id=str(n), resolved_at=NOON + timedelta(hours=n)) for n in (1, 2, 9)]
    assert mttr([*over, lost], "prod") == timedelta(hours=2)
    assert mttr([lost], "prod") is None
