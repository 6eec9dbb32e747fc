"""A node's logs, collected once for each hardware critical by the site's own command."""

import json
import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from collector.agent.log_collection import LogCollector, is_critical
from collector.rows.events import EventMaker
from gpuvigil.clock import ManualClock
from gpuvigil.config import CollectorSettings
from gpuvigil.model import Event, EventKind, Subject
from tests.polling import wait_until
from tests.shortage import shortage

INSTALL = (Path(__file__).parents[2] / "docs/install.md").read_text(encoding="utf-8")
NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NODE = Subject(cluster="c", node="n1")
FIRST, SECOND = (replace(NODE, gpu=f"GPU-{number}") for number in (1, 2))


def event(kind: EventKind, subject: Subject = FIRST, at: datetime = NOON, **codes: int) -> Event:
    return Event(kind=kind, subject=subject, at=at, id=f"{kind} {subject.key} {at}", **codes)  # type: ignore[arg-type]


LOST = event(EventKind.XID, xid=79)


class Node:
    """A collector's main loop, as far as logs go."""

    def __init__(self, directory: Path, *command: str, seconds: float = 20.0) -> None:
        self.logs = directory / "logs"
        self.clock = ManualClock(NOON)
        self.work: list[Callable[[], None]] = []
        self.told: list[Event] = []
        settings = CollectorSettings(
            log_command=command, log_directory=self.logs, log_seconds=seconds
        )
        maker = EventMaker(node=NODE, boot="b")
        self.keeper = LogCollector(settings, maker, self.clock, self.work.append, self._tell)

    def _tell(self, events: Sequence[Event]) -> None:
        self.told += events
        self.keeper.handle(events)

    def take(self, *events: Event) -> None:
        self.keeper.handle(events)

    def ends(self) -> str:
        """Wait until the command has ended, and what was told then."""
        wait_until("the command ends", lambda: self.work)
        self.work.pop(0)()
        return self.told[-1].message


def files(node: Node) -> list[str]:
    return sorted(path.name for path in node.logs.iterdir())


def test_what_a_command_prints_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    node = Node(tmp_path, "/bin/sh", "-c", "echo all of it")
    node.take(LOST)
    assert node.ends() == f"logs collected in {node.logs}/20260131T120000Z.log"
    assert [one.subject for one in node.told] == [FIRST]
    kept = node.logs / "20260131T120000Z.log"
    assert kept.read_text() == "all of it\n"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(node.logs.stat().st_mode) == 0o700


def test_a_command_may_write_the_file_itself(tmp_path: Path) -> None:
    node = Node(tmp_path, "/bin/sh", "-c", 'echo x > "$0"', "{file}")
    node.take(LOST)
    assert node.ends() == f"logs collected in {node.logs}/20260131T120000Z.log.gz"


# What docs/install.md says where the agent is not root: it leaves a wish, and root's units fulfil it.
(WISH,) = re.findall(r"^log_command = (\[.*logs-wanted.*\])$", INSTALL, re.MULTILINE)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("does", "ends"),
    [
        ("echo report > {logs}/new.log.gz", "logs collected in {logs}/new.log.gz"),
        ("false", "logs not collected: /bin/sh printed nothing"),
    ],
)
def test_root_fulfils_the_wish_of_an_agent_that_is_nobody(
    tmp_path: Path, does: str, ends: str
) -> None:
    wish, logs = tmp_path / "run/logs-wanted", tmp_path / "log"
    for folder in (wish.parent, logs):
        folder.mkdir()
    (logs / "old.log.gz").write_text("of another day")
    os.utime(logs / "old.log.gz", (0.0, 0.0))
    text = WISH.replace("/run/gpuvigil/logs-wanted", str(wish))
    command = json.loads(text.replace("/var/log/gpuvigil-logs", str(logs)))
    # As the units do it: once the wish is there, the program, and then no wish any more.
    work = does.format(logs=logs)
    root = f"while [ ! -e {wish} ]; do sleep 0.05; done; sleep 0.05; {work}; rm -f {wish}"
    unit = subprocess.Popen(["/bin/sh", "-c", root])
    node = Node(tmp_path, *command)
    node.take(LOST)
    assert node.ends() == ends.format(logs=logs)
    assert unit.wait(10) == 0


def test_a_file_that_the_command_writes_is_its_owners_alone(tmp_path: Path) -> None:
    node = Node(tmp_path, "/bin/sh", "-c", 'echo x > "$0"', "{file}")
    node.take(LOST)
    node.ends()
    assert stat.S_IMODE((node.logs / "20260131T120000Z.log.gz").stat().st_mode) == 0o600


def test_one_run_serves_what_fails_with_it_and_a_cure_makes_the_next_news(tmp_path: Path) -> None:
    node = Node(tmp_path, "/bin/sh", "-c", "echo x")
    node.take(LOST, LOST, event(EventKind.GPU_LOST), event(EventKind.GPU_LOST, SECOND))
    node.ends()
    assert [one.subject for one in node.told] == [FIRST, SECOND]
    assert len(files(node)) == 1
    # The same fault is told again and again.
    node.clock.advance(3600)
    node.take(event(EventKind.XID, at=node.clock.now(), xid=79))
    assert len(node.told) == 2
    node.take(event(EventKind.GPU_RESET), event(EventKind.XID, at=node.clock.now(), xid=79))
    node.ends()
    assert len(files(node)) == 2


def test_soon_after_the_same_log_is_named(tmp_path: Path) -> None:
    node = Node(tmp_path, "/bin/sh", "-c", "echo x")
    node.take(LOST)
    said = node.ends()
    node.clock.advance(60)
    node.take(event(EventKind.GPU_LOST, SECOND, node.clock.now()))
    assert (node.told[-1].subject, node.told[-1].message) == (SECOND, said)


@pytest.mark.parametrize(("seconds", "logs"), [(599.0, 1), (600.0, 2)])
def test_a_clock_that_is_set_back_keeps_no_log_from_being_collected(
    tmp_path: Path, seconds: float, logs: int
) -> None:
    node = Node(tmp_path, "/bin/sh", "-c", "echo x")
    node.take(LOST)
    node.ends()
    node.clock.advance(seconds)
    node.clock.step(-7200.0)
    node.take(event(EventKind.GPU_LOST, SECOND, node.clock.now()))
    if logs == 2:
        node.ends()
    assert len(files(node)) == logs


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("/bin/sh", "-c", "echo first; echo 'no \033[31mdriver'; exit 3"), "exit status 3: no "),
        (("/bin/sh", "-c", "exit 1"), "exit status 1: it said nothing"),
        (("/bin/sh", "-c", "true", "{file}"), "was not written"),
        (("/nowhere/nvidia-bug-report.sh",), "No such file or directory"),
    ],
)
def test_what_fails_is_one_line(tmp_path: Path, command: tuple[str, ...], why: str) -> None:
    node = Node(tmp_path, *command)
    node.take(LOST)
    said = node.ends()
    assert said.startswith("logs not collected: ")
    assert why in said
    assert said.isprintable()


def test_one_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    node = Node(tmp_path, "/bin/sh", "-c", f"sleep 60 & echo $! > {pid}; wait", seconds=0.5)
    node.take(LOST)
    assert node.ends() == "logs not collected: ended after 0.5 s"
    wait_until("it is gone", lambda: not _runs(int(pid.read_text())))


def test_the_end_of_the_collector_is_its_end(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    node = Node(tmp_path, "/bin/sh", "-c", f"echo $$ > {pid}; exec sleep 60", seconds=60.0)
    node.take(LOST)
    wait_until("it runs", lambda: pid.exists() and pid.read_text().strip())
    node.keeper.stop()
    assert f"exit status {-signal.SIGKILL}" in node.ends()
    node.clock.advance(3600)
    node.take(event(EventKind.GPU_LOST, SECOND, node.clock.now()))
    assert len(node.told) == 1


def test_nothing_of_ours_is_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUVIGIL_HUB_COLLECTOR_TOKEN_FILE", "/secret")
    node = Node(tmp_path, "/usr/bin/env")
    node.take(LOST)
    node.ends()
    (name,) = files(node)
    assert {line.partition("=")[0] for line in (node.logs / name).read_text().splitlines()} <= {
        *("PATH", "LC_ALL", "PWD", "SHLVL", "_"),
    }


def test_ten_logs_are_kept(tmp_path: Path) -> None:
    node = Node(tmp_path, "/bin/sh", "-c", "echo x")
    node.logs.mkdir(mode=0o700)
    for number in range(12):
        (node.logs / f"202501{number + 10}T120000Z.log").write_text("old")
    for name in ("notes.txt", "2024 inventory.csv"):
        (node.logs / name).write_text("somebody's own")
    node.take(LOST)
    node.ends()
    assert len(files(node)) == 12
    assert files(node)[0] == "2024 inventory.csv"
    assert files(node)[-2:] == ["20260131T120000Z.log", "notes.txt"]


def test_where_others_may_look_or_write_nothing_is_kept_or_deleted(tmp_path: Path) -> None:
    node = Node(tmp_path, "/bin/sh", "-c", "echo x")
    node.logs.mkdir()
    node.logs.chmod(0o1777)
    node.take(LOST)
    assert "must belong to the agent's user alone" in node.ends()
    assert files(node) == []


def test_what_lies_in_the_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    node = Node(tmp_path, "/bin/sh", "-c", "echo x")
    node.logs.mkdir(mode=0o700)
    (tmp_path / "precious").write_text("kept")
    (node.logs / "20260131T120000Z.log").symlink_to(tmp_path / "precious")
    node.take(LOST)
    assert node.ends().startswith("logs not collected: ")
    assert (tmp_path / "precious").read_text() == "kept"


def test_it_is_off_unless_a_command_is_set_and_asleep_for_what_is_old_or_minor(
    tmp_path: Path,
) -> None:
    off = Node(tmp_path)
    off.take(LOST)
    on = Node(tmp_path, "/bin/sh", "-c", "echo x")
    on.take(replace(LOST, at=NOON - timedelta(hours=1)), event(EventKind.XID, xid=13))
    time.sleep(0.05)
    assert (off.work, on.work, on.logs.exists()) == ([], [], False)
    assert [is_critical(event(kind)) for kind in (EventKind.PORT_DOWN, EventKind.BOOT)] == [
        False
    ] * 2
    assert is_critical(event(EventKind.SXID, NODE, sxid=10003))
    assert is_critical(event(EventKind.DRIVER_SILENT, NODE))
    decoded = event(EventKind.XID, xid=145)
    assert is_critical(replace(decoded, message="Xid 145: RLW_CTRL Fatal XC1 i0 Link 08 (0x7 0x1)"))
    assert not is_critical(
        replace(decoded, message="Xid 145: RLW_CTRL Nonfatal XC1 i0 Link 08 (0x7 0x1)")
    )


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_without_room_for_a_thread_the_logs_are_not_collected_and_the_next_are(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, "/bin/sh", "-c", "echo all of it")
    with shortage("threads"):
        node.take(LOST)
    assert node.told[-1].message == "logs not collected: can't start new thread"
    node.take(event(EventKind.XID, SECOND, xid=79))
    assert node.ends().startswith("logs collected in ")
    assert [one.subject for one in node.told] == [FIRST, SECOND]
