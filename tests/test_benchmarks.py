"""What the benchmarks count, and what they call fresh."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.history import Written
from benchmarks.pump import Sent
from benchmarks.readings import Fleet, arrow
from benchmarks.store_ingest import Later, Run, sealing, start_of, summary
from benchmarks.store_week import opened, timed


def test_ingest_counts_the_share_of_what_comes_later() -> None:
    sent = Sent(statuses=Counter({204: 50}), seconds=2.0)
    run = Run(samples=1000, cpu_seconds=1.0, sent=sent)

    found = summary([run], Later(samples=4000, seconds=8.0, cpu_seconds=12.0))

    assert found["samples_per_cpu_second"] == 250  # 1 s, and a quarter of 12 s
    assert found["samples_per_second"] == 250  # 2 s, and a quarter of 8 s
    assert found["bodies_per_second"] == 25
    assert found["cpu_seconds_of_taking_in"] == [1.0]


@pytest.mark.slow
def test_what_ingest_writes_is_due_to_be_sealed_and_joined(tmp_path: Path) -> None:
    (tmp_path / "hub-data").mkdir()
    fleet = Fleet(8, seed=1, start=start_of(20), step_seconds=10.0)
    store = opened(tmp_path)
    store.append({"gpu": arrow(fleet, fleet.block(20))}, [])
    store.close()

    assert sealing(tmp_path, 160).cpu_seconds > 0

    store = opened(tmp_path)
    assert [unit.lines for unit in store.units()] == [160]
    store.close()


def test_ingest_without_anything_sealed_is_no_figure(tmp_path: Path) -> None:
    (tmp_path / "hub-data").mkdir()
    with pytest.raises(SystemExit, match="not joined"):
        sealing(tmp_path, 160)


def test_a_fresh_question_is_the_first_of_its_process() -> None:
    asked: list[Counter[str]] = []

    @contextmanager
    def opens() -> Iterator[dict[str, Callable[[], Any]]]:
        mine: Counter[str] = Counter()
        asked.append(mine)
        yield {name: partial(mine.update, [name]) for name in ("latest", "report")}

    found = timed(opens, opens, 3, 5)

    *fresh, repeated = asked
    assert [it.total() for it in fresh if it] == [1] * 6
    assert repeated == Counter(latest=6, report=6)
    assert len(found["latest"]["fresh"]["all"]) == 3
    assert len(found["latest"]["repeated"]["all"]) == 5


def test_what_was_written_coarsely_before_counts_as_well() -> None:
    until = datetime(2026, 11, 23, tzinfo=timezone.utc)
    coarse = Written(gpu_rows=60, records=5, until=until - timedelta(minutes=2), seconds=3.0)
    fine = Written(gpu_rows=12, records=4, until=until, seconds=1.0)

    assert fine.after(coarse) == Written(gpu_rows=72, records=9, until=until, seconds=4.0)
