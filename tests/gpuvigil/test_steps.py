"""What a program's own steps are, and that telling them costs and breaks nothing."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuvigil.steps import Steps, _OfHuggingFace, _OfLightning
from tests.polling import wait_until
from tests.processor import allowed

ROOT = Path(__file__).parents[2]
COPIED = ROOT / "packaging/steps/gpuvigil_steps.py"


def words(steps: Steps) -> dict[str, str]:
    return dict(word.split("=") for word in steps._words() if "=" in word)


def test_the_file_to_copy_is_the_package_s_own() -> None:
    assert COPIED.read_bytes() == (ROOT / "gpuvigil/steps.py").read_bytes()


@pytest.mark.medium
def test_it_runs_with_python_3_8_and_nothing_else() -> None:
    vermin = Path(sys.executable).parent / "vermin"
    by_version = ["--no-tips", "-t=3.8-", "--violations", str(COPIED)]
    done = subprocess.run([vermin, *by_version], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_step_costs_less_than_20_microseconds(tmp_path: Path) -> None:
    steps, count = Steps(str(tmp_path), rank=0, world=8), 20_000
    began = time.thread_time()
    for _ in range(count):
        with steps.own():
            pass
        steps.done(tokens=4096, loss=1.5)
    assert (time.thread_time() - began) / count < allowed(20e-6)
    steps._leave()


def test_pauses_are_no_part_of_a_step_and_waiting_for_input_is(tmp_path: Path) -> None:
    steps = Steps(str(tmp_path))
    steps.done()
    for batch in steps.batches([0, 1, 2, 3]):
        if batch == 1:
            with steps.evaluation(), steps.checkpoint():
                time.sleep(0.3)
        with steps.own():
            time.sleep(0.02)
        with steps.input():
            time.sleep(0.01)
        steps.done()
    told = words(steps)
    assert 0.03 <= float(told["step_seconds"]) < 0.25
    assert 0.02 <= float(told["own_seconds"]) < 0.2
    assert 0.01 <= float(told["input_seconds"]) < 0.2
    assert abs(float(told["checkpoint"]) - time.time()) < 20.0
    p99 = steps.p99()
    assert p99 is not None
    assert p99 < 0.3
    steps._leave()


def test_the_last_five_steps_are_those_of_now(tmp_path: Path) -> None:
    """A rank that turns slow shows after three steps, and its longest steps are remembered."""
    steps = Steps(str(tmp_path))
    assert steps.p99() is None
    steps._seconds.extend([0.1] * 98 + [3.0, 9.0])
    assert (steps.p99(), words(steps)["step_seconds"]) == (3.0, "0.1")
    steps._seconds.append(2.0)
    assert words(steps)["step_seconds"] == "2"


def test_the_first_steps_are_remembered_but_for_those_that_warm_up(tmp_path: Path) -> None:
    steps = Steps(str(tmp_path))
    for number in range(5):
        steps._worked(100.0 + number)
    assert "own_first_seconds" not in words(steps)
    for number in range(40):
        steps._worked(float(number))
    assert (words(steps)["own_first_seconds"], words(steps)["own_seconds"]) == ("9.5", "37")


@pytest.mark.medium
def test_the_phase_is_told_while_it_lasts_and_the_step_keeps_its_time(tmp_path: Path) -> None:
    steps = Steps(str(tmp_path))
    file = tmp_path / str(os.getpid())
    with steps.own():
        steps.done()

        def said() -> str:
            text = file.read_text() if file.exists() else ""
            return text.partition("phase=")[2].partition(" ")[0]

        wait_until("its own work", lambda: said() == "work")
        at = file.stat().st_mtime_ns
    wait_until("the others", lambda: said() == "collective")
    with pytest.raises(KeyError), steps.input():
        raise KeyError
    with steps.checkpoint():
        wait_until("a checkpoint", lambda: said() == "checkpoint")
    with steps.evaluation():
        wait_until("an evaluation", lambda: said() == "evaluation")
    with steps.input():
        wait_until("input", lambda: said() == "input")
    # The file was written anew, and says that no step has ended since.
    assert file.stat().st_mtime_ns == at
    steps._leave()
    assert not file.exists()


@pytest.mark.medium
def test_after_its_training_a_rank_has_no_file_until_it_trains_again(tmp_path: Path) -> None:
    steps = Steps(str(tmp_path))
    file = tmp_path / str(os.getpid())
    steps.end()
    for training in range(2):
        for _ in range(8):
            with steps.own():
                steps.done(tokens=1)
        wait_until("its file", file.exists)
        assert words(steps)["tokens"] == "8"
        steps.end()
        wait_until("no file", lambda: not file.exists())
        if training:
            break
        # What the program does now is watched by nobody.
        with steps.evaluation():
            time.sleep(1.1)
        assert not file.exists()
        assert "step_seconds" not in words(steps)
    steps._leave()


@pytest.mark.medium
def test_a_framework_s_training_that_is_over_is_not_watched_while_it_evaluates(
    tmp_path: Path,
) -> None:
    control = SimpleNamespace(should_evaluate=False, should_save=True)
    steps = Steps(str(tmp_path))
    trainer = _OfHuggingFace(steps)
    trainer.on_train_begin()
    trainer.on_step_begin()
    trainer.on_step_end(None, None, control)
    assert words(steps)["phase"] == "checkpoint"
    wait_until("its file", lambda: list(tmp_path.iterdir()))
    trainer.on_train_end()
    trainer.on_evaluate(None, None, control)
    wait_until("no file", lambda: not list(tmp_path.iterdir()))
    assert "phase" not in words(steps)
    steps._leave()


@pytest.mark.medium
@pytest.mark.parametrize("after", ["on_train_end", "on_test_start"])
def test_lightning_s_training_that_is_over_is_not_watched(tmp_path: Path, after: str) -> None:
    steps = Steps(str(tmp_path))
    trainer = _OfLightning(steps)
    trainer.on_train_start(None, None)
    trainer.on_train_batch_start()
    trainer.on_before_backward()
    trainer.on_train_batch_end()
    assert words(steps)["phase"] == "input"
    wait_until("its file", lambda: list(tmp_path.iterdir()))
    getattr(trainer, after)(None, None)
    trainer.on_validation_start()
    trainer.on_validation_end()
    trainer.on_save_checkpoint()
    wait_until("no file", lambda: not list(tmp_path.iterdir()))
    assert "phase" not in words(steps)
    steps._leave()


@pytest.mark.medium
@pytest.mark.parametrize(
    ("end", "stays"),
    [
        ("pass", False),
        ("raise SystemExit(1)", False),
        ("raise KeyError", True),
        ("os._exit(0)", True),
    ],
)
def test_a_rank_that_dies_of_an_exception_leaves_its_file(
    tmp_path: Path, end: str, stays: bool
) -> None:
    program = (
        "import os, time; from gpuvigil.steps import Steps\n"
        f"steps = Steps({str(tmp_path)!r}); steps.done()\n"
        f"while not os.listdir({str(tmp_path)!r}): time.sleep(0.01)\n"
        "child = os.fork()\n"
        "if child: os.waitpid(child, 0)\n"
        # One that it forked takes nothing away.
        "else: raise SystemExit\n"
        f"assert os.path.exists(steps._path)\n{end}\n"
    )
    subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.DEVNULL, check=False
    )
    assert bool(list(tmp_path.iterdir())) is stays


CHILD = """
import multiprocessing, os, sys, time
from gpuvigil.steps import Steps

def told():
    try:
        raise KeyError
    except KeyError:
        sys.exit(1)

def rank(directory, end):
    steps = Steps(directory)
    steps.done()
    while not os.path.exists(steps._path):
        time.sleep(0.01)
    exec(end)

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    for end in sys.argv[3:]:
        directory = sys.argv[2] + "/" + end
        os.mkdir(directory)
        child = context.Process(target=rank, args=(directory, end))
        child.start()
        child.join()
"""


@pytest.mark.medium
@pytest.mark.parametrize("how", ["fork", "forkserver", "spawn"])
def test_a_child_of_multiprocessing_leaves_its_file_if_it_dies_of_an_exception(
    tmp_path: Path, how: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(CHILD)
    told = tmp_path / "told"
    told.mkdir()
    # The last as `torch.multiprocessing.spawn` does.
    ends = {"pass": 0, "sys.exit(1)": 0, "raise KeyError": 1, "os._exit(0)": 1, "told()": 1}
    subprocess.run(
        [sys.executable, str(program), how, str(told), *ends],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
        check=True,
    )
    assert {end: len(list((told / end).iterdir())) for end in ends} == ends


class Stream:
    """What `torch.cuda` is asked of a GPU that comes to an event when the test says so; nothing waits for it."""

    def __init__(self) -> None:
        self.reached, self.marks, self.captures = 0, 0, False

    def is_current_stream_capturing(self) -> bool:
        return self.captures

    def Event(self, enable_timing: bool) -> "Mark":  # noqa: N802 - torch's name
        assert enable_timing
        return Mark(self)


class Mark:
    def __init__(self, stream: Stream) -> None:
        self.stream, self.at = stream, 0

    def record(self) -> None:
        self.stream.marks += 1
        self.at = self.stream.marks

    def query(self) -> bool:
        assert not self.stream.captures
        return self.at <= self.stream.reached

    def elapsed_time(self, other: "Mark") -> float:
        """A second between two events, in milliseconds."""
        assert other.query()
        return (other.at - self.at) * 1000.0


def test_on_a_gpu_a_step_is_measured_once_its_events_were_reached(tmp_path: Path) -> None:
    steps, stream = Steps(str(tmp_path)), Stream()
    steps._cuda = stream

    def step(passes: int = 1) -> None:
        for _ in range(passes):
            with steps.own():
                pass
        steps.done()

    step()
    step(passes=2)
    assert list(steps._own) == []
    stream.reached = 2
    step()
    assert list(steps._own) == [1.0]
    # A program that captures a graph must not ask, and marks nothing.
    stream.reached, stream.captures = 100, True
    step()
    assert (list(steps._own), stream.marks) == ([1.0], 8)
    stream.captures = False
    step()
    assert list(steps._own) == [1.0, 2.0, 1.0, 1.0]
    # A GPU that is far behind costs no memory.
    stream.reached = 0
    for _ in range(200):
        step()
    assert len(steps._pending) == 64
    steps._leave()


def test_a_program_that_never_ends_a_step_costs_no_memory(tmp_path: Path) -> None:
    steps = Steps(str(tmp_path))
    for _ in range(1025):
        with steps.own():
            pass
    assert len(steps._parts) == 1024
    steps.done()
    assert len(steps._own) == 1
    steps._leave()


def test_what_another_user_laid_in_its_way_is_not_written_to(tmp_path: Path) -> None:
    folder, victim = tmp_path / "steps", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("mine")
    victim.chmod(0o600)
    for make in (os.symlink, os.link):
        make(victim, folder / f"{os.getpid()}.new")
        steps = Steps(str(folder))
        steps.done()
        wait_until("its file", (folder / str(os.getpid())).exists)
        steps._leave()
        assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("mine", 0o600)
        assert list(folder.iterdir()) == []


def test_nothing_that_is_missing_or_strange_ends_a_program(tmp_path: Path) -> None:
    steps = Steps(str(tmp_path / "none"))
    assert steps.watch("no model") == "no model"
    steps.done(tokens=None, loss=object())  # type: ignore[arg-type]
    steps._own_ends()
    steps.done()
    assert steps._thread is not None
    assert steps._thread.is_alive()
    assert "loss" not in words(steps)
    steps._leave()


def test_the_rank_is_what_its_launcher_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "5")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "x")
    steps = Steps()
    assert (steps._rank, steps._world) == (5, None)
    monkeypatch.setenv("RANK", "3")
    assert (Steps()._rank, Steps(rank=2, world=4)._rank) == (3, 2)
