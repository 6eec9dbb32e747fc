"""A burst leaves turns to everything else on the event loop."""

import asyncio

from hub.http.event_loop_slices import LoopThrottle


def burst(
    pace: LoopThrottle, count: int, cancelled: range = range(0)
) -> tuple[list[int], list[int]]:
    """Who came through, in order, and how many had by each turn of something else."""
    through: list[int] = []
    seen: list[int] = []

    async def body(number: int) -> None:
        await pace.step()
        through.append(number)

    async def other() -> None:
        while True:
            seen.append(len(through))
            await asyncio.sleep(0)

    async def main() -> None:
        beside = asyncio.create_task(other())
        bodies = [asyncio.create_task(body(number)) for number in range(count)]
        await asyncio.sleep(0)
        for number in cancelled:
            bodies[number].cancel()
        await asyncio.wait(bodies)
        beside.cancel()

    asyncio.run(main())
    return through, seen


def test_a_burst_comes_through_in_order_and_a_few_at_a_time() -> None:
    pace = LoopThrottle(4)
    for count in (1, 4, 5, 100, 3):
        through, seen = burst(pace, count)
        assert through == list(range(count))
        steps = [after - before for before, after in zip(seen, [*seen[1:], count], strict=True)]
        # Two turns may lie between two looks.
        assert max(steps) <= 8


def test_whoever_is_gone_takes_nobodys_turn() -> None:
    through, _ = burst(LoopThrottle(4), 40, cancelled=range(6, 30))
    assert through == [*range(6), *range(30, 40)]
