"""A running agent's control socket: one JSON line in, one JSON line out.

A Unix socket in the spool directory, which only the agent's user and root may enter.
"""

import json
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from gpuvigil.errors import GpuvigilError
from gpuvigil.log import Log

log = Log("collector")

NAME = "agent.sock"
_LONGEST_LINE = 4096
_LONGEST_ANSWER = 1024 * 1024  # with the numbers of every GPU
_CHUNK = 1 << 16
_LINE_SECONDS = 5.0  # for a client to send its line
_ANSWER_SECONDS = 10.0
_REST_SECONDS = 0.2  # after a connection could not be accepted

Request = Mapping[str, Any]
Reply = Callable[[Mapping[str, Any]], None]


class NoAgentError(GpuvigilError):
    """No agent runs that could take the request."""

    exit_code: ClassVar[int] = 3


class NoPermissionError(GpuvigilError):
    """The agent runs as another user."""

    exit_code: ClassVar[int] = 4


class ControlServer:
    """The agent's end of the socket: takes requests until closed.

    `handle` gets each request with the function that answers it.
    """

    def __init__(self, directory: Path, handle: Callable[[Request, Reply], None]) -> None:
        """Open the socket, replacing one that an earlier agent left; OSError when that fails."""
        self._file = directory / NAME
        self._handle = handle
        self._closed = threading.Event()
        with suppress(FileNotFoundError):
            self._file.unlink()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _short(directory) as path:
                self._socket.bind(path)
            self._file.chmod(0o600)
            self._socket.listen(8)
        except OSError:
            self._socket.close()
            raise
        threading.Thread(target=self._run, name="control", daemon=True).start()

    def close(self) -> None:
        """Take no more requests."""
        self._closed.set()
        with suppress(OSError):
            self._file.unlink()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._socket.accept()
            except OSError:  # closed, or no descriptor is free
                self._closed.wait(_REST_SECONDS)
                continue
            # One thread per client, so that a silent client keeps nobody else waiting.
            serving = threading.Thread(
                target=self._serve, args=(client,), name="control-client", daemon=True
            )
            try:
                serving.start()
            except RuntimeError:  # no room for one more
                client.close()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(_LINE_SECONDS)
            client.sendall(json.dumps(self._answer(client)).encode() + b"\n")

    def _answer(self, client: socket.socket) -> Mapping[str, Any]:
        try:
            request = json.loads(_line(client, _LONGEST_LINE))
        except ValueError:
            request = None
        if not isinstance(request, dict):
            return {
                "ok": False,
                "error": 'a request is a JSON object on one line: {"do": "status"}',
            }
        answers: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._handle(request, answers.put)
        try:
            return answers.get(timeout=_ANSWER_SECONDS)
        except queue.Empty:
            return {"ok": False, "error": "the agent is busy; its log may say with what"}


class Question:
    """A request that was sent to the agent; its descriptor can be waited on for the answer."""

    def __init__(self, directory: Path, request: Request, seconds: float) -> None:
        """Send the request to the agent whose spool is in `directory`, each step within `seconds`.

        Raises NoAgentError when no agent runs there, NoPermissionError when the caller may not
        connect, and GpuvigilError when the agent takes no request.
        """
        self._directory = directory
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(seconds)
        try:
            with _translated(directory), _short(directory) as path:
                self._socket.connect(path)
                self._socket.sendall(json.dumps(dict(request)).encode() + b"\n")
        except GpuvigilError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return the socket's descriptor, which becomes readable when the answer begins."""
        return self._socket.fileno()

    def answer(self) -> dict[str, Any]:
        """Return the answer; to be called once.

        Raises GpuvigilError when the agent refuses, or does not answer as agents do.
        """
        with _translated(self._directory), self._socket:
            answer = json.loads(_line(self._socket, _LONGEST_ANSWER))
        if isinstance(answer, dict) and answer.get("ok"):
            return answer
        said = answer.get("error") if isinstance(answer, dict) else None
        where = f"the agent in {self._directory}"
        raise GpuvigilError(str(said or f"{where} answers otherwise than expected"))

    def close(self) -> None:
        """Close the socket without waiting for an answer."""
        self._socket.close()


def ask(directory: Path, request: Request) -> dict[str, Any]:
    """Ask the agent whose spool is in `directory`; raises the errors of `Question`."""
    return Question(directory, request, _ANSWER_SECONDS + _LINE_SECONDS).answer()


@contextmanager
def _translated(directory: Path) -> Iterator[None]:
    """Turn the kernel's socket errors into messages that say what to do."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        raise NoAgentError(
            f"no agent runs with the spool directory {directory}; start one, or name its"
            " configuration with --config"
        ) from None
    except PermissionError:
        raise NoPermissionError(
            f"the agent with the spool directory {directory} belongs to another user; run this as"
            " that user or as root"
        ) from None
    except (OSError, ValueError) as error:
        raise GpuvigilError(f"the agent in {directory} gives no answer: {error}") from None


def _line(stream: socket.socket, longest: int) -> bytes:
    """Read one line of at most `longest` bytes, without its line end."""
    found = b""
    while b"\n" not in found and len(found) < longest:
        more = stream.recv(_CHUNK)
        if not more:
            break
        found += more
    return found.partition(b"\n")[0]


@contextmanager
def _short(directory: Path) -> Iterator[str]:
    """Yield the socket's path in a short form: a kernel socket address has 108 bytes at most."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)
