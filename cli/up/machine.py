"""Find this machine's NVIDIA driver and free ports. The driver itself is never called."""

import re
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuvigil.errors import ConfigError

_LIBRARY = "libnvidia-ml.so.1"
_PORTS_TO_TRY = 50
_TURN_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The NVIDIA driver as its files in /proc describe it; `version` is None if they do not say."""

    version: str | None
    gpus: tuple[str, ...]

    @property
    def text(self) -> str:
        """GPUs and driver, as `8 x NVIDIA H100 80GB HBM3, driver 580.95.05`."""
        names = dict.fromkeys(self.gpus)
        counted = [f"{self.gpus.count(name)} x {name}" for name in names]
        parts = counted + ([f"driver {self.version}"] if self.version else [])
        return ", ".join(parts) or f"NVIDIA's library {_LIBRARY} is on LD_LIBRARY_PATH"


def driver(root: Path, environment: Mapping[str, str]) -> Driver | None:
    """Return the driver of the machine whose file system starts at `root`, or None without one.

    A library on LD_LIBRARY_PATH counts as a driver, since the collector would load it.
    """
    proc = root / "proc/driver/nvidia"
    version = _version(_text(proc / "version"))
    names = [
        found.group(1).strip()
        for path in sorted(proc.glob("gpus/*/information"))
        if (found := re.search(r"^Model:(.*)$", _text(path), re.MULTILINE))
    ]
    folders = environment.get("LD_LIBRARY_PATH", "").split(":")
    library = any((Path(folder) / _LIBRARY).exists() for folder in folders if folder)
    present = version or names or library or (root / "dev/nvidiactl").exists()
    return Driver(version=version, gpus=tuple(names)) if present else None


def _version(text: str) -> str | None:
    """Return the version in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue ...`, or None."""
    found = re.search(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", text, re.MULTILINE)
    return found.group(1) if found else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def choose_port(
    wanted: int, taken: Collection[int], is_free: Callable[[int], bool], any_free: Callable[[], int]
) -> int:
    """Return the wanted port, or the next free one that is not in `taken`; for 0 any free port."""
    if wanted > 0:
        for port in range(wanted, min(wanted + _PORTS_TO_TRY, 65536)):
            if port not in taken and is_free(port):
                return port
    return any_free()


@contextmanager
def turn(seconds: float) -> Iterator[Callable[[], None]]:
    """Let one `up` at a time choose ports; yield a function that ends the turn before the block ends.

    The turn is a socket name in the ports' network namespace, which the kernel frees. After `seconds`
    this `up` goes on even if another one still holds the name.
    """
    with socket.socket(socket.AF_UNIX) as name:
        end = time.monotonic() + seconds
        while not _bound(name) and time.monotonic() < end:
            time.sleep(_TURN_POLL_SECONDS)
        yield name.close


def _bound(name: socket.socket) -> bool:
    try:
        name.bind("\0gpuvigil-up-chooses-ports")
    except OSError:
        return False
    return True


def is_free(host: str, port: int) -> bool:
    """Return whether a server could listen at this address and port now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As servers do: ignore closed connections of an earlier run that still linger.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def any_free(host: str) -> int:
    """Return a port that is free now; ConfigError if nothing can listen at that address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise ConfigError(f"cannot listen on {host!r}: {error.strerror}") from None
        port: int = probe.getsockname()[1]
    return port
