"""Page, command and report say the same of what is out of service, from one hub."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from accounting.usage import BUCKET
from accounting.usage.ledger_query import answer
from accounting.usage.model import floor
from accounting.usage.query import usage
from cli.tables import usage as used
from dashboard.data.hub_queries import load, numbers
from dashboard.fleet import clusters
from dashboard.model.facts import Facts
from dashboard.model.gpus import DisplayState
from dashboard.model.newest_rows import CELL_FIELDS
from gpuvigil.config import Config
from gpuvigil.model import ScheduledNode, Scheduler, Subject
from report.inputs.facts import read
from report.sections.build import build
from tests.accounting.usage.told import own, tell
from tests.servers import HubProcess, QuickHub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with QuickHub(tmp_path / "hub") as process:
        yield process


@pytest.mark.server
def test_the_page_the_command_and_the_report_agree_on_a_drained_node(hub: HubProcess) -> None:
    now = datetime.now(timezone.utc)
    start, client = floor(now) - BUCKET, hub.hub()
    own(client, start - timedelta(days=1))
    tell(client, start, now)  # one of two GPUs computes, the other is held by nobody
    tell(client, now - timedelta(seconds=1), now)
    drained = ScheduledNode(name="n1", states=("MIXED", "DRAIN"), reason="RMA 1 [ann@2026]")
    watcher = Subject(cluster="c", node="slurm")
    client.write_records([Scheduler(told_by=watcher, at=now, nodes=(drained,)).to_record()])

    facts, _ = numbers(client, load(client).onto(Facts(now=now)), CELL_FIELDS)
    (page,) = clusters(facts)
    assert (page.strip.in_service, page.strip.gpus, page.strip.looks[DisplayState.FREE]) == (
        1,
        2,
        0,
    )

    day = usage(client, "c", start, now, now)
    assert day.seconds.in_service_percent == pytest.approx(50.0)
    assert day.seconds.free == 0.0

    (found,) = read(client, "c", (start, now), now, Config())
    capacity = build(found).capacity
    assert capacity.in_service_percent == 50.0
    lost = {one.lost_to: one.percent for one in capacity.losses}
    assert lost == {"fault": 0.0, "repair": 50.0, "maintenance": 0.0, "unknown": 0.0}

    (said,) = (
        line
        for line in used.sentences(answer(client, "c", start, now, now))
        if "In service" in line
    )
    assert "(50.0 %), lost: 0.0 fault" in said
    assert "0.0 repair" not in said
