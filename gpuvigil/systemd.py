"""Runs systemd's programs, and reads a unit's last log line."""

import subprocess
from collections.abc import Callable, Sequence

from .errors import GpuvigilError

_SECONDS = 120.0

Run = Callable[[Sequence[str]], tuple[int, str]]


def run(words: Sequence[str]) -> tuple[int, str]:
    """Return a program's exit code and its output; raise GpuvigilError when it is missing or does not end."""
    try:
        done = subprocess.run(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
            cwd="/",
        )
    except FileNotFoundError:
        raise GpuvigilError(
            f"there is no {words[0]} here: docs/install.md has the steps without systemd"
        ) from None
    except subprocess.TimeoutExpired:
        raise GpuvigilError(f"{' '.join(words)} does not end; see systemctl list-jobs") from None
    return done.returncode, done.stdout.strip()


def last_line(unit: str, call: Run = run) -> str:
    """Return a unit's last log line, without systemd's own, or where to look for it."""
    of = f"_SYSTEMD_UNIT={unit}.service"
    code, said = call(["journalctl", of, "-q", "-n", "1", "-o", "cat", "--no-pager"])
    if code != 0 or not said:
        return f"see journalctl -u {unit}"
    return f"its last line: {said.splitlines()[-1]} (journalctl -u {unit} has more)"


def gives_up(unit: str, call: Run = run) -> bool:
    """Return whether a unit ended by itself and awaits a restart, as with a wrong configuration."""
    asked = ["systemctl", "show", "-p", "SubState", "--value", f"{unit}.service"]
    return call(asked)[1] in {"auto-restart", "failed"}
