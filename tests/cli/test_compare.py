"""What `gpuvigil compare` says of a roll-out, and of a real hub whose analyzer saw it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from accounting.compare.comparison import Amount, Comparison, Row
from accounting.usage.amounts import Place, Seconds
from accounting.usage.columns import PLACES, SHARES, table_of
from accounting.usage.ledger import DAY, HOUR, Ledger
from accounting.usage.ledger_query import floor_of
from cli.tables import compare
from dashboard.lists.table import csv_text, json_text, text
from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.lineprotocol import encode
from gpuvigil.model import (
    SELFTEST_CLUSTER,
    SIMULATED_CLUSTER,
    Attribute,
    Incident,
    RecordKind,
    Severity,
    Subject,
)
from tests.cli.test_commands import run
from tests.dashboard.scene import NOON, inventory
from tests.hub.talk import identity
from tests.polling import wait_until
from tests.servers import HubProcess, QuickHub
from tests.services import commands, running

DAY_SECONDS = 86_400.0
GPUS = 8
CLUSTER = "test"  # that of `identity`
OLD, NEW = "570.172.08", "580.126.09"


def row(value: str | None, faults: Sequence[int], node_days: float) -> Row:
    """A node for each number of faults."""
    seconds = node_days * DAY_SECONDS / len(faults)
    nodes = {f"{value}-{n}": Amount(count, seconds) for n, count in enumerate(faults)}
    return Row(value=value, nodes=nodes, whole=sum(nodes.values(), Amount()))


def compared(*them: Row, cluster: str = "prod") -> Comparison:
    return Comparison(cluster=cluster, rows=them, until=NOON)


def sentences(*them: Row, cluster: str = "prod") -> list[str]:
    return list(compare.sentences(compared(*them, cluster=cluster), Attribute.DRIVER))


def test_a_roll_out_that_does_harm_is_said_with_its_intervals() -> None:
    rates, verdict = sentences(row(OLD, [1] * 5, 2500.0), row(NEW, [1] * 12, 830.0))
    assert rates == (
        f"prod: driver {OLD}: 2.0 (0.6 to 4.7) faults per 1,000 node-days in 2,500 node-days;"
        f" {NEW}: 14.5 (7.5 to 25.3) in 830 node-days."
    )
    assert verdict == f"  {NEW} fails 7.2 times as often as {OLD} (2.4 to 26.2): more than chance."


@pytest.mark.parametrize(
    ("them", "said"),
    [
        (
            (row(OLD, [1] * 5, 2500.0), row(NEW, [1] * 2, 830.0)),
            f"  {NEW} fails 1.2 times as often as {OLD} (0.11 to 7.4): chance alone could explain that.",
        ),
        (
            (row(OLD, [1] * 5, 2500.0), row(NEW, [8, 1], 830.0)),
            f"  {NEW} fails 5.4 times as often as {OLD} (1.6 to 20.6): but 8 of 9 faults are"
            f" {NEW}-0's, and without it chance alone could explain that.",
        ),
        (
            (row(OLD, [0] * 5, 2500.0), row(NEW, [1] * 12, 830.0)),
            f"  {OLD} has no fault, {NEW} fails at least 8.4 times as often: more than chance.",
        ),
        (
            (row(OLD, [0] * 5, 2500.0), row(NEW, [0] * 2, 830.0)),
            "prod: none of 2 had a fault: nothing speaks against any.",
        ),
        (
            (row(OLD, [1], 10.0), row(None, [9], 10.0)),
            f"prod: driver {OLD} alone in this span: there is nothing to compare.",
        ),
        (
            (row(None, [9], 10.0),),
            "prod: driver known of no node in this span: there is nothing to compare.",
        ),
    ],
)
def test_what_is_no_more_than_chance_or_one_bad_node_is_said_as_such(
    them: Sequence[Row], said: str
) -> None:
    assert sentences(*them)[-1] == said


def test_of_several_values_the_number_of_looks_is_said() -> None:
    fair = [row(value, [1, 0], 1000.0) for value in ("a", "b", "c")]
    told = "prod: 4 were compared, each with all others together, by the stricter limits that 4 comparisons"
    first, second = sentences(*fair, row("d", [1] * 2, 1000.0))
    assert first.startswith(told)
    assert second == "  None of them differs from the others by more than chance."
    first, *others = sentences(*fair, row(NEW, [1] * 20, 1000.0))
    assert first.startswith(told)
    (second,) = others
    assert second.startswith(f"  {NEW} fails 20.0 times as often as the others (")
    assert second.endswith("): more than chance.")
    better = sentences(*(row(value, [1] * 8, 1000.0) for value in "abc"), row("d", [0], 2000.0))
    assert better[-1].startswith("  d has no fault: at most 0.")
    assert better[-1].endswith("as often as the others: more than chance.")


def test_programs_get_every_number_and_null_for_what_cannot_be_said() -> None:
    them = compared(row(OLD, [0], 100.0), row(NEW, [3], 100.0), row(None, [1], 0.0))
    found = compare.grid([them], Attribute.NIC_FIRMWARE)
    old, new, unknown = json.loads(json_text(found))
    assert (old["nic_firmware"], old["faults"], old["node_days"]) == (OLD, 0, 100.0)
    assert (new["faults_per_1000_node_days"], new["rate_low"]) == (30.0, pytest.approx(6.187))
    assert (new["ratio"], new["ratio_high"]) == (None, None)
    assert new["ratio_low"] == pytest.approx(1.0 / old["ratio_high"], abs=1e-2)
    assert (old["ratio"], old["ratio_low"], old["more_than_chance"]) == (0.0, 0.0, False)
    assert (unknown["nic_firmware"], unknown["faults_per_1000_node_days"]) == ("not known", None)
    assert (unknown["rate_low"], unknown["rate_high"], unknown["ratio_low"]) == (None, None, None)
    assert len(csv_text(found).splitlines()) == 4
    nothing = compare.grid([compared(row(OLD, [0], 10.0), row(NEW, [0], 10.0))], Attribute.DRIVER)
    for one in json.loads(json_text(nothing)):
        assert (one["ratio"], one["ratio_low"], one["ratio_high"]) == (None, None, None)


def test_clusters_are_never_summed_and_a_simulated_one_is_marked() -> None:
    them = [
        compared(row(OLD, [1], 10.0), row(NEW, [1], 10.0)),
        compared(row(OLD, [5], 10.0), row(NEW, [5], 10.0), cluster=SIMULATED_CLUSTER),
    ]
    found = compare.grid(them, Attribute.DRIVER, {"gpu_lost"})
    assert [(one[0], one[4], one[7]) for one in found.rows] == [
        (OLD, 1, "prod"),
        (NEW, 1, "prod"),
        (OLD, 5, SIMULATED_CLUSTER),
        (NEW, 5, SIMULATED_CLUSTER),
    ]
    said = text(found, 100)
    assert "simulated (simulated): driver" in said
    assert "95 % intervals: GPU fell off the bus;" in said.replace("\n  ", " ")
    assert "not known" not in said


def test_without_any_node_day_it_says_so() -> None:
    found = compare.grid([compared()], Attribute.DRIVER)
    assert text(found, None) == (
        "No node-days were counted in this span: usage is counted by the quarter of an hour.\n"
    )


def day_of(start: datetime, length: timedelta, unknown: Mapping[str, float]) -> Ledger:
    """Usage of four nodes, of each of which so much was not heard."""
    installed = GPUS * length.total_seconds()
    places = [
        Place(
            node=name,
            model="H100",
            seconds=Seconds(installed=installed, unknown=installed * unknown.get(name, 0.0)),
        )
        for name in ("n1", "n2", "n3", "n4")
    ]
    return Ledger(
        cluster=CLUSTER,
        start=start,
        length=length,
        counted_at=start + length,
        gpus=GPUS * 4,
        quarters=int(length / timedelta(minutes=15)),
        places=table_of(places, PLACES),
        holders=SHARES.empty_table(),
    )


def failed(node: Subject, at: datetime, fault: str = "gpu_lost") -> Incident:
    return Incident(
        id=f"{fault} {node.key} {at.isoformat()}",
        fingerprint="f",
        fault=fault,
        subject=node,
        severity=Severity.CRITICAL,
        state="resolved",
        title=fault,
        since=at,
        updated_at=at,
        resolved_at=at,
    )


@pytest.fixture(scope="module")
def today() -> datetime:
    return floor_of(SystemClock().now(), DAY)


@pytest.fixture(scope="module")
def rolled_out(tmp_path_factory: pytest.TempPathFactory, today: datetime) -> Iterator[HubProcess]:
    """Two of four nodes got a new driver yesterday at six, and fail since."""
    folder = tmp_path_factory.mktemp("compare")
    with QuickHub(folder / "hub") as process:
        hub = process.hub()
        nodes = [Subject(cluster=CLUSTER, node=f"n{n}") for n in range(1, 5)]
        played = Subject(cluster=SELFTEST_CLUSTER, node="n1")
        upgraded = today - DAY + 6 * HOUR
        config = folder / "everybody.toml"
        config.write_text(
            f'[hub]\nurl = "{process.url}"\nservice_token_file = "{process.service_token_file}"\n'
        )

        def tell(of: Sequence[Subject], at: datetime, driver: str | None) -> None:
            hub.write_records(
                inventory(one, at=at, driver=driver, rack=f"r{one.node[1:]}").to_record()
                for one in of
            )

        def kept() -> int:
            return len(hub.records(RecordKind.SETUP))

        tell([*nodes, played], today - 20 * DAY, OLD)
        with running(folder, config, commands("analyze")):
            wait_until("what the nodes run on", lambda: kept() == 4, 60.0)
            # While a driver is changed there is none.
            tell(nodes[:2], upgraded - timedelta(minutes=5), None)
            tell(nodes[:2], upgraded, NEW)
            tell(nodes[2:], upgraded, OLD)
            wait_until("the change of two", lambda: kept() == 6, 60.0)
        dark = {"n4": 0.5}
        ledgers = [day_of(today - n * DAY, DAY, dark) for n in range(2, 11)]
        # One was silent until it came back with the new driver.
        ledgers.append(day_of(today - DAY, DAY, {**dark, "n2": 0.25}))
        for n in range(24):
            silent = {"n2": 1.0} if n < 6 else {}
            ledgers.append(day_of(today - DAY + n * HOUR, HOUR, {**dark, **silent}))
        hub.write_records(one.to_record() for one in ledgers)
        incidents = [
            *(failed(nodes[0], upgraded + n * HOUR) for n in (0, 2, 4)),
            *(failed(nodes[1], upgraded + n * HOUR) for n in (3, 6, 9)),
            failed(nodes[0], upgraded + 5 * HOUR, "port_down"),  # within the hour
            failed(nodes[1], upgraded + 12 * HOUR, "gpu_program"),
            failed(nodes[0], upgraded - 2 * HOUR),
            failed(nodes[2], today - 5 * DAY),
            failed(nodes[3], today - 11 * DAY),  # when nobody counted
            failed(played, today - 5 * DAY),
        ]
        hub.write_records(one.to_record() for one in incidents)
        tags = {"cluster": CLUSTER, "node": "n1"}
        line = encode("node", tags, {"load_average": 1.0}, to_ns(SystemClock().now())) or ""
        hub.request("POST", "/api/v2/write?precision=ns", line.encode(), identity(1))
        yield process


def asked(process: HubProcess, today: datetime, *more: str) -> list[dict[str, Any]]:
    span = ("--from", f"{today - 10 * DAY:%Y-%m-%d}", "--to", f"{today:%Y-%m-%d}")
    done = run(process, "compare", *span, "-o", "json", *more)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.server
@pytest.mark.slow
def test_an_upgrade_of_yesterday_is_judged_by_what_each_node_had_when_it_failed(
    rolled_out: HubProcess, today: datetime
) -> None:
    old, new = asked(rolled_out, today)
    # n1 until yesterday at six, n2 until midnight, n3 all the time, n4 half of it.
    assert (old["driver"], old["faults"], old["node_days"], old["nodes"]) == (OLD, 2, 33.25, 4)
    assert (new["driver"], new["faults"], new["node_days"], new["nodes"]) == (NEW, 6, 1.5, 2)
    assert (new["more_than_chance"], old["more_than_chance"]) == (True, True)
    done = run(rolled_out, "compare", "--last", "28d")
    assert f"{NEW} fails 66.5 times as often as {OLD}" in done.stdout


@pytest.mark.server
@pytest.mark.slow
def test_by_rack_by_one_fault_and_by_what_nobody_tells(
    rolled_out: HubProcess, today: datetime
) -> None:
    by_rack = asked(rolled_out, today, "--by", "rack")
    assert {one["rack"]: one["faults"] for one in by_rack} == {"r1": 4, "r2": 3, "r3": 1, "r4": 0}
    assert sum(one["node_days"] for one in by_rack) == 34.75
    (unknown,) = asked(rolled_out, today, "--by", "kernel")
    assert (unknown["kernel"], unknown["faults"], unknown["node_days"]) == ("not known", 8, 34.75)
    found = asked(rolled_out, today, "--fault", "port_down")
    assert [one["faults"] for one in found] == [0, 1]
    done = run(rolled_out, "compare", "--fault", "gpu_program")
    assert (done.returncode, "invalid choice: 'gpu_program'" in done.stderr) == (2, True)
    done = run(rolled_out, "compare", "--cluster", "nope")
    assert (done.returncode, "there is no such cluster" in done.stderr) == (2, True)
