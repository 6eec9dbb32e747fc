"""Which of the bodies that a store acknowledged it may have lost when it was killed."""

from datetime import datetime, timezone

from collector.spool.acknowledged import MOST_BYTES, SECONDS, Acknowledged
from collector.spool.body import Body
from gpuvigil.clock import ManualClock

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def body(name: str, size: int = 0) -> Body:
    content = name.encode().ljust(size)
    return Body(path="/api/v2/write", headers={}, content=content, at=NOON)


def test_those_of_the_last_seconds_before_the_newest_once() -> None:
    clock = ManualClock(NOON)
    kept = Acknowledged(clock.monotonic)
    assert kept.doubtful() == []
    first, second, third = body("1"), body("2"), body("3")
    kept.add(first)
    clock.advance(0.5)
    kept.add(second)
    clock.advance(SECONDS - 0.25)
    kept.add(third)  # the second came as long before as a server holds back; the first longer
    # However long it was away: it took nothing since.
    clock.advance(3600.0)
    assert kept.doubtful() == [second, third]
    assert kept.doubtful() == []


def test_as_many_as_there_is_memory_for() -> None:
    kept = Acknowledged(ManualClock(NOON).monotonic)
    half = [body(str(number), MOST_BYTES // 2) for number in range(3)]
    for one in half:
        kept.add(one)
    assert kept.doubtful() == half[1:]
    kept.add(body("larger", MOST_BYTES + 1))
    assert kept.doubtful() == []
    kept.add(body("small"))
    assert [one.content for one in kept.doubtful()] == [b"small"]
