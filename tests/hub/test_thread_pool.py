"""Threads that work for all who ask."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.embedded.thread_pool import WorkerPool


@given(st.integers(1, 3), st.lists(st.integers(0, 9), max_size=20))
def test_the_work_is_done_once_with_each(count: int, things: list[int]) -> None:
    pool, done = WorkerPool(count), list[int]()
    pool.each(done.append, things)
    pool.close()
    assert sorted(done) == sorted(things)


def test_work_that_comes_later_does_not_wait_for_all_that_came_before() -> None:
    pool, order = WorkerPool(1), list[str]()
    begun, go_on = threading.Event(), threading.Event()

    def long_one(_: int) -> None:
        begun.set()
        go_on.wait(timeout=30)
        order.append("long")

    def short_one(_: int) -> None:
        order.append("short")

    first = threading.Thread(target=pool.each, args=(long_one, range(100)))
    first.start()
    begun.wait(timeout=30)
    second = threading.Thread(target=pool.each, args=(short_one, [1]))
    second.start()
    second.join(timeout=0.3)  # by then it has given its work
    go_on.set()
    second.join()
    first.join()
    pool.close()
    assert order.index("short") <= 2
    assert order.count("long") == 100


def test_when_one_fails_nothing_of_it_goes_on_and_others_are_served() -> None:
    pool, done = WorkerPool(2), list[int]()

    def work(thing: int) -> None:
        if thing == 3:
            raise ValueError("three")
        done.append(thing)

    with pytest.raises(ValueError, match="three"):
        pool.each(work, range(1000))
    count = len(done)
    assert count < 1000
    pool.each(done.append, [5])
    pool.close()
    assert len(done) == count + 1
