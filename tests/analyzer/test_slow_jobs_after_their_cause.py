"""A job that still looks slow when what slowed it is over, or comes and goes: one incident."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.correlation.correlate import observe
from gpuvigil.model import Finding, Incident, Severity

from .scene import NOON, SETTINGS, gpu, healthy, incident
from .test_book import Keeper
from .test_causes import slowness

SECOND = timedelta(seconds=1)
QUIET = healthy(nodes=2, seconds=60)
LANES = replace(slowness("gpu_pcie", gpu()), condition="pcie_narrow")
SLOW = slowness("gpu_slow", gpu())
STEADY = SETTINGS.steady_seconds


class Life:
    """Looks every twenty seconds, at findings that are given."""

    def __init__(self) -> None:
        self.keeper = Keeper()

    def sees(self, *found: Finding, seconds: float = 40.0) -> "Life":
        for _ in range(int(seconds / 20.0)):
            over = tuple(
                entry.incident
                for entry in self.keeper.book.entries.values()
                if entry.incident.resolved_at is not None
            )
            active = self.keeper.book.active()
            shifted = QUIET.shifted(self.keeper.now + 20 * SECOND - NOON)
            window = replace(shifted, recent_incidents=(*active, *over)).window()
            believed = self.keeper.book.believed(new_rows=True)
            self.keeper.look(observe(window, found, active, believed), 20 * SECOND)
        return self

    @property
    def incidents(self) -> list[Incident]:
        return [Incident.from_record(one) for one in self.keeper.incidents.values()]


@pytest.mark.parametrize("cause", [LANES, slowness("gpu_clocks", gpu())])
def test_what_slowed_it_is_over_before_the_look_at_the_job_shows_that(cause: Finding) -> None:
    life = Life().sees(cause).sees(cause, SLOW).sees(SLOW, seconds=STEADY - 20.0).sees()
    (one,) = life.incidents
    assert (one.fault, one.state) == (cause.fault, "resolved")


def test_it_comes_and_goes_and_is_still_the_same() -> None:
    life = Life().sees(LANES, SLOW)
    for _ in range(3):
        life.sees(SLOW, seconds=120.0).sees(LANES, SLOW)
    (one,) = life.incidents
    assert one.fault == LANES.fault


def test_a_job_that_is_slow_for_longer_than_that_is_slow_for_another_reason() -> None:
    life = Life().sees(LANES, SLOW).sees(SLOW, seconds=STEADY + 160.0)
    assert {(one.fault, one.state) for one in life.incidents} == {
        ("gpu_pcie", "resolved"),
        ("gpu_slow", "open"),
    }


@pytest.mark.parametrize(
    "later",
    [
        replace(SLOW, since=NOON + 170 * SECOND),  # began after it
        replace(SLOW, subject=gpu(1, 1)),
        replace(SLOW, subject=gpu(2)),
        replace(SLOW, severity=Severity.CRITICAL),
    ],
)
def test_a_slowness_of_its_own_is_told_at_once(later: Finding) -> None:
    life = Life().sees(LANES).sees(seconds=120.0).sees(later)
    assert [one.fault for one in life.incidents if one.resolved_at is None] == ["gpu_slow"]


def test_a_slowness_that_has_the_reason_s_name_comes_back_with_the_reason() -> None:
    over = incident("gpu_slow", gpu(), condition="pcie_narrow", resolved_at=NOON - 60 * SECOND)

    def seen(found: Finding) -> set[str]:
        window = replace(QUIET, recent_incidents=(over,)).window()
        return set(observe(window, [found], (), {found.fingerprint}).candidates)

    assert seen(LANES) == {over.fingerprint}
    # Another reason, one elsewhere and a graver one are other problems.
    critical = replace(LANES, severity=Severity.CRITICAL)
    for other in (slowness("gpu_clocks", gpu()), replace(LANES, subject=gpu(2)), critical):
        assert seen(other) == {other.fingerprint}
