"""What `up` decides before it starts anything."""

import json
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.up import machine
from cli.up.children import LOG_BYTES, Child, Hurry, delay_seconds, failures_after
from cli.up.directory import AlreadyRunning, StateDirectory
from cli.up.plan import Asked, prepare
from cli.up.readiness import Startup
from cli.up.settings import Ports, address, choices, effective, given, to_toml, without_settings
from cli.up.terminal_text import banner, where
from gpuvigil.config import Config, load
from gpuvigil.errors import ConfigError
from gpuvigil.hub_client import local_todo
from gpuvigil.state_directory import (
    SERVICE_UNIT,
    config_of_up,
    is_run_by_systemd,
    state_directory,
)
from tests.polling import wait_until

PORTS = Ports(hub=8428, dashboard=8501, metrics=9431)
LOOPBACK = ("127.0.0.1", "127.0.0.1")


def written(
    tmp_path: Path, user: str = "", ports: Ports = PORTS, nodes: int = 16, **variables: str
) -> Config:
    """The configuration that the children read for what the user has set."""
    source = tmp_path / "user" / "mine.toml"
    source.parent.mkdir(exist_ok=True)
    source.write_text(user)
    state = tmp_path / "state"
    asked = given(source, variables)
    tree = effective(asked, choices(state, ports, nodes, LOOPBACK), ports, nodes)
    target = tmp_path / "gpuvigil.toml"
    target.write_text(to_toml(tree))
    return load(target, {})


def test_without_a_word_from_the_user_everything_lies_in_the_state_directory(
    tmp_path: Path,
) -> None:
    config, state = written(tmp_path), tmp_path / "state"
    paths = [
        config.hub.data_directory,
        config.hub.collector_token_file,
        config.hub.service_token_file,
        config.collector.spool_directory,
        config.simulator.faults_file,
        config.simulator.spool_directory,
        config.dashboard.secrets_directory,
    ]
    assert all(path is not None and path.is_relative_to(state) for path in paths)
    assert (config.hub.listen, config.dashboard.listen) == LOOPBACK


def test_reports_that_come_by_themselves_stay_as_the_user_has_them(tmp_path: Path) -> None:
    text = """
[[reports]]
name = "weekly"
channel = "email"
to = ["vp@x.org", "lead@x.org"]
[[reports]]
name = "vision"
team = "vision"
"""
    weekly, vision = written(tmp_path, text).reports
    assert (weekly.to, weekly.cron) == (("vp@x.org", "lead@x.org"), "0 7 * * 1")
    assert (vision.name, vision.team) == ("vision", "vision")


@pytest.mark.parametrize(
    ("key", "said"), [('to = ["a@x.org"]', "to needs the e-mail channel"), ("days = 0", "days")]
)
def test_what_is_wrong_with_a_report_is_said(tmp_path: Path, key: str, said: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(f"[[reports]]\n{key}\n")
    with pytest.raises(ConfigError, match=said):
        load(file, {})


def test_on_one_machine_everything_ticks_every_second(tmp_path: Path) -> None:
    config = written(tmp_path)
    ticks = (config.collector, config.analyzer, config.simulator)
    assert [section.tick_seconds for section in ticks] == [1.0, 1.0, 1.0]
    assert config.dashboard.refresh_seconds == 1.0


def test_what_the_user_sets_is_kept(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        '[collector]\ntick_seconds = 5\nspool_directory = "here"\n[log]\nlevel = "debug"\n',
        GPUVIGIL_ANALYZER_TICK_SECONDS="3",
    )
    assert (config.collector.tick_seconds, config.analyzer.tick_seconds) == (5.0, 3.0)
    assert config.log.level == "debug"
    assert config.simulator.tick_seconds == 1.0


def test_a_users_path_stays_relative_to_the_users_file(tmp_path: Path) -> None:
    config = written(tmp_path, '[collector]\nspool_directory = "here"\n')
    assert config.collector.spool_directory == tmp_path / "user" / "here"


def test_webhooks_reach_the_children_whole(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        '[[alerts.webhooks]]\nname = "a \\"b\\" \\u007f é"\nurl_file = "secret"\n'
        '[[alerts.webhooks]]\nurl = "http://127.0.0.1:9/x"\nsend_resolved = false\n',
    )
    first, second = config.alerts.webhooks
    assert (first.name, first.url_file) == ('a "b" \x7f é', tmp_path / "user" / "secret")
    assert (second.url, second.send_resolved) == ("http://127.0.0.1:9/x", False)


def test_a_setting_by_another_number_or_an_older_name_is_as_good(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        '[[alerts.webhook]]\nurl = "http://127.0.0.1:9/x"\n[actions]\nresume_after_seconds = 60\n',
    )
    assert [it.url for it in config.alerts.webhooks] == ["http://127.0.0.1:9/x"]


def test_ports_that_are_really_used_reach_everybody(tmp_path: Path) -> None:
    moved = Ports(hub=8429, dashboard=8503, metrics=9432)
    config = written(tmp_path, "[dashboard]\nport = 8501\n", moved)
    assert (config.hub.port, config.hub.url) == (8429, "http://127.0.0.1:8429")
    assert config.dashboard.port == 8503
    assert config.alerts.external_url == "http://127.0.0.1:8503"
    assert config.collector.metrics_port == 9432


def test_variables_that_are_settings_do_not_reach_the_children_twice() -> None:
    environment = {"GPUVIGIL_HUB_PORT": "1", "GPUVIGIL_PARENT": "2", "HOME": "/"}
    assert without_settings(environment) == {"GPUVIGIL_PARENT": "2", "HOME": "/"}


def test_a_wrong_setting_is_one_line_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown key"):
        written(tmp_path, "[hub]\nprot = 1\n")


def test_an_address_is_one_that_this_machine_can_open() -> None:
    assert address("0.0.0.0", 80) == "http://127.0.0.1:80"
    assert address("::", 80) == address("::1", 80) == "http://[::1]:80"


def test_a_taken_port_gives_way_to_the_next_free_one() -> None:
    def choose(wanted: int, taken: tuple[int, ...] = ()) -> int:
        return machine.choose_port(wanted, taken, lambda port: port >= 8430, lambda: 40000)

    assert [choose(8428), choose(8431), choose(8430, (8430,))] == [8430, 8431, 8431]
    assert choose(0) == 40000
    assert machine.choose_port(8428, (), lambda _: False, lambda: 40000) == 40000


def test_a_port_with_a_listener_is_not_free() -> None:
    port = machine.any_free("127.0.0.1")
    assert machine.is_free("127.0.0.1", port)
    with socket.create_server(("127.0.0.1", port)):
        assert not machine.is_free("127.0.0.1", port)


def test_an_address_that_is_not_this_machines_is_a_wrong_configuration() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on '192\.0\.2\.1'"):
        machine.any_free("192.0.2.1")  # set aside for documentation, RFC 5737


def test_no_driver_is_found_where_there_is_none(tmp_path: Path) -> None:
    assert machine.driver(tmp_path, {}) is None
    assert machine.driver(tmp_path, {"LD_LIBRARY_PATH": f"{tmp_path}:"}) is None


def test_the_driver_is_described_by_its_files(tmp_path: Path) -> None:
    proc = tmp_path / "proc/driver/nvidia"
    for number in range(2):
        gpu = proc / "gpus" / f"0000:{number:02}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 16\n")
    (proc / "version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\n"
    )
    found = machine.driver(tmp_path, {})
    assert found is not None
    assert found.text == "2 x NVIDIA H100 80GB HBM3, driver 580.95.05"


def test_a_library_on_the_search_path_counts_as_a_driver(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").touch()
    found = machine.driver(tmp_path / "nowhere", {"LD_LIBRARY_PATH": f"/x:{tmp_path}"})
    assert found is not None
    assert "libnvidia-ml.so.1" in found.text


def test_the_first_lines_say_whose_gpus_these_are() -> None:
    real = machine.Driver(version="580.95.05", gpus=("NVIDIA H100",) * 8)
    assert banner(None, 16, 8).endswith(
        "No NVIDIA driver here: showing a simulated cluster (16 nodes x 8 GPUs),"
        " marked as simulated."
    )
    assert banner(real, 0, 8).endswith("\n8 x NVIDIA H100, driver 580.95.05.")
    assert "beside a simulated cluster (1 node x 8 GPUs), marked" in banner(real, 1, 8)
    assert "network ports" in banner(None, 0, 8)
    assert "what Prometheus has" in banner(real, 0, 8, from_prometheus=True)


def test_every_command_that_is_shown_works_for_another_state_directory(tmp_path: Path) -> None:
    shown = where("http://127.0.0.1:1/?token=x", tmp_path / "a b", "gpuvigil", (3, 5))
    assert f"inject xid79 --node sim-003 --gpu 5 --config '{tmp_path}/a b/gpuvigil.toml'" in shown
    assert "--config" not in where("http://x", state_directory(), "gpuvigil", (3, 5))
    assert "inject" not in where("http://x", tmp_path, "gpuvigil", None)


def test_each_end_in_a_row_waits_twice_as_long_up_to_half_a_minute() -> None:
    assert [delay_seconds(n) for n in (1, 2, 3, 4, 5, 6, 60)] == [1, 2, 4, 8, 16, 30, 30]


def test_a_service_that_was_well_for_a_minute_begins_anew() -> None:
    assert (failures_after(5, 59.9), failures_after(5, 60.0)) == (6, 1)


def test_the_state_directory_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    state = StateDirectory(tmp_path / "state")
    modes = {
        path: stat.S_IMODE(path.stat().st_mode) for path in [state.path, *state.path.rglob("*")]
    }
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items())
    state.release()


def test_tokens_are_made_once(tmp_path: Path) -> None:
    def tokens() -> list[str]:
        StateDirectory(tmp_path).release()
        return [(tmp_path / "secrets" / f"{n}-token").read_text() for n in ("collector", "service")]

    first = tokens()
    assert tokens() == first
    assert len({*first}) == 2
    assert all(len(token) > 40 for token in first)


def test_a_second_one_is_told_who_has_the_directory(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    with pytest.raises(AlreadyRunning, match="still starting"):
        StateDirectory(tmp_path)
    state.write_note("http://127.0.0.1:8501")
    with pytest.raises(AlreadyRunning, match=rf"process {os.getpid()} \(pages at http://127"):
        StateDirectory(tmp_path)
    state.release()
    StateDirectory(tmp_path).release()


def test_a_directory_that_cannot_be_made_is_a_wrong_configuration(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="--state"):
        StateDirectory(tmp_path / "file")


def test_the_state_directory_follows_the_xdg_rules() -> None:
    assert state_directory({"XDG_STATE_HOME": "/x"}) == Path("/x/gpuvigil")
    assert state_directory({"XDG_STATE_HOME": "relative"}) == Path.home() / ".local/state/gpuvigil"
    assert config_of_up(Path("mine.toml"), {}) == Path("mine.toml")
    in_a_container = {"GPUVIGIL_HUB_URL": "http://hub:8428", "XDG_STATE_HOME": "/nowhere"}
    assert config_of_up(None, in_a_container) is None


def test_where_units_start_the_services_nobody_is_sent_to_up(tmp_path: Path) -> None:
    site, units, home = tmp_path / "site.toml", [tmp_path], {"XDG_STATE_HOME": str(tmp_path)}
    with pytest.raises(ConfigError, match="start 'gpuvigil up' first"):
        config_of_up(None, home, site, units)
    (tmp_path / SERVICE_UNIT).touch()
    with pytest.raises(ConfigError, match=r"no .*site\.toml: run 'gpuvigil server init' first"):
        config_of_up(None, home, site, units)
    assert not is_run_by_systemd(home, site, units)
    site.touch()
    assert is_run_by_systemd(home, site, units)
    assert not is_run_by_systemd(home, site, [tmp_path / "none"])
    # A person who runs `gpuvigil up` beside the site reads that one's configuration.
    (tmp_path / "gpuvigil").mkdir()
    (tmp_path / "gpuvigil/gpuvigil.toml").touch()
    assert not is_run_by_systemd(home, site, units)
    assert "journalctl -u gpuvigil@hub" in local_todo(by_systemd=True)


def test_steps_are_noted_once_and_only_for_what_has_started(tmp_path: Path) -> None:
    answers = {"hub": False, "dashboard": True}
    startup = Startup({name: lambda name=name: answers[name] for name in answers}, began=10.0)  # type: ignore[misc]
    startup.note_start("hub", 10.5)
    assert startup.poll(lambda: 11.0) == []
    answers["hub"] = True
    assert startup.poll(lambda: 12.0) == ["hub"]
    startup.note_start("dashboard", 12.25)
    assert startup.poll(lambda: 13.0) == ["dashboard"]
    assert startup.is_complete
    startup.write(tmp_path / "startup.json", 3.2)
    noted = json.loads((tmp_path / "startup.json").read_text())
    assert noted["started"] == {"hub": 0.5, "dashboard": 2.25}
    assert noted["ready"] == {"hub": 2.0, "dashboard": 3.0}
    assert noted["url_printed"] == 3.2


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    made = Child(name="child", command=(), log_path=tmp_path / "log", environment=os.environ)
    yield made
    made.kill()


def test_a_child_that_ends_says_its_last_words_and_comes_back(child: Child) -> None:
    child.command = [sys.executable, "-c", "import sys; sys.exit('no such hub')"]
    child.log_path.write_text("words of an earlier life\n")
    child.start(0.0)
    ended = wait_until("the child's end", lambda: child.poll(5.0))
    assert ended.text == "child ended with exit code 1; it starts again in 1 s: no such hub"
    assert child.poll(5.9) is None
    assert child.process is None
    child.poll(6.0)
    assert child.started_at == 6.0  # on a busy machine it may have ended again already


def test_a_log_that_grows_large_is_put_aside_and_its_child_goes_on(child: Child) -> None:
    child.command = ["sh", "-c", f"head -c {LOG_BYTES + 1} /dev/zero; exec sleep 60"]
    child.start(0.0)
    aside = child.log_path.with_name("log.1")
    wait_until("the log put aside", lambda: child.poll(1.0) or aside.exists())
    assert aside.stat().st_size > LOG_BYTES
    assert child.log_path.stat().st_size == 0


def test_a_killed_child_is_named_by_its_signal(child: Child) -> None:
    child.command = [sys.executable, "-c", "import time; time.sleep(60)"]
    child.start(0.0)
    assert child.process is not None
    child.process.kill()
    ended = wait_until("the child's end", lambda: child.poll(100.0))
    assert ended.text == "child was ended by SIGKILL; it starts again in 1 s"


def test_what_a_child_leaves_behind_goes_with_it(child: Child, tmp_path: Path) -> None:
    grandchild = tmp_path / "pid"
    program = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time;"
        f" time.sleep(60)']); open({str(grandchild)!r}, 'w').write(str(p.pid))"
    )
    child.command = [sys.executable, "-c", program]
    child.start(time.monotonic())
    wait_until("the child's end", lambda: child.poll(time.monotonic()))
    pid = int(grandchild.read_text())
    wait_until("the grandchild's end", lambda: is_gone(pid))


def is_gone(pid: int) -> bool:
    """Whether the process has ended; a zombie that nobody collects has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_second_request_is_to_hurry_and_an_echo_of_the_first_is_not() -> None:
    hurry = Hurry()
    for now in (10.0, 10.01, 10.4):
        hurry.ask(now)
        assert not hurry()
    hurry.ask(10.6)
    assert hurry()


@pytest.mark.medium
@pytest.mark.parametrize(
    ("asked", "nodes", "fleet"),
    [
        (Asked(nodes=3), 3, False),
        (Asked(fleet_nodes=5), 5, True),
        (Asked(), 7, True),
    ],
)
def test_the_fleet_is_played_where_it_is_asked_for(
    asked: Asked, nodes: int, fleet: bool, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text("[simulator]\nnodes = 7\nfleet = true\n")
    state = StateDirectory(tmp_path / "state")
    try:
        plan = prepare(mine, asked, state)
        simulator = load(plan.config, {}).simulator
        assert (simulator.nodes, simulator.fleet) == (plan.nodes, plan.fleet) == (nodes, fleet)
        # Faults are tried out where none come by themselves.
        assert (plan.example is None) == fleet
    finally:
        state.release()


@pytest.mark.parametrize(("text", "comes"), [("", True), ("reports = []\n", False)])
def test_reports_come_by_themselves_unless_nobody_wants_them(
    text: str, comes: bool, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(text)
    state = StateDirectory(tmp_path / "state")
    try:
        plan = prepare(mine, Asked(nodes=1), state)
        assert ("report schedule" in plan.services) == comes
        assert bool(load(plan.config, {}).reports) == comes
    finally:
        state.release()


def test_a_directory_from_before_schedulers_had_a_token_gets_one(tmp_path: Path) -> None:
    first = StateDirectory(tmp_path / "state")
    file = first.secrets / "scheduler-token"
    others = {name: (first.secrets / name).read_text() for name in ("collector-token", "link-key")}
    first.release()
    file.unlink()
    again = StateDirectory(tmp_path / "state")
    assert file.stat().st_mode & 0o777 == 0o600
    assert len({file.read_text(), *others.values()}) == 3
    assert {name: (again.secrets / name).read_text() for name in others} == others
    ports = Ports(hub=1, dashboard=2, metrics=3)
    chosen = choices(again.path, ports, 0, ("127.0.0.1", "127.0.0.1"))
    assert chosen["hub"]["scheduler_token_file"] == file
    again.release()
