"""Gaps stay gaps: values on the grid of steps, and counters as rates."""

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.device import small_multiples
from dashboard.device.chart import Frame, decent, interval, option, room, table, top
from dashboard.device.curves import BY_KEY, Chart, Curve, charts, errors, link
from dashboard.device.grid import Floats, Grid, grid, increase, laid, median, rates
from dashboard.device.hub_queries import Numbers
from dashboard.device.small_multiples import NARROW, of_gpus
from dashboard.device.window import Window
from gpuvigil.clock import duration, to_ns

from .scene import NOON

STEP = timedelta(seconds=10)
COUNT = 30
GRID = Grid(start=NOON, step=STEP, count=COUNT)
measured_steps = st.dictionaries(
    st.integers(0, COUNT - 1), st.floats(0, 1e12, allow_nan=False), max_size=COUNT
)


def on_grid(steps: dict[int, float]) -> Floats:
    at = np.array([to_ns(NOON + number * STEP) // 1000 for number in steps], dtype=np.int64)
    return laid(at, np.array(list(steps.values()), dtype=np.float64), GRID)


# The first table of a process takes its time.
@given(measured_steps)
def test_a_point_is_drawn_exactly_where_a_step_had_a_sample_and_with_its_value(
    steps: dict[int, float],
) -> None:
    full = on_grid(steps)
    drawn = table(GRID, {"line": full}).to_pylist()
    assert len(drawn) == COUNT
    for number, row in enumerate(drawn):
        assert row["at"] == to_ns(NOON + number * STEP) / 1e6
        assert row["line"] == steps.get(number)


def test_a_week_ago_is_a_line_of_its_own_only_where_something_was_measured() -> None:
    def of(*utilisation: float) -> Numbers:
        values = np.array([*utilisation, *[np.nan] * (COUNT - len(utilisation))])
        return Numbers(grid=GRID, gpus={"g": {"utilization_percent": values}})

    gpus = [("g", "GPU 0")]
    for before, looks in ((None, ["own"]), (of(), ["own"]), (of(7.0), ["before", "own"])):
        chart = charts(of(5.0), "g", before)[0]
        assert [one.look for one in chart.curves if one.look != "second"] == looks
        panels = of_gpus(of(5.0), gpus, BY_KEY["utilization"], before).panels
        assert [one.look for one in panels[0].curves] == ["peers", *looks]
    assert chart.curves[0].values[0] == 7.0
    assert chart.curves[-1].values[0] == 5.0  # the strong line stays the last


@given(measured_steps)
def test_a_rate_is_drawn_only_between_two_neighbours_and_is_never_negative(
    steps: dict[int, float],
) -> None:
    drawn = rates(on_grid(steps), on_grid(dict.fromkeys(steps, 5.0)), GRID)
    for number in range(COUNT):
        before, here = steps.get(number - 1), steps.get(number)
        if before is None or here is None or here < before:
            assert np.isnan(drawn[number])
        else:
            assert drawn[number] == pytest.approx((here - before) / 10)


@given(
    st.floats(0, 1e12),
    st.dictionaries(
        st.integers(0, COUNT - 1),
        st.sets(st.integers(0, 9), min_size=1),
        min_size=1,
    ),
)
def test_a_steady_rate_is_drawn_as_it_is_however_many_ticks_were_lost(
    per_second: float, ticks: dict[int, set[int]]
) -> None:
    offsets = {number: sum(seconds) / len(seconds) for number, seconds in ticks.items()}
    means = {number: per_second * (10 * number + offset) for number, offset in offsets.items()}
    drawn = rates(on_grid(means), on_grid(offsets), GRID)
    measured = drawn[np.isfinite(drawn)]
    assert measured == pytest.approx(np.full(len(measured), per_second), rel=1e-6, abs=1e-6)
    assert len(measured) == sum(number - 1 in ticks for number in ticks)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=COUNT), st.data())
def test_an_increase_is_found_also_when_it_happened_in_a_gap(
    grown: list[int], data: st.DataObject
) -> None:
    total = np.cumsum([0, *grown])[:COUNT].astype(np.float64)
    inner = st.sets(st.integers(1, max(len(total) - 2, 1)), max_size=len(total))
    counter = np.full(COUNT, np.nan)
    counter[: len(total)] = total
    for gap in data.draw(inner):
        if 0 < gap < len(total) - 1:
            counter[gap] = np.nan
    assert increase(counter) == total[-1] - total[0]


def test_after_a_reset_what_was_counted_since_is_the_increase() -> None:
    assert increase(np.array([5.0, 7.0, np.nan, 1.0, 4.0])) == 2 + 1 + 3
    assert increase(np.array([np.nan, np.nan])) is None
    assert increase(np.array([np.nan, 9.0])) == 0


@pytest.mark.medium
@given(st.lists(measured_steps, max_size=5))
def test_the_median_is_of_those_that_were_measured_and_absent_where_none_was(
    lines: list[dict[int, float]],
) -> None:
    middle = median([on_grid(one) for one in lines], COUNT)
    for number in range(COUNT):
        values = [one[number] for one in lines if number in one]
        if values:
            assert middle[number] == pytest.approx(np.median(values))
        else:
            assert np.isnan(middle[number])


@given(st.integers(0, 10_000), st.integers(1, 10_000), st.integers(1, 600))
def test_the_grid_covers_the_window_with_whole_steps(begin: int, length: int, step: int) -> None:
    start = NOON + timedelta(seconds=begin)
    end, apart = start + timedelta(seconds=length), timedelta(seconds=step)
    found = grid(start, end, apart)
    assert found.start <= start < found.start + apart
    last = found.times[-1]
    assert last < end <= last + apart


def frame() -> Frame:
    window = Window(start=NOON, end=NOON + COUNT * STEP, live=False)
    colours = dict.fromkeys(
        (
            [
                "link",
                "ramp-high",
                "degraded-text",
                "muted",
                "free-line",
                "line",
                "failed",
                "failed-text",
                "degraded",
            ]
        ),
        "#123456",
    )
    return Frame(window=window, grid=GRID, marks=(), shades=(), colours=colours)


def test_every_line_names_its_own_column_and_joins_no_gap() -> None:
    values = on_grid({1: 5.0, 3: 7.0})
    curves = (Curve(name="other", values=values, look="other"), Curve(name="own", values=values))
    one = option(Chart(key="k", title="t", unit="W", curves=curves), frame())
    source: pa.Table = one["dataset"]["source"]
    for number, series in enumerate(one["series"]):
        assert series["encode"] == {"x": "at", "y": f"line{number}", "tooltip": [f"line{number}"]}
        assert series["connectNulls"] is False
        assert series["showSymbol"], "points between gaps must be seen"
        assert source[f"line{number}"].null_count == COUNT - 2
    assert one["xAxis"]["min"] == to_ns(NOON) / 1e6
    assert one["xAxis"]["max"] == to_ns(NOON + COUNT * STEP) / 1e6
    assert one["useUTC"]
    assert one["xAxis"]["axisLabel"]["formatter"]["day"] == "{d} {MMM}"


@given(st.floats(1e-3, 1e12))
def test_a_scale_ends_over_every_line_and_is_divided_evenly(highest: float) -> None:
    end = decent(highest)
    assert end is not None
    assert end >= highest * 0.999
    parts = end / interval(end)
    assert parts == pytest.approx(round(parts))
    assert 3 <= round(parts) <= 5


@pytest.mark.parametrize(
    ("most", "pixels"), [(None, 44), (100.0, 44), (6_000.0, 44), (50_000.0, 50), (1_000_000.0, 70)]
)
def test_a_chart_has_room_for_the_longest_label_of_its_scale(
    most: float | None, pixels: int
) -> None:
    assert room(most) == pixels


def test_on_a_phone_a_strip_keeps_the_room_of_its_labels_and_gets_it_back_when_turned() -> None:
    numbers = Numbers(grid=GRID, gpus={"a": {"power_watts": on_grid({0: 300.0})}})
    one = of_gpus(numbers, [("a", "GPU 0")], BY_KEY["power"])
    drawn = small_multiples.option(one, frame(), labelled=True)
    narrow, wide = (rule["option"]["grid"] for rule in drawn["media"])
    assert wide == drawn["grid"]
    queries = [rule["query"] for rule in drawn["media"]]
    assert queries == [{"maxWidth": NARROW}, {"minWidth": NARROW + 1}]
    at = float(narrow[0]["left"].removesuffix("%"))
    assert at / 100 * 320 >= 8 + 4 * 6.0  # "1,000" on the narrowest phone
    assert at / 100 == pytest.approx(0.12), "the names over the panels begin there, in device.css"


def test_a_scale_over_nothing_is_left_to_the_chart() -> None:
    nothing = Chart(key="k", title="t", unit="W", curves=(Curve(name="own", values=on_grid({})),))
    assert top(nothing) is None
    assert not nothing.measured


def test_error_counters_that_did_not_move_are_one_line_and_those_that_did_are_a_chart() -> None:
    counters = {"a": on_grid({0: 3.0, 5: 3.0}), "b": on_grid({0: 0.0, 1: 2.0, 9: 6.0})}
    numbers = Numbers(grid=GRID)

    def read(name: str) -> Floats:
        return counters.get(name, numbers.nothing)

    still = errors(read, {"a": "ECC", "c": "NVLink"}, numbers)
    assert still.chart is None
    assert still.text == "No errors in this window: ECC did not grow."
    moved = errors(read, {"a": "ECC", "b": "PCIe replays"}, numbers)
    assert moved.text == "In this window: 6 PCIe replays."
    assert moved.chart is not None
    assert [curve.name for curve in moved.chart.curves] == ["PCIe replays"]
    assert moved.chart.unit == f"per {duration(GRID.step)}", "a step is a job's"
    assert errors(read, {"c": "NVLink"}, numbers).text == "Errors were not measured in this window."


def test_the_pcie_link_is_a_line_and_says_what_it_was_when_it_changed() -> None:
    fields = {
        "pcie_width": on_grid({0: 16.0, 1: 16.0, 2: 8.0}),
        "pcie_generation": on_grid({0: 5.0, 2: 5.0}),
        "pcie_width_max": on_grid({0: 16.0}),
        "pcie_generation_max": on_grid({0: 5.0}),
    }
    said = link(lambda name: fields[name])
    assert said == "PCIe gen 5 x8 of gen 5 x16; width was 16 and 8 in this window"
    fields["pcie_width"] = on_grid({0: 16.0})
    assert link(lambda name: fields[name]) == "PCIe gen 5 x16 of gen 5 x16, unchanged"
    assert link(lambda _: on_grid({})) == "PCIe not measured"
