"""`gpuvigil check` as its callers run it: a process, the real pynvml, a fake driver."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from collector.agent import saved_state
from collector.agent.control_socket import ControlServer, Reply, Request
from collector.check.callers import CALLERS
from collector.processes.driver_lock import socket_name
from gpuvigil.clock import to_text
from gpuvigil.model import GpuIdentity, PortIdentity
from tests.collector.check.node import Node, run
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until
from tests.sysfs import PortTree
from tests.unanswered import Unanswered, is_possible

pytestmark = pytest.mark.server

SLURM = [who for who in CALLERS if who.startswith("slurm")]
SLURM_SECONDS = 5.0


@pytest.fixture
def node(tmp_path: Path, driver: FakeDriver) -> Node:
    return Node(tmp_path, driver, gpus=4)


def test_a_healthy_node_takes_less_than_a_second(node: Node) -> None:
    told = node.check()
    for _ in range(9):  # a busy machine says nothing about the check
        if told.seconds >= 1.0:
            told = node.check()
    assert told.code == 0
    assert told.lines[0].startswith("nothing found; 4 GPUs and 0 ports read in ")
    assert told.err == ""
    assert told.seconds < 1.0


def test_every_finding_is_a_line_and_an_object(node: Node) -> None:
    node.driver.set(1, ecc_uncorrected_volatile=2, event_reasons=0x88)
    node.driver.set(2, pcie_width=8, remapped_pending=1, retired_pending=1, histogram_none=2)
    node.driver.set_link(3, 5, nvlink_state=0)
    node.driver.set(3, fabric_health_summary=2)
    told = node.check()
    assert told.code == 3
    assert len(told.lines) == 8
    value = json.loads(node.check("-o", "json").out)
    found = {(f["fault"], f["place"].partition(" (")[0]) for f in value["findings"]}
    assert found == {
        ("uncorrected_growth", "GPU 1"),
        ("power_brake", "GPU 1"),
        ("pcie_narrow", "GPU 2"),
        ("repair_pending", "GPU 2"),
        ("no_spare_rows", "GPU 2"),
        ("fabric_unhealthy", "GPU 3"),
        ("nvlink_down", "GPU 3"),
    }
    assert all(f["action"] and f["evidence"] for f in value["findings"])
    keys = {item["key"] for f in value["findings"] for item in f["evidence"]}
    assert {"uncorrectable_errors", "pcie_lanes", "nvlinks_up", "fabric_health"} <= keys


def test_what_a_gpu_says_of_itself_may_be_critical(node: Node) -> None:
    node.driver.set(0, recovery_action=2)
    node.driver.set(1, remapped_failure=1)
    node.driver.set(2, sram_threshold_exceeded=1)
    node.driver.set(3, fabric_state=2)
    value = json.loads(node.check("-o", "json").out)
    found = {(f["fault"], f["severity"]) for f in value["findings"]}
    faults = ("recovery_action", "remap_failure", "sram_threshold", "fabric_down")
    assert found == {(fault, "critical") for fault in faults}
    node.drain_in_slurm()
    assert node.check("--as", "slurm-epilog").code == 1


def test_a_prolog_fails_no_job_while_nobody_knows_how_many_nodes_are_out(node: Node) -> None:
    node.driver.lose(2)
    told = node.check("--as", "slurm-prolog")  # no Slurm answers here
    assert told.code == 0
    assert "GPU fell off the bus" in told.lines[0]
    assert told.lines[-1].startswith("not drained: scontrol show node: ")
    node.drain_in_slurm()
    told = node.check("--as", "slurm-prolog")
    assert told.code == 1
    assert told.lines[-1] == "not drained: n1 has somebody's reason: new DIMMs, jo"


def test_a_lost_gpu_is_critical_and_the_others_are_read(node: Node) -> None:
    node.driver.lose(2)
    value = json.loads(node.check("-o", "json").out)
    assert [f["fault"] for f in value["findings"]] == ["gpu_lost"]
    assert value["gpus"] == 3


def test_a_gpu_that_is_on_the_bus_only_is_lost(node: Node) -> None:
    node.put_on_bus("0000:9b:00.0")
    node.drain_in_slurm()
    told = node.check("--as", "slurm-prolog")
    assert told.code == 1
    assert "0000:9b:00.0: GPU fell off the bus" in told.out


def test_what_the_collector_remembers_is_held_against_what_is_here(node: Node) -> None:
    known = saved_state.Remembered()
    known.gpus["GPU-old"] = GpuIdentity(
        uuid="GPU-old", index=9, pci_address="00000000:AA:00.0", model="H100"
    )
    known.ports["mlx5_0", "1"] = PortIdentity(
        device="mlx5_0", port="1", kind="infiniband", role="fabric", was_up=True
    )
    saved_state.save(node.spool / "node.json", known)
    tree = PortTree(node.sysfs)
    tree.infiniband("mlx5_0")
    tree.down("mlx5_0")
    value = json.loads(node.check("-o", "json").out)
    assert [(f["fault"], f["subject"]) for f in value["findings"]] == [
        ("gpu_lost", "c/n1/gpu/GPU-old"),
        ("port_down", "c/n1/port/mlx5_0/1"),
    ]


def test_a_driver_that_was_released_is_left_alone(node: Node) -> None:
    known = saved_state.Remembered()
    known.released_until = datetime.now(timezone.utc) + timedelta(minutes=10)
    saved_state.save(node.spool / "node.json", known)
    node.driver.hang_all()  # who touched it would wait
    told = node.check("--as", "slurm-prolog")
    assert told.code == 0
    assert "released for maintenance" in told.out
    assert told.seconds < 3.0


def test_a_release_is_known_to_whoever_may_not_read_what_the_collector_remembers(
    node: Node, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    known = saved_state.Remembered()
    known.released_until = datetime.now(timezone.utc) + timedelta(minutes=10)
    saved_state.save(node.spool / "node.json", known)
    node.spool.chmod(0o700)
    for folder in list(tmp_path.parents)[:-1]:
        folder.chmod(folder.stat().st_mode | 0o055)
    tmp_path.chmod(0o755)
    as_nobody = (
        "import os, sys; import collector.agent.saved_state, collector.nvml, collector.agent.control_socket\n"
        "import collector.check.kernel_log, collector.sensors.pci, collector.sensors.ports\n"
        "from collector.check.check_command import main\n"
        "os.setgid(65534); os.setuid(65534); sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", as_nobody, "--config", str(node.config)]
    told = run(command, node.environment)
    assert "not looked at: the collector's memory: Permission denied" in told.out
    (tmp_path / "run").mkdir()
    saved_state.publish(tmp_path / "run", known)
    node.driver.hang_all()  # who touched it would wait
    told = run(command, node.environment)
    assert "released for maintenance" in told.out
    assert "the collector's memory" not in told.out
    assert told.seconds < 3.0


def test_a_gpu_that_has_gone_keeps_its_number_unless_another_has_it(node: Node) -> None:
    known = saved_state.Remembered()
    for index in (2, 9):
        known.gpus[f"GPU-{index}"] = GpuIdentity(
            uuid=f"GPU-{index}", index=index, pci_address=f"00000000:A{index}:00.0", model="H100"
        )
    saved_state.save(node.spool / "node.json", known)
    value = json.loads(node.check("-o", "json").out)
    assert [finding["place"] for finding in value["findings"]] == [
        "former GPU 2 (00000000:A2:00.0, GPU-2)",
        "GPU 9 (00000000:A9:00.0, GPU-9)",
    ]


def test_what_the_kernel_has_just_logged_of_a_gpu_counts(node: Node) -> None:
    node.log("NVRM: Xid (PCI:0000:21:00): 95, pid=7, name=a, Uncontained: SM (0x1)")
    node.drain_in_slurm()
    told = node.check("--as", "slurm-prolog")
    assert told.code == 1
    assert told.lines[0].startswith("critical GPU 1 (00000000:21:00.0, GPU-")
    assert "Xid 95: " in told.lines[0]


def test_where_the_kernel_log_is_closed_the_journal_is_read(node: Node, tmp_path: Path) -> None:
    node.kernel_log.unlink()
    told = node.check()
    assert told.code == 0
    assert f"not looked at: kernel log: {node.kernel_log}: No such file" in told.out
    record = {
        "__CURSOR": "s=1",
        "_BOOT_ID": "0",
        "__REALTIME_TIMESTAMP": str(int(time.time() * 1_000_000)),
        "SYSLOG_FACILITY": "0",
        "MESSAGE": "NVRM: Xid (PCI:0000:21:00): 95, pid=7, name=a, Uncontained: SM (0x1)",
    }
    program = tmp_path / "journalctl"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(record)}'\n")
    program.chmod(0o755)
    told = node.check(GPUVIGIL_COLLECTOR_JOURNALCTL=str(program))
    assert told.code == 4
    assert "Xid 95: " in told.lines[0]
    assert "not looked at" not in told.out


def test_a_collector_that_runs_here_is_asked_since_when_the_driver_hangs(
    node: Node, tmp_path: Path
) -> None:
    since = to_text(datetime.now(timezone.utc) - timedelta(seconds=50))

    def handle(request: Request, reply: Reply) -> None:
        reply({"ok": request["do"] == "status", "driver_silent_since": since})

    server = ControlServer(node.spool, handle)
    try:
        node.driver.hang_all()
        told = node.check("--timeout", "4", "-o", "json")
    finally:
        server.close()
    (finding,) = json.loads(told.out)["findings"]
    assert (finding["fault"], finding["certain"]) == ("driver_silent", True)
    assert finding["evidence"][-1]["key"] == "collector_unanswered_for"


def test_gpus_without_a_driver_are_told(node: Node, tmp_path: Path) -> None:
    environment = {k: v for k, v in node.environment.items() if k != "LD_LIBRARY_PATH"}
    said = "node: NVIDIA driver is not loaded [GPUs that should be here: 4"
    # Critical where GPUs are expected: nobody has said so of a node that was never read.
    for arguments, severity, code in (((), "warning ", 3), (("--gpus", "4"), "critical", 4)):
        told = run(node.command(*arguments), environment)
        assert told.code == code
        assert any(line.startswith(f"{severity} {said}") for line in told.lines)
    # A prolog's job was given GPUs; Slurm says that the node may be drained.
    node.drain_in_slurm()
    prolog = node.command("--as", "slurm-prolog")
    assert run(prolog, {**environment, "SLURM_JOB_GPUS": "0"}).code == 1
    assert run(prolog, environment).code == 0


# The whole of the time that it takes by itself, and shorter for the others.
HANGS = [("slurm-prolog", "60"), ("slurm-epilog", "3.5"), ("slurm-health", "3.5")]


@pytest.mark.parametrize(("who", "seconds"), HANGS)
def test_a_driver_that_hangs_costs_slurm_less_than_five_seconds(
    node: Node, who: str, seconds: str
) -> None:
    node.driver.hang_all()
    for _ in range(5):  # without a free core the call had too little time for a verdict
        told = node.check("--as", who, "--timeout", seconds)
        assert told.code == 0
        assert told.seconds < SLURM_SECONDS
        if "this machine is too busy" not in told.out:
            break
    assert "NVIDIA driver does not answer" in told.out
    wait_until("the end of what looked", lambda: not node.processes())


def test_a_call_that_was_not_begun_in_time_is_no_driver_that_hangs(node: Node) -> None:
    # A pipe that nobody writes to keeps the check from its first call for longer than it has.
    os.mkfifo(node.spool / "node.json")
    for arguments, code in (((), 1), (("--as", "nagios"), 3)):
        told = node.check("--timeout", "1.4", *arguments)
        assert (told.code, "does not answer" in told.out) == (code, False)


def test_one_gpu_that_hangs_does_not_hide_the_others(node: Node) -> None:
    node.driver.hang(1)
    node.driver.set(2, event_reasons=0x88)
    told = node.check("--timeout", "4", "-o", "json")
    value = json.loads(told.out)
    assert [f["fault"] for f in value["findings"]] == ["gpu_silent", "power_brake"]
    assert value["gpus"] == 3
    assert (value["result"], told.code) == ("warning", 3)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Unanswered]:
    """A file system in which a process cannot be killed."""
    if not is_possible():
        pytest.skip("the uninterruptible state needs root and /dev/fuse")
    with Unanswered(tmp_path / "unanswered") as kernel:
        yield kernel


def test_a_check_that_cannot_be_killed_keeps_nobody_waiting_and_stays_the_only_one(
    node: Node, kernel: Unanswered
) -> None:
    node.driver.block_in(kernel.file)
    verdicts = 0
    for _ in range(8):  # without a free core the call may have too little time for a verdict
        told = node.check("--as", "slurm-prolog", "--timeout", "3.5")
        assert told.code == 0
        assert told.seconds < SLURM_SECONDS
        verdicts += "driver does not answer" in told.out
        if verdicts == 2:
            break
        assert "driver does not answer" in told.out or "the call itself had" in told.out
    assert verdicts == 2
    # The later one names the first, and has not gone where it is.
    named = re.search(r"a call has not returned for: \d+ s \(process (\d+)\)", told.out)
    assert named is not None
    assert "D" in states(int(named[1]))
    kernel.release()
    node.driver.release()
    wait_until("the end of the first one", lambda: states(int(named[1])) in ([], ["Z"]))
    assert node.check().code == 0


def states(pid: int) -> list[str]:
    """The state of every thread of a process, as ps shows it."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            found.append(task.read_text().rpartition(")")[2].split()[0])
    return found


def test_while_one_is_stuck_in_the_driver_no_second_one_goes_there(
    node: Node, tmp_path: Path
) -> None:
    # Another process of this user holds what a stuck check would hold.
    stuck = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import socket, sys, time; s = socket.socket(socket.AF_UNIX);"
            r" s.bind('\0' + sys.argv[1]); s.listen(9); print(1, flush=True); time.sleep(60)",
            os.fsdecode(socket_name(tmp_path / "run")[1:]),
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert stuck.stdout is not None
        stuck.stdout.readline()
        told = node.check("--timeout", "2")
        # It is slow, for all that anybody can tell: nobody has killed it.
        assert told.code == 1
        assert f"not looked at: driver: process {stuck.pid} is asking the driver" in told.lines[0]
        # That of another installation is nobody's whom this one could meet.
        elsewhere = str(tmp_path / "elsewhere")
        assert node.check(GPUVIGIL_COLLECTOR_RUNTIME_DIRECTORY=elsewhere).code == 0
    finally:
        stuck.kill()
        stuck.wait()
        assert stuck.stdout is not None
        stuck.stdout.close()
    assert node.check().code == 0


@pytest.mark.parametrize("letter", ["x", "\N{SNOWMAN}"])
def test_however_long_its_directory_is_called_one_can_be_held(letter: str) -> None:
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(socket_name(Path("/run") / (80 * letter)))


WRONG = [
    ("slurm-health", ["--no-such-option"]),
    ("slurm-prolog", ["--config", "/no/such/file"]),
    ("slurm-epilog", ["-o", "json"]),
    ("slurm-prolog", ["--timeout", "x"]),
    ("slurm-prolog", ["--drain"]),
]


@pytest.mark.parametrize(("who", "wrong"), WRONG)
def test_what_is_wrongly_asked_for_drains_no_node(node: Node, who: str, wrong: list[str]) -> None:
    told = node.check(*wrong, f"--as={who}")
    assert (told.code, told.out) == (0, "")
    assert told.err.startswith("gpuvigil check: ")
    assert told.err.count("\n") == 1


def test_the_others_hear_that_they_asked_wrongly(node: Node) -> None:
    assert node.check("--no-such-option").code == 2
    assert node.check("--as", "nagios", "--no-such-option").code == 3
    assert node.check("--as", "npd", "--config", "/no/such/file").code == 2
    assert node.check("--as", "slurm").code == 2
    assert node.check("--drain").code == 2
    assert node.check("--gpus", "many").code == 2
    assert node.check("--gpus", "9", "--as", "nagios").code == 2  # CRITICAL, here


@pytest.mark.parametrize("who", SLURM)
def test_a_check_that_fails_itself_drains_no_node(node: Node, who: str) -> None:
    # Too few files for a pipe to the process that looks.
    script = (
        "import resource, sys; from collector.check.check_command import main;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4)); sys.exit(main(['--as', sys.argv[1]]))"
    )
    told = run([sys.executable, "-c", script, who], node.environment)
    assert (told.code, told.out) == (0, "")
    assert told.err.startswith("gpuvigil check: failed itself: OSError")


def test_a_library_that_crashes_is_no_silent_driver(node: Node, tmp_path: Path) -> None:
    source = tmp_path / "crash.c"
    source.write_text("int nvmlInitWithFlags(unsigned flags) { __builtin_trap(); return flags; }\n")
    library = tmp_path / "crash" / "libnvidia-ml.so.1"
    library.parent.mkdir()
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    environment = {**node.environment, "LD_LIBRARY_PATH": str(library.parent)}
    told = run(node.command(), environment)
    assert told.code == 1
    assert "not looked at: driver: the process that looked ended by itself" in told.out
    assert run(node.command("--as", "nagios"), environment).code == 3
    assert run(node.command("--as", "slurm-prolog"), environment).code == 0


def test_whatever_it_waits_for_slurm_does_not_wait_longer(node: Node, tmp_path: Path) -> None:
    # A pipe that nobody writes to stands for a file system that does not answer.
    os.mkfifo(tmp_path / "config")
    late = ("--timeout", "1.5")
    told = node.check("--as", "slurm-prolog", "--config", str(tmp_path / "config"), *late)
    assert (told.code, told.err) == (0, "gpuvigil check: out of time\n")
    assert told.seconds < SLURM_SECONDS


def test_a_caller_that_does_not_listen_changes_nothing(node: Node) -> None:
    node.drain_in_slurm()
    node.driver.lose(0)
    script = f"{shlex.join(node.command('--as', 'slurm-prolog'))} <&- >&- 2>&-"
    assert run(["sh", "-c", script], node.environment).code == 1
    node.driver.restore(0)
    assert run(["sh", "-c", script], node.environment).code == 0
