"""What a report says of days is what comes out when their samples are added up by hand."""

import ast
import sys
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from accounting.usage import BUCKET
from analyzer.jobs.usage_job import GRACE, UsageCounter
from benchmarks.history import Target, write
from benchmarks.past import Past, faults
from gpuvigil.clock import ManualClock
from gpuvigil.config import load
from report.inputs.facts import Facts, read
from report.model.content import Report
from report.model.rounding import HOUR
from report.sections.build import build
from tests.report import by_hand as by_hand_module
from tests.report.by_hand import Hub, Totals, totals
from tests.servers import QuickHub

ORIGIN = datetime(2026, 11, 9, tzinfo=timezone.utc)
NODES, TICK = 8, 60.0
CLUSTER = "simulated"
CLOSE = 0.001
CLOSE_IN_A_TABLE = 0.01  # where a number has two digits that matter


def told(folder: Path, seed: int, span: timedelta) -> tuple[Facts, Report, Totals]:
    """The report of a past that a real hub was told and a counter counted, and its samples by hand."""
    past = Past(
        nodes=NODES, seed=seed, origin=ORIGIN, tick_seconds=TICK, faults=faults(NODES, ORIGIN, span)
    )
    end = ORIGIN + span
    with QuickHub(folder / "hub") as hub:
        target = Target(url=hub.url, token_file=hub.collector_token_file)
        write(past, target, until=end, processes=1)
        now, config, client = end + GRACE, load(hub.config), hub.hub()
        after = timedelta(seconds=config.analyzer.idle_after_seconds)
        counter = UsageCounter(
            client, ManualClock(now), threading.Event(), 2 * span, idle_after=after
        )
        for _ in range(span // BUCKET):
            counter.step()
        (facts,) = read(client, CLUSTER, (ORIGIN, end), now, config)
        by_hand = totals(
            Hub(hub.url, hub.service_token),
            CLUSTER,
            (ORIGIN.timestamp(), end.timestamp()),
            TICK,
            config.analyzer.idle_after_seconds,
        )
    return facts, build(facts), by_hand


@pytest.mark.site
@pytest.mark.timeout(1200)
def test_two_days_are_what_their_samples_add_up_to(tmp_path: Path) -> None:
    span = timedelta(days=2)
    facts, report, by_hand = told(tmp_path, 1, span)
    seconds = facts.usage.seconds
    assert len(facts.usage.buckets) == span // BUCKET
    assert report.capacity.in_service_gpu_hours == pytest.approx(by_hand.in_service, rel=CLOSE)
    assert seconds.allocated / HOUR == pytest.approx(by_hand.allocated, rel=CLOSE)
    assert report.allocated_gpu_hours == pytest.approx(by_hand.allocated, rel=CLOSE)
    assert seconds.used / HOUR == pytest.approx(by_hand.used, rel=CLOSE)
    said = {one.key: one.value for one in report.figures}
    assert said["idle_held_gpu_hours"] == pytest.approx(by_hand.idle_held, rel=CLOSE)
    assert said["energy_kwh"] == pytest.approx(by_hand.energy_kwh, rel=CLOSE)
    (teams,) = (sheet for sheet in report.sheets if sheet.key == "teams")
    column = [one.key for one in teams.columns].index("idle_gpu_hours")
    idle = {row[0]: row[column] for row in teams.rows}
    assert idle == pytest.approx(dict(by_hand.idle_of_team), rel=CLOSE_IN_A_TABLE)


def test_what_adds_up_by_hand_has_nothing_of_ours() -> None:
    tree = ast.parse(Path(by_hand_module.__file__).read_text(encoding="utf-8"))
    named = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named |= {one.name.split(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            named.add((node.module or "").split(".")[0])
    assert named - sys.stdlib_module_names == {"pyarrow"}
