"""How long a call itself had, with what the kernel says of the threads of a process."""

import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.processes import cpu_time
from collector.processes.cpu_time import (
    CallTime,
    Spent,
    Threads,
    active_seconds,
    quiet_seconds,
    spent_seconds,
    threads,
)
from gpuvigil.clock import SystemClock
from tests.load import Load

OWN, OTHER = 1, 2


def spent(ran: float = 0.0, waited: float = 0.0, *, runnable: bool = False) -> Spent:
    return Spent(ran_seconds=ran, waited_seconds=waited, runnable=runnable)


@pytest.mark.parametrize(
    ("now", "seconds"),
    [
        # Blocked all the time, or at work: a driver may spin.
        ({OWN: spent()}, 5.0),
        ({OWN: spent(4.0)}, 5.0),
        ({OWN: spent(4.0, runnable=True)}, 4.0),
        # Waiting for a core is nobody's silence.
        ({OWN: spent(0.1, 4.0)}, 1.0),
        ({OWN: spent(0.1, 5.0)}, 0.1),
        ({OWN: spent(0.1, 0.0, runnable=True)}, 0.1),
        # Another thread may have held Python's lock meanwhile.
        ({OWN: spent(), OTHER: spent(1.0, 2.0)}, 2.0),
        ({OWN: spent(), OTHER: spent(1.0, 9.0)}, 0.0),
        ({OWN: spent(), OTHER: spent(runnable=True)}, 0.0),
        # It has ended.
        ({OTHER: spent(1.0)}, 4.0),
    ],
)
def test_a_call_had_what_no_core_was_waited_for(now: Threads, seconds: float) -> None:
    assert active_seconds(5.0, OWN, {}, now) == pytest.approx(seconds)


SECONDS = st.floats(0.0, 100.0)
SPENT = st.builds(spent, SECONDS, SECONDS, runnable=st.booleans())


@given(SECONDS, st.dictionaries(st.integers(1, 4), SPENT))
def test_a_call_never_had_more_than_there_was_and_what_was_spent_before_does_not_count(
    seconds: float, now: dict[int, Spent]
) -> None:
    assert 0.0 <= active_seconds(seconds, OWN, {}, now) <= seconds
    blocked = {thread: spent(it.ran_seconds, it.waited_seconds) for thread, it in now.items()}
    assert active_seconds(seconds, OWN, blocked, blocked) == seconds


@pytest.mark.medium
def test_a_thread_that_sleeps_has_all_the_time_and_one_that_works_is_counted() -> None:
    before, end = threads(), threading.Event()
    assert before is not None
    calls: list[CallTime] = []

    def sleep() -> None:
        calls.append(CallTime(SystemClock(), before))
        end.wait(30.0)

    sleeper = threading.Thread(target=sleep)
    sleeper.start()
    time.sleep(0.5)
    now = threads()
    assert calls[0].passed >= 0.5
    assert 0.3 <= calls[0].seconds(now) <= calls[0].passed
    end.set()
    sleeper.join()
    began = spent_seconds(threads())
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass
    assert spent_seconds(threads()) - began >= 0.09


def test_where_the_kernel_does_not_count_all_of_the_time_is_the_calls() -> None:
    call = CallTime(SystemClock(), None)
    time.sleep(0.02)
    assert call.seconds(threads()) >= 0.02
    assert threads(2**22 + 1) is None  # more than there can be processes (proc(5), pid_max)
    assert quiet_seconds(2**22 + 1, 5.0, 0.0) == 5.0


@pytest.mark.server
def test_a_process_without_a_core_was_not_quiet() -> None:
    with Load(1) as load:
        (busy,) = load.pids
        time.sleep(0.5)
        # It runs, or waits for a core: at no moment it is quiet.
        assert quiet_seconds(busy, 100.0, 0.0) == 0.0
    child = os.fork()
    if child == 0:
        time.sleep(30.0)
        os._exit(0)
    try:
        time.sleep(0.5)
        assert quiet_seconds(child, 100.0, 0.0) > 90.0
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert cpu_time.threads(os.getpid()) is not None
