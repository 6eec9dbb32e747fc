"""One quarter of an hour of GPU-seconds, counted."""

from dataclasses import fields, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.usage import BUCKET, Bucket, Seconds
from accounting.usage.count import Facts, Roster, count
from accounting.usage.out_of_service import Part
from accounting.usage.ownership import AllocationTable
from gpuvigil.model import GpuState
from gpuvigil.schedulers.out_of_service import LostTo
from tests.accounting.usage.quarter import (
    ALL,
    BUSY,
    END,
    FREE,
    LATER,
    LOST,
    START,
    STILL,
    Minute,
    bucket,
    counted,
    held,
    inventory,
    minutes,
    parts_of_quarter,
    table,
)

MINUTE = 60.0
QUARTER = 15 * MINUTE


# --- states ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "state"),
    [
        (BUSY, GpuState.ACTIVE),
        ({**BUSY, "compute_processes": None}, GpuState.ACTIVE),
        (STILL, GpuState.IDLE),
        (FREE, GpuState.FREE),
        ({**FREE, "compute_processes": None}, GpuState.UNKNOWN),
        ({**BUSY, "utilization_percent": None}, GpuState.UNKNOWN),
        ({"unmeasured_reason": 4.0}, GpuState.UNKNOWN),
        (LOST, GpuState.UNAVAILABLE),
        ({"unmeasured_reason": 3.0}, GpuState.UNAVAILABLE),
        ({"unmeasured_reason": 7.0}, GpuState.UNAVAILABLE),
    ],
)
def test_each_minute_is_in_the_state_that_its_row_says(
    row: dict[str, Any], state: GpuState
) -> None:
    seconds = bucket(minutes(row)).seconds
    assert seconds.of(state) == seconds.installed == QUARTER


def test_a_minute_without_a_row_is_unknown() -> None:
    seconds = bucket(minutes(BUSY, range(5)) + minutes(BUSY, range(15), gpu=1)).seconds
    assert (seconds.installed, seconds.active) == (2 * QUARTER, 20 * MINUTE)
    assert seconds.unknown == 10 * MINUTE


def test_a_gpu_at_0_percent_is_idle_for_the_seconds_in_which_it_was_held() -> None:
    found = bucket(minutes(FREE), held(2.5, 4.25))
    assert found.seconds.idle == 105.0
    assert found.seconds.free == QUARTER - 105.0
    assert found.seconds.allocated == found.seconds.measured == 105.0
    (share,) = found.shares
    assert (share.allocated, share.idle, share.used) == (105.0, 105.0, 0.0)


def test_a_gpu_is_quiet_that_its_holder_had_for_the_quarter_and_that_did_nothing_in_any_minute() -> (
    None
):
    little = {**BUSY, "utilization_percent": 0.9}
    enough = {**BUSY, "utilization_percent": 1.0}
    whole, late = held(0, None), held(0.1, None)
    for sent, had, quiet in (
        (little, whole, QUARTER),
        (enough, whole, 0.0),
        (little, late, QUARTER - 6.0),
        (little, held(1.5, None), 0.0),
    ):
        share = max(bucket(minutes(sent), had).shares, key=lambda one: one.allocated)
        assert share.quiet == pytest.approx(quiet), (sent, had)


def test_at_0_percent_without_known_processes_only_the_held_seconds_are_known() -> None:
    seconds = bucket(minutes({**FREE, "compute_processes": None}), held(0, 5)).seconds
    assert (seconds.idle, seconds.unknown, seconds.known) == (300.0, 600.0, 300.0)


def test_a_lost_gpu_stays_allocated_and_is_not_measured() -> None:
    seconds = bucket(minutes(LOST), held(0, None)).seconds
    assert (seconds.allocated, seconds.measured, seconds.used) == (QUARTER, 0.0, 0.0)


def test_what_is_held_while_nothing_is_known_is_not_counted_as_allocated() -> None:
    found = bucket(minutes(BUSY, range(5)), held(0, None))
    assert found.seconds.allocated == found.shares[0].allocated == 300.0


def test_power_is_summed_over_the_minutes_in_which_it_was_measured() -> None:
    found = bucket(minutes(BUSY, range(10)) + minutes({**BUSY, "power_watts": None}, range(10, 15)))
    assert found.seconds.powered == 600.0
    assert found.seconds.energy_joules == 600.0 * 500.0


def test_energy_is_the_counters_where_there_is_one_and_else_power_over_time() -> None:
    def metered(numbers: range, watts: float = 300.0) -> list[Minute]:
        return [
            Minute(number=n, fields={**BUSY, "energy_joules": 5e9 + watts * (60.0 * n + 30.0)})
            for n in numbers
        ]

    assert bucket(metered(range(15))).seconds.energy_joules == pytest.approx(300.0 * QUARTER)
    # Read by nobody for five minutes: a minute before and after has no neighbour, and its power.
    gap = bucket([*metered(range(5)), *metered(range(10, 15))]).seconds
    assert gap.powered == 600.0
    assert gap.energy_joules == pytest.approx(8 * 300.0 * 60 + 2 * 500.0 * 60)
    # Set back by a reset, or active still: what was sampled counts.
    reset = [*metered(range(7)), *metered(range(7, 15), watts=1.0)]
    back = bucket(reset).seconds.energy_joules
    assert 0 < back < 500.0 * QUARTER
    still = bucket(metered(range(15), watts=0.0)).seconds
    assert still.energy_joules == pytest.approx(500.0 * QUARTER)


@pytest.mark.parametrize(("value", "used"), [(250.0, 1.0), (-5.0, 0.0)])
def test_a_utilisation_out_of_its_range_is_held_within_it(value: float, used: float) -> None:
    seconds = bucket(minutes({**BUSY, "utilization_percent": value})).seconds
    assert seconds.used == used * seconds.measured


# --- what is out of service -----------------------------------------------------------------------

DRAINED = {("n1", ""): ALL[LostTo.REPAIR]}


def lost(seconds: Seconds) -> dict[LostTo, float]:
    return {to: hours for to in LostTo if (hours := seconds.lost(to))}


@pytest.mark.parametrize("to", list(LostTo))
def test_an_idle_gpu_of_a_node_that_is_out_of_service_is_lost_and_never_free(to: LostTo) -> None:
    for row in (FREE, {**FREE, "compute_processes": None}, {"unmeasured_reason": 4.0}, LOST):
        cells = minutes(row) + minutes(FREE, node="n2")
        seconds = bucket(cells, out={("n1", ""): ALL[to]}).seconds
        assert lost(seconds) == {to: QUARTER}
        assert (seconds.unavailable, seconds.free, seconds.unknown) == (QUARTER, QUARTER, 0.0)
        assert (seconds.judged, seconds.in_service_percent) == (2 * QUARTER, 50.0)


def test_a_drained_node_is_in_service_while_its_jobs_run_on() -> None:
    seconds = bucket(minutes(BUSY, range(10)) + minutes(FREE, range(10, 15)), out=DRAINED).seconds
    assert (seconds.active, lost(seconds)) == (10 * MINUTE, {LostTo.REPAIR: 5 * MINUTE})
    paused = bucket(minutes(FREE), held(0, 10), out=DRAINED).seconds
    assert (paused.idle, lost(paused)) == (10 * MINUTE, {LostTo.REPAIR: 5 * MINUTE})


@pytest.mark.parametrize("row", [FREE, LOST, {"unmeasured_reason": 4.0}])
def test_what_is_out_for_a_part_of_the_quarter_is_lost_for_that_part(
    row: dict[str, float | None],
) -> None:
    # It comes back after six minutes and twenty seconds; another node is drained for its last 90.
    parts = {
        ("n1", ""): (Part(LostTo.REPAIR, 0.0, 380.0),),
        ("n2", ""): (Part(LostTo.MAINTENANCE, 810.0),),
    }
    seconds = bucket(minutes(row) + minutes(FREE, node="n2"), out=parts).seconds
    assert seconds.lost_repair == pytest.approx(380.0)
    assert seconds.lost_maintenance == pytest.approx(90.0)
    # A GPU that is gone is lost to a fault while its node is in service.
    assert seconds.lost_fault == pytest.approx(520.0 if row is LOST else 0.0)
    assert seconds.free == pytest.approx(810.0 + (520.0 if row is FREE else 0.0))


def test_a_job_that_begins_when_its_node_comes_back_has_its_own_seconds() -> None:
    parts = {("n1", ""): (Part(LostTo.REPAIR, 0.0, 300.0), Part(LostTo.FAULT, 600.0, 660.0))}
    cells = minutes(FREE, range(5)) + minutes(BUSY, range(5, 10)) + minutes(FREE, range(10, 15))
    seconds = bucket(cells, held(5, 10), out=parts).seconds
    assert lost(seconds) == {LostTo.REPAIR: 300.0, LostTo.FAULT: 60.0}
    assert (seconds.active, seconds.free) == (300.0, 240.0)


def test_a_node_that_is_down_is_lost_although_nothing_is_heard_of_it() -> None:
    own = [inventory(8, START - timedelta(days=9), "n2")]
    seconds = bucket(minutes(), inventories=own, out={("n2", ""): ALL[LostTo.FAULT]}).seconds
    assert lost(seconds) == {LostTo.FAULT: 8 * QUARTER}
    assert (seconds.unavailable, seconds.unknown) == (8 * QUARTER, 0.0)


def test_a_node_that_is_absent_all_quarter_is_lost_to_nobody_knows_what() -> None:
    own = [inventory(8, START - timedelta(days=9), "n2")]
    gone = bucket(
        minutes(), inventories=own, last_seen={"n2": START - timedelta(seconds=1)}
    ).seconds
    assert lost(gone) == {LostTo.UNKNOWN: 8 * QUARTER}
    assert (gone.unknown, gone.unavailable) == (8 * QUARTER, 0.0)
    # One that fell silent within it, or of which a row is there, is not absent yet.
    assert not lost(bucket(minutes(), inventories=own, last_seen={"n2": START}).seconds)
    some = minutes() + minutes(FREE, [0], node="n2")
    assert not lost(bucket(some, inventories=own).seconds)


def test_in_the_running_quarter_a_node_is_absent_after_a_quarter_of_an_hour() -> None:
    own = [inventory(8, START - timedelta(days=9), "n2")]
    now = START + timedelta(minutes=4)
    for ago, hours in ((timedelta(minutes=15), 0.0), (timedelta(minutes=15, seconds=1), 8 * 240.0)):
        seconds = bucket(
            minutes(BUSY, range(4)), inventories=own, last_seen={"n2": now - ago}, now=now
        ).seconds
        assert seconds.lost_unknown <= 8 * 240.0
        assert bool(seconds.lost_unknown) is bool(hours)


def test_a_gpu_that_is_lost_by_itself_is_lost_to_a_fault_or_to_its_repair_or_its_release() -> None:
    assert lost(bucket(minutes(LOST)).seconds) == {LostTo.FAULT: QUARTER}
    mended = {("n1", "GPU-0"): ALL[LostTo.REPAIR]}
    assert lost(bucket(minutes(LOST), out=mended).seconds) == {LostTo.REPAIR: QUARTER}
    released = {"unmeasured_reason": 7.0}
    assert lost(bucket(minutes(released)).seconds) == {LostTo.MAINTENANCE: QUARTER}
    # A case that is open does not keep it from working.
    assert not lost(bucket(minutes(FREE), out=mended).seconds)


def test_where_nobody_can_say_what_was_out_of_service_nothing_is_said_of_it() -> None:
    own = [inventory(8, START - timedelta(days=9), "n2")]
    seconds = bucket(minutes(LOST), inventories=own, out=None).seconds
    assert (seconds.judged, seconds.in_service_percent, lost(seconds)) == (0.0, None, {})


# --- holders --------------------------------------------------------------------------------------


def test_holders_at_the_same_time_have_equal_parts() -> None:
    both = (held(0, 10, "job 1", "ann"), held(5, 15, "job 2", "ben"))
    shares = {one.holder: one for one in bucket(minutes(), *both).shares}
    assert shares["job 1"].allocated == shares["job 2"].allocated == 450.0
    assert shares["job 1"].used == pytest.approx(0.8 * 450.0)


def test_processes_of_one_user_are_one_holder_with_the_command_that_had_most() -> None:
    them = (
        held(0, 15, "pid 1", "ann", 0, command="notebook"),
        held(0, 15, "pid 2", "ann", 1, command="train"),
        held(0, 15, "pid 3", "ann", 2, command="train"),
        held(0, 15, "pid 4", "ben", 0, command="other"),
    )
    cells = minutes(gpu=0) + minutes(gpu=1) + minutes(gpu=2)
    ann, ben = bucket(cells, *them).shares
    assert (ann.holder, ann.user, ann.command, ann.gpus) == ("processes", "ann", "train", 3)
    assert (ann.allocated, ben.allocated) == (2.5 * QUARTER, 0.5 * QUARTER)


def test_several_processes_of_a_user_do_not_outweigh_the_other_holder() -> None:
    many = [held(0, 15, f"pid {n}", "ann") for n in range(7)]
    ann, ben = bucket(minutes(), *many, held(0, 15, "job 1", "ben")).shares
    assert ann.allocated == pytest.approx(ben.allocated) == pytest.approx(QUARTER / 2)


def test_a_process_that_no_allocation_names_has_an_unknown_holder() -> None:
    found = bucket(minutes(BUSY))
    (share,) = found.shares
    assert (share.holder, share.user, share.gpus) == ("unknown", None, 1)
    assert share.allocated == found.seconds.allocated == QUARTER


def test_an_allocation_says_to_the_second_how_long_although_its_process_is_seen_all_minute() -> (
    None
):
    found = bucket(minutes(BUSY, [0]) + minutes(FREE, range(1, 15)), held(-5, 0.5))
    assert found.seconds.allocated == 30.0
    assert [share.holder for share in found.shares] == ["job 1"]


def test_more_holders_than_a_record_should_carry_are_joined_by_user() -> None:
    cells = [cell for gpu in range(1200) for cell in minutes(BUSY, [0, 1], gpu=gpu)]
    them = [held(0, 1 + (n + 1) / 1200, f"job {n}", f"user {n % 2}", n) for n in range(1200)]
    found = bucket(cells, *them)
    assert len(found.shares) == 1002
    assert {share.holder for share in found.shares[1000:]} == {"others"}
    total = sum(share.allocated for share in found.shares)
    assert total == pytest.approx(found.seconds.allocated)


def test_names_from_outside_are_cut_to_a_printable_line() -> None:
    (share,) = bucket(minutes(), held(0, None, "job \x1b[2J" + "x" * 9000, "a\nb")).shares
    assert share.user == "a b"
    assert share.holder.isprintable()
    assert len(share.holder) == 120


# --- who is installed -----------------------------------------------------------------------------


def test_a_node_that_is_gone_stays_installed_for_however_long() -> None:
    own = [inventory(8, START - timedelta(days=90), "n2")]
    for gone in (timedelta(hours=23), timedelta(hours=25), timedelta(days=60)):
        found = bucket(minutes(), inventories=own, last_seen={"n2": END - gone})
        assert (found.gpus, found.seconds.unknown) == (9, 8 * QUARTER)


@pytest.mark.parametrize(
    ("retired", "heard", "installed"),
    [
        (START, START - timedelta(hours=30), 1),
        (START + timedelta(seconds=1), START - timedelta(hours=30), 9),  # with the next quarter
        (START, START - timedelta(minutes=20), 1),  # although it sent in the hour before
        (START, START, 1),
        (START, START + timedelta(seconds=1), 9),  # it came back
    ],
)
def test_a_node_leaves_with_the_quarter_after_its_retirement(
    retired: Any, heard: Any, installed: int
) -> None:
    found = bucket(
        minutes(),
        inventories=[inventory(8, START - timedelta(days=90), "n2")],
        last_seen={"n1": LATER, "n2": heard},
        retired={"n2": retired},
        sent={("n1", "GPU-0"), *(("n2", f"GPU-{n}") for n in range(8))},
    )
    assert found.gpus == installed


def test_a_simulated_node_is_installed_for_ten_minutes() -> None:
    own = [inventory(8, START - timedelta(days=9), "n2")]
    for number, installed in ((9, 9), (11, 1)):
        heard = {"n2": END - timedelta(minutes=number)}
        found = bucket(minutes(), inventories=own, last_seen=heard, cluster="simulated")
        assert found.gpus == installed


def test_an_inventory_that_is_younger_than_the_quarter_says_nothing_about_it() -> None:
    own = [inventory(8, END + timedelta(minutes=1), "n2")]
    assert bucket(minutes(), inventories=own, last_seen={"n2": LATER}).gpus == 1


def test_a_node_that_was_away_and_came_back_with_a_new_inventory_was_installed_meanwhile() -> None:
    own = [inventory(8, END + timedelta(minutes=30), "n2")]
    found = bucket(minutes(), inventories=own, last_seen={"n2": LATER}, nodes_sent={"n2"})
    assert (found.gpus, found.seconds.unknown) == (9, 8 * QUARTER)


def test_a_gpu_that_sent_in_the_hour_before_is_installed_without_an_inventory() -> None:
    found = bucket(minutes(), sent={("n1", "GPU-0"), ("n3", "GPU-7")})
    assert (found.gpus, found.nodes, found.seconds.unknown) == (2, 2, QUARTER)


def test_a_fresh_gpu_counts_from_its_first_minute() -> None:
    own = [inventory(1, START + timedelta(minutes=6.5))]
    heard = {"n1": LATER}
    found = bucket(minutes(BUSY, range(7, 15)), sent=(), inventories=own, last_seen=heard)
    assert found.seconds == replace(Seconds(), **_only(found, active=8 * MINUTE))
    assert found.seconds.installed == 8 * MINUTE


def test_a_fresh_gpu_that_has_said_nothing_yet_counts_from_its_inventory() -> None:
    own = [inventory(2, START + timedelta(minutes=6.5))]
    rows = minutes(BUSY, range(7, 15))
    found = bucket(rows, sent=(), inventories=own, last_seen={"n1": LATER})
    assert (found.gpus, found.seconds.unknown) == (2, 8 * MINUTE)


def test_the_running_quarter_ends_now_and_its_running_minute_waits_for_rows() -> None:
    now = START + timedelta(minutes=4, seconds=30)
    cells = minutes(BUSY, range(5)) + minutes(BUSY, range(4), gpu=1) + minutes(BUSY, [0], gpu=2)
    seconds = bucket(cells, now=now).seconds
    assert seconds.active == 270.0 + 240.0 + 60.0
    assert seconds.unknown == 180.0


def test_where_nobody_listened_minutes_without_any_row_are_absent() -> None:
    rows = minutes(BUSY, range(5))
    assert bucket(rows, watched_since=None).seconds.installed == 300.0
    some = bucket(rows, watched_since=START + timedelta(minutes=10)).seconds
    assert (some.installed, some.unknown) == (600.0, 300.0)
    assert bucket(rows).seconds.unknown == 600.0


def test_a_cluster_that_is_silent_all_over_is_unknown_while_somebody_listens_and_else_absent() -> (
    None
):
    known = {("n1", "GPU-0")}
    assert bucket([], sent=known).seconds.unknown == QUARTER
    assert counted([], watched_since=None, sent=known) is None
    assert counted([], watched_since=END, sent=known) is None


def test_a_cluster_without_gpus_has_no_bucket() -> None:
    assert counted([]) is None


def test_models_are_counted_by_gpu() -> None:
    own = [inventory(8, START - timedelta(days=9), "n2")]
    assert bucket(minutes(), inventories=own, last_seen={"n2": END}).models == {"H100": 9}


def test_a_gpu_whose_rows_have_two_models_counts_once() -> None:
    rows = table(minutes(BUSY))
    column = rows.column_names.index("model")
    other = rows.set_column(column, "model", pa.array([""] * 15))
    found = bucket(minutes(BUSY), rows=pa.concat_tables([rows, other]))
    assert (found.gpus, found.seconds.active, found.seconds.installed) == (1, QUARTER, QUARTER)


def _only(found: Bucket, active: float) -> dict[str, float]:
    """All amounts of a GPU that is busy by 80 % with one unknown holder."""
    return {
        **dict.fromkeys(
            ("installed", "active", "allocated", "measured", "powered", "judged"), active
        ),
        "used": found.seconds.used,
        "energy_joules": active * 500.0,
    }


# --- whatever comes -------------------------------------------------------------------------------

ROWS = st.fixed_dictionaries(
    {
        "up": st.sampled_from([1.0, 1.0, 1.0, 0.5, 0.0, None]),
        "utilization_percent": st.sampled_from([0.0, 0.0, 37.5, 100.0, None]),
        "compute_processes": st.sampled_from([0.0, 1.0, 2.5, None]),
        "power_watts": st.sampled_from([None, 70.0, 700.0]),
        "unmeasured_reason": st.sampled_from([None, 3.0, 4.0, 7.0]),
    }
)
CELLS = st.lists(
    st.builds(
        Minute,
        number=st.integers(-2, 16),
        fields=ROWS,
        gpu=st.integers(0, 3),
        node=st.sampled_from(["n1", "n2"]),
    ),
    max_size=60,
)
HELD = st.lists(
    st.builds(
        held,
        st.floats(-30, 20),
        st.none() | st.floats(-30, 40),
        st.sampled_from(["job 1", "job 2", "pid 7", "pid 8"]),
        st.sampled_from(["ann", "ben", None]),
        st.integers(0, 4),
    ),
    max_size=12,
)


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    """Any cluster: gaps, lost GPUs, GPUs that no row names, anything held by anybody."""
    watched = draw(st.none() | st.floats(-20, 20))
    cells = draw(CELLS)
    return Facts(
        cluster=draw(st.sampled_from(["c", "simulated"])),
        start=START,
        now=START + timedelta(minutes=draw(st.floats(0.1, 40))),
        rows=table(cells),
        sent=draw(st.sets(st.tuples(st.just("n1"), st.sampled_from(["GPU-0", "GPU-9"])))),
        nodes_sent=draw(st.sets(st.just("n2"))),
        last_seen={"n2": START + timedelta(minutes=draw(st.floats(-2000, 20)))},
        inventories=[inventory(4, START + timedelta(minutes=draw(st.floats(-99, 20))), "n2")],
        allocations=draw(HELD),
        retired=draw(st.dictionaries(st.just("n2"), st.just(START - timedelta(minutes=30)))),
        out=draw(
            st.none()
            | st.dictionaries(
                st.tuples(st.sampled_from(["n1", "n2"]), st.sampled_from(["", "GPU-0"])),
                parts_of_quarter(),
            )
        ),
        watched_since=None if watched is None else START + timedelta(minutes=watched),
    )


@given(facts())
def test_the_states_add_up_to_installed_and_each_amount_is_part_of_the_next(given_: Facts) -> None:
    found = count(given_)
    if found is None:
        return
    seconds = found.seconds
    assert sum(map(seconds.of, GpuState)) == pytest.approx(seconds.installed, abs=1e-6)
    names = [each.name for each in fields(Seconds)]
    assert all(getattr(seconds, name) >= -1e-9 for name in names)
    ladder = (seconds.used, seconds.measured, seconds.allocated, seconds.known, seconds.installed)
    assert all(part <= whole + 1e-6 for part, whole in pairwise(ladder))
    assert seconds.idle <= seconds.measured + 1e-6
    assert seconds.installed <= found.gpus * QUARTER + 1e-6
    assert seconds.judged == (0.0 if given_.out is None else seconds.installed)
    if given_.out is not None:
        together = sum(map(seconds.lost, LostTo))
        assert (
            seconds.unavailable - 1e-6
            <= together
            <= seconds.judged - seconds.known + (seconds.unavailable + 1e-6)
        )


@given(facts())
def test_nothing_is_free_on_a_node_that_is_out_of_service(given_: Facts) -> None:
    found = count(given_)
    for place in () if found is None else found.places:
        if (given_.out or {}).get((place.node, "")) in ALL.values():
            assert place.seconds.free == 0.0


@given(facts())
def test_holders_have_together_what_was_allocated(given_: Facts) -> None:
    found = count(given_)
    if found is None:
        return
    for name in ("allocated", "measured", "used", "idle"):
        total = sum(getattr(share, name) for share in found.shares)
        assert total == pytest.approx(getattr(found.seconds, name), abs=1e-6)
    assert all(0 < share.gpus <= found.gpus for share in found.shares)


@pytest.mark.medium
@given(facts(), st.randoms())
@settings(max_examples=40, deadline=None)
def test_the_order_in_which_things_come_changes_nothing(given_: Facts, random: Any) -> None:
    order = list(range(len(given_.rows)))
    random.shuffle(order)
    assert not isinstance(given_.allocations, AllocationTable)
    others = list(given_.allocations)
    random.shuffle(others)
    mixed = replace(given_, rows=given_.rows.take(pa.array(order, pa.int64())), allocations=others)
    assert _rounded(count(mixed)) == _rounded(count(given_))


@pytest.mark.medium
@given(facts(), st.integers(-5000, 5000))
@settings(max_examples=40, deadline=None)
def test_the_same_at_another_quarter_is_the_same(given_: Facts, quarters: int) -> None:
    shift = quarters * BUCKET
    moved = count(_moved(given_, shift))
    here = count(given_)
    if here is None or moved is None:
        assert here is moved
        return
    assert moved.start == here.start + shift
    assert _rounded(moved)[1:] == _rounded(here)[1:]


@pytest.mark.medium
@given(facts())
@settings(max_examples=25, deadline=None)
def test_a_bucket_survives_its_record(given_: Facts) -> None:
    found = count(given_)
    if found is None:
        return
    back = Bucket.from_record(found.to_record())
    assert _rounded(back, 3) == _rounded(found, 3)  # as many digits as a record has
    assert (back.cluster, back.counted_at, back.watched_since, back.out) == (
        found.cluster,
        found.counted_at,
        found.watched_since,
        found.out,
    )


def _moved(facts_: Facts, shift: timedelta) -> Facts:
    place = facts_.rows.column_names.index("at")
    times = pa.array(
        [time + shift for time in facts_.rows["at"].to_pylist()], pa.timestamp("us", "UTC")
    )
    watched = facts_.watched_since
    assert not isinstance(facts_.allocations, AllocationTable)
    assert not isinstance(facts_.inventories, Roster)
    return replace(
        facts_,
        start=facts_.start + shift,
        now=facts_.now + shift,
        rows=facts_.rows.set_column(place, "at", times),
        last_seen={node: heard + shift for node, heard in facts_.last_seen.items()},
        retired={node: at + shift for node, at in facts_.retired.items()},
        inventories=[replace(one, at=one.at + shift) for one in facts_.inventories],
        allocations=[
            replace(
                one,
                started_at=one.started_at + shift,
                ended_at=None if one.ended_at is None else one.ended_at + shift,
            )
            for one in facts_.allocations
        ],
        watched_since=None if watched is None else watched + shift,
    )


def _rounded(found: Bucket | None, digits: int = 4) -> Any:
    """The start, and all that should be equal but for the last digits of sums."""
    if found is None:
        return None
    seconds = {
        each.name: round(getattr(found.seconds, each.name), digits) for each in fields(Seconds)
    }
    shares = sorted(
        (one.key, one.gpus, *(round(v, digits) for v in (one.allocated, one.used, one.idle)))
        for one in found.shares
    )
    return found.start, found.gpus, found.nodes, seconds, shares, dict(found.models)


def test_what_was_active_while_nobody_could_say_who_held_it_is_unattributed() -> None:
    blind = minutes({**BUSY, "compute_processes": None})
    seconds = bucket(blind).seconds
    assert (seconds.active, seconds.unattributed) == (900, 900)
    assert seconds.allocated_percent is None
    assert bucket(minutes(BUSY)).seconds.unattributed == 0


def test_where_only_held_seconds_are_known_no_share_of_them_is_said() -> None:
    half = bucket(minutes({**BUSY, "compute_processes": None}), held(0, 7.5)).seconds
    assert (half.allocated, half.unattributed, half.allocated_percent) == (450, 450, None)
    whole = bucket(minutes({**BUSY, "compute_processes": None}), held(0, 15)).seconds
    assert (whole.unattributed, whole.allocated_percent) == (0, 100)


def test_a_thousandth_of_a_second_is_no_share() -> None:
    lone = Seconds(installed=0.4, unknown=0.1, active=0.3, unattributed=0.2999999)
    assert lone.allocated_percent is None
    some = Seconds(installed=900, active=600, free=300, unattributed=300)
    assert some.allocated_percent == 0
