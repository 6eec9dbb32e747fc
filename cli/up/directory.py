"""The state directory of `up`: readable by its owner alone, used by one `up` at a time."""

import fcntl
import json
import os
import secrets
from pathlib import Path

from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.private_files import write_private
from gpuvigil.state_directory import LOCK_NAME

_TOKENS = ("collector-token", "service-token", "scheduler-token", "link-key")


class AlreadyRunning(GpuvigilError):
    """Another `up` has this state directory."""


class StateDirectory:
    """The directory, made and locked; raises AlreadyRunning or ConfigError if that fails."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        try:
            for folder in ("", "log", "secrets", "simulator"):
                (self.path / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
            # It may have been made by hand, with wider permissions.
            self.path.chmod(0o700)
            self._lock = os.open(
                self.path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise ConfigError(
                f"cannot use {self.path}: {error.strerror}; choose another with --state"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise AlreadyRunning(self._who()) from None
        self.write_note("")
        for name in _TOKENS:
            self._make_token(self.path / "secrets" / name)

    @property
    def logs(self) -> Path:
        return self.path / "log"

    @property
    def secrets(self) -> Path:
        return self.path / "secrets"

    def write_note(self, url: str) -> None:
        """Leave a note for a second `up`: this process's ID, and the address of the pages."""
        note = json.dumps({"pid": os.getpid(), "url": url}).encode()
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, note, 0)

    def release(self) -> None:
        """Let another `up` have the directory."""
        os.close(self._lock)

    def _who(self) -> str:
        try:
            note = json.loads(os.pread(self._lock, 4096, 0))
        except ValueError:
            note = {}
        os.close(self._lock)
        pid, url = note.get("pid", "unknown"), note.get("url")
        pages = f"pages at {url}, 'gpuvigil url' prints an address that signs in"
        return (
            f"already running here as process {pid} ({pages if url else 'still starting'});"
            f" end it first, or choose another directory than {self.path} with --state"
        )

    def _make_token(self, path: Path) -> None:
        if not path.exists():
            write_private(path, secrets.token_urlsafe(32) + "\n")
