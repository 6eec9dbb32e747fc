"""compose.yaml in a container engine: up, healthy, killed, and nothing acknowledged is lost."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.compose_site import Engine, Site, engine, site
from tests.composed import SERVICES, substituted
from tests.containers import PROGRAMS

pytestmark = pytest.mark.timeout(1500)

STORES = ("victoria-metrics", "influxd")


@pytest.fixture(scope="module")
def built(
    request: pytest.FixtureRequest,
    needs: Callable[[str, str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Engine]:
    for program in (*PROGRAMS, *STORES):
        needs(program, "make test-servers")
    cache: pytest.Cache = request.config.cache
    with engine(cache.mkdir("machines"), tmp_path_factory.mktemp("compose")) as running:
        yield running


@pytest.fixture(scope="module")
def up(request: pytest.FixtureRequest, built: Engine) -> Iterator[Site]:
    with site(built, request.param) as running:
        yield running


PROFILES = ("embedded", "victoriametrics")
each_profile = pytest.mark.parametrize("up", PROFILES, indirect=True, scope="module")
embedded = pytest.mark.parametrize("up", PROFILES[:1], indirect=True, scope="module")


@each_profile
def test_a_profile_is_healthy_and_a_lost_gpu_is_in_a_webhook(up: Site) -> None:
    up.await_health()
    began = time.monotonic()
    up.driver.lose(1)
    up.told(1)
    sys.stdout.write(
        f"{up.profile}: {time.monotonic() - began:.0f} s from the fault to its message\n"
    )
    up.assert_nothing_is_lost()


@embedded
def test_the_engine_bounds_and_restarts_every_container(up: Site) -> None:
    for service in up.services:
        wanted, state = SERVICES[service], partial(up.project.state, service)
        assert int(state("HostConfig.PidsLimit")) == wanted["pids_limit"]
        amount, unit = re.fullmatch(r"(\d+)([mg])", substituted(wanted["mem_limit"])).groups()  # type: ignore[union-attr]
        assert int(state("HostConfig.Memory")) == int(amount) * {"m": 2**20, "g": 2**30}[unit]
        assert state("HostConfig.RestartPolicy.Name") == wanted["restart"] == "unless-stopped"
        assert state("HostConfig.ReadonlyRootfs") == "true"
        assert state("HostConfig.LogConfig.Size") == "50MB"


@embedded
def test_what_takes_more_memory_than_its_container_may_is_ended(up: Site) -> None:
    before = up.project.state("collector", "State.Pid")
    limit = int(up.project.state("collector", "HostConfig.MemorySwap"))
    assert up.project.takes("collector", limit // 8)
    assert not up.project.takes("collector", limit + 2**20)
    assert up.project.state("collector", "State.Pid") == before


@embedded
def test_each_container_killed_once_loses_nothing_acknowledged(up: Site) -> None:
    for service in up.services:
        up.kill(service)
    up.await_health()
    up.assert_nothing_is_lost()
