"""What is asked of a real hub: who was heard for how long, and what failed meanwhile."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from accounting.compare.comparison import Comparison
from accounting.compare.query import compared
from accounting.usage.amounts import Place, Seconds
from accounting.usage.columns import PLACES, SHARES, table_of
from accounting.usage.ledger import DAY, HOUR, Ledger
from gpuvigil.hub_client import Hub
from gpuvigil.model import Attribute, Incident, Setup, Severity, Subject
from tests.servers import QuickHub

pytestmark = [pytest.mark.server, pytest.mark.slow]

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
SPAN = (BEGIN, BEGIN + 3 * DAY)
DAY_SECONDS = 86_400.0
MINUTE = timedelta(minutes=1)


def places(day: int) -> list[Place]:
    """In GPU-days: nodes of eight GPUs, and of two models on one of them."""

    def place(node: str, installed: float, model: str = "H100", **days: float) -> Place:
        amounts = {name: value * DAY_SECONDS for name, value in days.items()}
        seconds = Seconds(installed=installed * DAY_SECONDS, **amounts)
        return Place(node=node, model=model, seconds=seconds)

    return [
        place("whole", 8),
        place("one-hung", 8, unknown=1),
        # Nobody can say who holds its GPUs: of what is at 0 % the state is not known.
        place("unattributed", 8, unknown=6, powered=4),
        place("mixed", 4),
        place("mixed", 4, model="L4"),
        # It came on the first day at six in the evening.
        place("joined", 2 if day == 0 else 8),
        # On the second day a GPU was replaced at noon: both were installed on that day.
        place("replaced", 8.5 if day == 1 else 8),
        place("silent", 8, unknown=8),
    ]


def ledger(day: int, cluster: str) -> Ledger:
    return Ledger(
        cluster=cluster,
        start=BEGIN + day * DAY,
        length=DAY,
        counted_at=BEGIN + (day + 1) * DAY,
        gpus=64,
        quarters=96,
        places=table_of(places(day), PLACES),
        holders=SHARES.empty_table(),
    )


def failed(cluster: str, node: str, at: datetime, number: int = 0) -> Incident:
    subject = Subject(cluster=cluster, node=node)
    return Incident(
        id=f"{subject.key} {at.isoformat()} {number}",
        fingerprint="f",
        fault="gpu_lost",
        subject=subject,
        severity=Severity.CRITICAL,
        state="resolved",
        title="GPU fell off the bus",
        since=at,
        updated_at=at,
        resolved_at=at,
    )


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    directory: Path = tmp_path_factory.mktemp("hub")
    with QuickHub(directory) as process:
        found = process.hub()
        for cluster in ("c", "d"):
            nodes = [Subject(cluster=cluster, node=one.node) for one in places(0)]
            early = BEGIN - 90 * DAY
            setups = [Setup(node=it, at=early, values={Attribute.DRIVER: "old"}) for it in nodes]
            later = SPAN[1] + HOUR
            setups += [Setup(node=it, at=later, values={Attribute.DRIVER: "new"}) for it in nodes]
            found.write_records(one.to_record() for one in setups)
            found.write_records(ledger(day, cluster).to_record() for day in range(3))
        incidents = [
            # A row of failures that began before the span, each within an hour of the last.
            *(failed("c", "whole", BEGIN + n * 40 * MINUTE) for n in (-2, -1, 0, 1)),
            failed("c", "whole", BEGIN + 5 * HOUR),
            failed("c", "silent", SPAN[1] - MINUTE),
            failed("c", "silent", SPAN[1]),
            failed("c", "never-heard", BEGIN + HOUR),
            *(failed("d", "whole", BEGIN + n * 2 * HOUR) for n in range(5)),
        ]
        found.write_records(one.to_record() for one in incidents)
        yield found


@pytest.fixture(scope="module")
def comparison(hub: Hub) -> Comparison:
    return compared(hub, "c", Attribute.DRIVER, (SPAN[0], SPAN[1] + 12 * HOUR))


def test_a_node_counts_for_as_long_as_it_was_heard(comparison: Comparison) -> None:
    (row,) = comparison.rows
    assert row.value == "old"
    assert {node: round(amount.days, 6) for node, amount in row.nodes.items()} == {
        "whole": 3.0,
        "one-hung": 2.625,
        "unattributed": 1.5,
        "mixed": 3.0,
        "joined": 2.25,
        "replaced": 3.0,
        "silent": 0.0,
    }


def test_failures_are_of_this_cluster_and_of_time_that_was_counted(comparison: Comparison) -> None:
    (row,) = comparison.rows
    failures = {node: amount.faults for node, amount in row.nodes.items() if amount.faults}
    assert failures == {"whole": 1, "silent": 1}
    assert comparison.until == SPAN[1]


def test_of_a_span_of_which_nothing_was_counted_there_is_no_row(hub: Hub) -> None:
    start = BEGIN - 30 * DAY
    found = compared(hub, "c", Attribute.DRIVER, (start, start + DAY))
    assert (found.rows, found.until) == ([], start)
