"""compose.yaml in a container engine: each profile killed and cut off; one upgraded; nothing acknowledged is lost.

That each comes up within its limits and tells of a fault is in tests/end_to_end/test_compose_engine.py.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.compose_engine import TICK_SECONDS, UP_SECONDS, VERSION, name
from tests.compose_site import PROFILES, WANTED, Engine, Site, engine, site
from tests.polling import wait_until

pytestmark = pytest.mark.timeout(3000)

# Shorter to rehearse.
CUT_MINUTES = float(os.environ.get("SOAK_CUT_MINUTES") or 5)
# The witness may miss a tick on a machine that has other things to do.
LEAST_SHARE_OF_TICKS = 0.5
NEWER = "0.1.1"


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


@pytest.fixture(scope="module")
def up(request: pytest.FixtureRequest, built: Engine) -> Iterator[Site]:
    with site(built, request.param) as running:
        yield running


each_profile = pytest.mark.parametrize("up", PROFILES, indirect=True, scope="module")
embedded = pytest.mark.parametrize("up", PROFILES[:1], indirect=True, scope="module")


@embedded
def test_the_image_makes_a_report_as_pdf(up: Site) -> None:
    made = "from report.formats.pdf_format import pdf; print(pdf('<p>GPU</p>')[:5].decode())"
    assert up.project.podman("exec", name("report"), "python", "-c", made).strip() == "%PDF-"


@embedded
def test_what_takes_more_memory_than_its_container_may_is_ended(up: Site) -> None:
    before = up.project.state("collector", "State.Pid")
    limit = int(up.project.state("collector", "HostConfig.MemorySwap"))
    assert up.project.takes("collector", limit // 8)
    assert not up.project.takes("collector", limit + 2**20)
    assert up.project.state("collector", "State.Pid") == before


@each_profile
def test_each_container_killed_once_loses_nothing_acknowledged(up: Site) -> None:
    for service in up.services:
        up.kill(service)
    up.await_health()
    up.assert_nothing_is_lost()


@each_profile
def test_a_network_that_was_cut_leaves_no_gap_and_a_fault_of_then_is_told(up: Site) -> None:
    ticks = up.without_network(CUT_MINUTES * 60, lambda: up.driver.lose(0))
    assert ticks >= LEAST_SHARE_OF_TICKS * CUT_MINUTES * 60 / TICK_SECONDS
    up.told(0)
    # What waited goes behind what is new: a hub on a busy machine takes a few bodies a second.
    up.assert_nothing_is_lost(UP_SECONDS + CUT_MINUTES * 60)
    sys.stdout.write(f"{up.profile}: {ticks} ticks in {CUT_MINUTES:g} min without a network\n")


# Opens a link as a browser does: by its cookie.
OPEN = "import sys, urllib.request as r; print(r.build_opener(r.HTTPCookieProcessor()).open(sys.argv[1]).status)"


def new_link(up: Site) -> str:
    told = up.project.podman("exec", name("dashboard"), "gpuvigil", "url")
    (link,) = re.findall(r"http://\S+", told)
    return str(link)


def opened(up: Site, link: str) -> str:
    return up.project.podman("exec", name("dashboard"), "python", "-c", OPEN, link).strip()


@embedded
def test_a_backup_of_two_volumes_is_all_that_new_ones_need(up: Site) -> None:
    up.await_health()
    link = new_link(up)
    up.project.of_page("docker compose --profile embedded stop")
    up.project.of_page("docker run --rm --user 0")
    up.project.compose("--profile", up.profile, "down", "-t", "5")
    up.project.podman("volume", "rm", "gpuvigil_hub", "gpuvigil_dashboard")
    up.project.of_page("docker run --rm -i --user 0")
    up.project.up(up.profile)
    up.await_health()
    up.assert_nothing_is_lost()
    assert opened(up, link) == "200"


@embedded
def test_an_upgrade_keeps_what_is_in_the_volumes(up: Site) -> None:
    assert up.versions() == {VERSION}
    link = new_link(up)
    up.project.write_version(NEWER)
    up.project.build()
    up.project.up(up.profile)
    up.await_health()
    wait_until("all are newer", lambda: up.versions() == {NEWER}, UP_SECONDS)
    images = {up.project.state(one, "ImageName") for one in up.services}
    assert images == {f"localhost/gpuvigil:{NEWER}"}
    up.assert_nothing_is_lost()
    assert opened(up, link) == "200"
