"""The collector as one file: what it holds, which Python it asks for, and that it runs alone."""

import ast
import ctypes
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pynvml
import pytest

from gpuvigil.clock import SystemClock
from gpuvigil.model import Allocation, RecordKind
from gpuvigil.store.hub import HubStore
from scripts import collector_pyz
from scripts.collector_pyz import ROOT
from tests.collector.inference.pages import InferenceServer, good, page
from tests.collector.owners.kubelet import FakeKubelet
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until
from tests.servers import HubProcess

pytestmark = [pytest.mark.slow, pytest.mark.site]

MOST_BYTES = 3 * 1024 * 1024
# Only the standard library: no environment variables of Python's, no site-packages.
ALONE = [sys.executable, "-I", "-S"]
VERMIN = ["-t=3.10-", "--violations", "--no-tips", "--eval-annotations"]
# Behind a look at the version, with tomli for the older.
BY_VERSION = ["--exclude", "tomllib"]
SECONDS = 60
UUID = "GPU-00000000-0000-4000-8000-000000000001"  # of the fake driver's second GPU


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pyz") / "collector.pyz"
    collector_pyz.write(path)
    return path


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=SECONDS, check=False
    )


def test_the_same_sources_give_the_same_bytes(pyz: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.pyz"
    collector_pyz.write(again)
    assert again.read_bytes() == pyz.read_bytes()
    assert pyz.stat().st_size <= MOST_BYTES
    assert os.access(pyz, os.X_OK)


def test_it_holds_sources_tables_and_licences_and_no_other_service(pyz: Path) -> None:
    names = set(zipfile.ZipFile(pyz).namelist())
    kinds = {Path(name).suffix for name in names if "/" not in name or name.endswith(".so")}
    assert kinds == {".py"}
    assert {"licenses/gpuvigil", "licenses/nvidia-ml-py", "licenses/tomli"} <= names
    folders = {name.partition("/")[0] for name in names if name.endswith(".py") and "/" in name}
    assert folders == {"collector", "gpuvigil", "tomli"}
    assert {"collector/reader.py", "gpuvigil/model/record.py", "gpuvigil/data/xid.csv"} <= names
    # The kernel's other half belongs to the hub and the pages.
    assert not {"dashboard/auth/auth_middleware.py", "gpuvigil/store/__init__.py"} & names
    licence = zipfile.ZipFile(pyz).read("licenses/nvidia-ml-py").decode()
    assert licence.startswith("Copyright (c) 2011")
    assert "Redistribution and use in source and binary forms" in licence


def test_python_3_10_has_everything_that_it_uses(pyz: Path, tmp_path: Path) -> None:
    vermin = [str(Path(sys.executable).parent / "vermin"), *VERMIN]
    unpacked = tmp_path / "unpacked"
    zipfile.ZipFile(pyz).extractall(unpacked)
    done = run(*vermin, *BY_VERSION, unpacked)
    assert done.returncode == 0, done.stdout
    # And it would say so otherwise.
    newer = tmp_path / "newer.py"
    newer.write_text("from datetime import UTC\nfrom enum import StrEnum\n")
    done = run(*vermin, newer)
    assert done.returncode == 1
    assert "3.11" in done.stdout


def test_every_module_loads_with_the_standard_library_alone(pyz: Path) -> None:
    names = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in zipfile.ZipFile(pyz).namelist()
        if name.endswith(".py") and not name.endswith("__main__.py")
    ]
    # What who matches loads; a node only reads matchers.
    names.remove("gpuvigil.matching.patterns")
    script = f"import sys; sys.path.insert(0, {str(pyz)!r})\n"
    done = run(*ALONE, "-c", script + "\n".join(f"import {name}" for name in names))
    assert done.returncode == 0, done.stderr


def test_docstrings_are_left_out_and_lines_keep_their_numbers(pyz: Path) -> None:
    def places(text: str) -> list[tuple[str, int]]:
        nodes = ast.walk(ast.parse(text))
        return [(it.name, it.lineno) for it in nodes if isinstance(it, ast.FunctionDef)]

    archive = zipfile.ZipFile(pyz)
    for name in ("collector/reader.py", "gpuvigil/model/record.py", "collector/sensors/ports.py"):
        kept, ours = archive.read(name).decode(), (ROOT / name).read_text()
        docstring = ast.get_docstring(ast.parse(ours)) or ""
        assert docstring not in kept
        assert docstring
        assert places(kept) == places(ours)


# As a node runs them; the whole binding alone would take 5 MiB more, `zoneinfo` one.
@pytest.mark.parametrize(("module", "most_mib"), [("reader", 9.0), ("supervisor", 19.2)])
def test_what_stays_on_a_node_is_small(pyz: Path, module: str, most_mib: float) -> None:
    script = f"""
import re, sys
sys.path.insert(0, {str(pyz)!r})
import collector.{module}
from collector.processes import memory_trim
memory_trim.settle()
found = re.findall(r"^Private_Dirty: +(\\d+)", open("/proc/self/smaps_rollup").read(), re.M)
print(sum(map(int, found)))
"""
    done = run(*ALONE, "-c", script)
    assert int(done.stdout) <= most_mib * 1024, done.stderr


def test_what_is_in_it_of_the_binding_is_as_its_maker_wrote_it(
    pyz: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(pyz))
    monkeypatch.delitem(sys.modules, "pynvml")
    kept = importlib.import_module("pynvml")
    assert kept.__file__ == str(pyz / "pynvml.py")
    names = {name for name in vars(kept) if "nvml" in name.lower()}
    assert {"NVMLError_GpuIsLost", "nvmlInit", "c_nvmlFieldValue_t"} <= names
    assert len(names) < len(vars(pynvml)) / 3
    for name in names:
        own, whole = getattr(kept, name), getattr(pynvml, name)
        if isinstance(own, type) and issubclass(own, ctypes.Structure | ctypes.Union):
            assert layout(own) == layout(whole), name
        elif inspect.isroutine(own):
            assert inspect.getsource(own) == inspect.getsource(whole), name
        elif isinstance(own, int | str | bytes):
            assert own == whole, name


def layout(kind: type[ctypes.Structure | ctypes.Union]) -> list[tuple[str, int, int]]:
    fields = [(name, getattr(kind, name)) for name, *_ in getattr(kind, "_fields_", ())]
    return [(name, field.offset, field.size) for name, field in fields]


def test_it_knows_its_own_commands_and_says_where_others_are(pyz: Path) -> None:
    shown = run(*ALONE, pyz, "--help").stdout
    commands = re.findall(r"^  ([a-z]+) ", shown, re.MULTILINE)
    assert {"collect", "check", "doctor", "join", "try"} == set(commands)
    done = run(*ALONE, pyz, "hub")
    assert done.returncode == 2
    assert done.stderr == (
        "gpuvigil hub: is not in this file, which holds the collector;"
        " it comes with the package gpuvigil-server\n"
    )
    assert run(*ALONE, pyz, "--version").stdout.startswith("gpuvigil ")


def prepare(pyz: Path, directory: Path, hub: HubProcess, more: str = "") -> Path:
    """A configuration, and the file copied to where nothing of this project lies."""
    directory.mkdir()
    shutil.copy(pyz, directory / "collector.pyz")
    (directory / "gpuvigil.toml").write_text(
        f'[hub]\nurl = "{hub.url}"\ncollector_token_file = "{hub.collector_token_file}"\n'
        '[collector]\ncluster = "c"\nnode = "n1"\ntick_seconds = 0.5\nmetrics_port = 0\n'
        f'spool_directory = "{directory / "spool"}"\n{more}'
    )
    return directory


@contextmanager
def running(directory: Path, driver: FakeDriver) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*ALONE, "collector.pyz", "collect", "--config", "gpuvigil.toml"],
        cwd=directory,
        env={"PATH": os.environ["PATH"], **driver.environment()},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.server
def test_one_file_reads_gpus_and_ships_them_to_a_hub(
    pyz: Path, tmp_path: Path, library: Path
) -> None:
    driver = FakeDriver(tmp_path / "driver", library, gpus=2)
    with HubProcess(tmp_path / "hub") as hub:
        directory = prepare(pyz, tmp_path / "node", hub)
        store = HubStore(hub.hub())

        def rows() -> list[dict[str, object]]:
            since = SystemClock().now() - timedelta(hours=1)
            found: list[dict[str, object]] = store.latest("gpu", ["up"], since).to_pylist()
            return found

        def hangs() -> list[object]:
            since = SystemClock().now() - timedelta(hours=1)
            return [
                row["mounts_hung"]
                for row in store.latest("node", ["mounts_hung"], since).to_pylist()
            ]

        with running(directory, driver) as process:
            wait_until("both GPUs", lambda: len(rows()) == 2, SECONDS)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            reader, *_ = children.split()
            words = Path(f"/proc/{reader}/cmdline").read_text().split("\0")
            assert words[:5] == [*ALONE, str(directory / "collector.pyz"), "read"]
            wait_until("a look at the machine", lambda: hangs() == [0], SECONDS)
            process.terminate()
            assert process.wait(SECONDS) == 0


@pytest.mark.server
def test_it_asks_inference_servers_and_the_kubelet(
    pyz: Path, tmp_path: Path, library: Path
) -> None:
    driver = FakeDriver(tmp_path / "driver", library, gpus=2)
    kubelet = FakeKubelet(tmp_path / "kubelet.sock")
    kubelet.pods = {"ml/a-0": {"main": {"nvidia.com/gpu": [UUID]}}}
    kubelet.start()
    with (
        HubProcess(tmp_path / "hub") as hub,
        InferenceServer(good(page("vllm-0.9"))) as vllm,
        InferenceServer(good(page("triton-24"))) as triton,
    ):
        more = f'kubelet_socket = "{kubelet.socket}"\n'
        more += f'inference_urls = ["{vllm.url}", "{triton.url}"]\n'
        directory = prepare(pyz, tmp_path / "node", hub, more)
        store = HubStore(hub.hub())

        def served() -> set[object]:
            since = SystemClock().now() - timedelta(hours=1)
            found = store.latest("inference", ["requests_running"], since).to_pylist()
            return {row["server"] for row in found}

        def holders() -> set[tuple[str | None, str]]:
            records = hub.hub().records(RecordKind.ALLOCATION)
            held = [Allocation.from_record(one) for one in records]
            return {(one.subject.gpu, str(one.holder)) for one in held}

        try:
            with running(directory, driver) as process:
                wait_until("both servers", lambda: served() == {"vllm", "triton"}, SECONDS)
                pod = {(UUID, "pod ml/a-0")}
                wait_until("the pod", lambda: pod <= holders(), SECONDS)
                told = run(*ALONE, pyz, "doctor", "--config", directory / "gpuvigil.toml").stdout
                assert f"{vllm.url}: vllm serves qwen" in told
                assert f"{kubelet.socket}: pods that hold GPUs: 1, devices: 1" in told
                process.terminate()
                assert process.wait(SECONDS) == 0
        finally:
            kubelet.stop()


@pytest.mark.parametrize(("caller", "code"), [("slurm-prolog", 0), ("slurm-health", 0), ("npd", 2)])
def test_a_python_that_is_too_old_says_so_and_fails_no_job(
    pyz: Path, caller: str, code: int
) -> None:
    main = zipfile.ZipFile(pyz).read("__main__.py").decode()
    old = (
        "import sys; sys.version_info = (3, 9, 18, 'final', 0);"
        f" sys.argv = ['collector.pyz', 'check', '--as', {caller!r}]; exec({main!r})"
    )
    done = run(*ALONE, "-c", old)
    assert done.returncode == code
    assert done.stderr == "gpuvigil needs Python 3.10 or newer; this is Python 3.9\n"
