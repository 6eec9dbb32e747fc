"""Lines of the last minutes are read as they are, longer ranges in SQL: the answers are alike."""

import math
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from gpuvigil.clock import to_ns
from gpuvigil.lineprotocol import encode
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.store import Aggregate, Function
from gpuvigil.store.memory import MemoryStore
from hub.bodies.deduplication import Deduplicator
from hub.embedded import Embedded, Window
from hub.embedded.hot_lines import are_short
from hub.telemetry.body import Body
from hub.telemetry.committer import commit

SECOND = 1_000_000_000
START = datetime(2026, 5, 4, 12, tzinfo=timezone.utc)
FIELDS = ("power_watts", "pcie_replays", "up")
ASKED = tuple(Aggregate(function=it, field=field) for field in FIELDS for it in Function)


@pytest.mark.parametrize(("seconds", "short"), [(299, True), (300, False)])
def test_five_minutes_are_reduced_in_sql_and_less_is_not(seconds: int, short: bool) -> None:
    begin = 7 * SECOND
    assert are_short([(begin, begin + seconds * SECOND)]) is short
    # Spans count together.
    assert are_short([(0, 100 * SECOND), (begin, begin + (seconds - 100) * SECOND)]) is short


def lines() -> bytes:
    """Of three GPUs, the newest first: one has gaps, one begins late, one has a field in no line."""
    told = []
    for tick in reversed(range(60)):
        for gpu in range(3):
            if (gpu == 0 and tick % 4 == 0) or (gpu == 1 and tick < 40):
                continue
            values = {
                "power_watts": None if tick % 5 == gpu else 300.0 + 7.0 * math.sin(tick + gpu),
                "pcie_replays": None if gpu == 2 else 100 * gpu + tick // 3,
                "up": tick % 2,
                "index": gpu,
            }
            tags = {"cluster": "test", "node": f"n{gpu % 2}", "uuid": f"GPU-{gpu}", "model": "H200"}
            told.append(encode("gpu", tags, values, to_ns(START + timedelta(seconds=10 * tick))))
    return "\n".join(filter(None, told)).encode()


@pytest.mark.parametrize("seconds", [5, 60, 299, 301, 600])
def test_a_range_is_answered_alike_however_it_is_read(
    opened: Callable[[], Embedded], seconds: int
) -> None:
    store, twin, text = opened(), MemoryStore(), lines()
    body = Body(text=text, precision="ns", received_at=START, identity=None, done=lambda _: None)
    commit(store, Deduplicator(), [body])
    twin.write(text)
    for later in range(3):  # from the second time on, slices of longer ones are kept
        end = START + timedelta(seconds=601 + later)
        begin = end - timedelta(seconds=seconds)
        expected = twin.window("gpu", ASKED, begin, end).to_pylist()
        asked = Window(
            measurement=MEASUREMENTS["gpu"],
            aggregates=ASKED,
            start_ns=to_ns(begin),
            end_ns=to_ns(end),
        )
        found = store.answer(asked).to_pylist()
        assert len(found) == len(expected)
        for mine, other in zip(found, expected, strict=True):
            for column, value in other.items():
                is_float = isinstance(value, float)
                assert mine[column] == (pytest.approx(value) if is_float else value), column
