"""Memory that corrects and fails, and drivers that are silent: to the last error and microsecond."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from analyzer.detectors.driver_silent import DETECTOR as DRIVER
from analyzer.detectors.gpu_memory import DETECTOR as MEMORY
from analyzer.detectors.gpu_memory import would_show_corrections
from gpuvigil.model import Event, EventKind, Finding

from .scene import (
    GPU_FIELDS,
    NODE_FIELDS,
    NOON,
    SETTINGS,
    Scene,
    event,
    gpu,
    healthy,
    incident,
    node,
    told,
)

SECOND, MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
TICK = NOON - 10 * SECOND  # when the newest line was read
SPANS = replace(SETTINGS, steady_seconds=100.0, trend_seconds=300.0)
CALM = replace(healthy(nodes=1, seconds=300.0, gpus=2), settings=SPANS)
BEGIN = NOON - 300 * SECOND
CORRECTED, UNCORRECTED = "ecc_corrected_errors", "ecc_uncorrected_errors"


def memory(scene: Scene) -> list[Finding]:
    return MEMORY.find(scene.window((MEMORY,)))


def corrected(before: int, lately: int) -> Scene:
    """So many were corrected more than a hundred seconds ago, and so many since."""
    first = GPU_FIELDS[CORRECTED] + before
    return CALM.changed(gpu(), {CORRECTED: first}, 150).changed(
        gpu(), {CORRECTED: first + lately}, 15
    )


@pytest.mark.parametrize(
    ("before", "lately", "count"),
    [(2, 1, 1), (1, 2, 1), (1, 1, 0), (3, 0, 0), (0, 3, 0), (5, 1, 1)],
)
def test_errors_grow_where_three_were_corrected_and_some_of_them_lately_and_some_before(
    before: int, lately: int, count: int
) -> None:
    found = memory(corrected(before, lately))
    assert [told(it) for it in found] == [
        f"info; corrected memory errors: {before + lately} in 5 min (limit fewer than 3)"
    ] * count
    assert [it.since for it in found] == [TICK] * count


@pytest.mark.parametrize(
    ("errors", "condition", "shows"),
    [
        (3, "corrected_growth", False),
        (2, "corrected_growth", None),
        (3, "corrected_storm", None),
        (0, "corrected_growth", None),
    ],
)
def test_growth_is_not_over_while_there_were_three_errors(
    errors: int, condition: str, shows: bool | None
) -> None:
    active = incident("gpu_memory", gpu(), condition=condition)
    window = corrected(errors, 0).window((MEMORY,))
    assert would_show_corrections(window, active) is shows
    unread = corrected(errors, 0).changed(gpu(), {CORRECTED: None})
    assert would_show_corrections(unread.window((MEMORY,)), active) is None
    assert would_show_corrections(Scene().window((MEMORY,)), active) is None


def counted(seconds: float) -> Scene:
    """One uncorrectable error so long ago."""
    return CALM.changed(gpu(), {UNCORRECTED: GPU_FIELDS[UNCORRECTED] + 1}, seconds)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("seconds", "reset", "count"),
    [
        (15, None, 1),
        (105, None, 1),
        # It may have come before the reset, unless the last minute has one that is younger.
        (15, NOON - 60 * SECOND, 1),
        (15, NOON - 60 * SECOND + MICROSECOND, 0),
        (105, NOON - 60 * SECOND, 0),
        (105, BEGIN, 0),
        (105, BEGIN - MICROSECOND, 1),
    ],
)
@pytest.mark.parametrize("kind", [EventKind.GPU_RESET, EventKind.GPU_BACK, EventKind.BOOT])
def test_an_uncorrectable_error_is_over_with_a_reset(
    seconds: float, reset: datetime | None, count: int, kind: EventKind
) -> None:
    scene = counted(seconds)
    of_another = event(kind, gpu(1, 1), NOON - SECOND) if kind is not EventKind.BOOT else None
    for one in (reset, None):
        subject = node() if kind is EventKind.BOOT else gpu()
        words = [event(kind, subject, one)] if one else []
        words += [of_another] if of_another else []
        found = memory(scene.with_events(*words))
        assert [told(it) for it in found] == [
            "warning; uncorrectable memory errors: 1 in 5 min (limit none)"
        ] * (count if one else 1)


@pytest.mark.parametrize(
    ("oldest", "late"), [(None, False), (0.0, False), (120.0, False), (120.1, True)]
)
def test_an_error_of_a_node_whose_spool_is_older_than_two_minutes_is_late(
    oldest: float | None, late: bool
) -> None:
    assert SPANS.late_after_seconds == 120.0
    scene = counted(15).changed(node(), {"spool_oldest_seconds": oldest})
    assert [it.late for it in memory(scene)] == [late]


# --- a silent driver ------------------------------------------------------------------------------


def word(at: datetime, kind: EventKind = EventKind.DRIVER_SILENT, message: str = "") -> Event:
    return replace(event(kind, node(), at), message=message)


def drivers(scene: Scene) -> list[Finding]:
    return DRIVER.find(scene.window((DRIVER,)))


SILENT = CALM.changed(node(), {"driver_answering": 0, "driver_silent_seconds": 42.4}, 15)


@pytest.mark.parametrize(
    ("after", "by_line", "by_event"),
    [(-MICROSECOND, True, True), (0 * SECOND, False, True), (MICROSECOND, False, False)],
)
def test_a_driver_is_back_with_the_word_that_comes_with_its_line_or_after_its_silence(
    after: timedelta, by_line: bool, by_event: bool
) -> None:
    back = word(TICK + after, EventKind.DRIVER_BACK)
    assert bool(drivers(SILENT.with_events(back))) is by_line
    unread = CALM.changed(node(), {"driver_answering": None})
    assert bool(drivers(unread.with_events(word(TICK), back))) is by_event


def test_a_silent_driver_is_told_since_the_first_that_said_so_with_all_that_is_known() -> None:
    line = "no call came back for: 42 s; GPUs that answer: 2 (limit 2)"
    (it,) = drivers(SILENT)
    assert (it.since, it.certain, told(it)) == (TICK, True, f"critical; {line}")
    early, late = TICK - 5 * SECOND, TICK + 5 * SECOND
    for at, since in ((early, early), (late, TICK)):
        (it,) = drivers(SILENT.with_events(word(at)))
        assert (it.since, it.certain, it.late) == (since, True, False)
    (it,) = drivers(SILENT.with_events(word(early, message="hung")))
    assert told(it) == f"critical; silent since: 11:59:45 UTC on 31 Jan; message: hung; {line}"
    assert [one.detail for one in it.evidence] == [False, True, False, False]
    unknown = SILENT.changed(node(), dict.fromkeys(NODE_FIELDS) | {"driver_answering": 0})
    assert [told(it) for it in drivers(unknown)] == ["critical; driver: does not answer"]
    some = SILENT.changed(node(), {"gpus_expected": None, "driver_silent_seconds": None})
    assert [told(it) for it in drivers(some)] == ["critical; GPUs that answer: 2"]
    # That one GPU's calls hang says nothing of the node.
    assert drivers(CALM.with_events(event(EventKind.DRIVER_SILENT, gpu(), NOON - SECOND))) == []


@pytest.mark.parametrize("is_late", [False, True])
def test_only_a_word_that_came_late_without_a_line_is_late(is_late: bool) -> None:
    said = word(NOON - SECOND)
    late = frozenset({said.id} if is_late else ())
    for scene, expected in ((CALM, is_late), (SILENT, False)):
        (it,) = drivers(replace(scene.with_events(said), late=late))
        assert it.late is expected


ROWS, BAD_ROWS = "remapped_rows_corrected", "remapped_rows_uncorrected"
HOURS = replace(
    healthy(nodes=1, seconds=380.0, gpus=2),
    settings=replace(SPANS, trend_seconds=100.0, underused_after_seconds=390.0),
)


def with_rows(*replaced: tuple[str, float]) -> Scene:
    """Of each count so many rows before, and one more at each of these moments, in seconds before now."""
    scene, counts = HOURS.changed(gpu(), {ROWS: 2, BAD_ROWS: 4}), {ROWS: 2, BAD_ROWS: 4}
    for name, seconds in sorted(replaced, key=lambda it: -it[1]):
        counts = {**counts, name: counts[name] + 1}
        scene = scene.changed(gpu(), counts, seconds)
    return scene


@pytest.mark.parametrize(
    ("replaced", "count"),
    [
        (((ROWS, 300.0), (ROWS, 200.0), (ROWS, 50.0)), 1),
        (((ROWS, 300.0), (BAD_ROWS, 200.0), (ROWS, 50.0)), 1),
        (((ROWS, 300.0), (ROWS, 50.0)), 0),  # two may be chance
        (((ROWS, 300.0), (ROWS, 250.0), (ROWS, 150.0)), 0),  # none lately
        (((ROWS, 50.0), (ROWS, 50.0), (ROWS, 50.0)), 0),  # one error took them all
        (((ROWS, 300.0), (ROWS, 50.0), (ROWS, 50.0)), 1),
    ],
)
def test_three_rows_one_after_another_are_a_bank_that_goes_bad(
    replaced: tuple[tuple[str, float], ...], count: int
) -> None:
    found = [it for it in memory(with_rows(*replaced)) if it.condition == "rows_replaced"]
    assert [(it.severity.value, it.subject, it.since) for it in found] == [
        ("warning", gpu(), TICK)
    ] * count
    words = "memory rows replaced: 3 in 0.108333 h (limit fewer than 3)"
    assert all(told(it).startswith(f"warning; {words}") for it in found)


def test_rows_that_were_not_counted_before_are_no_new_ones() -> None:
    scene = HOURS.changed(gpu(), {ROWS: 9}, 50.0)
    assert [it for it in memory(scene) if it.condition == "rows_replaced"] == []


@pytest.mark.parametrize(("rows", "shows"), [(3, False), (2, None)])
def test_a_bank_that_went_bad_is_not_over_while_three_rows_are_within_the_hours(
    rows: int, shows: bool | None
) -> None:
    active = incident("gpu_memory", gpu(), condition="rows_replaced")
    scene = with_rows(*((ROWS, 300.0 - number) for number in range(rows)))
    assert would_show_corrections(scene.window((MEMORY,)), active) is shows
    unread = scene.changed(gpu(), {ROWS: None, BAD_ROWS: None})
    assert would_show_corrections(unread.window((MEMORY,)), active) is None
    assert would_show_corrections(Scene().window((MEMORY,)), active) is None
