"""`gpuvigil up` as an operator wants it: one of it, nothing wide open, nothing left behind."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cli.up.readiness import are_our_pages
from dashboard.auth.keys import Keys
from gpuvigil.clock import SystemClock
from gpuvigil.config import load, read_secret
from gpuvigil.errors import GpuvigilError
from gpuvigil.hub_client import Hub
from gpuvigil.model import Allocation, GpuIdentity, Inventory, RecordKind
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until
from tests.product import Product, clean_environment

pytestmark = pytest.mark.server

FREE_PORTS = """
[hub]
port = 0
[dashboard]
port = 0
[collector]
metrics_port = 0
"""
UP = [sys.executable, "-P", "-m", "gpuvigil", "up"]


def config_in(folder: Path, text: str = FREE_PORTS) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def product(folder: Path, text: str = FREE_PORTS) -> Product:
    return Product(
        [*UP, "--config", str(config_in(folder, text)), "--simulate", "2"], folder, folder
    )


def processes_of(state: Path) -> dict[int, str]:
    """Command lines of the processes that speak of the state directory, `up` and helpers too."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            environment = (entry / "environ").read_bytes().split(b"\0")
        except (OSError, UnicodeDecodeError):
            continue
        ours = f"XDG_STATE_HOME={state.parent}".encode() in environment
        if ours or str(state) in command:
            found[int(entry.name)] = command
    return {pid: command for pid, command in found.items() if command}


def service(state: Path, name: str) -> int | None:
    """The process id of a service."""
    wanted = f" gpuvigil {name} --config {state}"
    return next((pid for pid, line in processes_of(state).items() if wanted in line), None)


@contextmanager
def hub_of(state: Path) -> Iterator[Hub]:
    settings = load(state / "gpuvigil.toml").hub
    assert settings.service_token_file is not None
    token = read_secret(settings.service_token_file, "service token")
    hub = Hub(settings.url, lambda: token)
    try:
        yield hub
    finally:
        hub.close()


def simulated_nodes(state: Path) -> set[str]:
    try:
        with hub_of(state) as hub:
            nodes = hub.status()["nodes"]
    except (GpuvigilError, OSError):
        return set()
    return {node["node"] for node in nodes if node["cluster"] == "simulated"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with product(tmp_path_factory.mktemp("up"), f"{FREE_PORTS}[[reports]]\n") as up:
        wait_until("simulated nodes", lambda: len(simulated_nodes(up.state)) == 2, 30.0)
        yield up


def test_the_simulated_cluster_reaches_the_hub_with_its_jobs(running: Product) -> None:
    with hub_of(running.state) as hub:
        held = [Allocation.from_record(one) for one in hub.records(RecordKind.ALLOCATION)]
        refused = hub.status()["refused_lines"]
    simulated = [allocation for allocation in held if allocation.subject.simulated]
    assert any(str(a.holder) == "job 1042" and a.user == "alice" for a in simulated)
    assert refused == 0


def test_it_makes_the_reports_that_come_by_themselves(running: Product) -> None:
    with hub_of(running.state) as hub:
        # The last one that was due, of which a new report only takes note.
        wait_until("its schedule", lambda: hub.records(RecordKind.REPORT), 90.0)
    assert service(running.state, "report schedule") is not None
    assert (running.state / "log" / "report-schedule.log").exists()


def inject(state: Path, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "gpuvigil", "inject", *words],
        env={**clean_environment(), "XDG_STATE_HOME": str(state.parent)},
        check=True,
        capture_output=True,
    )


def test_an_injected_fault_and_its_cure_reach_the_hub(running: Product) -> None:
    place = ("xid79", "--node", "sim-001", "--gpu", "5")
    inject(running.state, *place)
    wait_until("xid and loss", lambda: {"xid", "gpu_lost"} <= told_of(running.state, "sim-001"))
    inject(running.state, *place, "--clear")
    wait_until("the cure", lambda: {"gpu_back", "gpu_reset"} <= told_of(running.state, "sim-001"))


def told_of(state: Path, node: str) -> set[str]:
    """What simulated events the hub has of a node."""
    with hub_of(state) as hub:
        events = hub.records(RecordKind.EVENT, subject=f"simulated/{node}")
    return {event.body["event"] for event in events}


def test_a_second_one_is_refused_in_one_line(running: Product, tmp_path: Path) -> None:
    environment = {**clean_environment(), "XDG_STATE_HOME": str(running.state.parent)}
    second = subprocess.run(
        [*UP, "--config", str(config_in(tmp_path))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (second.returncode, second.stdout) == (1, "")
    (line,) = second.stderr.splitlines()
    assert f"process {running.process.pid}" in line


def test_nobody_else_may_read_what_it_keeps(running: Product) -> None:
    for path in [running.state, *running.state.rglob("*")]:
        try:
            mode = stat.S_IMODE(path.lstat().st_mode)
        except FileNotFoundError:  # a body that was sent meanwhile
            continue
        assert mode & 0o077 == 0, f"{path} has mode {mode:o}"


def test_it_listens_on_loopback_only(running: Product) -> None:
    inodes = {
        os.readlink(f"/proc/{pid}/fd/{fd}")
        for pid in processes_of(running.state)
        for fd in descriptors(pid)
    }
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()
    ]
    listening = [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
    assert listening
    assert {row[1].partition(":")[0] for row in listening} <= {"0100007F"}


def descriptors(pid: int) -> list[str]:
    """Open sockets of a process."""
    folder = f"/proc/{pid}/fd"
    try:
        return [fd for fd in os.listdir(folder) if os.readlink(f"{folder}/{fd}")[:7] == "socket:"]
    except OSError:
        return []


def test_only_the_dashboard_with_its_own_secrets_is_its_dashboard(
    running: Product, tmp_path: Path
) -> None:
    url, now = running.url(), SystemClock().now()
    assert are_our_pages(url, running.state / "secrets", now)
    assert not are_our_pages(url, tmp_path, now)  # one that has not started yet
    Keys(tmp_path)
    assert not are_our_pages(url, tmp_path, now)


def test_a_killed_hub_comes_back_and_takes_what_was_kept(running: Product) -> None:
    before = service(running.state, "hub")
    assert before is not None
    os.kill(before, signal.SIGKILL)
    wait_until("the line about it", lambda: "hub was ended by SIGKILL" in running.output)
    wait_until("another hub", lambda: service(running.state, "hub") not in {None, before})
    wait_until("its nodes", lambda: len(simulated_nodes(running.state)) == 2, 30.0)


def test_one_ctrl_c_ends_everything_in_time(tmp_path: Path) -> None:
    with product(tmp_path) as up:
        wait_until("simulated nodes", lambda: len(simulated_nodes(up.state)) == 2, 30.0)
        began = time.monotonic()
        assert up.stop() == 0
        assert time.monotonic() - began < 15
    assert processes_of(up.state) == {}
    assert up.lines[-1] == "stopped"


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    with product(tmp_path) as up:
        wait_until("the collector's process", lambda: service(up.state, "simulate"), 30.0)
        simulator = service(up.state, "simulate")
        assert simulator is not None
        os.kill(simulator, signal.SIGSTOP)  # it cannot stop by itself
        os.kill(up.process.pid, signal.SIGINT)
        wait_until("the first request", lambda: any("stopping" in line for line in up.lines))
        began = time.monotonic()
        wait_until("its end", lambda: pressed(up), 10.0)
        assert time.monotonic() - began < 3
        assert up.process.returncode == 0
    assert processes_of(up.state) == {}


def pressed(up: Product) -> bool:
    """Ctrl-C once more; true when it has ended."""
    if up.process.poll() is None:
        up.process.send_signal(signal.SIGINT)
    return up.process.poll() is not None


def test_nothing_is_left_when_it_is_killed(tmp_path: Path) -> None:
    with product(tmp_path) as up:
        wait_until("simulated nodes", lambda: len(simulated_nodes(up.state)) == 2, 30.0)
        assert len(processes_of(up.state)) > 3
        up.process.kill()
        up.process.wait()
        wait_until("the end of all", lambda: not processes_of(up.state), 10.0)


def test_it_starts_again_after_it_was_killed_and_goes_on_with_the_same_cluster(
    tmp_path: Path,
) -> None:
    with product(tmp_path) as up:
        wait_until("simulated nodes", lambda: len(simulated_nodes(up.state)) == 2, 30.0)
        up.process.kill()
        up.process.wait()
    story = json.loads((up.state / "simulator/spool/story.json").read_text())
    with product(tmp_path) as again:
        wait_until("simulated nodes", lambda: len(simulated_nodes(again.state)) == 2, 30.0)
    after = json.loads((again.state / "simulator/spool/story.json").read_text())
    assert after["origin"] == story["origin"]


def test_with_a_driver_it_shows_this_machines_gpus_and_simulates_nothing(
    tmp_path: Path, library: Path
) -> None:
    driver = FakeDriver(tmp_path / "driver", library)
    command = [*UP, "--config", str(config_in(tmp_path))]
    with Product(command, tmp_path, tmp_path, driver.environment()) as up:
        gpus = wait_until("its GPUs", lambda: inventoried_gpus(up.state), 30.0)
        assert len(gpus) == 8
        assert "simulated" not in up.output
        assert service(up.state, "simulate") is None


def inventoried_gpus(state: Path) -> tuple[GpuIdentity, ...]:
    try:
        with hub_of(state) as hub:
            nodes = [Inventory.from_record(one) for one in hub.records(RecordKind.INVENTORY)]
    except (GpuvigilError, OSError):
        return ()
    return tuple(gpu for node in nodes for gpu in node.gpus)


def test_taken_ports_give_way_and_it_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = FREE_PORTS.replace("[dashboard]\nport = 0", f"[dashboard]\nport = {port}")
        with product(tmp_path, text) as up:
            wait_until("the line about it", lambda: f"Port {port} is taken" in up.output)
            assert load(up.state / "gpuvigil.toml").dashboard.port != port


def test_some_that_start_at_once_all_find_ports_of_their_own(tmp_path: Path) -> None:
    wanted = "[hub]\nport = 28428\n[dashboard]\nport = 28501\n[collector]\nmetrics_port = 29431\n"
    with ExitStack() as stack:
        folders = [tmp_path / str(number) for number in range(3)]
        for folder in folders:
            folder.mkdir()
        running = [stack.enter_context(product(folder, wanted)) for folder in folders]
        addresses = {urlsplit(one.url()).port for one in running}
        assert len(addresses) == 3
        for one in running:
            wait_until("simulated nodes", partial(simulated_nodes, one.state), 90.0)


def test_a_wrong_configuration_is_one_line_and_nothing_starts(tmp_path: Path) -> None:
    with product(tmp_path, "[hub]\nprot = 1\n") as up:
        assert up.process.wait(20) == 2
    (line,) = up.lines
    assert "unknown key" in line
    assert processes_of(up.state) == {}


@pytest.mark.parametrize(
    ("channels", "words"),
    [
        ('[[alerts.webhooks]]\nname = "ops"\nurl_file = "/nowhere"\n', "/nowhere"),
        (2 * '[[alerts.webhooks]]\nname = "ops"\nurl = "http://127.0.0.1:9/"\n', "ops"),
    ],
    ids=["unreadable secret", "same name twice"],
)
def test_a_channel_that_cannot_work_is_one_line_and_ends_it(
    tmp_path: Path, channels: str, words: str
) -> None:
    with product(tmp_path, FREE_PORTS + channels) as up:
        assert up.process.wait(30) == 2, up.output
    assert [line for line in up.lines if "gpuvigil alert:" in line and words in line], up.output
    assert not [line for line in up.lines if "starts again" in line]
    assert processes_of(up.state) == {}


def test_the_address_is_printed_once_the_pages_answer_and_a_restart_takes_under_ten_seconds(
    tmp_path: Path,
) -> None:
    for attempt in ("first start", "restart"):
        with product(tmp_path) as up:
            url = up.url()
            place = urlsplit(url)
            with socket.create_connection((place.hostname, place.port), timeout=2):
                pass
            wait_until("its steps", (up.state / "startup.json").exists)
            steps = json.loads((up.state / "startup.json").read_text())
            assert "Ready in " in up.output
            assert {"hub", "dashboard"} <= set(steps["ready"])
            if attempt == "restart":
                assert up.seconds_to_url < 10
