"""The page as Streamlit runs it, on a real hub."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import live
from dashboard.snapshot import Snapshot
from gpuvigil.clock import SystemClock
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Severity
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess

from .scene import gpu, incident, inventory, node
from .servers import GPUS, NODES, Feed

SCRIPT = ROOT / "dashboard" / "app.py"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "hub") as process:
        yield process


@pytest.fixture
def snapshot(hub: HubProcess) -> Iterator[Snapshot]:
    shared = Snapshot(hub.hub, SystemClock(), AnalyzerSettings(), 0.2)
    live.install(shared)
    shared.start()
    yield shared
    shared.stop()


def page(**query: str) -> AppTest:
    test = AppTest.from_file(str(SCRIPT), default_timeout=20)
    for name, value in query.items():
        test.query_params[name] = value
    test.run()
    assert not test.exception
    return test


def html(test: AppTest) -> str:
    bodies = [element.proto.body for element in test.get("html")]
    return "".join(body for body in bodies if not body.startswith("<style"))


def components(test: AppTest) -> dict[str, Any]:
    return {one.proto.component_name: one.proto for one in test.get("bidi_component")}


def said(snapshot: Snapshot) -> str:
    return " ".join(snapshot.view().warnings)


@pytest.mark.server
def test_the_page_shows_the_fleet_marked_as_simulated_and_this_machine_beside_it(
    hub: HubProcess, snapshot: Snapshot
) -> None:
    with Feed(hub):
        wait_until("data", lambda: snapshot.view().rows_at)
        test = page()
    text = html(test)
    assert "SIMULATED: no real hardware" in text
    assert f"{NODES} nodes · {NODES * GPUS} GPUs" in text
    assert "1 node, 0 GPUs (no driver)" in text
    assert "never connected" in text
    assert "10 Gb/s" in text
    assert "gv-banner" not in text
    assert set(components(test)) == {"gpuvigil.fleet_map"}


@pytest.mark.server
def test_clusters_are_shown_one_at_a_time_and_never_summed(
    hub: HubProcess, snapshot: Snapshot
) -> None:
    with Feed(hub) as feed:
        record = inventory(node("r1", "real"), gpus=3, at=SystemClock().now()).to_record()
        feed.hub.write_records([record])
        wait_until("both clusters", lambda: len(snapshot.view().clusters) == 3)
        real, simulated = page(), page(cluster="simulated")
    assert "cluster real" in html(real)
    assert "1 node · 3 GPUs" in html(real)
    assert "SIMULATED" not in html(real)
    assert list(real.segmented_control[0].options) == ["real", "simulated"]
    assert f"{NODES} nodes · {NODES * GPUS} GPUs" in html(simulated)
    assert simulated.segmented_control[0].value == "simulated"


@pytest.mark.server
def test_a_link_opens_a_gpu_with_every_number(hub: HubProcess, snapshot: Snapshot) -> None:
    with Feed(hub):
        wait_until("data", lambda: snapshot.view().rows_at)
        text = html(page(node="sim-002", gpu="3"))
        unknown = html(page(node="sim-002", gpu="99"))
    assert "sim-002 · GPU 3" in text
    assert "1,980 MHz" in text
    assert "not measured" in text
    assert "gv-details" not in unknown


@pytest.mark.server
def test_an_incident_comes_and_goes(hub: HubProcess, snapshot: Snapshot) -> None:
    one = incident("gpu_lost", gpu(5), Severity.CRITICAL)
    with Feed(hub) as feed:
        wait_until("data", lambda: snapshot.view().rows_at)
        feed.hub.write_records([one.to_record()])
        wait_until("the incident", lambda: snapshot.view().attention, 3)
        shown = components(page(incident=one.id))["gpuvigil.attention"].json
        assert one.id in shown
        assert '"opened": "' + one.id in shown
        feed.hub.write_records([replace(one, state="resolved", version=2).to_record()])
        wait_until("its end", lambda: not snapshot.view().attention, 3)


@pytest.mark.server
def test_a_hub_that_goes_away_is_said_and_the_last_picture_stays(
    hub: HubProcess, snapshot: Snapshot
) -> None:
    with Feed(hub):
        wait_until("data", lambda: snapshot.view().rows_at)
    hub.stop()
    wait_until("the trouble", lambda: "No connection" in said(snapshot), 5)
    text = html(page())
    assert "No connection to the hub" in text
    assert f"{NODES * GPUS} GPUs" in text
    hub.start()
    wait_until("the hub again", lambda: "No connection" not in said(snapshot), 10)


def test_before_the_hub_ever_answered_the_page_says_so(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path / "never")
    hub.url = "http://127.0.0.1:9"
    shared = Snapshot(hub.hub, SystemClock(), AnalyzerSettings(), 0.2)
    live.install(shared)
    shared.start()
    text = html(page())
    shared.stop()
    assert "No connection to the hub" in text
    assert "no data yet" in text
