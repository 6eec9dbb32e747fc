"""Asks Slurm through its own commands, as long as a time-out allows."""

import os
import subprocess
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from gpuvigil.model import Job, ScheduledNode, Subject

from . import jobs_columns, jobs_json, nodes
from .pace import Pace

Value = TypeVar("Value")

# What squeue says where it has no `--json`, or no plugin for it (getopt_long(3), slurm 20.02 to 24.11).
_NO_JSON = (
    "unrecognized option",
    "unknown option",
    "serializer",
    "data_parser",
    "openapi",
    "no such plugin",
)
_LONGEST_WHY = 300
# Columns tell less: a squeue that had no JSON is asked for it again then, for its plugin may just have been away.
_JSON_AGAIN_SECONDS = 3600.0


class AskingError(Exception):
    """No answer: says which command, and why."""


class Slurm:
    """One cluster, as this machine's slurm.conf names it."""

    def __init__(
        self,
        told_by: Subject,
        pace: Pace,
        steady: Callable[[], float],
        timeout_seconds: float,
        directory: str = "",
    ) -> None:
        """`directory` is where squeue and scontrol lie; empty for the search path."""
        self._told_by = told_by
        self._pace = pace
        self._steady = steady
        self._timeout_seconds = timeout_seconds
        self._directory = directory
        self._json_from = 0.0  # when it is asked for again
        self.requests = 0

    def jobs(self, at: datetime) -> tuple[Job, ...]:
        """All jobs with GPUs that it knows, and those that ended within its MinJobAge; AskingError for no answer."""
        every = ("squeue", "--all", "--states=all")
        if self._steady() >= self._json_from:
            try:
                text = self._ask(*every, "--json")
                return _read(lambda: jobs_json.read(text, self._told_by, at))
            except AskingError as error:
                if not any(words in str(error).lower() for words in _NO_JSON):
                    raise
                self._json_from = self._steady() + _JSON_AGAIN_SECONDS
        wanted = ",".join(f"{name}:{width}" for name, width in jobs_columns.COLUMNS.items())
        text = self._ask(*every, "--noheader", "-O", wanted)
        return _read(lambda: jobs_columns.read(text, self._told_by, at))

    def nodes(self) -> tuple[ScheduledNode, ...]:
        """The states of all nodes; AskingError for no answer."""
        text = self._ask("scontrol", "-o", "show", "node", "-d")
        return _read(lambda: nodes.read(text))

    def _ask(self, *words: str) -> str:
        if not self._pace.may_ask(self._steady()):
            raise AskingError(
                f"{words[0]} was not asked: the limit of slurm.requests_per_minute is reached"
            )
        self.requests += 1
        program = os.path.join(self._directory, words[0])
        # Times as numbers, and messages that can be told apart.
        settled = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
        try:
            done = subprocess.run(
                [program, *words[1:]],
                env=settled,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise AskingError(
                f"{words[0]} did not answer within {self._timeout_seconds:g} s"
            ) from error
        except OSError as error:
            raise AskingError(
                f"{program} cannot be run: {error.strerror}; set slurm.directory"
            ) from error
        said = done.stderr.decode(errors="replace").strip()
        # A controller that is away: some versions end with 0 all the same.
        if done.returncode != 0 or (said and not done.stdout.strip()):
            raise AskingError(f"{words[0]} ended with {done.returncode}: {_last_line(said)}")
        return done.stdout.decode(errors="replace")


def _read(read: Callable[[], Value]) -> Value:
    try:
        return read()
    except jobs_json.UnreadableError as error:
        raise AskingError(str(error)) from error


def _last_line(errors: str) -> str:
    lines: Sequence[str] = [line for line in errors.splitlines() if line.strip()]
    return " / ".join(lines[-2:])[:_LONGEST_WHY] or "no reason given"
