"""The doctor's lines from what the child reported, and what it reads of a node's files."""

import os
import socket
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest

from collector.agent.exporter import Exporter
from collector.agent.node_config import file_of_up
from collector.doctor import gpus, hub, node, owner_sources
from collector.doctor.diagnosis import Diagnosis, State, can_work, limited, lines, missing, ok
from collector.doctor.groups import Readable, diagnose, group_of, groups
from collector.processes.driver_lock import Stuck
from collector.processes.watchdog_child import End
from collector.rows.catalogue_rows import Row
from collector.sensors.pci import PciGpu
from gpuvigil.config import (
    CollectorSettings,
    HubSettings,
    InfinibandSettings,
    SwitchesSettings,
)
from gpuvigil.metrics import GPU, NODE
from gpuvigil.model import Unmeasured
from tests.collector.inference.pages import InferenceServer, good, page
from tests.collector.network import Machine
from tests.collector.owners.kubelet import FakeKubelet

EVERY = frozenset(metric.name for metric in GPU.metrics)


def test_every_metric_of_a_gpu_is_in_a_group() -> None:
    assert [metric.name for metric in GPU.metrics if group_of(metric.name) is None] == []
    assert all(groups().values())
    # What a program tells, and what the collector counts, is missing of no driver.
    ours = ("step file", "collector's clock", "supervisor's clock")
    made = [metric.name for metric in GPU.metrics if any(one in metric.source for one in ours)]
    assert "spin_seconds" in made
    assert [name for name in made if group_of(name)] == []


def test_a_gpu_that_gives_everything_is_well() -> None:
    found = diagnose([Readable(gpu="0", metrics=EVERY, refused={})])
    assert {diagnosis.state for diagnosis in found} == {State.OK}
    assert [diagnosis.what for diagnosis in found] == list(groups())


def test_what_is_refused_is_told_with_the_reason_and_only_of_the_gpu_that_refuses() -> None:
    sram = frozenset(metric.name for metric in groups()["SRAM error threshold"])
    call = "nvmlDeviceGetSramEccErrorStatus"
    refusing = Readable(gpu="1", metrics=EVERY - sram, refused={call: Unmeasured.NO_PERMISSION})
    found = diagnose([Readable(gpu="0", metrics=EVERY, refused={}), refusing])
    (line,) = [diagnosis for diagnosis in found if diagnosis.state is State.LIMITED]
    assert line.what == "SRAM error threshold of GPU 1"
    assert line.text == f"0 of 8; refused, no permission: {call}"
    assert "root" in line.todo


def test_what_a_gpu_does_not_have_is_no_limit() -> None:
    call = "nvmlDeviceGetGpuFabricInfoV"
    fabric = frozenset(metric.name for metric in groups()["NVLink fabric"])
    gpu = Readable(gpu="0", metrics=EVERY - fabric, refused={call: Unmeasured.NOT_SUPPORTED})
    (line,) = [d for d in diagnose([gpu]) if d.what == "NVLink fabric"]
    assert line.state is State.OK
    assert line.text.startswith("0 of 4; not on this GPU or driver: fabric_state")


SETTINGS = CollectorSettings()
ON_BUS = (PciGpu(address="0000:01:00.0", driver="nvidia"),)


def first(report: gpus.ChildReport, settings: CollectorSettings = SETTINGS) -> Diagnosis:
    return gpus.diagnoses(settings, report, 15.0)[0]


def test_a_machine_without_gpus_needs_no_driver_and_one_with_gpus_does() -> None:
    none = {"failure": "nvmlInit: driver not loaded", "reason": Unmeasured.DRIVER_NOT_LOADED}
    assert first(gpus.ChildReport(**none)).state is State.OK  # type: ignore[arg-type]
    with_gpus = first(gpus.ChildReport(pci=ON_BUS, **none))  # type: ignore[arg-type]
    assert with_gpus.state is State.MISSING
    assert "1 NVIDIA GPUs on the PCI bus" in with_gpus.text


def test_a_driver_that_does_not_answer_is_told_with_who_is_stuck_in_it() -> None:
    line = first(gpus.ChildReport(stuck=Stuck(pid=12, seconds=99.0)))
    assert line.state is State.MISSING
    assert "no answer within 15 s" in line.text
    assert "process 12 is in it since 99 s" in line.text


def test_a_machine_without_a_free_core_is_no_driver_that_hangs() -> None:
    assert first(gpus.ChildReport(called={"driver": 0.9})).state is State.LIMITED
    assert "this machine is too busy" in first(gpus.ChildReport(called={"driver": 0.9})).text
    assert first(gpus.ChildReport(called={"driver": 1.0})).state is State.MISSING


def test_gpus_of_other_makers_are_named() -> None:
    amd = PciGpu(address="0000:43:00.0", driver="amdgpu", vendor="AMD")
    none = {"failure": "nvmlInit: driver not loaded", "reason": Unmeasured.DRIVER_NOT_LOADED}
    report = gpus.ChildReport(others=(amd,), **none)  # type: ignore[arg-type]
    told = {d.what: d for d in gpus.diagnoses(SETTINGS, report, 15.0)}
    assert told["other GPUs"].state is State.LIMITED
    assert "not supported, and not read: AMD GPU 0000:43:00.0 (amdgpu)" in told["other GPUs"].text


def test_a_driver_whose_library_crashes_is_told() -> None:
    assert "crashed" in first(gpus.ChildReport(end=End.DIED)).text


def test_a_released_driver_and_one_that_nobody_wants_read_are_well() -> None:
    assert first(gpus.ChildReport(released=True)).state is State.OK
    assert first(gpus.ChildReport(), replace(SETTINGS, gpus=False)).state is State.OK


def test_gpus_that_fail_are_silent_or_missing_are_told_one_by_one() -> None:
    report = gpus.ChildReport(
        pci=ON_BUS * 4,
        version="570",
        count=3,
        persistence={0: False},
        read={0: Readable(gpu="0", metrics=EVERY, refused={})},
        failed={2: "lost (NVML code 15)"},
        called={"GPU 1": 14.0},
        events="nvmlEventSetCreate: not supported",
    )
    told = {d.what: d for d in gpus.diagnoses(SETTINGS, report, 15.0)}
    assert told["GPU 1"].text == "no answer within 14 s"
    assert told["GPU 2"].text == "lost (NVML code 15)"
    assert told["GPUs"].state is State.LIMITED
    assert "persistence mode is off on GPU 0" in told["driver"].text
    assert told["Xid events"].state is State.LIMITED


def test_only_what_is_missing_keeps_a_collector_from_its_work() -> None:
    assert can_work([ok("a", "b"), limited("c", "d", "e")])
    assert not can_work([ok("a", "b"), missing("c", "d", "e")])
    assert lines([ok("a", "b"), missing("long", "d", "e")]) == [
        "ok       a     b",
        "missing  long  d -> e",
    ]


def proc(root: Path, *, port: int | None = None, programs: tuple[str, ...] = ()) -> Path:
    """A procfs with these programs, and a listener on this port."""
    (root / "net").mkdir(parents=True)
    rows = [
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
    ]
    if port is not None:
        rest = "00000000:00000000 00:00000000 00000000 0 0 900 1"
        rows.append(f"   0: 00000000:{port:04X} 00000000:0000 0A {rest}")
        rows.append(f"   1: 0100007F:{port + 1:04X} 0100007F:1F90 01 {rest}")
    (root / "net/tcp").write_text("\n".join(rows) + "\n")
    for pid, name in enumerate(programs, 100):
        (root / str(pid)).mkdir()
        (root / str(pid) / "comm").write_text(f"{name}\n")
    return root


@pytest.mark.parametrize(
    ("port", "programs", "said"),
    [
        (None, ("bash",), "none here"),
        (9399, (), "none here"),  # 9400 is connected, and not listened on
        (9400, (), "port 9400 is listened on"),
        (None, ("dcgm-exporter",), "dcgm-exporter (process 100)"),
        (None, ("bash", "nv-hostengine"), "nv-hostengine (process 101)"),
    ],
)
def test_another_exporter_is_seen(
    tmp_path: Path, port: int | None, programs: tuple[str, ...], said: str
) -> None:
    settings = replace(SETTINGS, proc_root=proc(tmp_path, port=port, programs=programs))
    (line,) = node.dcgm(settings)
    assert line.text.startswith(said)
    assert ("would double" in line.text) == (said != "none here")


def test_a_spool_that_cannot_be_written_or_has_no_room_is_told(tmp_path: Path) -> None:
    here = replace(SETTINGS, spool_directory=tmp_path / "a/b", spool_bytes=1)
    (line,) = node.spool(here)
    assert line.state is State.OK
    assert "not made yet" in line.text
    (line,) = node.spool(replace(here, spool_bytes=2**61))
    assert line.state is State.LIMITED
    file = tmp_path / "file"
    file.write_text("")
    (line,) = node.spool(replace(here, spool_directory=file / "spool"))
    assert line.state is State.MISSING
    assert line.todo


def test_the_kernels_clock_is_asked() -> None:
    (line,) = node.clock()
    assert line.state in {State.OK, State.LIMITED}
    assert "clock is" in line.text or "not known" in line.text


@pytest.mark.medium
def test_no_agent_is_a_limit_and_ports_are_counted_by_kind(tmp_path: Path) -> None:
    here = replace(SETTINGS, spool_directory=tmp_path, metrics_port=0)
    (line,) = node.agent(here)
    assert (line.state, line.what) == (State.LIMITED, "collector")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        _, line = node.agent(replace(here, metrics_port=port))
        assert (line.state, line.what) == (State.MISSING, "metrics port")
        assert len(node.agent(replace(here, metrics_port=-1))) == 1
    (line,) = node.ports(replace(SETTINGS, sysfs_root=tmp_path))
    assert line.state is State.LIMITED
    assert os.fspath(tmp_path) in line.text


def test_a_port_whose_driver_tells_no_statistics_is_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.tree.infiniband("mlx5_0")
    settings = replace(SETTINGS, sysfs_root=machine.sys, proc_root=machine.proc)
    assert [line.text for line in node.ports(settings)] == ["1 infiniband"]
    machine.ethernet("eno1", "0000:01:00.0")
    found, line = node.ports(settings)
    assert found.text == "1 ethernet, 1 infiniband"
    assert (line.state, line.what) == (State.LIMITED, "link statistics")
    assert "eno1 (No such device)" in line.text
    assert line.todo


@pytest.mark.parametrize(
    ("date", "at", "offset"),
    [
        ("Thu, 01 Jan 1970 00:01:40 GMT", 100.5, 0.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 160.5, 60.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40.5, -60.0),
        ("no date", 0.0, None),
        (None, 0.0, None),
    ],
)
def test_the_hubs_date_is_held_against_our_clock(
    date: str | None, at: float, offset: float | None
) -> None:
    assert hub.clock_offset({} if date is None else {"date": date}, at) == offset


def test_where_the_hubs_address_is_from_is_said(tmp_path: Path) -> None:
    named, default = HubSettings(url="http://h:1"), HubSettings()
    file = Path("/etc/x.toml")
    assert hub.address_source(named, file, {}) == "/etc/x.toml"
    assert hub.address_source(named, file, {"GPUVIGIL_HUB_URL": "x"}) == "GPUVIGIL_HUB_URL"
    assert hub.address_source(default, file, {}) == "the default"
    assert hub.address_source(default, None, {}) == "the default"
    told = tmp_path / "c.toml"
    told.write_text(f"[hub]\nurl = '{default.url}'\n")
    assert hub.address_source(default, told, {}) == str(told)


def test_the_file_that_up_wrote_is_named_where_none_is(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    assert file_of_up(None, environment) is None
    written = tmp_path / "gpuvigil" / "gpuvigil.toml"
    written.parent.mkdir()
    written.touch()
    assert file_of_up(None, environment) == written
    assert file_of_up(Path("mine.toml"), environment) is None
    assert file_of_up(None, {**environment, "GPUVIGIL_HUB_URL": "x"}) is None


def test_a_collector_of_ours_is_named_that_has_the_metrics_port(tmp_path: Path) -> None:
    exporter = Exporter()
    exporter.show(
        [
            Row(
                measurement=NODE,
                tags={"cluster": "c", "node": "n"},
                fields={"gpus_expected": 8.0},
                at=datetime.now(timezone.utc),
            )
        ]
    )
    exporter.serve("127.0.0.1", 0)
    assert exporter.port is not None
    here = replace(SETTINGS, spool_directory=tmp_path, metrics_port=exporter.port)
    _, line = node.agent(here)
    assert line.text == (
        f"127.0.0.1:{exporter.port} is not to be had for /metrics: Address already in use;"
        " another collector of gpuvigil serves its own there"
    )
    assert "--config" in line.todo


def test_inference_servers_are_asked_and_told_by_address() -> None:
    (line,) = owner_sources.inference(SETTINGS)
    assert (line.state, line.text) == (State.OK, "none declared in collector.inference_urls")
    with (
        InferenceServer(good(page("vllm-0.9"))) as server,
        InferenceServer(good(b"x 1\n")) as other,
    ):
        urls = (server.url, other.url, "http://127.0.0.1:9/metrics", "http://10.0.0.1:8000/metrics")
        served, wrong, nobody, elsewhere = owner_sources.inference(
            replace(SETTINGS, inference_urls=urls)
        )
    assert (served.state, served.text) == (State.OK, f"{server.url}: vllm serves qwen")
    assert wrong.state is State.LIMITED
    assert wrong.text.startswith(f"{other.url}: its page tells of no request")
    assert nobody.text.endswith("nobody serves there now")
    assert elsewhere.state is State.MISSING


def test_whether_slurm_lets_jobs_count_their_bytes_is_said_where_slurm_is(tmp_path: Path) -> None:
    settings = replace(SETTINGS, sysfs_root=tmp_path)
    assert owner_sources.disks(settings) == []
    scope = tmp_path / "fs/cgroup/system.slice/slurmstepd.scope"
    scope.mkdir(parents=True)
    (scope / "cgroup.subtree_control").write_text("cpuset cpu memory\n")
    (line,) = owner_sources.disks(settings)
    assert (line.state, line.text) == (
        State.LIMITED,
        "not counted by job: controller io is off in slurmstepd.scope",
    )
    assert "EnableExtraControllers=io" in line.todo
    (scope / "cgroup.subtree_control").write_text("cpuset cpu io memory\n")
    (line,) = owner_sources.disks(settings)
    assert line.state is State.OK


def test_the_kubelet_is_asked_where_there_is_one() -> None:
    with TemporaryDirectory() as folder:
        kubelet = FakeKubelet(Path(folder) / "kubelet.sock")
        settings = replace(SETTINGS, kubelet_socket=kubelet.socket)
        (line,) = owner_sources.kubelet(settings)
        assert (line.state, line.text) == (State.OK, f"none here: no {kubelet.socket}")
        kubelet.pods = {"ml/a-0": {"main": {"nvidia.com/gpu": ["GPU-0", "GPU-1"]}}}
        kubelet.start()
        try:
            (line,) = owner_sources.kubelet(settings)
            assert line.state is State.OK
            assert line.text == f"{kubelet.socket}: pods that hold GPUs: 1, devices: 2"
            kubelet.refusal = grpc.StatusCode.RESOURCE_EXHAUSTED
            (line,) = owner_sources.kubelet(settings)
        finally:
            kubelet.stop()
        assert line.state is State.LIMITED
        assert "RESOURCE_EXHAUSTED: not today: which pod has which GPU is not known" in line.text
    (line,) = owner_sources.kubelet(replace(SETTINGS, kubelet_socket=None))
    assert line.text == "not asked: collector.kubelet_socket is empty"


def test_a_node_of_slurm_says_whether_its_prolog_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(SETTINGS, jobs_directory=tmp_path / "jobs")
    monkeypatch.setenv("PATH", str(tmp_path))
    (line,) = owner_sources.slurm(settings)
    assert (line.state, line.text) == (State.OK, f"none here: no {settings.jobs_directory}")
    (tmp_path / "slurmd").touch(mode=0o755)
    (line,) = owner_sources.slurm(settings)
    assert line.state is State.LIMITED
    assert "docs/slurm.md" in line.todo
    settings.jobs_directory.mkdir()
    for name in ("17-1796081250", "16-1796081000.ended", ".18"):
        (settings.jobs_directory / name).touch()
    (line,) = owner_sources.slurm(settings)
    assert (line.state, line.text.rpartition(": ")[2]) == (State.OK, "1")


def test_a_fabric_is_readable_where_its_tools_and_the_way_to_its_switches_are(
    tmp_path: Path,
) -> None:
    tools, devices = tmp_path / "bin", tmp_path / "infiniband"
    for folder in (tools, devices):
        folder.mkdir()
    settings = InfinibandSettings(directory=str(tools))
    assert node.fabric(settings, devices) == []  # nothing leads into one
    (devices / "umad0").touch()
    (without,) = node.fabric(settings, devices)
    assert (without.state, without.text[:18]) == (State.OK, "not read from here")
    (tools / "iblinkinfo").write_text("#!/bin/sh\n")
    (tools / "iblinkinfo").chmod(0o755)
    (readable,) = node.fabric(settings, devices)
    assert (readable.state, readable.text) == (
        State.OK,
        "gpuvigil infiniband can read it from here",
    )
    (devices / "umad1").symlink_to(tmp_path / "nowhere")
    (closed,) = node.fabric(settings, devices)
    assert (closed.state, "may not open umad1" in closed.text) == (State.LIMITED, True)


def test_switches_can_be_asked_where_prometheus_answers_and_its_mapping_is_there(
    tmp_path: Path,
) -> None:
    assert node.switches(SwitchesSettings()) == []
    file = tmp_path / "snmp.toml"
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://me:secret@127.0.0.1:{server.getsockname()[1]}/prometheus"
        settings = SwitchesSettings(url=url, mappings=(file,))
        (unread,) = node.switches(settings)
        assert (unread.state, unread.text) == (State.LIMITED, f"cannot read {file}")
        file.touch()
        (there,) = node.switches(settings)
        assert there.state is State.OK
        (unnamed,) = node.switches(replace(settings, mappings=()))
        assert unnamed.text == "no mapping file is named"
    (gone,) = node.switches(settings)
    assert (gone.state, "Connection refused" in gone.text) == (State.LIMITED, True)
    (odd,) = node.switches(replace(settings, url="http://h:port"))
    assert odd.state is State.LIMITED
    assert "secret" not in f"{there} {gone} {odd}"
