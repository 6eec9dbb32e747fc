"""The product as its user runs it: `make up` in a folder, one URL, one Ctrl-C."""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.polling import wait_until

URL = re.compile(r"http://127\.0\.0\.1:\d+/\S*token=\S+")


class Product:
    """A running `up`; its `url` signs in once whoever opens it.

    Leaving the `with` block sends the signal of one Ctrl-C and waits; what is still running then is killed.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        state: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.state = state / "gpuvigil"
        self.lines: list[str] = []
        self._command = list(command)
        self._folder = folder
        self._environment = {
            **clean_environment(),
            "XDG_STATE_HOME": str(state),
            "PYTHONUNBUFFERED": "1",
            **(environment or {}),
        }
        self.process: subprocess.Popen[str]

    def __enter__(self) -> "Product":
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            self._command,
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def url(self, timeout_seconds: float = 60.0) -> str:
        """Return the address that `up` prints once everything is ready."""
        found = wait_until("the URL of up", self._url_or_end, timeout_seconds)
        self.seconds_to_url = time.monotonic() - self.began
        return found

    def _url_or_end(self) -> str | None:
        match = URL.search(self.output)
        if match is None and self.process.poll() is not None:
            raise AssertionError(f"up ended with {self.process.returncode}:\n{self.output}")
        return None if match is None else match.group()

    def stop(self) -> int:
        """Send one Ctrl-C to all foreground processes, as a terminal does, and return the exit code."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self._thread.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.returncode


def clean_environment() -> dict[str, str]:
    """Return the environment of a user who has prepared nothing for gpuvigil."""
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("GPUVIGIL_", "STREAMLIT_", "VIRTUAL_ENV", "PYTHON", "MAKE", "XDG_"))
        and key not in {"MFLAGS", "LD_LIBRARY_PATH"}
    }
