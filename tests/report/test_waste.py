import json
import tracemalloc
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.cost.money import Prices
from accounting.efficiency.efficiency import Advice
from accounting.efficiency.holdings import holdings, idle_by_rule
from accounting.efficiency.inefficient_hours import HOUR, Waste, WasteHour
from accounting.usage import BUCKET
from gpuvigil.config import CostSettings, PriceSettings
from gpuvigil.model import Impact, Job, Rma, RmaState, Severity, Subject
from report.inputs.facts import SpanData
from report.model import formatting
from report.model.content import Report
from report.sections.build import build
from report.sections.waste import Wasted, advice, wasted
from tests.report.week_of_jobs import SAID, numbers, week
from tests.report.weeks import (
    END,
    START,
    WEEK,
    bucket,
    facts,
    gpu,
    idle,
    incident,
    priced,
    share,
    usage,
)

NOBODY = Prices()
HALF = timedelta(minutes=30)


def rows(report: Report, key: str) -> dict[Any, dict[str, Any]]:
    """The rows of a table by their first cell, each by its keys."""
    sheet = report.sheet(key)
    assert sheet is not None
    names = [one.key for one in sheet.columns]
    listed = [*sheet.rows, *([sheet.total] if sheet.total else [])]
    return {row[0]: dict(zip(names, row, strict=True)) for row in listed}


@given(
    quiet=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    beside=st.lists(st.integers(0, 4), min_size=40, max_size=40),
)
def test_idle_by_the_rule_is_never_more_than_what_was_at_zero(
    quiet: list[int], beside: list[int]
) -> None:
    still = np.array([quiet], float)
    idle = still + np.array([beside[: len(quiet)]], float)
    found = idle_by_rule(still, idle, 2)
    assert (found <= idle).all()
    assert (found >= 0).all()
    alone = [
        n
        for n in range(len(quiet))
        if not any(quiet[m] for m in (n - 1, n, n + 1) if 0 <= m < len(quiet) and m != n)
    ]
    # A quarter with no other quiet one beside it is half of what the rule asks for.
    assert all(found[0, n] == 0 for n in alone)


def test_a_spell_counts_from_its_first_second_to_its_last() -> None:
    """One GPU at 0 % from 10:05 to 12:10: the quarters from 10:15 to 12:00, and what is beside them."""
    quiet = np.array([[0, 0, 900, 900, 900, 900, 900, 900, 900, 0, 0]], float)
    idle = np.array([[0, 600, 900, 900, 900, 900, 900, 900, 900, 600, 0]], float)
    assert idle_by_rule(quiet, idle, 2).sum() == 7500.0


def test_less_than_half_an_hour_is_not_idle_by_the_rule_and_half_an_hour_is() -> None:
    short = [share(quiet=1.0)], [share()]
    found = [
        holdings(
            [bucket(START + n * BUCKET, short[0] if n in spell else short[1]) for n in range(8)],
            NOBODY,
            HALF,
        )[0]
        for spell in ((3,), (3, 4))
    ]
    assert found[0].idle == 0.0
    assert found[1].idle == pytest.approx(2.0 + 2 * 0.1)  # four GPUs for half an hour, and its ends


@given(
    quiet=st.lists(
        st.lists(st.sampled_from([None, 0.0, 0.5, 1.0]), min_size=12, max_size=12),
        min_size=1,
        max_size=3,
    ),
    idle=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=12, max_size=12),
    gap=st.sets(st.integers(0, 11), max_size=4),
    quarters=st.integers(1, 4),
)
def test_holders_in_a_few_quarters_have_what_all_quarters_would_give(
    quiet: list[list[float | None]], idle: list[float], gap: set[int], quarters: int
) -> None:
    """None: it held nothing in that quarter. What is in `gap` was not counted."""
    counted = [n for n in range(12) if n not in gap]
    buckets = [
        bucket(
            START + n * BUCKET,
            [
                share(f"job {job}", gpus=1, quiet=of[n], idle=idle[n])
                for job, of in enumerate(quiet)
                if of[n] is not None
            ],
        )
        for n in counted
    ]
    found = {one.holder: one for one in holdings(buckets, NOBODY, quarters * BUCKET)}
    for job, of in enumerate(quiet):
        held = np.array([n in counted and one is not None for n, one in enumerate(of)])
        still = 900.0 * np.array([one or 0.0 for one in of]) * held
        low, high = (counted[0], counted[-1] + 1) if counted else (0, 0)
        zero = np.maximum(900.0 * np.array(idle), still) * held
        by_rule = idle_by_rule(still[None, low:high], zero[None, low:high], quarters)
        one = found.get(f"job {job}")
        assert (one is None) == (not held.any())
        if one is not None:
            assert one.idle == pytest.approx(by_rule.sum() / 3600)
            assert one.still == round(by_rule[0, -1] / 900)
            assert sum(hour for hour, *_ in one.hourly.values()) == pytest.approx(held.sum() / 4)
            assert sum(hour for _, hour, _ in one.hourly.values()) == pytest.approx(one.idle)


@pytest.mark.medium
def test_a_week_of_jobs_takes_room_by_what_they_held_and_not_by_all_quarters_of_it() -> None:
    """2,688 jobs of four quarters each; a number for each of them and each quarter is 14 MiB."""
    names = [[share(f"job {first + n}") for n in range(16)] for first in range(0, 2_688, 16)]
    buckets = [bucket(START + n * BUCKET, names[n // 4]) for n in range(672)]
    whole = 2_688 * 672 * 8
    tracemalloc.start()
    try:
        found = holdings(buckets, NOBODY, HALF)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == 2_688
    assert most < whole


@pytest.mark.medium
def test_the_numbers_of_a_week_stay_what_they_were() -> None:
    """Jobs over midnight and both ends of the week, gaps, late data and an earlier version's quarters."""
    assert numbers() == json.loads(SAID.read_text(encoding="utf-8"))


@pytest.mark.medium
@given(
    quiet=st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=24),
    unfilled=st.lists(st.floats(0.0, 8.0), min_size=7, max_size=7),
    late=st.integers(0, 3),
    advice=st.sampled_from(list(Advice)),
)
def test_nobody_wastes_more_than_he_held(
    quiet: list[float], unfilled: list[float], late: int, advice: Advice
) -> None:
    start = START + late * BUCKET
    held = [
        [share(gpus=8, quiet=part, model="A100"), share(gpus=2, model="H100")] for part in quiet
    ]
    buckets = tuple(
        bucket(start + n * BUCKET, one, gpus=16) for n, one in enumerate(held) if n not in {5, 6}
    )
    wastes = tuple(not_filled(n, hours, advice) for n, hours in enumerate(unfilled))
    past = SpanData(usage=replace(usage(), buckets=buckets), wastes=wastes)
    for one in wasted(past, facts()):
        assert one.hours <= one.held.allocated + 1e-6
        assert one.little >= 0.0


def not_filled(hour: int, gpu_hours: float, advice: Advice) -> WasteHour:
    """Of all GPUs of job 1."""
    one = Waste("job 1", "ann", None, None, "H100", advice.value, 8, gpu_hours)
    return WasteHour(cluster="alpha", start=START + hour * HOUR, wastes=(one,), scattered_gpus=0)


@pytest.mark.parametrize(
    ("advice", "seconds", "more"),
    [(Advice.LITTLE, 890, 2 * 890), (Advice.LITTLE, 900, 0), (Advice.GATHER, 890, 0)],
)
def test_few_minutes_at_a_jobs_ends_are_as_the_hour_beside_them(
    advice: Advice, seconds: int, more: int
) -> None:
    """Three hours that are judged, and of those before and after them so many seconds."""
    held = [share(gpus=4, seconds=4 * seconds), *[share(gpus=4)] * 12]
    held.append(held[0])
    buckets = tuple(bucket(START + (3 + n) * BUCKET, [one]) for n, one in enumerate(held))
    wastes = tuple(not_filled(1 + n, 2.0, advice) for n in range(3))
    gpus_of_four = tuple(replace(it, wastes=(replace(it.wastes[0], gpus=4),)) for it in wastes)
    past = SpanData(usage=replace(usage(), buckets=buckets), wastes=gpus_of_four)
    (found,) = wasted(past, facts())
    assert found.little == pytest.approx(6.0 + 0.5 * 4 * more / 3600)


@pytest.mark.parametrize(
    ("seconds", "beside", "little"),
    [
        # Of the hour in which it ended: less than half of it, or half; and an hour before that was the same.
        (890, False, 0.0),
        (900, False, 3.0),
        (890, True, 3.0 + 6.0),
    ],
)
def test_a_pause_that_is_most_of_what_a_job_had_of_an_hour_is_no_waste(
    seconds: int, beside: bool, little: float
) -> None:
    held = [*[share(gpus=8, used=0.05, idle=0.0)] * 5, share(gpus=8, seconds=8 * seconds)]
    buckets = tuple(bucket(START + n * BUCKET, [one]) for n, one in enumerate(held))
    wastes = [
        *([not_filled(0, 6.0, Advice.GATHER)] if beside else ()),
        not_filled(1, 3.0, Advice.GATHER),
    ]
    past = SpanData(usage=replace(usage(), buckets=buckets), wastes=tuple(wastes))
    (found,) = wasted(past, facts())
    assert found.little == pytest.approx(little)


def test_quiet_quarters_of_a_poorly_fed_job_are_idle_and_not_unfilled_besides() -> None:
    """Eight GPUs for a day, idle for three quarters of each hour, hardly used in the other."""
    parts = [share(gpus=8, quiet=1.0, used=0.0), share(gpus=8, used=0.09, idle=0.0)]
    buckets = tuple(bucket(START + n * BUCKET, [parts[n % 4 == 3]]) for n in range(96))
    wastes = tuple(not_filled(n, 7.5, Advice.GATHER) for n in range(24))
    (found,) = wasted(SpanData(usage=replace(usage(), buckets=buckets), wastes=wastes), facts())
    assert (found.held.allocated, found.idle, found.little) == (192.0, 144.0, 36.0)


@pytest.mark.parametrize(
    ("busy", "gpu_hours", "little"),
    [
        # Of the two GPU-hours in which it was not idle: hardly used, used in bursts or with short pauses,
        # and busy, filled to more or to less than half.
        (0.099, 7.8, 1.8),
        (0.1, 7.8, 0.0),
        (0.79, 7.2, 0.0),
        (0.8, 7.01, 1.01),
        (0.8, 6.99, 0.0),
    ],
)
def test_what_is_left_of_an_idle_hour_is_judged_by_itself(
    busy: float, gpu_hours: float, little: float
) -> None:
    parts = [share(gpus=8, quiet=1.0, used=0.0), share(gpus=8, used=busy, idle=0.0)]
    buckets = tuple(bucket(START + n * BUCKET, [parts[n % 4 == 3]]) for n in range(96))
    wastes = tuple(not_filled(n, gpu_hours, Advice.GATHER) for n in range(24))
    (found,) = wasted(SpanData(usage=replace(usage(), buckets=buckets), wastes=wastes), facts())
    assert found.little == pytest.approx(24 * little)


@pytest.mark.medium
def test_a_quarter_of_an_earlier_version_makes_it_a_range() -> None:
    known = usage([share(quiet=0.5)])
    dark = usage([share(quiet=None, idle=0.5)])
    sure, unsure = (build(facts(one)).figure("idle_held_gpu_hours") for one in (known, dark))
    assert (sure.value, sure.low, sure.high) == (336.0, None, None)
    assert (unsure.low, unsure.high) == (0.0, 336.0)
    assert formatting.value(unsure, 1) == "0.0–336.0\u00a0GPU-h"


def test_idle_hours_are_counted_whether_or_not_anybody_was_told() -> None:
    week = usage([share(quiet=1.0, idle=1.0, used=0.0)])
    for told in ([], [idle(gpu(0), gpu(1))]):
        report = build(facts(week, incidents=told))
        assert report.figure("idle_held_gpu_hours").value == report.allocated_gpu_hours == 672.0
        assert rows(report, "losses")["allocated but idle"]["gpu_hours"] == 672.0


def test_of_many_jobs_the_rest_hides_no_waste() -> None:
    many = [share(f"job {n}", f"u{n}", 1, idle=1.0, used=0.0, quiet=1.0) for n in range(30)]
    report = build(facts(usage(many, gpus=64)))
    worst = report.sheet("jobs")
    assert worst is not None
    assert len(worst.rows) == 10
    assert "Ten of 30 jobs: 33 % of all GPU-hours" in worst.caption
    users = rows(report, "users")
    assert users["18 more"]["idle_gpu_hours"] == pytest.approx(18 * 168.0)
    assert users["all"]["idle_gpu_hours"] == report.figure("idle_held_gpu_hours").value


def test_what_is_hardly_a_part_of_the_waste_is_no_row_of_the_worst() -> None:
    one = share("job 1", quiet=1.0, idle=1.0, used=0.0)
    for quiet, listed in ((0.004, 1), (0.006, 2)):
        # Both hold as much; the second is idle for less, or more, than a two hundredth of all.
        report = build(facts(usage([one, share("job 2", "bob", quiet=quiet, idle=quiet)], gpus=16)))
        sheet = report.sheet("jobs")
        assert sheet is not None
        assert len(sheet.rows) == listed


def test_teams_are_told_with_hours_money_and_what_changed() -> None:
    now = [
        share("job 1", quiet=0.5, account="vision"),
        share("job 2", "bob", 2, used=0.5, account="speech"),
    ]
    then = [share("job 1", quiet=0.25, used=0.6, account="vision"), now[1]]
    before = usage(then, start=START - WEEK, end=START)
    past = ({"account": {"vision": 70.0, "speech": 50.0}, "": {"": 65.0}},)
    report = build(facts(usage(now), before, prices=priced(), history=past))
    teams = rows(report, "teams")
    assert list(teams) == ["vision", "speech", "all"]
    assert teams["vision"] == {
        "name": "vision",
        "gpu_hours": 672.0,
        "used": 80.0,
        "idle_gpu_hours": 336.0,
        "unfilled_gpu_hours": None,  # no hour was judged
        "wasted_cost": 672.0,
        "wasted_change": 168.0,
        "used_change": 20.0,
        "used_trend": (70.0, 80.0),
    }
    assert teams["all"]["used_trend"] == (65.0, 70.0)
    assert teams["speech"]["wasted_change"] == 0.0
    judged = facts(usage(now))
    nothing = WasteHour(cluster="alpha", start=START, wastes=(), scattered_gpus=0)
    judged = replace(judged, now=replace(judged.now, wastes=(nothing,)))
    assert rows(build(judged), "teams")["vision"]["unfilled_gpu_hours"] == 0.0


@pytest.mark.parametrize(
    ("said", "unfilled", "helps"),
    [
        # Idle and not filled for as long: what is idle comes first, and one little bit more does not.
        (Advice.LITTLE, 168.0, "end it when done"),
        (Advice.LITTLE, 169.0, "profile it: its kernels are small"),
        (Advice.GATHER, 168.0, Advice.GATHER.value),
        (Advice.BATCH, 169.0, Advice.BATCH.value),
    ],
)
def test_what_would_help_is_about_the_larger_part(
    said: Advice, unfilled: float, helps: str
) -> None:
    held = [share("job 1", gpus=8, quiet=0.0, idle=0.0), share("job 2", gpus=1)]
    one = Wasted.of(
        replace(holdings(usage(held).buckets, NOBODY, HALF)[0], idle=168.0), unfilled, said.value
    )
    assert advice(one) == helps


@pytest.mark.medium
def test_what_was_lost_costs_what_it_costs_its_teams() -> None:
    """On GPUs of two models at two prices."""
    report = build(week())
    lost, teams = rows(report, "losses"), rows(report, "teams")
    cost = sum(lost[kind]["cost"] for kind in ("allocated but idle", "allocated and inefficient"))
    assert cost == pytest.approx(teams["all"]["wasted_cost"], abs=1.0)


@pytest.mark.medium
def test_one_team_alone_has_no_table() -> None:
    for names, there in (("a", "a"), False), (("a", "b"), True):
        held = [share(f"job {n}", account=name) for n, name in enumerate(names)]
        assert (build(facts(usage(held, gpus=16))).sheet("teams") is not None) is there


@pytest.mark.medium
def test_nobody_is_ranked_for_hours_that_a_fault_explains() -> None:
    week = usage([share("job 1", quiet=1.0, idle=1.0, used=0.0)])
    hit = Impact(gpus=4, holders=("job 1",), users=("ann",))
    broken = incident(since=START, until=END, impact=hit)
    report = build(facts(week, incidents=[broken]))
    assert report.sheet("jobs") is None
    losses = rows(report, "losses")
    assert losses["allocated but idle"]["gpu_hours"] == 0.0
    assert losses["allocated, while a fault stopped the job"]["gpu_hours"] == 672.0
    # Half of the week, and half of the hours are its holder's.
    half = replace(broken, resolved_at=START + WEEK / 2)
    report = build(facts(week, incidents=[half]))
    assert rows(report, "jobs")["job 1"]["wasted_gpu_hours"] == pytest.approx(336.0, rel=0.01)


@pytest.mark.parametrize(
    ("fault", "severity", "nodes", "excused"),
    [
        ("host_space", Severity.INFO, (), 0.0),
        ("host_space", Severity.WARNING, (), 672.0),
        ("gpu_hung", Severity.WARNING, ("n1",), 672.0),
        ("port_down", Severity.WARNING, ("n1",), 0.0),
        ("port_down", Severity.WARNING, ("n1", "n2"), 672.0),
        ("port_down", Severity.WARNING, (), 672.0),  # nobody told where it ran
        ("host_fan", Severity.WARNING, (), 0.0),
    ],
)
def test_hours_are_excused_as_the_idle_rule_excuses(
    fault: str, severity: Severity, nodes: tuple[str, ...], excused: float
) -> None:
    week = usage([share("job 7", quiet=1.0, idle=1.0, used=0.0)])
    hit = Impact(gpus=4, holders=("job 7",), users=("ann",))
    stood = incident(fault, gpu().of_node(), since=START, until=END, severity=severity, impact=hit)
    job = Job(
        told_by=gpu().of_node(),
        number="7",
        state="RUNNING",
        submitted_at=START,
        seen_at=END,
        nodes=nodes,
    )
    (found,) = wasted(SpanData(usage=week, incidents=(stood,), jobs=(job,)), facts(week))
    assert found.held.excused == excused


def test_free_hours_while_jobs_waited_are_at_most_what_was_asked_for() -> None:
    job = Job(
        told_by=gpu(0).of_node(),
        number="7",
        state="RUNNING",
        submitted_at=START,
        started_at=START + timedelta(hours=10),
        seen_at=END,
        gpus=2,
    )
    found = facts(usage([share()]))
    report = build(replace(found, now=replace(found.now, jobs=(job,))))
    label = "– of those, while jobs waited"
    assert rows(report, "losses")[label]["gpu_hours"] == (0.0, 20.0)
    large = replace(job, gpus=400)
    report = build(replace(found, now=replace(found.now, jobs=(large,))))
    assert rows(report, "losses")[label]["gpu_hours"] == (0.0, 40.0)  # four GPUs were free
    assert rows(build(found), "losses")[label]["gpu_hours"] is None


def test_owning_is_held_against_a_rent_elsewhere() -> None:
    settings = CostSettings(
        prices=(
            PriceSettings(cluster="alpha", purchase=8766.0 * 2, years=2.0),
            PriceSettings(cluster="elsewhere", owner="a cloud", model="H100", per_gpu_hour=4.0),
        )
    )
    found = facts(usage([share()]), prices=Prices(settings=settings))
    sheet = rows(build(found), "cloud")["H100"]
    assert sheet["own_cost"] == 1344.0  # eight GPUs for a week at 1 an hour
    assert sheet["other_cost"] == 672.0 * 4
    assert (sheet["held"], sheet["break_even"]) == (50.0, 25.0)
    assert build(facts(usage([share()]), prices=priced())).sheet("cloud") is None


def test_what_failed_again_and_what_is_away_is_told() -> None:
    twice = [
        incident(
            label="n1 GPU 0", since=END - timedelta(days=day), until=END - timedelta(days=day - 1)
        )
        for day in (5, 3)
    ]
    step = Rma(
        incident=twice[0].id,
        subject=gpu(0),
        state=RmaState.SHIPPED,
        by="ada",
        at=END - timedelta(days=2),
        note="case 4711",
        serial="S1",
    )
    report = build(facts(incidents=twice, returns=(step,)))
    offender = report.sheet("offenders")
    assert offender is not None
    assert offender.rows[0][2] == 2.0
    returned = report.sheet("returns")
    assert returned is not None
    assert returned.rows[0][:3] == ("n1", "S1", "shipped")
    back = replace(step, state=RmaState.REPLACED, at=END - timedelta(days=1))
    assert build(facts(incidents=twice, returns=(step, back))).sheet("returns") is None


def test_a_link_is_told_with_the_jobs_behind_it_and_no_more_than_they_had() -> None:
    port = Subject(cluster="alpha", node="n2", device="mlx5_0", port="1")
    hit = Impact(gpus=8, holders=("job 1",))
    down = incident("port_down", port, title="Network port is down", label="n2 mlx5_0", impact=hit)
    row = rows(build(facts(incidents=[down])), "network")["n2 mlx5_0"]
    assert (row["gpu_hours"], row["jobs"]) == ((0.0, 96.0), "job 1")  # it held four GPUs


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
    counted = rows(report, "faults")
    assert [
        (name, row["incidents"], row["gpus"], row["hours"]) for name, row in counted.items()
    ] == [
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
