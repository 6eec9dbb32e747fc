"""When a slow GPU is nobody's knowledge any more, and what is said of several of one node."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from analyzer.detectors.gpu_slow import lapsed, would_show_slow_gpu
from analyzer.evidence.job_pace import PEERS
from gpuvigil.model import Allocation, Incident, Subject

from .scene import NOON, Scene, allocation, gpu, incident, node

HOUR, MICROSECOND = timedelta(hours=1), timedelta(microseconds=1)
SINCE = NOON - 30 * HOUR


def ago(hours: float) -> datetime:
    return NOON - hours * HOUR


def stood(subject: Subject, last: datetime, **more: Any) -> Incident:
    return replace(incident("gpu_slow", subject), since=SINCE, updated_at=last, **more)


def of_job(gpus: int, holder: str = "job 7", **more: Any) -> tuple[Allocation, ...]:
    return tuple(allocation(gpu(1, n), holder, **more) for n in range(gpus))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("held", "last", "is_over"),
    [
        ((), ago(24.0), True),
        ((), ago(24.0) + MICROSECOND, False),
        # A job that can show it has it: by its kind, and with so many GPUs.
        (of_job(PEERS), ago(48.0), False),
        (of_job(PEERS - 1), ago(48.0), True),
        (of_job(PEERS, "pid 7"), ago(48.0), True),
        # One that had it all the time may have been slow to its end.
        (of_job(PEERS, started_at=ago(40.0), ended_at=ago(25.0)), ago(48.0), True),
        (of_job(PEERS, started_at=ago(40.0), ended_at=ago(23.9)), ago(48.0), False),
        (of_job(PEERS, started_at=SINCE, ended_at=ago(23.9)), ago(48.0), True),
        (of_job(PEERS, started_at=SINCE - MICROSECOND, ended_at=ago(23.9)), ago(48.0), False),
        ((allocation(gpu(1, 1), started_at=ago(40.0), ended_at=ago(1.0)),), ago(48.0), True),
    ],
)
def test_a_slow_gpu_is_forgotten_a_day_after_it_could_be_seen_last(
    held: Sequence[Allocation], last: datetime, is_over: bool
) -> None:
    window = Scene(allocations=tuple(held)).window()
    ends = [a.ended_at for a in held if a.subject == gpu() and a.ended_at and a.started_at < SINCE]
    said = max([last, *ends])
    assert lapsed(window, stood(gpu(), last)) == (said if is_over else None)
    # Of a node each of its GPUs is asked.
    whole = stood(node(), last, members=(node().key, gpu().key))
    assert lapsed(window, whole) == (said if is_over else None)
    elsewhere = stood(node(2), last, members=(node(2).key, gpu(2).key))
    assert (lapsed(window, elsewhere) is None) is (NOON - last < 24 * HOUR)


def test_an_incident_that_names_no_gpu_does_not_show() -> None:
    nameless: Mapping[str, Any] = {"members": (node().key,)}
    assert would_show_slow_gpu(Scene().window(), stood(node(), NOON, **nameless)) is False
    assert would_show_slow_gpu(Scene().window(), stood(gpu(), NOON)) is False
