"""The whole agent beside an inference server: what it ships, and what a bad server cannot do."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.collector.agent import Agent
from tests.collector.inference.pages import InferenceServer, dripping, good, page
from tests.collector.receiver import Receiver, tag
from tests.collector.rows import UUIDS
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until

pytestmark = pytest.mark.server


@pytest.fixture
def engine() -> Iterator[int]:
    """A process that computes for a server of ours: a child of who listens."""
    words = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as child:
        yield child.pid
        child.communicate()


def test_a_servers_requests_are_told_of_the_gpu_that_serves(
    agent: Agent, driver: FakeDriver, receiver: Receiver, engine: int
) -> None:
    driver.set_processes(1, {engine: None})
    agent.environment = driver.environment()
    with InferenceServer(good(page("vllm-0.9"))) as server, InferenceServer(dripping(b"H")) as bad:
        # One that drips keeps neither the other nor the ticks waiting.
        agent.settings["inference_urls"] = [bad.url, server.url]
        agent.start()
        wait_until(
            "the GPU that serves",
            lambda: any(f'uuid="{UUIDS[1]}"' in line for line in lines(agent)),
        )
        name = f"127.0.0.1:{server.port}"
        (one,) = [it for it in lines(agent) if "inference_requests_running" in it]
        assert f'endpoint="{name}",model="qwen",engine="0"}} 5.0' in one
        sent = wait_until("rows", lambda: rows(receiver, UUIDS[1]))
        assert sent[-1]["requests"] == 121
        assert sent[-1]["kv_cache_percent"] == 25.0
        more = page("vllm-0.9").replace(b"100.0\n", b"0.0\n").replace(b"20.0\n", b"3.0\n")
        server.behave = good(more)  # it has begun anew
        wait_until("a count that goes on", lambda: rows(receiver, UUIDS[1])[-1]["requests"] == 125)
    wait_until("the end of its rows", lambda: not lines(agent), timeout_seconds=60.0)
    assert agent.stop() == 0


def test_an_address_that_is_none_is_one_line_and_exit_code_2(agent: Agent) -> None:
    agent.settings["inference_urls"] = ["http://10.0.0.1/metrics"]
    agent.start()
    assert agent.process is not None
    assert agent.process.wait(20) == 2
    assert "collector.inference_anywhere" in agent.said()
    assert agent.said().count("\n") == 1


def lines(agent: Agent) -> list[str]:
    """Of `/metrics`, what is said of inference."""
    return [it for it in agent.metrics().splitlines() if it.startswith("gpuvigil_inference_")]


def rows(receiver: Receiver, uuid: str) -> list[dict[str, object]]:
    found = [it for it in receiver.lines("inference") if tag(it, "uuid") == uuid]
    return [dict(it.fields) for it in found]
