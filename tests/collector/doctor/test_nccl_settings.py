"""What the doctor says of NCCL's RAS, and of settings of NCCL Inspector that write nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from collector.doctor.diagnosis import State
from collector.doctor.nccl_settings import nccl
from gpuvigil.config import CollectorSettings

PLUGIN = "NCCL_PROFILER_PLUGIN=/opt/libnccl-profiler-inspector.so\n"
ON = f"{PLUGIN}NCCL_INSPECTOR_ENABLE=1\n"
EVERY = "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS"


def said(
    directory: Path, conf: str, settings: CollectorSettings | None = None
) -> tuple[State, str]:
    """Of Inspector, where jobs write to the directory that is read."""
    file = directory / "nccl.conf"
    file.write_text(conf.replace("HERE", str(directory)))
    chosen = settings or CollectorSettings(nccl_inspector_directories=(directory,))
    (found,) = [it for it in nccl(chosen, file) if it.what == "NCCL Inspector"]
    return found.state, found.text


@pytest.mark.parametrize(
    ("conf", "state", "words"),
    [
        ("", State.OK, "does not set NCCL_INSPECTOR_ENABLE=1"),
        ("NCCL_INSPECTOR_ENABLE=0\n", State.OK, "does not set"),
        ("NCCL_INSPECTOR_ENABLE =1\n", State.OK, "does not set"),
        ("# NCCL_INSPECTOR_ENABLE=1\n", State.OK, "does not set"),
        ("NCCL_INSPECTOR_ENABLE=1\n", State.LIMITED, "NCCL_PROFILER_PLUGIN is not set"),
        (ON, State.LIMITED, "writes nothing"),
        (f"{ON}{EVERY}=-1\n", State.LIMITED, "=-1 writes nothing"),
        (f"{ON}{EVERY}=0\n", State.LIMITED, "=0 writes nothing until NCCL 2.29"),
        (f"{ON}{EVERY}=999999\n", State.LIMITED, "under a second"),
        (f"{ON}{EVERY}=1000000\n", State.LIMITED, "their own working directory"),
        (
            f"{ON}{EVERY}=1000000\nNCCL_INSPECTOR_DUMP_DIR=/x\n",
            State.LIMITED,
            "to /x, which is not",
        ),
        (f"{ON}{EVERY}=1000000\nNCCL_INSPECTOR_DUMP_DIR=HERE\n", State.OK, "which is read"),
        (
            f"{ON}{EVERY}=1000000\nNCCL_INSPECTOR_DUMP_DIR=HERE\nNCCL_INSPECTOR_PROM_DUMP=1\n",
            *(State.LIMITED, "averages without ranks"),
        ),
    ],
)
def test_inspector_that_writes_nothing_is_told(
    tmp_path: Path, conf: str, state: State, words: str
) -> None:
    found = said(tmp_path, conf)
    assert (found[0], words in found[1]) == (state, True)


def test_where_nothing_is_set_nothing_is_wrong(tmp_path: Path) -> None:
    found = nccl(CollectorSettings(), tmp_path / "none")
    assert {it.state for it in found} == {State.OK}
    assert [it.what for it in found] == ["NCCL RAS", "NCCL Inspector"]


@pytest.mark.parametrize(
    ("versions", "state", "words"),
    [
        ((), State.LIMITED, "nccl_ras_versions is empty"),
        (("2.27.3",), State.LIMITED, "is never asked"),
        (("2.30.7",), State.OK, "stalled jobs of train, versions 2.30.7"),
    ],
)
def test_what_ras_may_be_asked_is_told(
    tmp_path: Path, versions: tuple[str, ...], state: State, words: str
) -> None:
    settings = CollectorSettings(nccl_ras=("train",), nccl_ras_versions=versions)
    ras, *_ = nccl(settings, tmp_path / "none")
    assert (ras.state, words in ras.text) == (state, True)


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    settings = CollectorSettings(flight_recorder_directories=(tmp_path, tmp_path / "gone"))
    *_, last = nccl(settings, tmp_path / "none")
    assert (last.state, last.text) == (State.LIMITED, f"{tmp_path / 'gone'} cannot be seen")
    assert nccl(replace(settings, flight_recorder_directories=()), tmp_path)[-1].state is State.OK
