"""Why an incident came to where it is: a value, read back as it was written, and its words."""

from datetime import datetime, timezone

import pytest

from gpuvigil.model import (
    Cause,
    CoveredBy,
    Ended,
    EndedBy,
    EventKind,
    Uncovered,
    cause_from_json,
    cause_to_json,
)

AT = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
WHEN = "12:00:00 UTC on 31 Jan"
ENDS = [
    (Ended(by=EndedBy.EVENT, event=EventKind.GPU_RESET, at=AT), f"cured: gpu reset at {WHEN}"),
    (Ended(by=EndedBy.REPORTS_AGAIN, at=AT), f"reports again since {WHEN}"),
    (Ended(by=EndedBy.REPORTS_AGAIN), "its nodes report again"),
    (Ended(by=EndedBy.RETIRED, who="ada", at=AT), f"retired by ada at {WHEN}"),
    (Ended(by=EndedBy.GONE), "its nodes are gone"),
    (Ended(by=EndedBy.APART), "no matter of its rack any more: each is told for itself"),
    (Ended(by=EndedBy.APART, left=(3, 9)), "only 3 of 9 nodes left: each is told for itself"),
    (
        Ended(by=EndedBy.NOT_SHOWN, at=AT),
        f"not seen since {WHEN}; no job can show it now: run a benchmark on it",
    ),
    (Ended(by=EndedBy.NOT_SEEN, seconds=30.2), "not seen for 30 s"),
]


@pytest.mark.parametrize(("cause", "text"), ENDS, ids=lambda it: it if isinstance(it, str) else "")
def test_people_read_how_it_ended(cause: Ended, text: str) -> None:
    assert cause.text == text


def test_every_way_to_end_has_words() -> None:
    assert {cause.by for cause, _ in ENDS} == set(EndedBy)


@pytest.mark.parametrize(
    "cause",
    [
        None,
        Uncovered(),
        CoveredBy(fingerprint="f", what="n1: Node stopped reporting"),
        *[it for it, _ in ENDS],
    ],
)
def test_a_record_keeps_the_value(cause: Cause | None) -> None:
    assert cause_from_json(cause_to_json(cause)) == cause


@pytest.mark.parametrize(
    "told", [{"kind": "ended", "by": "magic"}, {"kind": "ended", "by": "event", "event": "prayer"}]
)
def test_what_only_a_newer_version_knows_is_no_cause(told: dict[str, str]) -> None:
    assert cause_from_json(told) is None
