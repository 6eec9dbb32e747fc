"""States, holders, incidents and events over a window."""

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.device.grid import Floats, Grid
from dashboard.device.marks import marks, shades
from dashboard.device.spans import Span, concerns, holders, states, stood
from dashboard.device.timeline import Row, span_text, ticks, timeline
from dashboard.device.window import CHOICES, Window
from gpuvigil.model import Allocation, Event, EventKind, Holder, Severity

from .scene import NOON, gpu, incident, node

STEP = timedelta(seconds=10)
COUNT = 6
GRID = Grid(start=NOON, step=STEP, count=COUNT)
WINDOW = Window(start=NOON, end=NOON + COUNT * STEP, live=False)
LATER = NOON + timedelta(hours=1)
HOSTILE = '<img src=x onerror="alert(1)">'


def fields(**values: list[float | None]) -> dict[str, Floats]:
    return {
        name: np.array([np.nan if it is None else it for it in line], dtype=np.float64)
        for name, line in values.items()
    }


def seen(found: tuple[Span, ...]) -> list[tuple[str, int, int]]:
    """Kind, first step and the step after the last."""
    return [(it.kind, (it.start - NOON) // STEP, (it.end - NOON) // STEP) for it in found]


def held(start: int, end: int | None, holder: str = "pid 7") -> Allocation:
    return Allocation(
        subject=gpu(0),
        holder=Holder.parse(holder),
        user="ann",
        command="python",
        started_at=NOON + start * STEP,
        ended_at=None if end is None else NOON + end * STEP,
    )


def test_a_gpu_is_unknown_where_it_sent_nothing_and_steps_of_one_state_are_one_span() -> None:
    row = fields(
        up=[1, 1, None, None, 1, 0],
        utilization_percent=[80, 90, None, None, 0, None],
        compute_processes=[1, 1, None, None, 0, None],
    )
    found = states(row, GRID, WINDOW, LATER, allocations=[], incidents=[])
    assert seen(found) == [
        ("active", 0, 2),
        ("unknown", 2, 4),
        ("free", 4, 5),
        ("unavailable", 5, 6),
    ]


def test_a_gpu_of_which_the_store_has_nothing_is_unknown_all_the_time() -> None:
    assert seen(states({}, GRID, WINDOW, LATER, allocations=[], incidents=[])) == [
        ("unknown", 0, 6)
    ]


def test_who_holds_a_gpu_and_what_stands_against_it_decide_with_the_numbers() -> None:
    row = fields(up=[1] * 6, utilization_percent=[0] * 6, compute_processes=[0] * 6)
    lost = incident(
        "gpu_lost",
        gpu(0),
        Severity.CRITICAL,
        since=NOON + 4 * STEP,
        resolved_at=NOON + 5 * STEP,
    )
    found = states(row, GRID, WINDOW, LATER, allocations=[held(0, 2)], incidents=[lost])
    assert seen(found) == [("idle", 0, 2), ("free", 2, 4), ("unavailable", 4, 5), ("free", 5, 6)]


def test_what_has_not_arrived_yet_is_not_unknown_and_the_future_is_nothing() -> None:
    row = fields(up=[1, None, None, None, None, None], utilization_percent=[50] + [None] * 5)
    now = NOON + timedelta(seconds=21)
    assert seen(states(row, GRID, WINDOW, now, allocations=[], incidents=[])) == [("active", 0, 1)]


@given(
    st.lists(
        st.tuples(st.integers(-3, 8), st.integers(1, 6), st.sampled_from(["a", "b", "c"])),
        max_size=8,
    )
)
def test_a_gpu_is_held_exactly_when_somebody_held_it_and_everybody_is_named(
    spells: list[tuple[int, int, str]],
) -> None:
    given_ones = [held(start, start + length, f"pid {name}") for start, length, name in spells]
    found = holders(given_ones, WINDOW, LATER)
    for number in range(COUNT):
        at = NOON + number * STEP + STEP / 2
        inside = [one for one in given_ones if one.started_at <= at < (one.ended_at or LATER)]
        covering = [it for it in found if it.start <= at < it.end]
        assert len(covering) == bool(inside)
        for one in inside:
            assert str(one.holder) in covering[0].text


def test_an_allocation_that_is_open_reaches_to_now_and_no_further() -> None:
    now = NOON + 3 * STEP
    assert seen(holders([held(1, None)], WINDOW, now)) == [("held", 1, 3)]


def test_thousands_of_holders_are_drawn_as_a_bounded_number_of_spans() -> None:
    long = Window(start=NOON, end=NOON + 4000 * STEP, live=False)
    many = [held(2 * number, 2 * number + 1, f"pid {number}") for number in range(2000)]
    found = holders(many, long, NOON + 5000 * STEP)
    assert len(found) <= 301
    assert found[-1].text == "many, one after the other"


def test_incidents_are_cut_to_the_window_and_lead_to_their_pages() -> None:
    one = incident("gpu_lost", gpu(0), Severity.CRITICAL, since=NOON - STEP)
    (span,) = stood([one], WINDOW, LATER, {one.id: "/incidents?incident=x"})
    assert (span.start, span.end, span.kind) == (WINDOW.start, WINDOW.end, "critical")
    assert span.href == "/incidents?incident=x"
    assert "open" in span.text


def test_an_incident_concerns_a_gpu_that_it_names_and_every_gpu_of_its_node() -> None:
    assert concerns(incident("gpu_lost", gpu(0), Severity.CRITICAL), gpu(0))
    assert not concerns(incident("gpu_lost", gpu(1), Severity.CRITICAL), gpu(0))
    assert concerns(incident("node_silent", node(), Severity.WARNING), gpu(0))


def event(kind: EventKind, seconds: float, xid: int | None = None) -> Event:
    at = NOON + timedelta(seconds=seconds)
    return Event(kind=kind, subject=gpu(0), at=at, id=f"{kind.value}{seconds}", xid=xid)


def test_events_that_are_near_share_their_words_and_an_xid_is_named_first() -> None:
    lost, xid = event(EventKind.GPU_LOST, 10), event(EventKind.XID, 10, 79)
    back = event(EventKind.GPU_BACK, 40)
    found = marks([lost, xid, back], WINDOW)
    assert [(mark.label, mark.good) for mark in found] == [("Xid 79 +1", False), ("GPU back", True)]
    assert marks([event(EventKind.BOOT, -1), event(EventKind.BOOT, 60)], WINDOW) == ()


@pytest.mark.parametrize("kind", EventKind)
def test_every_event_has_a_name(kind: EventKind) -> None:
    (mark,) = marks([event(kind, 10)], WINDOW)
    assert mark.label


def test_shades_that_overlap_are_one_and_as_grave_as_the_gravest() -> None:
    warning = incident("port_down", gpu(0), Severity.WARNING, since=NOON)
    critical = incident("gpu_lost", gpu(0), Severity.CRITICAL, since=NOON + STEP)
    info = incident("gpu_idle_held", gpu(0), Severity.INFO, since=NOON)
    (shade,) = shades([warning, critical, info], WINDOW, LATER)
    assert (shade.start, shade.end, shade.severity) == (NOON, WINDOW.end, Severity.CRITICAL)


def test_a_span_says_its_exact_times_in_utc() -> None:
    span = Span(start=NOON, end=NOON + STEP, kind="unknown", text="no data")
    assert span_text(span) == "unknown: no data · 12:00:00 to 12:00:10 UTC · 10 s"


def test_what_nobody_held_is_not_called_free_since_its_node_may_have_been_drained() -> None:
    span = Span(kind="free", start=NOON, end=NOON + STEP, text="")
    text = timeline([Row(name="State", spans=(span,))], WINDOW, NOON + 3 * STEP)
    assert "free</" not in text
    assert text.count("not allocated</") == 2  # the key and the table
    assert span_text(span).startswith("not allocated · 12:00:00")


def test_the_timeline_has_every_span_as_a_bar_and_in_a_table_and_escapes_texts() -> None:
    span = Span(start=NOON, end=NOON + STEP, kind="held", text=HOSTILE)
    text = timeline(
        [Row(name=HOSTILE, spans=(span,)), Row(name="x", spans=(), nothing="none")], WINDOW, LATER
    )
    assert "<img" not in text
    assert text.count("<tr>") == 2
    assert 'style="left:0.000%;width:16.667%"' in text
    assert ">none</span>" in text
    assert "future" not in text


def test_what_is_not_yet_is_drawn_as_such() -> None:
    text = timeline([Row(name="x", spans=())], WINDOW, NOON + 3 * STEP)
    assert 'class="span future" style="left:50.000%;width:50.000%"' in text


@pytest.mark.parametrize("span", [span for span, _ in CHOICES])
def test_an_axis_has_a_few_times_inside_the_window(span: timedelta) -> None:
    found = ticks(Window(start=NOON, end=NOON + span, live=False))
    assert 3 <= len(found) <= 9
    assert all(NOON < at < NOON + span for at in found)
