"""What the keeper believes of a page that names GPUs, and that it lives without its child."""

import contextlib
import os
from datetime import datetime, timezone
from pathlib import Path

import pytest

from collector.inference.scrape_supervisor import Inference, Served
from gpuvigil.clock import ManualClock, SystemClock
from tests.collector.inference.pages import InferenceServer, good
from tests.polling import wait_until
from tests.shortage import shortage

PROC = Path("/proc")
NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
# Names as Prometheus' text carries them: of the server's GPU, another's, none, and no line's.
UUIDS = ("GPU-its", "GPU-another", "GPU-none", "GPU-\\n", "GPU-end\\\\", "GPU-\x00")
PAGE = "".join(
    f'nv_inference_request_success{{gpu_uuid="{uuid}",model="m",version="1"}} 1\n' for uuid in UUIDS
).encode()


@pytest.mark.server
@pytest.mark.parametrize(("seen", "named"), [(True, ["GPU-its"]), (False, [])])
def test_a_page_names_none_but_gpus_that_its_own_processes_hold(
    seen: bool, named: list[str]
) -> None:
    """Where nobody is seen to listen for it, no other user's: process 1 is root's."""
    own = {"GPU-its": (os.getpid(),)} if seen else {}
    with InferenceServer(good(PAGE)) as server:
        inference = Inference([server.url], 0.1, PROC, SystemClock())

        def served() -> list[Served]:
            inference.keep()
            found = inference.served({**own, "GPU-another": (1,)})
            return [one for one in found if one.replicas]

        try:
            (one,) = wait_until("an answer", served)
        finally:
            inference.stop()
    assert list(one.gpus) == named
    assert [list(replica.gpus) for replica in one.replicas] == [named]


@pytest.mark.parametrize("lacks", ["descriptors", "threads"])
def test_without_room_for_a_child_the_collector_goes_on_and_tries_again(lacks: str) -> None:
    clock = ManualClock(NOW)
    inference = Inference(["http://127.0.0.1:1/metrics"], 5.0, PROC, clock)
    before = children()
    with shortage(lacks):
        inference.keep()
        inference.keep()
    assert children() == before
    inference.keep()
    assert children() == before  # after a rest
    clock.advance(1.0)
    inference.keep()
    try:
        assert len(children() - before) == 1
    finally:
        inference.stop()


def children() -> set[str]:
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that ends meanwhile
            found.update((task / "children").read_text().split())
    return found
