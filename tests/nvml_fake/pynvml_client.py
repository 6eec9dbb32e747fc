"""The parent's side of a child process that makes pynvml calls (`client.py`)."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillWaiting
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.nvml_fake import FakeDriver

PATIENCE_SECONDS = 20.0
# Long enough that a call which is not stuck would have answered, many times over.
STUCK_SECONDS = 0.25


class Client:
    """A process that loads the fake driver and makes pynvml calls, each in a thread of its own."""

    def __init__(self, driver: FakeDriver) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("client.py"))],
            env={**os.environ, **driver.environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._waiting: dict[int, Future[Any]] = {}
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            error = answer.get("error")
            waiting = self._waiting[answer["id"]]
            if error is None:
                waiting.set_result(answer["result"])
            else:
                waiting.set_exception(pynvml.NVMLError(error))

    def start(self, call: str, *arguments: Any) -> Future[Any]:
        """Begin a call and return what will be its result."""
        assert self._process.stdin is not None
        number = len(self._waiting)
        future = self._waiting[number] = Future()
        request = {"id": number, "call": call, "arguments": arguments}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return future

    def call(self, call: str, *arguments: Any) -> Any:
        """Make a call and return its result."""
        return self.start(call, *arguments).result(PATIENCE_SECONDS)

    def error(self, call: str, *arguments: Any) -> int:
        """Make a call that must fail and return its NVML code."""
        with pytest.raises(pynvml.NVMLError) as caught:
            self.call(call, *arguments)
        return int(caught.value.value)

    def gpu(self, index: int) -> Any:
        """The handle of a GPU."""
        return self.call("nvmlDeviceGetHandleByIndex", index)

    def fields(self, gpu: Any, *fields: Any) -> dict[int, dict[str, int]]:
        """Field values by id."""
        values = self.call("nvmlDeviceGetFieldValues", gpu, list(fields))
        return {value["id"]: value for value in values}

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def is_stuck(future: Future[Any]) -> bool:
    """Whether a call has no result, which it would have by now were it not blocked."""
    try:
        future.result(STUCK_SECONDS)
    except StillWaiting:
        return True
    return False
