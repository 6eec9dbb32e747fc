"""Who takes too long is ended, and nobody else is."""

import asyncio

import pytest

from hub.http.timeouts import Timeout


def test_whoever_takes_too_long_is_ended_and_goes_on_after_it() -> None:
    timeout = Timeout(0.2)

    async def slow() -> int:
        with pytest.raises(TimeoutError), timeout:
            await asyncio.sleep(60)
        await asyncio.sleep(0.001)  # nothing of the cancellation is left
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    async def quick() -> str:
        for _ in range(30):
            with timeout:
                await asyncio.sleep(0.01)
        return "all of them"

    async def main() -> list[object]:
        return list(await asyncio.gather(slow(), quick(), slow()))

    # A second event loop finds nothing of the first.
    for _ in range(2):
        assert asyncio.run(main()) == [0, "all of them", 0]


def test_whoever_is_cancelled_by_others_stays_cancelled() -> None:
    timeout = Timeout(60)

    async def work() -> None:
        with timeout:
            await asyncio.sleep(60)

    async def main() -> bool:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(main())


def test_an_error_inside_passes_and_the_next_comes_in() -> None:
    timeout = Timeout(60)

    async def main() -> str:
        with pytest.raises(ValueError, match="inside"), timeout:
            raise ValueError("inside")
        with timeout:
            return "in"

    assert asyncio.run(main()) == "in"
