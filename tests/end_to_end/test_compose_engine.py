"""compose.yaml in a container engine: each profile comes up within its limits, is healthy, and tells of a lost GPU.

Kills, cut networks and upgrades, which take minutes each, are in soak/test_compose_engine.py.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.compose_site import PROFILES, WANTED, Engine, engine, site

pytestmark = [pytest.mark.server, pytest.mark.site, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def built(
    request: pytest.FixtureRequest,
    needs: Callable[[str, str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Engine]:
    for program in WANTED:
        needs(program, "make test-servers")
    cache: pytest.Cache = request.config.cache
    with engine(cache.mkdir("machines"), tmp_path_factory.mktemp("compose")) as running:
        yield running


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_healthy_and_a_lost_gpu_is_in_a_webhook(built: Engine, profile: str) -> None:
    with site(built, profile) as up:
        up.await_health()
        up.assert_bounded()
        up.driver.lose(1)
        up.told(1)
        up.assert_nothing_is_lost()
