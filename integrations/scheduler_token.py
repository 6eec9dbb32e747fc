"""The token with which a scheduler's integration speaks to the hub."""

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuvigil.config import HubSettings, secret_source
from gpuvigil.errors import ConfigError

KEY, WHAT = "hub.scheduler_token_file", "scheduler token"
_NAME = "scheduler-token"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerToken:
    """`read` gives the token as it is now; `todo` says what makes one that the hub takes."""

    read: Callable[[], str]
    todo: str


def scheduler_token(
    settings: HubSettings, cluster: str, name: str, before: Path | None
) -> SchedulerToken:
    """That of `hub.scheduler_token_file`; where none is named, of `scheduler-token` beside the file
    `before`, or of `before` itself for as long as there is none: with that one a scheduler came when
    it had no token of its own.

    ConfigError where neither is named, or the one that is cannot be read.
    """
    file = settings.scheduler_token_file or (before and before.with_name(_NAME))
    if file is None:
        command = _command(cluster, name, Path(_NAME))
        raise ConfigError(f"{KEY} is not set: name the file that `{command}` writes")
    if before is None or settings.scheduler_token_file is not None:
        read = secret_source(file, KEY, WHAT)
    else:
        read = _either(file, before)
    todo = (
        f"run `{_command(cluster, name, file)}` where the hub's service token is, and copy the file"
        " here if that is another machine"
    )
    return SchedulerToken(read=read, todo=todo)


def _command(cluster: str, name: str, file: Path) -> str:
    words = ("--cluster", cluster, "--name", name, "--file", str(file.absolute()))
    return f"gpuvigil token create --scope scheduler {shlex.join(words)}"


def _either(own: Path, before: Path) -> Callable[[], str]:
    """A scheduler's own token from the moment on that it is there, until then the one before."""
    sources: dict[Path, Callable[[], str]] = {}

    def read() -> str:
        file = own if os.path.exists(own) else before
        if file not in sources:
            sources[file] = secret_source(file, KEY, WHAT)
        return sources[file]()

    read()
    return read
