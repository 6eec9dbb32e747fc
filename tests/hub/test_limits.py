"""Memory and turns are shared: who sends much leaves room for who sends little."""

import asyncio
import gzip
import threading
import time
from collections.abc import MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.web.limits import Shares
from hub.http.limits import Allowance, FairQueue
from hub.http.responses import MemoryBudget, Refused, body_from

MOST = 1000
STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 400)), max_size=60)


@given(STEPS)
def test_nobody_fills_what_is_shared_and_a_newcomer_finds_room(
    steps: list[tuple[str, int]],
) -> None:
    shares, held = Shares(MOST), dict.fromkeys("abc", 0)
    for who, size in steps:
        fits = shares.fits(who, size)
        assert shares.acquire(who, size) == fits
        held[who] += size if fits else 0
        assert shares.held == sum(held.values()) <= MOST
    for who in held:
        shares.give_back(who, held[who])
    assert shares.held == 0


@given(st.integers(1, 5), st.integers(1, 50))
def test_each_of_some_who_take_all_they_get_comes_to_the_same_and_leaves_as_much(
    count: int, size: int
) -> None:
    shares, held = Shares(MOST), [0] * count
    while any(shares.fits(who, size) for who in range(count)):
        for who in range(count):
            if shares.acquire(who, size):
                held[who] += size
    assert max(held) - min(held) <= size
    assert MOST - sum(held) + 2 * size > max(held)
    assert shares.fits("newcomer", MOST - sum(held))


def test_one_thing_of_any_size_fits_while_nobody_holds_any() -> None:
    shares = Shares(10)
    assert shares.acquire("a", 99)
    assert not shares.fits("b", 0)
    shares.give_back("a", 99)
    assert shares.acquire("a", 0)
    shares.give_back("a", 0)
    assert shares.fits("b", 10)


class Slow(int):
    """A sender: whoever looks it up lets other threads have their turn."""

    def __hash__(self) -> int:
        time.sleep(0)
        return int(self)


@pytest.mark.medium
def test_threads_that_take_and_give_back_leave_nothing_behind_and_never_hold_too_much() -> None:
    shares, seen = Shares(MOST), list[int]()

    def work(who: Slow) -> None:
        for size in range(1, 300):
            if shares.acquire(who, size):
                seen.append(shares.held)
                shares.give_back(who, size)

    threads = [threading.Thread(target=work, args=(Slow(n % 3),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shares.held == 0
    assert max(seen) <= MOST
    # Nor of any sender: two of them come to a third each again.
    assert all(shares.acquire(Slow(n), MOST // 3) for n in range(2))


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 50)), max_size=60))
def test_nobody_uses_more_than_is_allowed_over_any_time(steps: list[tuple[float, float]]) -> None:
    allowance, uses, now = Allowance(100, 3600), list[tuple[float, float]](), 0.0
    for later, amount in steps:
        now += later
        if allowance.allows("a", amount, now):
            allowance.use("a", amount, now)
            uses.append((now, amount))
    for number, (begin, _) in enumerate(uses):
        for end, _ in uses[number:]:
            taken = sum(amount for at, amount in uses if begin <= at <= end)
            assert taken <= 100 + 100 * (end - begin) / 3600 + 1e-6
    assert allowance.allows("b", 1e9, now)


def test_of_those_who_wait_each_sender_has_its_turn_before_anybodys_next() -> None:
    order: list[str] = []

    async def work(turns: FairQueue, who: str) -> None:
        async with turns.turn(who):
            order.append(who)
            await asyncio.sleep(0)

    async def main() -> None:
        turns = FairQueue(1)
        async with turns.turn("first"):
            loud = [asyncio.create_task(work(turns, "loud")) for _ in range(20)]
            await asyncio.sleep(0)
            calm = [asyncio.create_task(work(turns, who)) for who in ("calm", "other")]
            await asyncio.sleep(0)
            loud[7].cancel()
        await asyncio.gather(*loud, *calm, return_exceptions=True)
        async with asyncio.timeout(5), turns.turn("after"):
            order.append("after")

    asyncio.run(main())
    assert order[:4] == ["loud", "calm", "other", "loud"]
    assert order.count("loud") == 19
    assert order[-1] == "after"


def read(packed: bytes, largest: int, arriving: MemoryBudget) -> tuple[bytes | int, int]:
    """The body or the status of the refusal, and how often another task had its turn meanwhile."""
    beats = 0

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": packed}

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    async def main() -> bytes | int:
        beating = asyncio.create_task(beat())
        try:
            with arriving.of("n1") as held:
                return await body_from(receive, {"content-encoding": "gzip"}, largest, held)
        except Refused as error:
            return error.status
        finally:
            beating.cancel()

    return asyncio.run(main()), beats


@pytest.mark.medium
@pytest.mark.parametrize("lie", [False, True])
def test_a_bomb_is_inflated_beside_the_event_loop_whatever_size_it_claims(lie: bool) -> None:
    packed = gzip.compress(b"\n" * 30_000_000, 9)
    assert len(packed) < 64 * 1024
    if lie:
        packed = packed[:-4] + (10).to_bytes(4, "little")
    arriving = MemoryBudget(100_000_000)
    status, beats = read(packed, 16 * 1024 * 1024, arriving)
    assert status == 413
    assert beats > 0
    assert arriving.bytes == 0


def test_what_a_body_is_inflated_to_counts_and_a_small_one_costs_no_thread() -> None:
    content = b"x" * 100_000
    assert read(gzip.compress(content), 200_000, MemoryBudget(250_000)) == (content, 0)
    half = MemoryBudget(250_000)
    with half.of("n2") as other:
        other.change(200_000)
        assert read(gzip.compress(content), 200_000, half)[0] == 429
