"""A collector that its machine starves says so, once in ten minutes."""

import os
import re
import signal
import time

import pytest

from collector.agent.tick_delay import TickDelay
from gpuvigil.config import CollectorSettings
from tests.collector.agent import Agent
from tests.collector.receiver import Receiver
from tests.collector.rows import node_row
from tests.polling import wait_until


@pytest.mark.parametrize(
    ("tick_seconds", "gap", "said"),
    [(10.0, 30.0, None), (10.0, 30.1, 30.1), (1.0, 10.0, None), (1.0, 10.1, 10.1)],
)
def test_three_ticks_without_one_are_a_delay(
    tick_seconds: float, gap: float, said: float | None
) -> None:
    delay = TickDelay(CollectorSettings(tick_seconds=tick_seconds))
    assert delay.to_report(5.0) is None
    assert delay.to_report(5.0 + gap) == (None if said is None else pytest.approx(said))


def test_the_longest_of_ten_minutes_is_said_once() -> None:
    delay = TickDelay(CollectorSettings(tick_seconds=10.0))
    assert [delay.to_report(at) for at in (0.0, 40.0)] == [None, 40.0]
    assert [delay.to_report(at) for at in (140.0, 190.0, 639.0)] == [None, None, None]
    assert delay.to_report(640.0) == 449.0
    assert delay.to_report(650.0) is None


@pytest.mark.server
def test_an_agent_that_did_not_run_logs_for_how_long_and_the_load(
    agent: Agent, receiver: Receiver
) -> None:
    agent.start()
    wait_until("a row of the node", lambda: node_row(receiver))
    os.kill(agent.pid, signal.SIGSTOP)
    time.sleep(10.5)
    os.kill(agent.pid, signal.SIGCONT)
    said = "the machine left the collector too little time"
    wait_until("a line about it", lambda: said in agent.said())
    (line,) = (line for line in agent.said().splitlines() if said in line)
    assert re.search(r"seconds=1\d ", line)
    assert re.search(r"load=\d", line)
