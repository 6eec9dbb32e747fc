"""A program of the site's own: it gets the message as JSON, and its exit code is the outcome.

0: delivered. 65 (`EX_DATAERR` of sysexits.h): refused, this message is wrong. All else: try again.
"""

import json
import os
import signal
import subprocess
from contextlib import suppress

from gpuvigil.config import CommandSettings
from gpuvigil.errors import ConfigError

from ..messages.channel import Delivered, Outcome, Pace, Refused, Retry
from ..messages.message import Message
from .http_post import profile_of
from .webhook import payload

NEVER = 65
# Environment variables passed to the program: no setting, and no secret.
_ENVIRONMENT = ("PATH", "HOME", "LANG", "TZ")


class Command:
    """The channel to one program."""

    def __init__(self, settings: CommandSettings, external_url: str) -> None:
        self._settings, self._external_url = settings, external_url
        self.profile, self.pace = profile_of(settings), Pace()
        self.timeout_seconds = settings.timeout_seconds
        if not os.access(settings.command[0], os.X_OK):
            raise ConfigError(
                f"the channel {settings.name!r} cannot run {settings.command[0]}: there is no such"
                " program, or it may not be run"
            )

    def deliver(self, message: Message) -> Outcome:
        settings = self._settings
        value = payload(message, settings.name, self._external_url)
        name = os.path.basename(settings.command[0])
        try:
            program = subprocess.Popen(
                settings.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={key: os.environ[key] for key in _ENVIRONMENT if key in os.environ},
                start_new_session=True,
            )
        except OSError as error:
            return Retry(reason=f"{name} cannot be run: {error.strerror}")
        try:
            program.communicate(json.dumps(value).encode(), timeout=self.timeout_seconds)
        except subprocess.TimeoutExpired:
            _end(program)
            said = f"{name} did not end within {self.timeout_seconds:g} s"
            return Retry(reason=said, perhaps_received=True)
        return judge(name, program.returncode)

    def close(self) -> None:
        """Do nothing: each message has a process of its own."""


def command(settings: CommandSettings, external_url: str) -> Command:
    """Return the channel to one program; ConfigError when it cannot be run."""
    return Command(settings, external_url)


def judge(name: str, code: int) -> Outcome:
    """Return the outcome for a program's exit code; a negative one is the signal that ended it."""
    if code == 0:
        return Delivered()
    said = f"{name} ended with exit code {code}"
    return Refused(reason=said) if code == NEVER else Retry(reason=said, perhaps_received=True)


def _end(program: subprocess.Popen[bytes]) -> None:
    """Kill the program and what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()
