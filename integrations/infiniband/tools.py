"""One look at a fabric with infiniband-diags: who is there, what each link runs at, what each port counted.

The fabric is walked once: `ibnetdiscover` leaves what it found in a file from which the others go on
(ibnetdiscover(8), iblinkinfo(8), ibqueryerrors(8)). Nothing is ever cleared or reset.
"""

import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..fabric.seen import NotReadError

_LONGEST_WHY = 300
_OVER_LIMIT = 1  # ibqueryerrors: a port has counted more than its limit
# A port that waits has nothing wrong with it, and every busy one does.
_LEFT_OUT = "PortXmitWait"
_RIGHTS = " (they need read and write access to /dev/infiniband/umad*)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the tools printed; `errors` with what they complained of."""

    links: str
    errors: str


class Fabric:
    """The fabric of one port of this machine."""

    def __init__(
        self, folder: Path, timeout_seconds: float, directory: str = "", port: str = ""
    ) -> None:
        """`directory` is where the tools lie, empty for the search path; `port` as `mlx5_0/1`, empty for the first."""
        self._walked, self._limits = folder / "fabric.cache", folder / "no-limits"
        self._timeout_seconds, self._directory = timeout_seconds, directory
        device, _, number = port.partition("/")
        self._through = (*(("-C", device) if device else ()), *(("-P", number) if number else ()))

    def query(self) -> Look:
        """NotReadError where a tool is missing, may not, or does not come back in time."""
        with suppress(FileNotFoundError):
            self._walked.unlink()
        # Of no counter a limit: whatever is not zero is printed.
        self._limits.touch()
        walked = str(self._walked)
        self._run("ibnetdiscover", "--cache", walked)
        links = self._run("iblinkinfo", "-l", "--switches-only", "--load-cache", walked)
        limits = ("--threshold-file", str(self._limits), "-s", _LEFT_OUT)
        asked = ("--switch", "--skip-sl", *limits)  # the subnet manager is not asked for a way
        errors = self._run("ibqueryerrors", *asked, "--load-cache", walked, complaints=True)
        return Look(links=links, errors=errors)

    def _run(self, program: str, *words: str, complaints: bool = False) -> str:
        command = [os.path.join(self._directory, program), *self._through, *words]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._timeout_seconds,
                env=_environment(os.environ),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotReadError(
                f"{program} did not answer within {self._timeout_seconds:g} s"
            ) from None
        except OSError as error:
            raise NotReadError(
                f"{command[0]} cannot be run: {error.strerror}; install infiniband-diags, or set"
                " infiniband.directory"
            ) from None
        if done.returncode not in {0, _OVER_LIMIT} or not done.stdout.strip():
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            why = lines[-1][:_LONGEST_WHY] if lines else "no reason given"
            todo = _RIGHTS if "umad" in why or "mad_rpc_open_port" in why else ""
            raise NotReadError(f"{program} ended with {done.returncode}: {why}{todo}")
        said = done.stdout + (done.stderr if complaints else b"")
        return said.decode(errors="replace")


def _environment(own: Mapping[str, str]) -> Mapping[str, str]:
    """Nobody's language: the words are read by a program."""
    return {**own, "LC_ALL": "C"}
