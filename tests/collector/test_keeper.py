"""When a reader is replaced."""

import pytest

from collector.keeper import Verdict, judge


@pytest.mark.parametrize(
    ("heard_seconds_ago", "silent_seconds", "verdict"),
    [
        (0.0, None, Verdict.KEEP),
        (29.9, 29.9, Verdict.KEEP),
        (30.0, None, Verdict.FROZEN),
        (1.0, 30.0, Verdict.STUCK),
        (100.0, 100.0, Verdict.FROZEN),
    ],
)
def test_a_reader_is_replaced_when_it_or_all_its_calls_are_silent_for_too_long(
    heard_seconds_ago: float, silent_seconds: float | None, verdict: Verdict
) -> None:
    assert judge(heard_seconds_ago, silent_seconds, patience_seconds=30.0) is verdict
