"""Changes of what nodes run on are seen once, whenever somebody looks."""

from dataclasses import replace
from datetime import timedelta

from analyzer.jobs.setup_job import Setups
from gpuvigil.model import SELFTEST_CLUSTER, SIMULATED_CLUSTER, Attribute, Inventory, Setup, Subject
from tests.gpuvigil.test_setup import NODE, NOON, WHOLE

LATER = NOON + timedelta(minutes=10)


def after(inventory: Inventory, minutes: int, driver: str | None) -> Inventory:
    return replace(inventory, at=inventory.at + timedelta(minutes=minutes), driver=driver)


def drivers(seen: Setups) -> list[tuple[str, str]]:
    found = [Setup.from_record(record) for record in seen.waiting]
    return [(f"{one.at:%H:%M}", one.values[Attribute.DRIVER]) for one in found]


def test_only_a_change_is_told_and_with_the_time_of_its_inventory() -> None:
    seen = Setups()
    seen.begin((), [WHOLE.to_record()])
    for minutes, driver in [(10, "580.1"), (20, None), (30, "580.2"), (40, "580.2")]:
        seen.ingest(after(WHOLE, minutes, driver).to_record())
    assert drivers(seen) == [("12:00", "580.1"), ("12:30", "580.2")]


def test_what_is_seen_waits_until_it_is_written() -> None:
    seen = Setups()
    seen.begin((), [WHOLE.to_record()])
    (told,) = seen.waiting
    seen.ingest(after(WHOLE, 10, "580.2").to_record())
    seen.written([told])
    assert drivers(seen) == [("12:10", "580.2")]


def test_a_start_goes_on_from_what_the_hub_knows() -> None:
    known = [Setup.of(after(WHOLE, n, driver)).to_record() for n, driver in [(10, "2"), (0, "1")]]
    seen = Setups()
    seen.begin(known, [after(WHOLE, 20, "2").to_record()])
    assert seen.waiting == ()
    # What was changed while nobody looked is seen at the start.
    seen.begin(known, [after(WHOLE, 20, "3").to_record()])
    assert drivers(seen) == [("12:20", "3")]
    # An inventory from before what is known changes nothing, nor one of the same moment.
    for minutes in (5, 10):
        seen.begin(known, [after(WHOLE, minutes, "1").to_record()])
        assert seen.waiting == ()


def test_the_selftest_leaves_nothing_and_a_simulation_its_own() -> None:
    seen = Setups()
    worlds = [
        replace(WHOLE, subject=Subject(cluster=it, node=NODE.node))
        for it in (SELFTEST_CLUSTER, SIMULATED_CLUSTER)
    ]
    broken = replace(WHOLE.to_record(), body={})
    seen.begin((), [broken, *(one.to_record() for one in worlds)])
    assert [record.subject for record in seen.waiting] == [worlds[1].subject.key]
