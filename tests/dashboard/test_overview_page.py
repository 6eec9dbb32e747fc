"""The page as Streamlit runs it, on a real hub."""

import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.data import live
from dashboard.data.questions import QueryCache
from dashboard.data.snapshot import Snapshot
from dashboard.model.cluster import DisplayState
from gpuvigil.clock import SystemClock
from gpuvigil.config import AnalyzerSettings, Config
from gpuvigil.model import Severity
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess, QuickHub

from .scene import allocation, gpu, incident, inventory, node
from .servers import GPUS, NODES, Feed

SCRIPT = ROOT / "dashboard" / "app.py"
NO_ANSWER = "No answer from the hub"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with QuickHub(tmp_path / "hub") as process:
        yield process


@pytest.fixture
def snapshot(hub: HubProcess) -> Iterator[Snapshot]:
    shared = install(hub)
    shared.start()
    yield shared
    shared.stop()
    live.shared().questions.close()


def install(hub: HubProcess) -> Snapshot:
    settings = AnalyzerSettings(silent_after_seconds=5.0)
    snapshot = Snapshot(hub.hub, SystemClock(), settings, 0.2)
    questions = QueryCache(hub.hub, SystemClock())
    live.install(live.Shared(snapshot=snapshot, questions=questions, config=Config()))
    return snapshot


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


def all_known(snapshot: Snapshot) -> bool:
    """Whether every fed GPU is on the page with a state."""
    return any(one.strip.known == NODES * GPUS for one in snapshot.view().clusters)


def said(snapshot: Snapshot) -> str:
    return " ".join(snapshot.view().warnings)


@pytest.mark.server
def test_the_page_shows_the_fleet_marked_as_simulated_and_this_machine_beside_it(
    hub: HubProcess, snapshot: Snapshot
) -> None:
    with Feed(hub):
        wait_until("data", lambda: all_known(snapshot))
        test = page()
    text = html(test)
    assert "SIMULATED: no real hardware" in text
    assert f"{NODES} nodes · {NODES * GPUS} GPUs" in text
    assert "1 node, 0 GPUs (no driver)" in text
    assert "never connected" in text
    assert "10 Gb/s" in text
    assert "gv-banner" not in text
    assert set(components(test)) == {"gpuvigil.fleet_map", "gpuvigil.shell", "gpuvigil.try_this"}


@pytest.mark.server
def test_clusters_are_shown_one_at_a_time_and_never_summed(
    hub: HubProcess, snapshot: Snapshot
) -> None:
    with Feed(hub) as feed:
        record = inventory(node("r1", "real"), gpus=3, at=SystemClock().now()).to_record()
        feed.hub.write_records([record])
        wait_until("both clusters", lambda: len(snapshot.view().clusters) == 3)
        real, simulated = page(), page(cluster="simulated")
    assert "Cluster real" in html(real)
    assert "1 node · 3 GPUs" in html(real)
    assert "SIMULATED" not in html(real)
    assert list(real.segmented_control[0].options) == ["real", "simulated"]
    assert f"{NODES} nodes · {NODES * GPUS} GPUs" in html(simulated)
    assert simulated.segmented_control[0].value == "simulated"


@pytest.mark.server
def test_what_a_link_names_and_is_not_known_is_said(hub: HubProcess, snapshot: Snapshot) -> None:
    with Feed(hub):
        wait_until("data", lambda: all_known(snapshot))
        unknown = html(page(node="sim-002", gpu="99"))
    assert "The link&#x27;s GPU &#x27;99&#x27; is not known on node sim-002." in unknown


@pytest.mark.server
def test_who_asked_for_no_page_is_told_that_this_is_the_overview(
    hub: HubProcess, snapshot: Snapshot
) -> None:
    with Feed(hub):
        wait_until("the picture is whole", lambda: all_known(snapshot))
        assert "There is no page /nosuchpage; this is the overview." in html(
            page(astray="/nosuchpage")
        )


@pytest.mark.server
def test_an_incident_comes_and_goes(hub: HubProcess, snapshot: Snapshot) -> None:
    one = incident("gpu_lost", gpu(5), Severity.CRITICAL)
    with Feed(hub) as feed:
        wait_until("data", lambda: all_known(snapshot))
        feed.hub.write_records([one.to_record()])
        wait_until("the incident", lambda: snapshot.view().attention, 3)
        shown = components(page())["gpuvigil.attention"].json
        assert f"/incidents?incident={one.id}" in shown
        ended = replace(one, state="resolved", version=2, resolved_at=SystemClock().now())
        feed.hub.write_records([ended.to_record()])
        wait_until("its end", lambda: not snapshot.view().attention, 3)
        assert "gpuvigil.attention" not in components(page())


@pytest.mark.server
def test_a_job_that_starts_is_a_line_of_what_changed(hub: HubProcess, snapshot: Snapshot) -> None:
    with Feed(hub) as feed:
        wait_until("data", lambda: all_known(snapshot))
        now = SystemClock().now()
        held = [
            replace(allocation(gpu(i, node(f"sim-00{n}")), "job 7", "<ann>"), started_at=now)
            for n in (1, 2)
            for i in range(GPUS)
        ]
        feed.hub.write_records(one.to_record() for one in held)
        line = "job 7 of &lt;ann&gt; started, 16 GPUs on 2 nodes"
        wait_until("the job", lambda: line in html(page()), 10)


@pytest.mark.server
def test_a_wall_has_nothing_to_click_and_says_from_when_its_data_are(
    hub: HubProcess, snapshot: Snapshot
) -> None:
    with Feed(hub) as feed:
        wait_until("data", lambda: all_known(snapshot))
        record = inventory(node("r1", "real"), gpus=3, at=SystemClock().now()).to_record()
        feed.hub.write_records([record])
        wait_until("both clusters", lambda: len(snapshot.view().clusters) == 3)
        wall = page(cluster="simulated", wall="1", metric="power")
        desk = page(cluster="simulated")
    assert "data of " in html(wall)
    assert "Network ports" in html(desk)
    assert "Network ports" not in html(wall)
    assert not wall.segmented_control
    assert '"wall": true' in components(wall)["gpuvigil.shell"].json
    assert '"theme": "dark"' in components(wall)["gpuvigil.shell"].json


@pytest.mark.server
def test_a_hub_that_goes_away_is_said_and_the_last_picture_stays(
    hub: HubProcess, snapshot: Snapshot
) -> None:
    with Feed(hub):
        wait_until("data", lambda: all_known(snapshot))
    hub.stop()
    wait_until("the trouble", lambda: NO_ANSWER in said(snapshot), 5)
    text = html(page())
    assert NO_ANSWER in text
    assert f"{NODES * GPUS} GPUs" in text
    hub.start()
    wait_until("the hub again", lambda: NO_ANSWER not in said(snapshot), 10)


@pytest.mark.server
def test_a_hub_that_hangs_is_said_while_its_answer_is_awaited_and_holds_up_no_page(
    hub: HubProcess, snapshot: Snapshot
) -> None:
    with Feed(hub):
        wait_until("data", lambda: all_known(snapshot))
    assert hub.process is not None
    os.kill(hub.process.pid, signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        wait_until("the trouble", lambda: NO_ANSWER in said(snapshot), 8)
        assert re.search(rf"{NO_ANSWER} for [3-9] s, since \d\d:\d\d:\d\d UTC", said(snapshot))
        began = time.monotonic()
        assert f"{NODES * GPUS} GPUs" in html(page())
        assert time.monotonic() - began < 5
        wait_until("the count to go on", lambda: " for 9 s" in said(snapshot), 8)
        assert time.monotonic() - stopped < 11
    finally:
        os.kill(hub.process.pid, signal.SIGCONT)
    wait_until("the hub again", lambda: NO_ANSWER not in said(snapshot), 15)


@pytest.mark.server
def test_after_the_hub_was_away_the_old_picture_stays_until_its_nodes_are_heard_again(
    hub: HubProcess, snapshot: Snapshot
) -> None:
    def seen() -> tuple[bool, int]:
        """Whether data catch up, and how many GPUs are unknown; from one view."""
        view = snapshot.view()
        (cluster,) = [one for one in view.clusters if one.name == "simulated"]
        return "catching up" in " ".join(view.warnings), cluster.strip.looks[DisplayState.UNKNOWN]

    with Feed(hub):
        wait_until("data", lambda: all_known(snapshot))
    wait_until("all is known", lambda: seen() == (False, 0))
    hub.stop()
    wait_until("the trouble", lambda: NO_ANSWER in said(snapshot), 5)
    time.sleep(6)  # longer than nodes may be silent here
    hub.start()
    wait_until("catching up", lambda: seen()[0], 10)
    assert seen() == (True, 0)
    with Feed(hub):
        wait_until("the end of it", lambda: not seen()[0], 10)
        assert seen() == (False, 0)


@pytest.mark.medium
def test_before_the_hub_ever_answered_the_page_says_so(tmp_path: Path) -> None:
    hub = QuickHub(tmp_path / "never")
    hub.url = "http://127.0.0.1:9"
    shared = install(hub)
    shared.start()
    text = html(page())
    shared.stop()
    live.shared().questions.close()
    assert NO_ANSWER in text
    assert "no data yet" in text
