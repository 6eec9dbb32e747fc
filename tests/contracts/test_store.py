"""What every store owes (`gpuvigil.store.Store`), held against the one in memory."""

import math
import random
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuvigil.clock import to_ns
from gpuvigil.errors import StoreError
from gpuvigil.lineprotocol import encode
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.store import Aggregate, Function, Store
from gpuvigil.store.memory import MemoryStore

from .conftest import Backend

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
UTC_MICROSECONDS = pa.timestamp("us", "UTC")


def a_line(at: datetime = NOON, uuid: str = "GPU-0", **values: float | None) -> str:
    tags = {"cluster": "test", "node": "n1", "uuid": uuid, "model": "H200"}
    line = encode("gpu", tags, values or {"up": 1}, to_ns(at))
    assert line is not None
    return line


def write(store: Store, *lines: str) -> None:
    store.write("\n".join(lines).encode())


def every(field: str) -> list[Aggregate]:
    return [Aggregate(function=function, field=field) for function in Function]


def window_of(store: Store, *aggregates: Aggregate) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = store.window(
        "gpu", aggregates, NOON - HOUR, NOON + HOUR
    ).to_pylist()
    return rows


def test_an_empty_store_answers_with_tables_without_rows(store: Store) -> None:
    window = store.window("gpu", every("power_watts"), NOON, NOON + HOUR)
    assert window.num_rows == 0
    assert window.schema.field("samples").type == pa.int64()
    assert window.schema.field("first_at").type == UTC_MICROSECONDS
    assert store.series("gpu", ["up"], {}, (NOON, NOON + HOUR), MINUTE).num_rows == 0
    assert store.latest("gpu", ["up"], NOON).column_names[-2:] == ["at", "up"]


def test_all_aggregates_of_a_counter_are_whole_numbers_but_the_mean(store: Store) -> None:
    for minute, count in enumerate((7, 5, 9)):
        write(store, a_line(NOON + minute * MINUTE, pcie_replays=count))
    (row,) = window_of(store, *every("pcie_replays"))
    assert row["samples"] == 3
    assert row["first_at"] == NOON
    assert row["last_at"] == NOON + 2 * MINUTE
    assert {key: value for key, value in row.items() if key.startswith("pcie_replays")} == {
        "pcie_replays_count": 3,
        "pcie_replays_mean": 7.0,
        "pcie_replays_min": 5,
        "pcie_replays_max": 9,
        "pcie_replays_first": 7,
        "pcie_replays_last": 9,
        "pcie_replays_increase": 4,
    }
    kinds = store.window("gpu", every("pcie_replays"), NOON, NOON + HOUR).schema
    assert kinds.field("pcie_replays_increase").type == pa.int64()
    assert kinds.field("pcie_replays_mean").type == pa.float64()


def test_a_field_that_was_never_measured_is_null_and_counts_nothing(store: Store) -> None:
    write(store, a_line(up=0))
    (row,) = window_of(store, *every("power_watts"))
    assert row["samples"] == 1
    assert row.pop("power_watts_count") == 0
    assert [row[it.column] for it in every("power_watts") if it.column in row] == [None] * 6


def test_first_and_last_are_the_oldest_and_newest_values_that_were_measured(store: Store) -> None:
    write(
        store,
        a_line(NOON, up=1),
        a_line(NOON + SECOND, power_watts=100.0),
        a_line(NOON + 2 * SECOND, power_watts=200.0),
        a_line(NOON + 3 * SECOND, up=1),
    )
    (row,) = window_of(store, *every("power_watts"))
    assert (row["power_watts_first"], row["power_watts_last"]) == (100.0, 200.0)


def test_the_start_of_a_range_is_inside_and_the_end_outside(store: Store) -> None:
    write(store, a_line(NOON))
    assert store.window("gpu", [], NOON, NOON + SECOND).num_rows == 1
    assert store.window("gpu", [], NOON - SECOND, NOON).num_rows == 0
    assert store.series("gpu", ["up"], {}, (NOON, NOON + SECOND), SECOND).num_rows == 1
    assert store.series("gpu", ["up"], {}, (NOON - SECOND, NOON), SECOND).num_rows == 0
    assert store.latest("gpu", ["up"], NOON).num_rows == 1
    assert store.latest("gpu", ["up"], NOON + SECOND).num_rows == 0


def test_subjects_come_in_the_order_of_their_tags(store: Store) -> None:
    names = ["GPU-b", "GPU-B", "GPU-é", "GPU-10", "GPU-9", "GPU-,= "]
    write(store, *(a_line(uuid=name) for name in names))
    assert [row["uuid"] for row in window_of(store)] == sorted(names)
    latest = store.latest("gpu", [], NOON).to_pylist()
    assert [row["uuid"] for row in latest] == sorted(names)


def test_a_series_has_means_per_step_and_a_gap_stays_a_gap(store: Store) -> None:
    write(
        store,
        a_line(NOON + 1 * SECOND, power_watts=100.0),
        a_line(NOON + 2 * SECOND, power_watts=300.0),
        a_line(NOON + 3 * MINUTE, up=1),
    )
    rows = store.series("gpu", ["power_watts"], {}, (NOON, NOON + HOUR), MINUTE).to_pylist()
    assert [(row["at"], row["offset_seconds"], row["power_watts"]) for row in rows] == [
        (NOON, 1.5, 200.0),
        (NOON + 3 * MINUTE, 0.0, None),
    ]


def test_a_series_holds_only_the_subjects_that_were_asked_for(store: Store) -> None:
    write(store, a_line(uuid="GPU-0"), a_line(uuid="GPU-1"))
    asked = {"node": "n1", "uuid": "GPU-1"}
    rows = store.series("gpu", ["up"], asked, (NOON, NOON + HOUR), MINUTE).to_pylist()
    assert [row["uuid"] for row in rows] == ["GPU-1"]


@pytest.mark.parametrize(
    "name", ["x'y", 'x"y', "x\\y", "x\\'y", ".*", "x{y}", "x' OR 'a'='a", "$x", "x\u2028y", "%27"]
)
def test_whatever_a_tag_holds_names_one_subject(store: Store, name: str) -> None:
    write(store, a_line(uuid=name, index=7), a_line(uuid="GPU-1"))
    rows = store.series("gpu", ["index"], {"uuid": name}, (NOON, NOON + HOUR), MINUTE).to_pylist()
    assert [(row["uuid"], row["index"]) for row in rows] == [(name, 7.0)]
    assert {row["uuid"] for row in window_of(store)} == {name, "GPU-1"}


def test_the_latest_line_is_given_as_it_is_also_where_it_lacks_a_field(store: Store) -> None:
    write(store, a_line(NOON + SECOND, up=0), a_line(NOON, up=1, power_watts=100.0))
    (row,) = store.latest("gpu", ["up", "power_watts"], NOON).to_pylist()
    assert (row["at"], row["up"], row["power_watts"]) == (NOON + SECOND, 0, None)


def test_forgetting_drops_what_is_older_and_keeps_the_rest(backend: Backend) -> None:
    store = backend.empty()
    write(store, a_line(NOON - SECOND), a_line(NOON), "node,cluster=test,node=n1 load_average=1 1")
    if "forget" in backend.limits:
        with pytest.raises(StoreError, match="retentionPeriod"):
            store.forget(NOON)
        return
    store.forget(NOON)
    (row,) = window_of(store)
    assert (row["samples"], row["first_at"]) == (1, NOON)
    assert store.latest("node", [], NOON - 600 * 365 * HOUR).num_rows == 0


def test_a_body_that_is_sent_again_counts_once_where_there_is_no_hub_to_know_it(
    backend: Backend,
) -> None:
    # The hub knows a body again by its headers, which this one lacks; the reference never does.
    samples = 4 if "again" in backend.limits else 2
    store = backend.empty()
    for _ in range(2):
        write(store, a_line(NOON, power_watts=100.0), a_line(NOON + SECOND, power_watts=200.0))
    (row,) = window_of(store, *every("power_watts"))
    found = (row["samples"], row["power_watts_count"], row["power_watts_mean"])
    assert found == (samples, samples, 150.0)


def test_a_line_without_a_time_is_of_now(store: Store) -> None:
    before = datetime.now(timezone.utc)
    write(store, "node,cluster=test,node=n1 load_average=1")
    (row,) = store.latest("node", ["load_average"], before).to_pylist()
    assert before <= row["at"] <= datetime.now(timezone.utc)


def test_good_lines_are_kept_beside_refused_ones(store: Store) -> None:
    with pytest.raises(StoreError, match="refused"):
        write(store, a_line(), "no line", a_line(NOON + SECOND))
    (row,) = window_of(store)
    assert row["samples"] == 2


@pytest.mark.parametrize(
    "fields",
    [
        'power_watts="many"',
        "power_watts=true",
        "up=0.5",
        "up=1e30",
        "up=18446744073709551615u",
        "power_watts=1 -1",
        "power_watts=1 9000000000000000000",
    ],
)
def test_a_line_that_does_not_fit_the_catalogue_is_refused(store: Store, fields: str) -> None:
    with pytest.raises(StoreError, match="refused"):
        write(store, f"gpu,cluster=test,node=n1,uuid=GPU-0 index=1i,{fields}", a_line())
    (row,) = window_of(store, *every("index"))
    assert (row["samples"], row["index_count"]) == (1, 0)


def test_numbers_change_their_kind_only_where_nothing_is_lost(store: Store) -> None:
    head = "gpu,cluster=test,node=n1,uuid=GPU-0"
    write(store, f"{head} power_watts=300i,up=1.0,index=7u {to_ns(NOON)}")
    (row,) = store.latest("gpu", ["power_watts", "up", "index"], NOON).to_pylist()
    assert [row[key] for key in ("power_watts", "up", "index")] == [300.0, 1, 7]
    assert isinstance(row["up"], int)


def test_strange_measurements_fields_and_tags_do_no_harm(store: Store) -> None:
    at = to_ns(NOON)
    write(
        store,
        f'cpu,host=h usage=1.5,state="busy",on=true {at}',
        f'gpu,cluster=test,node=n1,uuid=GPU-0,slot=7 up=1i,unheard_of=5,word="x" {at}',
        f"gpu,cluster=test,node=n1,uuid=GPU-1 unheard_of=5 {at}",
    )
    rows = store.latest("gpu", ["up"], NOON).to_pylist()
    assert [(row["uuid"], row["model"], row["up"]) for row in rows] == [("GPU-0", "", 1)]


def test_an_increase_too_large_for_a_column_is_not_known_and_harms_nobody(
    backend: Backend,
) -> None:
    store = backend.empty()
    write(
        store,
        a_line(NOON, ecc_corrected_errors=2**63 - 1),
        a_line(NOON + SECOND, ecc_corrected_errors=-(2**63)),
        a_line(NOON, uuid="GPU-1", ecc_corrected_errors=3),
    )
    rows = window_of(store, *every("ecc_corrected_errors"))
    assert [row["ecc_corrected_errors_increase"] for row in rows] == [None, 0]


def test_whole_numbers_beyond_a_floats_reach_stay_exact(backend: Backend) -> None:
    store = backend.empty()
    write(store, a_line(nvlink_receive_bytes=2**53 + 1))
    (row,) = window_of(store, *every("nvlink_receive_bytes"))
    kept = 2**53 if "integers" in backend.limits else 2**53 + 1
    assert row["nvlink_receive_bytes_last"] == kept


def test_what_is_unknown_raises_a_store_error(store: Store) -> None:
    span = (NOON, NOON + HOUR)
    bad = [Aggregate(function=Function.MEAN, field='up" FROM gpu --')]
    with pytest.raises(StoreError, match="measurement"):
        store.window("extra", [], *span)
    with pytest.raises(StoreError, match="field"):
        store.window("gpu", bad, *span)
    with pytest.raises(StoreError, match="field"):
        store.series("gpu", ["nothing"], {}, span, MINUTE)
    with pytest.raises(StoreError, match="tag"):
        store.series("gpu", ["up"], {"nothing": "x"}, span, MINUTE)
    with pytest.raises(StoreError, match="field"):
        store.latest("gpu", ["nothing"], NOON)


@pytest.mark.parametrize("step", [SECOND, 5 * SECOND, MINUTE])
def test_what_was_measured_just_now_is_in_a_series(store: Store, step: timedelta) -> None:
    start = datetime.now(timezone.utc).replace(microsecond=0) - 40 * SECOND
    written = [a_line(start + second * SECOND, power_watts=second) for second in range(40)]
    reference = MemoryStore()
    for one in (store, reference):
        write(one, *written)
    for end in (start + 30 * SECOND, start + 41 * SECOND, start + HOUR):
        span = (start + SECOND, end)
        found = store.series("gpu", ["power_watts"], {}, span, step)
        assert_alike(found, reference.series("gpu", ["power_watts"], {}, span, step))


@pytest.mark.parametrize("name", sorted(MEASUREMENTS))
def test_every_field_of_the_catalogue_comes_back_as_it_was(store: Store, name: str) -> None:
    catalogue = MEASUREMENTS[name]
    tags = {tag: f"{tag} 1" for tag in catalogue.tags if tag != "model"}
    values: dict[str, float | int] = {
        metric.name: number if metric.integer else number + 0.25
        for number, metric in enumerate(catalogue.metrics)
    }
    line = encode(name, tags, values, to_ns(NOON))
    assert line is not None
    write(store, line)
    (row,) = store.latest(name, list(values), NOON).to_pylist()
    assert row == {
        **tags,
        **({"model": ""} if "model" in catalogue.tags else {}),
        "at": NOON,
        **values,
    }
    least = [Aggregate(function=Function.MIN, field=field) for field in values]
    (row,) = store.window(name, least, NOON, NOON + SECOND).to_pylist()
    assert {field: row[f"{field}_min"] for field in values} == values


FIELDS = ("power_watts", "pcie_replays", "up")
SUBJECTS = ("GPU-0", "GPU-1", "GPU a,b=c", "GPU-ü\\\"'.*")


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """Lines of some subjects, no two of one subject at the same time, in any order."""
    moments = draw(
        st.lists(
            st.tuples(st.sampled_from(SUBJECTS), st.integers(0, 7_199_999)),
            unique=True,
            max_size=30,
        )
    )
    numbers = st.none() | st.floats(-1e9, 1e9).map(lambda it: it + 0.0) | st.integers(0, 2**31)
    whole = st.none() | st.integers(-(2**40), 2**40)
    found = []
    for uuid, milliseconds in moments:
        at = NOON - HOUR + timedelta(milliseconds=milliseconds)
        values = {
            "power_watts": draw(numbers),
            "pcie_replays": draw(whole),
            "up": draw(st.none() | st.integers(0, 1)),
            "index": 0,
        }
        found.append(a_line(at, uuid, **values))
    return found


def answers(store: Store, written: Sequence[str]) -> list[pa.Table]:
    if written:
        write(store, *written)
    span = (NOON - 30 * MINUTE, NOON + 30 * MINUTE)
    return [
        store.window("gpu", [it for field in FIELDS for it in every(field)], *span),
        store.series("gpu", FIELDS, {}, span, timedelta(seconds=90)),
        store.series("gpu", FIELDS, {"uuid": SUBJECTS[2]}, span, MINUTE),
        store.latest("gpu", FIELDS, NOON),
    ]


def assert_alike(found: pa.Table, expected: pa.Table) -> None:
    assert found.schema == expected.schema
    for mine, other in zip(found.to_pylist(), expected.to_pylist(), strict=True):
        for key, value in other.items():
            if isinstance(value, float):
                assert math.isclose(mine[key], value, rel_tol=1e-9, abs_tol=1e-5), (key, mine)
            else:
                assert mine[key] == value, (key, mine)


@pytest.mark.medium
@settings(max_examples=30, deadline=None)
@given(written=lines(), seed=st.integers())
def test_any_lines_in_any_order_are_answered_as_the_reference_does(
    backend: Backend, written: list[str], seed: int
) -> None:
    expected = answers(MemoryStore(), written)
    shuffled = random.Random(seed).sample(written, len(written))
    for found, table in zip(answers(backend.empty(), shuffled), expected, strict=True):
        assert_alike(found, table)
