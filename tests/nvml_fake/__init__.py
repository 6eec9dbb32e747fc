"""A stand-in for NVIDIA's driver library, told by a state file what every GPU says while clients run.

A client is any process that runs with `FakeDriver.environment()` and loads `libnvidia-ml.so.1`, as
`pynvml` does. The values that may be set, with units and defaults, are in `values.def`.
"""

import difflib
import hashlib
import os
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
_SOURCES = Path(__file__).parent
_WARNINGS = ["-Wall", "-Wextra", "-Werror"]
_FLAGS = ["-std=gnu11", "-O2", *_WARNINGS, "-fvisibility=hidden", "-shared", "-fPIC", "-pthread"]

DEFAULTS: dict[str, str] = dict(
    re.findall(r'^VALUE\((\w+), "(.*)"\)$', (_SOURCES / "values.def").read_text(), re.MULTILINE)
)
_COUNTERS = [key for key in DEFAULTS if f"{key}_per_second" in DEFAULTS]
# A change of one of these changes the course of a counter.
_COURSE = {"power_milliwatts", *_COUNTERS, *(f"{name}_per_second" for name in _COUNTERS)}
# What a GPU forgets when it is reset, besides its counters that move with time.
_VOLATILE = ["ecc_corrected_volatile", "ecc_uncorrected_volatile"] + [
    key
    for key in DEFAULTS
    if re.fullmatch(
        r"nvlink_(replays|recoveries\w*|\w+_errors|[rt]x_bytes)|pcie_(?!generation|width|max|[rt]x)\w+",
        key,
    )
]
# A counter's new course starts this much after the old one is folded, so that a client that still
# reads the old file never sees the counter go back.
_SETTLE_SECONDS = 0.1


def build(directory: Path) -> Path:
    """Compile the library under `directory`, or find it there, and return its path.

    Raises `FileNotFoundError` without gcc, and `subprocess.CalledProcessError` for its complaints.
    """
    sources = [*sorted(_SOURCES.glob("*.[ch]")), _SOURCES / "values.def"]
    content = hashlib.sha256("\0".join([*_FLAGS, *(s.read_text() for s in sources)]).encode())
    library = directory / f"nvml-fake-{content.hexdigest()[:16]}" / LIBRARY
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        units = [str(source) for source in sources if source.suffix == ".c"]
        subprocess.run(["gcc", *_FLAGS, "-o", str(unfinished), *units], check=True)
        unfinished.replace(library)
    return library


class FakeDriver:
    """The driver of one node: what its GPUs say, and how they fail.

    A change is in force for every call that begins after the method returned; a call that hangs
    sees it within 50 ms. GPUs are named by their slot, which stays when another GPU is `missing`.
    Safe in any thread.
    """

    def __init__(self, directory: Path, library: Path, *, gpus: int = 8, node: int = 0) -> None:
        """Start with `gpus` idle GPUs; `node` makes their UUIDs and serials unlike other nodes'."""
        self._path = directory / "nvml.state"
        self._library = library
        self._lock = threading.Lock()
        self._stamp = 0
        self._xids = 0
        started = f"{time.time():.6f}"
        self._state = {"gpus": str(gpus), "node": str(node)}
        self._state |= {f"gpu.{gpu}.counted_from": started for gpu in range(gpus)}
        self.devices = directory / "dev"
        self.devices.mkdir(parents=True, exist_ok=True)
        for name in ("nvidiactl", *(f"nvidia{gpu}" for gpu in range(gpus))):
            (self.devices / name).touch()
        self._stamps = os.open(f"{self._path}.stamp", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        weakref.finalize(self, os.close, self._stamps)
        with self._lock:
            self._write()

    def environment(self) -> dict[str, str]:
        """The variables that make a client process load this driver."""
        folders = [str(self._library.parent), os.environ.get("LD_LIBRARY_PATH", "")]
        return {
            "LD_LIBRARY_PATH": ":".join(folder for folder in folders if folder),
            "NVML_FAKE_STATE": str(self._path),
            "NVML_FAKE_DEVICES": str(self.devices),
        }

    def set(self, gpu: int, **values: int | str) -> None:
        """Set values of a GPU, by their names in `values.def`."""
        self._set_values(gpu, f"gpu.{gpu}", values)

    def set_link(self, gpu: int, link: int, **values: int | str) -> None:
        """Set values of one NVLink, by their names (`nvlink_...`) in `values.def`."""
        self._set_values(gpu, f"gpu.{gpu}.link.{link}", values)

    def set_mig(self, gpu: int, mig: int, **values: int | str) -> None:
        """Set values of one MIG device, by their names (`mig_...`, `gpm_...`) in `values.def`."""
        self._set_values(gpu, f"gpu.{gpu}.mig.{mig}", values)

    def set_system(self, **values: int | str) -> None:
        """Set `driver_version`, `nvml_version`, `cuda_version`, `gpus` or `node`."""
        self._change({key: str(value) for key, value in values.items()})

    def set_processes(self, gpu: int, used_bytes: Mapping[int, int | None]) -> None:
        """Let these compute processes, by process id, hold the GPU; None is not known."""
        words = [f"{pid}:{'-' if used is None else used}" for pid, used in used_bytes.items()]
        self.set(gpu, compute_processes=" ".join(words))

    def fail(self, gpu: int | None, what: str | int, code: int) -> None:
        """Let a function (by name) or field (by id) return `code`; 0 heals it.

        For the function of no GPU in particular, or of all of them, `gpu` is None.
        """
        scope = "" if gpu is None else f"gpu.{gpu}."
        name = what if isinstance(what, str) else f"field.{what}"
        self._change({f"{scope}return.{name}": str(code)})

    def delay(self, what: str | int, seconds: float, gpu: int | None = None) -> None:
        """Let every call of a function (by name) or field (by id) take this long, on all GPUs or on
        one; 0 ends calls that wait, too.
        """
        scope = "" if gpu is None else f"gpu.{gpu}."
        name = what if isinstance(what, str) else f"field.{what}"
        self._change({f"{scope}delay.{name}": str(seconds)})

    def charge(self, call_seconds: float, dear_seconds: float) -> None:
        """Let every call cost its caller so much processor time, on any GPU or none; `dear_seconds`
        is for NVLink calls, batches of field values and throughput calls.
        """
        self._change({"charge.call": str(call_seconds), "charge.dear": str(dear_seconds)})

    def lose(self, gpu: int) -> None:
        """Let the GPU fall off the bus: every call on it says GPU_IS_LOST."""
        self.set(gpu, lost=1)

    def restore(self, gpu: int) -> None:
        """Bring a lost GPU back."""
        self.set(gpu, lost=0)

    def hang(self, gpu: int) -> None:
        """Let every call on this GPU block until `release`; other GPUs answer."""
        self.set(gpu, hang=1)

    def hang_all(self) -> None:
        """Let every call of every client block until `release`, init and event wait included."""
        self._change({"hang": "all"})

    def block_in(self, file: Path | str) -> None:
        """Let every call ask the kernel for this file first, whose answer may never come."""
        self._change({"block": str(file)})

    def unload(self) -> None:
        """Take the driver away: every call says DRIVER_NOT_LOADED."""
        self._change({"unloaded": "1"})

    def load(self, version: str) -> None:
        """Load a driver of this version."""
        self._change({"unloaded": "0", "driver_version": version})

    def held_by(self, pid: int) -> list[str]:
        """The device files that a process has open, as /proc tells."""
        found = []
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = entry.readlink()
            except OSError:
                continue  # closed meanwhile
            if target.parent == self.devices:
                found.append(target.name)
        return sorted(found)

    def release(self) -> None:
        """End all hangs: calls that were stuck go on, those in the kernel when it answers."""
        with self._lock:
            hangs = [k for k in self._state if re.fullmatch(r"hang|block|gpu\.\d+\.hang", k)]
            for key in hangs:
                del self._state[key]
            self._write()

    def xid(self, gpu: int, code: int) -> None:
        """Send an Xid event to every event set that has registered for this GPU."""
        with self._lock:
            self._xids += 1
            self._state[f"xid.{self._xids}"] = f"{gpu} {code}"
            self._write()

    def reset(self, gpu: int) -> None:
        """Reset the GPU: its counters, energy included, start at 0 again."""
        with self._lock:
            links = f"gpu.{gpu}.link."
            zero = [*_COUNTERS, *_VOLATILE]
            for key in list(self._state):
                if key.startswith(links) and key.rpartition(".")[2] in zero:
                    del self._state[key]
            self._state |= {f"gpu.{gpu}.{key}": "0" for key in zero}
            self._state[f"gpu.{gpu}.counted_from"] = f"{time.time():.6f}"
            self._write()

    def _set_values(self, gpu: int, scope: str, values: Mapping[str, int | str]) -> None:
        for key in values:
            if key not in DEFAULTS:
                near = difflib.get_close_matches(key, DEFAULTS)
                raise ValueError(f"{key}: no value of a GPU; did you mean {', '.join(near)}?")
        changes = {f"{scope}.{key}": str(value) for key, value in values.items()}
        with self._lock:
            if not _COURSE.isdisjoint(values):
                self._fold(gpu)
            self._state |= changes
            self._write()

    def _fold(self, gpu: int) -> None:
        """Restate the GPU's counters as of now, so that a new rate counts from now only."""
        clock = f"gpu.{gpu}.counted_from"
        until = time.time() + _SETTLE_SECONDS
        elapsed = max(0.0, until - float(self._state.get(clock, until)))
        pattern = re.compile(rf"(gpu\.{gpu}\.link\.\d+)\.")
        links = sorted({m[1] for m in map(pattern.match, self._state) if m})
        counters = [(f"gpu.{gpu}", name) for name in _COUNTERS]
        counters += [(link, name) for link in links for name in _COUNTERS if "nvlink" in name]
        folded = {
            f"{scope}.{name}": int(self._value(scope, name))
            + int(elapsed * self._rate(scope, name))
            for scope, name in counters
        }
        self._state |= {key: str(value) for key, value in folded.items()}
        self._state[clock] = f"{until:.6f}"

    def _value(self, scope: str, key: str) -> str:
        whole_gpu = scope.partition(".link.")[0]
        default = self._state.get(f"{whole_gpu}.{key}", DEFAULTS[key])
        return self._state.get(f"{scope}.{key}", default)

    def _rate(self, scope: str, name: str) -> int:
        rate = self._value(scope, f"{name}_per_second")
        # A milliwatt is a millijoule a second; only energy has no rate of its own.
        return int(rate or self._value(scope, "power_milliwatts"))

    def _change(self, changes: Mapping[str, str]) -> None:
        with self._lock:
            self._state |= changes
            self._write()

    def _write(self) -> None:
        lines = [f"{key}={value}" for key, value in self._state.items()]
        unfinished = self._path.with_suffix(".new")
        unfinished.write_text("\n".join(lines) + "\n")
        # Clients see a change by the file's time, which the kernel itself keeps too coarsely.
        self._stamp = max(self._stamp + 1, time.time_ns())
        os.utime(unfinished, ns=(self._stamp, self._stamp))
        unfinished.replace(self._path)
        # Clients map this number, and look at the file when it has changed.
        os.pwrite(self._stamps, self._stamp.to_bytes(8, sys.byteorder), 0)
