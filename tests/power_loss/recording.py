"""Runs a program and writes down, in their order, its calls that change files below a folder."""

import hashlib
import os
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("recorder.c")
_WARNINGS = ["-Wall", "-Wextra", "-Werror"]
_FLAGS = ["-std=gnu11", "-O2", *_WARNINGS, "-fvisibility=hidden", "-shared", "-fPIC", "-pthread"]
_HEAD = struct.Struct("<cQQII")  # as `struct head` in recorder.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call that was made, by its letter in recorder.c; or `A`, something that was acknowledged."""

    what: str
    inode: int
    offset: int  # of a write; the new size where a file was made shorter or longer
    first: bytes  # the bytes written, a path, or what was acknowledged
    second: bytes  # the other path


def build(directory: Path) -> Path:
    """Compile the recorder under `directory`, or find it there; FileNotFoundError without gcc."""
    name = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    library = directory / f"recorder-{name}.so"
    if not library.exists():
        draft = library.with_suffix(f".{os.getpid()}")
        subprocess.run(["gcc", *_FLAGS, "-o", str(draft), str(_SOURCE)], check=True)
        draft.replace(library)
    return library


class Recording:
    """The log of one program: it runs with `environment`, and changes files below `root`."""

    def __init__(self, library: Path, root: Path, log: Path) -> None:
        self.root = root.resolve()
        self.log = log
        self._library = library
        log.touch()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make a program write the log."""
        return {
            "LD_PRELOAD": str(self._library),
            "POWER_LOSS_ROOT": str(self.root),
            "POWER_LOSS_LOG": str(self.log),
        }

    def run(self, command: Sequence[str], path: Sequence[Path]) -> None:
        """Run a Python program to its end, with modules from `path`; AssertionError with what it
        said when it fails.
        """
        done = subprocess.run(
            command,
            env={"PYTHONPATH": os.pathsep.join(map(str, path)), **self.environment},
            cwd=path[0],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def acknowledge(self, what: str) -> None:
        """Note that from here on `what` was promised to somebody."""
        acknowledge(self.log, what)

    def calls(self) -> list[Call]:
        """What the log has, in its order."""
        return list(_calls(self.log.read_bytes()))


def acknowledge(log: Path, what: str) -> None:
    """Note in the log of a recording that `what` was promised; from any process."""
    said = what.encode()
    with log.open("ab", buffering=0) as file:
        file.write(_HEAD.pack(b"A", 0, 0, len(said), 0) + said)


def _calls(log: bytes) -> Iterator[Call]:
    at = 0
    while at < len(log):
        what, inode, offset, first, second = _HEAD.unpack_from(log, at)
        at += _HEAD.size
        yield Call(
            what=what.decode(),
            inode=inode,
            offset=offset,
            first=log[at : at + first],
            second=log[at + first : at + first + second],
        )
        at += first + second
