"""One job by its nodes' word alone: its own allocations and who shares its GPUs, from one real hub."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from cli.tables.why import fetch
from dashboard.lists.one_job import find_job
from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.errors import ConfigError
from gpuvigil.hub_client import Hub
from gpuvigil.lineprotocol import encode
from gpuvigil.store.hub import HubStore
from tests.servers import QuickHub

from .scene import NOON, allocation, gpu, node

pytestmark = pytest.mark.server

FIRST, SECOND = node("n-1", "prod"), node("n-2", "prod")
MINE = [allocation(gpu(0, FIRST), "job 7"), allocation(gpu(1, FIRST), "job 7")]
BESIDE = allocation(gpu(1, FIRST), 'pod team/it\'s "100 %"_1')
BEFORE = replace(
    allocation(gpu(0, FIRST), "job 77"), started_at=NOON - timedelta(days=1), ended_at=NOON
)
ELSEWHERE = allocation(gpu(0, SECOND), "job 8")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with QuickHub(tmp_path_factory.mktemp("hub")) as process:
        client = process.hub()
        client.write_records([one.to_record() for one in (*MINE, BESIDE, BEFORE, ELSEWHERE)])
        yield client


def test_its_own_and_who_shares_its_gpus_are_told(hub: Hub) -> None:
    told = find_job(hub, "7", None)
    assert (sorted(told.allocations, key=lambda one: one.id), told.others) == (MINE, (BESIDE,))


def test_of_one_that_ended_its_own_are_told_and_of_a_strangers_text_nothing(hub: Hub) -> None:
    told = find_job(hub, "77", None)
    assert (told.allocations, told.others, told.runs) == ((BEFORE,), (), False)
    assert find_job(hub, str(BESIDE.holder), None).allocations == (BESIDE,)
    for stranger in ("job %", "job _", "pod team/it's", "JOB 7"):
        with pytest.raises(ConfigError, match="no scheduler or node has reported"):
            find_job(hub, stranger, None)


def test_why_names_the_link_that_a_job_fills_where_nobody_shares_its_node(hub: Hub) -> None:
    now, lines = SystemClock().now(), []
    for at_node in (FIRST, SECOND):
        tags = {"cluster": "prod", "node": at_node.node, "device": "mlx5_0", "port": "1"}
        for second in range(0, 61, 10):
            at = to_ns(now - timedelta(seconds=60 - second))
            fields = {"speed_bits_per_second": 4 * 10**11, "receive_bytes": 48 * 10**9 * second}
            lines.append(encode("port", {**tags, "kind": "roce", "role": "fabric"}, fields, at))
    HubStore(hub).write("\n".join(filter(None, lines)).encode())
    said = "It fills this link: n-2 mlx5_0 (95 % of the speed or more). That is no fault."
    assert said in fetch(hub, "8", None).head
    assert not any("fills" in line for line in fetch(hub, "7", None).head)
