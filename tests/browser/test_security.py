"""What holds on every page: nothing leaves the machine, no stranger's script runs, nobody else comes in."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Response

from gpuvigil.clock import SystemClock
from gpuvigil.model import Acknowledgement, Allocation, Evidence, Holder, Impact, Incident, Severity
from gpuvigil.web import page_links
from tests.dashboard.scene import gpu, incident, node
from tests.dashboard.servers import DashboardProcess, Feed
from tests.servers import HubProcess

from .accessibility import violations
from .conftest import Visit
from .places import LAYOUTS, PATHS, Shown, wait_until_drawn

pytestmark = pytest.mark.server

# Whoever starts a job chooses its name, and a node's name is what its host calls itself.
SCRIPT = "<script>hit = 1</script>"
IMAGE = "<img src=x onerror='hit = 1'>"
QUOTES = "\"'--><svg/onload=hit=1>{{hit}}"
HOSTILE_NODE = f"n1 {IMAGE}"
RENEWALS_MS = 2500
# Of an address.
QUERIES = ("node", "gpu", "cluster", "incident", "from", "to", "port", "link", "job", "q", "sort")


def hostile_incident(hub_node: str) -> Incident:
    """An incident in which every text is a stranger's."""
    of = gpu(5, node(hub_node))
    since = SystemClock().now() - timedelta(minutes=2)
    return replace(
        incident("gpu_lost", of, Severity.CRITICAL, label=f"{hub_node} GPU 5 {SCRIPT}"),
        since=since,
        updated_at=since,
        title=f"GPU fell off the bus {IMAGE}",
        action=f"Drain it {QUOTES}",
        source=f"rule {SCRIPT}",
        impact=Impact(gpus=1, holders=(f"job {IMAGE}",), users=(SCRIPT,), text=f"job {QUOTES}"),
        evidence=(Evidence(name=f"Xid {IMAGE}", value=SCRIPT, limit=QUOTES, peers=IMAGE),),
        covers=(f"covered {IMAGE}",),
        acknowledged_by=IMAGE,
    )


@pytest.fixture(scope="module")
def feed(hub: HubProcess) -> Iterator[Feed]:
    """A fleet in which all names are hostile."""
    feeding = Feed(hub)
    feeding.nodes[0] = node(HOSTILE_NODE)
    with feeding:
        yield feeding


@pytest.fixture(scope="module")
def shown(feed: Feed) -> Shown:
    of, now = feed.nodes[0], SystemClock().now()
    one = hostile_incident(of.node)
    taken = Acknowledgement(
        id="a", incident=one.id, subject=one.subject, by=IMAGE, note=f"{SCRIPT} {QUOTES}", at=now
    )
    holding = [
        Allocation(
            subject=gpu(index, of),
            holder=Holder.parse(f"job {IMAGE}"),
            user=SCRIPT,
            command=QUOTES,
            started_at=now - timedelta(hours=1),
        )
        for index in range(6)
    ]
    told = [one.to_record(), taken.to_record(), *(job.to_record() for job in holding)]
    feed.hub.write_records(told)
    return Shown(gpu=gpu(5, of), incident=one.id, holder=holding[0].holder)


@pytest.fixture(scope="module")
def session(
    browser: Browser, dashboard: DashboardProcess, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Cookies of somebody who is signed in, for browsers that are otherwise fresh."""
    context = browser.new_context()
    context.new_page().goto(dashboard.link())
    kept = tmp_path_factory.mktemp("session") / "state.json"
    context.storage_state(path=kept)
    context.close()
    return kept


@pytest.fixture(scope="module")
def profile(browser: Browser, session: Path) -> Iterator[BrowserContext]:
    """One for all visits: Streamlit's scripts are loaded and compiled once."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, storage_state=session)
    context.add_init_script(
        "window.violations = []; document.addEventListener('securitypolicyviolation',"
        " event => window.violations.push(event.violatedDirective + ' ' + event.blockedURI))"
    )
    yield context
    context.close()


@pytest.fixture
def signed_in(profile: BrowserContext) -> Iterator[Visit]:
    visit = Visit(profile.new_page())
    yield visit
    visit.page.close()


@pytest.mark.parametrize("path", LAYOUTS)
def test_a_strangers_text_stays_text_nothing_leaves_the_machine_and_nothing_complains(
    signed_in: Visit, dashboard: DashboardProcess, shown: Shown, path: str
) -> None:
    answers: list[Response] = []
    page = signed_in.page
    page.on("response", lambda answer: answers.append(answer))  # noqa: PLW0108 - it marks what it calls
    page.goto(dashboard.url + shown.address(path))
    wait_until_drawn(page)
    page.wait_for_timeout(RENEWALS_MS)
    assert page.evaluate("typeof hit") == "undefined"
    # Playwright looks into shadow roots too.
    assert page.locator("img[src='x']").count() == 0
    assert page.locator("script", has_text="hit").count() == 0
    assert page.locator("svg[onload]").count() == 0
    if urlsplit(path).path in {
        page_links.OVERVIEW,
        page_links.GPU,
        page_links.NODE,
        page_links.INCIDENTS,
        page_links.JOB,
    }:
        assert page.get_by_text(HOSTILE_NODE).count() > 0
    assert signed_in.hosts == {urlsplit(dashboard.url).netloc}
    assert signed_in.complaints == []
    # The integers of protocol buffers would rather be WebAssembly, and do without.
    assert set(page.evaluate("window.violations")) <= {"script-src wasm-eval"}
    assert [urlsplit(it.url).path for it in answers if it.status >= 400] == []


@pytest.mark.parametrize("path", PATHS)
def test_every_page_has_the_safety_headers(
    signed_in: Visit, dashboard: DashboardProcess, shown: Shown, path: str
) -> None:
    headers = signed_in.page.request.get(dashboard.url + shown.address(path)).headers
    policy = dict(
        part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";")
    )
    assert "unsafe" not in policy["script-src"]
    assert policy["default-src"] == "'self'"
    assert policy["connect-src"] == "'self'"
    assert policy["object-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert "http" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize("path", PATHS)
def test_a_hostile_address_stays_text(
    signed_in: Visit, dashboard: DashboardProcess, feed: Feed, path: str
) -> None:
    assert feed.nodes
    page = signed_in.page
    for query in QUERIES:
        page.goto(
            f"{dashboard.url}{path}?cluster=simulated&node=sim-002&{query}=%3Cimg%20src%3Dx%20onerror%3D%27hit%3D1%27%3E"
        )
        wait_until_drawn(page)
        assert page.evaluate("typeof hit") == "undefined", query
        assert page.locator("img[src='x']").count() == 0, query
        assert signed_in.complaints == [], query


@pytest.mark.parametrize("path", LAYOUTS)
def test_every_page_can_be_used_by_everybody(
    signed_in: Visit, dashboard: DashboardProcess, shown: Shown, path: str
) -> None:
    page = signed_in.page
    schemes: tuple[Literal["dark", "light"], ...] = ("dark", "light")
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)
        page.goto(dashboard.url + shown.address(path))
        wait_until_drawn(page)
        page.wait_for_timeout(1000)
        assert violations(page) == [], scheme


def upgrade(dashboard: DashboardProcess, session: Path, host: str, origin: str) -> int:
    """The status of a WebSocket's upgrade with a valid session: 101 when it is let in."""
    server = urlsplit(dashboard.url)
    cookies = json.loads(session.read_text(encoding="utf-8"))["cookies"]
    headers = {
        "Host": f"{host}:{server.port}",
        "Origin": origin.format(port=server.port),
        "Cookie": "; ".join(f"{one['name']}={one['value']}" for one in cookies),
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(),
    }
    connection = HTTPConnection(server.netloc, timeout=10)
    try:
        connection.request("GET", "/_stcore/stream", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_session_comes_in_from_our_own_pages_alone(
    dashboard: DashboardProcess, session: Path
) -> None:
    ours = "http://127.0.0.1:{port}"
    assert upgrade(dashboard, session, "127.0.0.1", ours) == 101
    assert upgrade(dashboard, session, "127.0.0.1", "http://evil.example") == 403
    assert upgrade(dashboard, session, "127.0.0.1", "http://127.0.0.1.evil.example:{port}") == 403
    assert upgrade(dashboard, session, "evil.example", "http://evil.example:{port}") == 403
    assert upgrade(dashboard, session, "evil.example", ours) == 403
