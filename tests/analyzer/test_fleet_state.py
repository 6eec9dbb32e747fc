"""What is remembered of the fleet, and for how long."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.fleet_state import Fleet
from analyzer.window.holdings import Holdings
from gpuvigil.model import EventKind, PortIdentity, Record, RecordKind
from gpuvigil.topology import Files, Imported, Source, Wire

from .scene import NOON, allocation, event, gpu, inventory, node

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


def after(*records: Record, at_day: int = 0) -> Fleet:
    fleet = Fleet()
    for record in records:
        fleet.ingest(record)
    fleet.forget(NOON + at_day * DAY)
    return fleet


def kinds(fleet: Fleet) -> list[str]:
    return [one.kind.value for events in fleet.events().values() for one in events]


def test_a_new_event_names_the_node_to_look_at_and_a_known_one_does_not() -> None:
    fleet = Fleet()
    record = event(EventKind.XID, gpu(), NOON, 48).to_record()
    assert fleet.ingest(record) == node()
    assert fleet.ingest(record) is None
    assert fleet.ingest(allocation(gpu()).to_record()) is None
    assert fleet.ingest(inventory(node()).to_record()) is None


def test_the_switch_of_a_port_that_hears_of_none_is_the_one_that_a_file_names() -> None:
    wire = Wire(node="node-1", device="mlx5_0", switch="leaf-7", source=Source.FILE)
    fleet = Fleet(files=Files([Imported(wires=(wire,))]))
    known = replace(
        inventory(node()),
        ports=(
            PortIdentity(device="mlx5_0", port="1", kind="infiniband", role="fabric", was_up=True),
        ),
    )
    fleet.ingest(known.to_record())
    (only,) = fleet.inventories()[node().key].ports
    assert only.switch == "leaf-7"


def test_a_newer_version_of_an_event_replaces_it_and_an_older_one_does_not() -> None:
    plain = event(EventKind.XID, gpu(), NOON, 145)
    better = replace(plain, version=2, message="Xid 145: RLW_CTRL Fatal XC1 i0 Link 08 (0x0 0x0)")
    fleet = Fleet()
    assert [fleet.ingest(one.to_record()) for one in (plain, better)] == [node(), node()]
    assert [fleet.ingest(one.to_record()) for one in (plain, better)] == [None, None]
    assert fleet.events() == {node().key: (better,)}


def test_events_are_in_the_order_of_their_times() -> None:
    later, earlier = (event(EventKind.XID, gpu(), NOON - n * MINUTE, 48) for n in (1, 2))
    fleet = after(later.to_record(), earlier.to_record())
    assert fleet.events() == {node().key: (earlier, later)}


def test_what_is_over_is_forgotten_after_a_day_and_what_stands_is_not() -> None:
    records = [
        event(EventKind.XID, gpu(), NOON, 48),
        event(EventKind.XID, gpu(), NOON, 13),
        event(EventKind.XID, gpu(1, 1), NOON, 48),
        event(EventKind.GPU_RESET, gpu(1, 1), NOON + MINUTE),
        event(EventKind.PORT_UP, node(), NOON),
    ]
    fleet = after(*(one.to_record() for one in records), at_day=2)
    (left,) = fleet.events()[node().key]
    assert (left.subject, left.xid) == (gpu(), 48)


def test_a_boot_ends_what_stood_on_the_node() -> None:
    records = [
        event(EventKind.XID, gpu(), NOON, 48),
        event(EventKind.BOOT, node(), NOON + MINUTE),
    ]
    # It is known itself: it says since when the machine is up.
    assert kinds(after(*(one.to_record() for one in records), at_day=2)) == ["boot"]


def test_of_a_nodes_boots_the_last_one_is_known_for_good() -> None:
    old, last = (event(EventKind.BOOT, node(), NOON + at) for at in (MINUTE, 2 * MINUTE))
    fleet = after(last.to_record(), old.to_record(), at_day=9)
    assert fleet.events()[node().key] == (last,)


@pytest.mark.parametrize("word", [EventKind.SHUTDOWN, EventKind.STOPPED])
def test_the_last_word_of_a_node_is_known_for_as_long_as_it_is_away(word: EventKind) -> None:
    old, said = (event(word, node(), at) for at in (NOON - DAY, NOON))
    fleet = after(old.to_record(), said.to_record(), at_day=9)
    assert fleet.events()[node().key] == (said,)
    fleet.forget(NOON + 9 * DAY, last_seen={node().key: NOON + MINUTE})
    assert fleet.events()[node().key] == (said,)
    # Its node came back.
    fleet.forget(NOON + 9 * DAY, last_seen={node().key: NOON + 8 * MINUTE})
    assert kinds(fleet) == []
    boot = event(EventKind.BOOT, node(), NOON + MINUTE)
    assert kinds(after(said.to_record(), boot.to_record(), at_day=9)) == ["boot"]


@pytest.mark.medium
def test_a_storm_of_one_sort_does_not_push_out_another() -> None:
    storm = [event(EventKind.XID, gpu(), NOON + n * timedelta(seconds=1), 13) for n in range(2000)]
    sticky = event(EventKind.XID, gpu(), NOON - MINUTE, 48)
    fleet = after(sticky.to_record(), *(one.to_record() for one in storm))
    events = fleet.events()[node().key]
    assert len(events) == 501
    assert events[0] == sticky
    assert events[-1] == storm[-1]


def test_an_allocation_that_ended_replaces_the_held_one_and_is_forgotten_a_day_later() -> None:
    held = allocation(gpu())
    ended = allocation(gpu(), ended_at=NOON)
    fleet = after(held.to_record(), ended.to_record())
    assert fleet.allocations() == {gpu().key: (ended,)}
    fleet.forget(NOON + DAY + MINUTE)
    assert fleet.allocations()[gpu().key] == ()


def test_a_copy_does_not_change_with_later_records() -> None:
    fleet = after(event(EventKind.XID, gpu(), NOON, 48).to_record())
    before = fleet.events()
    fleet.ingest(event(EventKind.XID, gpu(), NOON + MINUTE, 48).to_record())
    assert len(before[node().key]) == 1


def test_a_record_that_is_not_what_it_says_is_refused() -> None:
    record = Record(kind=RecordKind.EVENT, id="x", at=NOON, subject="c/n", body={"event": "?"})
    with pytest.raises(ValueError, match="EventKind"):
        Fleet().ingest(record)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["job 1", "job 2"]), st.booleans()),
        max_size=12,
    )
)
def test_who_holds_what_is_what_the_allocations_say(steps: list[tuple[int, str, bool]]) -> None:
    fleet = Fleet()
    for number, holder, ends in steps:
        taken = allocation(gpu(0, number), holder, ended_at=NOON if ends else None)
        fleet.ingest(taken.to_record())
        known = [one for them in fleet.allocations().values() for one in them]
        assert fleet.holdings() == Holdings(known).by_holder()
        held = {str(one.holder) for one in known if one.ended_at is None}
        assert {key.partition("|")[2] for key in fleet.holdings()} == held
