"""Reports the progress of a training program, so that gpuvigil can tell hangs, dead and slow ranks apart.

    from gpuvigil.steps import Steps

    steps = Steps()                 # in every rank
    for batch in batches:
        train(batch)
        steps.done()
    steps.end()

Or copy this file beside the program, as `gpuvigil_steps.py`: it needs nothing but Python 3.8. Each
process has a small file, written by a thread at most once a second. Nothing here raises, waits for a
GPU or keeps the program waiting: a program does not end because nobody watches it. The file is removed
when the program ends; the file of a rank that was killed, or died of an exception, stays as the sign.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.util import Finalize
from statistics import median
from typing import Any

DIRECTORY = "/run/gpuvigil-steps"
_KEPT = 1000  # steps over which the 99th percentile is taken
_LATELY = 5  # steps over which medians are taken: a rank that turns slow shows after three
_FIRST = (5, 25)  # the steps that are a rank's baseline: those after warm-up
_EVERY_SECONDS = 1.0
_MOST_PENDING = 64  # steps whose CUDA events have not been reached yet
_MOST_PARTS = 1024  # passes of own work per step, for a program that never ends a step
# Variables that give this rank and the world size: torchrun, Slurm, Open MPI, MPICH and Intel MPI.
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
WORLDS = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")

_WORK, _INPUT, _COLLECTIVE = "work", "input", "collective"
_CHECKPOINT, _EVALUATION = "checkpoint", "evaluation"


class Steps:
    """The progress of this process, one of a job's ranks."""

    def __init__(
        self, directory: str | None = None, rank: int | None = None, world: int | None = None
    ) -> None:
        folder = directory or os.environ.get("GPUVIGIL_STEPS", DIRECTORY)
        self._pid = os.getpid()
        self._path = os.path.join(folder, str(self._pid))
        self._rank = _number_in(RANKS) if rank is None else rank
        self._world = _number_in(WORLDS) if world is None else world
        self._written: object = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._cuda: Any = None  # `torch.cuda`, where own work runs on a GPU
        self._anew()
        atexit.register(self._leave)
        # Children of `multiprocessing` do not run `atexit` handlers.
        Finalize(None, self._leave, exitpriority=0)

    def _anew(self) -> None:
        """Reset everything to the state before the first step."""
        self._seconds: deque[float] = deque(maxlen=_KEPT)
        self._own: deque[float] = deque(maxlen=_LATELY)
        self._first: list[float] = []
        self._inputs: deque[float] = deque(maxlen=_LATELY)
        self._step = 0
        self._last: float | None = None
        self._ended = 0  # when the last step ended, in nanoseconds since 1970
        self._paused = 0.0  # seconds since the last step that the program spent on other work
        self._waited: float | None = None  # seconds waited for input since the last step
        self._parts: list[Any] = []  # of this rank's own work in the current step
        self._pending: deque[list[Any]] = deque(maxlen=_MOST_PENDING)
        self._mark: Any = None
        self._phase: tuple[str, float] | None = None  # the phase, and since when
        self._checkpoint: float | None = None
        self._tokens = 0
        self._loss: float | None = None

    def done(self, tokens: int | None = None, loss: float | None = None) -> None:
        """Count one finished step. A `loss` that is a tensor is ignored: reading it would wait for the GPU."""
        now = time.monotonic()
        if self._last is not None:
            self._seconds.append(max(now - self._last - self._paused, 0.0))
        self._last, self._ended, self._paused = now, time.time_ns(), 0.0
        self._step += 1
        if self._waited is not None:
            self._inputs.append(self._waited)
            self._waited = 0.0
        if self._parts or self._pending:
            self._close()
        if self._phase is not None and self._phase[0] == _COLLECTIVE:
            self._phase = (_WORK, time.time())
        if isinstance(tokens, int):
            self._tokens += tokens
        if isinstance(loss, (int, float)):
            self._loss = loss
        if self._thread is None:
            self._begin()

    def end(self) -> None:
        """Say that the training is over: no step is expected until the next `done` begins another one."""
        self._anew()  # the thread removes the file

    def batches(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches and record how long each was waited for."""
        them, nothing = iter(batches), object()
        while True:
            with self.input():
                batch = next(them, nothing)
            if batch is nothing:
                return
            yield batch

    @contextlib.contextmanager
    def input(self) -> Iterator[None]:
        """Mark the time in which this rank waits for its next batch."""
        began = time.monotonic()
        with self._in(_INPUT):
            yield
        self._waited = (self._waited or 0.0) + time.monotonic() - began

    @contextlib.contextmanager
    def checkpoint(self) -> Iterator[None]:
        """Mark the time in which a checkpoint is written, or waited for: no step is expected."""
        with self._pause(_CHECKPOINT):
            yield
        self._checkpoint = time.time()

    @contextlib.contextmanager
    def evaluation(self) -> Iterator[None]:
        """Mark the time in which the model is evaluated: no step is expected."""
        with self._pause(_EVALUATION):
            yield

    @contextlib.contextmanager
    def own(self) -> Iterator[None]:
        """Mark this rank's own work within a step: what comes before the first collective."""
        self._own_begins()
        yield
        self._own_ends()

    def watch(self, model: Any) -> Any:
        """Measure own work by the forward passes of a torch model; return the model.

        For a model in `DistributedDataParallel` the wrapped one is used: the wrapper begins with a
        collective. On a GPU, CUDA events measure the time; they are queried and never waited for.
        """
        with contextlib.suppress(Exception):
            inner = getattr(model, "module", model)
            self._on(next(iter(inner.parameters())).device)
            inner.register_forward_pre_hook(lambda it, *_: self._own_begins(it.training))
            inner.register_forward_hook(lambda it, *_: self._own_ends(it.training))
        return model

    def p99(self) -> float | None:
        """Return the 99th percentile of recent step times in seconds; None before the second step."""
        known = sorted(self._seconds)
        return known[(len(known) * 99 - 1) // 100] if known else None

    def _on(self, device: Any) -> None:
        self._cuda = importlib.import_module("torch").cuda if device.type == "cuda" else None

    def _own_begins(self, training: bool = True) -> None:
        if training:
            self._mark = self._now()
            self._phase = (_WORK, time.time())

    def _own_ends(self, training: bool = True) -> None:
        if training and self._mark is not None:
            if len(self._parts) < _MOST_PARTS:
                self._parts.append((self._mark, self._now()))
            self._mark = None
            self._phase = (_COLLECTIVE, time.time())

    def _now(self) -> Any:
        """Return a host time, or an event on the GPU's stream; None where neither can be recorded."""
        if self._cuda is None:
            return time.perf_counter()
        with contextlib.suppress(Exception):
            if not self._cuda.is_current_stream_capturing():
                event = self._cuda.Event(enable_timing=True)
                event.record()
                return event
        return None

    def _close(self) -> None:
        """Record the own work of finished steps, as far as the GPU has got."""
        parts = [part for part in self._parts if None not in part]
        self._parts = []
        if self._cuda is None:
            if parts:
                self._worked(sum(ended - began for began, ended in parts))
            return
        with contextlib.suppress(Exception):
            if parts:
                self._pending.append(parts)
            if self._cuda.is_current_stream_capturing():
                return
            while self._pending and self._pending[0][-1][1].query():
                its = self._pending.popleft()
                self._worked(sum(began.elapsed_time(ended) for began, ended in its) / 1e3)

    def _worked(self, seconds: float) -> None:
        self._own.append(seconds)
        if len(self._first) < _FIRST[1]:
            self._first.append(seconds)

    @contextlib.contextmanager
    def _in(self, phase: str) -> Iterator[None]:
        before, self._phase = self._phase, (phase, time.time())
        if self._thread is None:
            self._begin()
        try:
            yield
        finally:
            self._phase = (_WORK if before is None else before[0], time.time())

    @contextlib.contextmanager
    def _pause(self, phase: str) -> Iterator[None]:
        began, before = time.monotonic(), self._paused
        try:
            with self._in(phase):
                yield
        finally:
            self._paused = before + time.monotonic() - began  # including any pause within it

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="gpuvigil-steps", daemon=True)
        with contextlib.suppress(RuntimeError):  # no more threads, or the program is about to end
            self._thread.start()

    def _run(self) -> None:
        while True:
            # A deque may change while it is iterated over: the next second will do.
            with contextlib.suppress(OSError, RuntimeError, ValueError):
                self._write()
            if self._over.wait(_EVERY_SECONDS):
                return

    def _write(self) -> None:
        state = (self._ended, self._phase, self._checkpoint)
        if not self._step and self._written is not None:
            os.unlink(self._path)
            self._written = None
        if state == self._written or not self._step:
            return
        beside = self._path + ".new"
        # Anybody may write to the directory: a file of this name may be another user's link.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(beside, flags, 0o600), "w") as file:
            os.fchmod(file.fileno(), 0o644)  # despite the umask: the collector is another user's
            file.write(" ".join(self._words()) + "\n")
            file.flush()
            # The file's modification time is the step's, however late it is written.
            os.utime(file.fileno(), ns=(self._ended, self._ended))
        os.replace(beside, self._path)
        self._written = state

    def _words(self) -> Iterator[str]:
        yield str(self._step)
        p99, phase = self.p99(), self._phase
        if p99 is not None:
            yield f"{p99:.3f}"
        told: tuple[tuple[str, float | None], ...] = (
            ("rank", self._rank),
            ("world", self._world),
            ("step_seconds", _median(list(self._seconds)[-_LATELY:])),
            ("own_seconds", _median(list(self._own))),
            ("own_first_seconds", _median(self._first[_FIRST[0] :])),
            ("input_seconds", _median(list(self._inputs))),
            ("checkpoint", self._checkpoint and round(self._checkpoint)),
            ("tokens", self._tokens or None),
            ("loss", self._loss),
        )
        for name, value in told:
            if value is not None:
                yield f"{name}={value:.10g}"
        if phase is not None:
            yield f"phase={phase[0]}"
            yield f"since={phase[1]:.2f}"

    def _leave(self) -> None:
        """Remove the file after an orderly end; a rank that dies of an exception leaves it."""
        # A `multiprocessing` child may come here twice; only the first time knows how it ended.
        if self._over.is_set() or os.getpid() != self._pid:
            return
        self._over.set()
        if not _dies():
            with contextlib.suppress(OSError):
                os.unlink(self._path)


def lightning_callback(steps: Steps | None = None) -> Any:
    """Return a callback for `lightning.Trainer(callbacks=[lightning_callback()])`."""
    told = steps or Steps()
    bases = (importlib.import_module("lightning.pytorch").Callback, _OfLightning)
    return type("StepsCallback", bases[::-1], {})(told)


def hugging_face_callback(steps: Steps | None = None) -> Any:
    """Return a callback for `transformers.Trainer(callbacks=[hugging_face_callback()])`."""
    told = steps or Steps()
    bases = (importlib.import_module("transformers").TrainerCallback, _OfHuggingFace)
    return type("StepsCallback", bases[::-1], {})(told)


class _Between:
    """The time between two steps: waiting for input, unless the program reports another phase."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self._open: Any = None
        self._trains = False

    def begin(self) -> None:
        self._trains = True
        self.enter(self.steps.input)

    def end(self) -> None:
        """Stop watching: what comes after the training may be long and makes no steps."""
        self.enter(None)
        self._trains = False
        self.steps.end()

    def enter(self, phase: Callable[[], Any] | None) -> None:
        """Enter another phase; None means a step."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
        self._open = phase() if phase is not None and self._trains else None
        if self._open is not None:
            self._open.__enter__()


class _OfLightning(_Between):
    """Lightning's hooks, under its names."""

    def on_train_start(self, trainer: Any, module: Any) -> None:
        with contextlib.suppress(Exception):
            self.steps._on(module.device)
        self.begin()

    def on_train_batch_start(self, *_: Any) -> None:
        self.enter(None)
        self.steps._own_begins()

    def on_before_backward(self, *_: Any) -> None:
        self.steps._own_ends()

    def on_train_batch_end(self, *_: Any) -> None:
        self.steps.done()
        self.enter(self.steps.input)

    def on_validation_start(self, *_: Any) -> None:
        self.enter(self.steps.evaluation)

    def on_validation_end(self, *_: Any) -> None:
        self.enter(self.steps.input)

    def on_save_checkpoint(self, *_: Any) -> None:
        self.enter(self.steps.checkpoint)  # until the next batch begins

    def on_train_end(self, *_: Any) -> None:
        self.end()

    # Also called after a training that was broken off, for which there is no end hook.
    on_test_start = on_predict_start = on_train_end


class _OfHuggingFace(_Between):
    """The Hugging Face Trainer's events, under its names."""

    def on_train_begin(self, *_: Any, model: Any = None, **__: Any) -> None:
        self.steps.watch(model)
        self.begin()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.enter(None)

    def on_step_end(self, _args: Any, _state: Any, control: Any, **__: Any) -> None:
        self.steps.done()
        self._then(control)

    def on_epoch_end(self, _args: Any, _state: Any, control: Any, **__: Any) -> None:
        self._then(control)

    def on_evaluate(self, _args: Any, _state: Any, control: Any, **__: Any) -> None:
        self._then(control, evaluated=True)

    def on_save(self, *_: Any, **__: Any) -> None:
        self.enter(self.steps.input)

    def _then(self, control: Any, evaluated: bool = False) -> None:
        """Enter the phase that the Trainer starts next, as its callbacks before this one have decided."""
        if control.should_evaluate and not evaluated:
            self.enter(self.steps.evaluation)
        else:
            self.enter(self.steps.checkpoint if control.should_save else self.steps.input)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.end()


def _median(seconds: list[float]) -> float | None:
    return median(seconds) if seconds else None


def _dies() -> bool:
    """Return whether the program ends by an exception: printed, or ending a `multiprocessing` child."""
    died = sys.exc_info()[1]
    if isinstance(died, SystemExit):
        # `torch.multiprocessing` ends a rank like this after sending its parent the exception.
        return died.code not in (None, 0) and isinstance(died.__context__, Exception)
    return died is not None or getattr(sys, "last_type", None) is not None


def _number_in(names: Iterable[str]) -> int | None:
    """Return the first of these environment variables that is a number; None when none is."""
    values = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdigit()), None)
