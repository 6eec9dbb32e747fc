import time
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.model import Incident, Severity
from report.build import build
from report.holders import idle_spells
from report.rounding import near
from tests.report.weeks import END, START, facts, gpu, idle, incident, share, usage

SHARES = st.lists(
    st.builds(
        share,
        holder=st.sampled_from([f"job {n}" for n in range(40)]),
        user=st.sampled_from(["ann", "bob", None]),
        gpus=st.integers(1, 8),
        used=st.floats(0, 1),
        idle=st.floats(0, 1),
        seconds=st.floats(0.01, 900),
    ),
    max_size=40,
)


@given(shares=SHARES)
def test_the_table_of_holders_adds_up_to_what_was_allocated(shares: list[object]) -> None:
    counted = usage(shares, start=END - timedelta(hours=2), gpus=64)  # type: ignore[arg-type]
    report = build(facts(counted))
    rows = [*report.holders, *([report.holders_rest] if report.holders_rest else [])]
    allocated = near(counted.seconds.allocated / 3600, report.digits)
    assert near(sum(row.gpu_hours for row in rows), report.digits) == allocated
    assert report.allocated_gpu_hours == allocated
    zero = near(sum(row.zero_gpu_hours for row in rows), report.digits)
    assert zero == report.holders_total.zero_gpu_hours
    assert zero == next(part.gpu_hours for part in report.parts if part.state == "idle")
    assert len(report.holders) + report.more_holders == len(counted.shares)
    assert (
        near(sum(p.gpu_hours or 0.0 for p in report.parts), report.digits)
        == report.installed_gpu_hours
    )
    assert near(sum(part.percent or 0 for part in report.parts), 1) == 100.0


def test_fifteen_holders_have_a_row_each_and_the_rest_one() -> None:
    shares = [share(f"job {n}", gpus=1, seconds=900 - n) for n in range(20)]
    report = build(facts(usage(shares, gpus=32)))
    assert len(report.holders) == 15
    assert report.more_holders == 5
    assert report.holders_rest is not None
    assert report.holders_rest.holder == "5 more"


def test_a_sixteenth_holder_has_a_row_of_its_own() -> None:
    shares = [share(f"job {n}", gpus=1) for n in range(16)]
    report = build(facts(usage(shares, gpus=32)))
    assert (len(report.holders), report.more_holders, report.holders_rest) == (16, 0, None)


MOMENTS = st.integers(0, 400).map(lambda hours: START - timedelta(days=3) + timedelta(hours=hours))


@st.composite
def spells(draw: st.DrawFn) -> Incident:
    numbers = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True))
    since = draw(MOMENTS)
    until = draw(st.none() | st.integers(1, 100).map(lambda h: since + timedelta(hours=h)))
    return idle(*(gpu(n) for n in numbers), since=since, until=until, label=f"n1 {numbers}")


@given(found=st.lists(spells(), max_size=8))
def test_each_gpus_idle_time_counts_once_however_many_incidents_speak_of_it(
    found: list[Incident],
) -> None:
    hours: set[tuple[str, int]] = set()
    for one in found:
        until = min(one.resolved_at or END, END)
        for number in range(7 * 24):
            at = START + timedelta(hours=number)
            if one.since <= at < until:
                gpus = [key for key in one.members if "/gpu/" in key]
                hours |= {(key, number) for key in gpus}
    rows = idle_spells(found, START, END, 1)
    assert near(sum(row.gpu_hours for row in rows), 1) == len(hours)
    assert all(row.gpu_hours > 0 for row in rows)


def test_an_idle_spell_says_where_whose_since_when_and_whether_it_goes_on() -> None:
    report = build(
        facts(incidents=[idle(gpu(0), gpu(1), until=None), idle(gpu(5), label="n1 GPU 5")])
    )
    first, second = report.idle
    assert (first.where, first.user, first.gpus, first.still) == ("n1", "carol", 2, True)
    assert (first.hours, first.gpu_hours) == (144.0, 288.0)
    assert (second.where, second.still, second.gpu_hours) == ("n1 GPU 5", False, 10.0)
    assert report.figure("idle_held_gpu_hours").value == 298.0 == report.idle_gpu_hours


def test_the_gpus_of_a_job_of_thousands_are_told_apart_in_a_moment() -> None:
    gpus = [gpu(n) for n in range(4_000)]
    began = time.process_time()
    (row,) = idle_spells([idle(*gpus, gpu(0))], START, END, 1)
    assert row.gpus == 4_000
    assert time.process_time() - began < 1.5  # it was several seconds


def test_hardware_incidents_are_counted_by_fault_and_the_worst_come_first() -> None:
    report = build(
        facts(
            incidents=[
                incident(
                    "port_down", gpu(3), severity=Severity.WARNING, title="Network port is down"
                ),
                incident(acknowledged_by="lena"),
                incident(label="n1 GPU 1", subject=gpu(1), since=START - timedelta(days=1)),
                incident("gpu_xid", gpu(4), severity=Severity.INFO, title="Xid 13"),
                idle(gpu(5)),
            ]
        )
    )
    assert [(row.title, row.incidents, row.gpus, row.hours) for row in report.faults] == [
        ("GPU fell off the bus", 2, 2, 72.0),
        ("Network port is down", 1, 1, 24.0),
    ]
    assert [(row.where, row.hours, row.mark) for row in report.troubles] == [
        ("n1 GPU 1", 48.0, 0),
        ("n1 GPU 0", 24.0, 1),
        ("n1 GPU 0", 24.0, 2),
    ]
    assert report.troubles[1].acknowledged_by == "lena"
    assert report.figure("hardware_incidents").value == 3
    assert any("1 incident of severity info" in note for note in report.method.notes)


def test_of_many_incidents_the_worst_eight_are_listed() -> None:
    many = [incident(label=f"n1 GPU {n}", subject=gpu(n)) for n in range(11)]
    report = build(facts(incidents=many))
    assert (len(report.troubles), report.more_troubles) == (8, 3)
    assert [row.mark for row in report.troubles] == [1, 2, 3, 4, 0, 0, 0, 0]
