"""The collector's unit, by systemctl."""

import subprocess
from collections.abc import Callable, Sequence

from gpuvigil.errors import GpuvigilError

UNIT = "gpuvigil-collector"
_SECONDS = 90.0

Run = Callable[[Sequence[str]], tuple[int, str]]


def run(words: Sequence[str]) -> tuple[int, str]:
    """A program's exit code and all that it said; GpuvigilError where it is not here or does not end."""
    try:
        done = subprocess.run(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise GpuvigilError(
            f"there is no {words[0]} here: without systemd start the collector as docs/install.md says"
        ) from None
    except subprocess.TimeoutExpired:
        raise GpuvigilError(f"{' '.join(words)} does not end; see systemctl list-jobs") from None
    return done.returncode, done.stdout.strip()


def check(call: Run = run) -> None:
    """GpuvigilError unless systemd knows the unit."""
    code, _ = call(["systemctl", "cat", f"{UNIT}.service"])
    if code != 0:
        raise GpuvigilError(
            f"systemd knows no {UNIT}.service: install the package gpuvigil-collector first"
        )


def start(call: Run = run) -> None:
    """Start it, now and at every boot; one that runs is started anew, with what was written."""
    call(["systemctl", "reset-failed", f"{UNIT}.service"])
    for verb in ("enable", "restart"):
        code, said = call(["systemctl", verb, f"{UNIT}.service"])
        if code != 0:
            last = said.splitlines()[-1] if said else f"exit code {code}"
            raise GpuvigilError(f"systemctl {verb} {UNIT}: {last}; {last_lines(call)}")


def gives_up(call: Run = run) -> bool:
    """Whether it ended by itself and waits for its next try, as with a wrong configuration."""
    asked = ["systemctl", "show", "-p", "SubState", "--value", f"{UNIT}.service"]
    return call(asked)[1] in {"auto-restart", "failed"}


def last_lines(call: Run = run) -> str:
    """What the collector last said of itself, without systemd's own lines."""
    of = f"_SYSTEMD_UNIT={UNIT}.service"
    code, said = call(["journalctl", of, "-q", "-n", "1", "-o", "cat", "--no-pager"])
    if code != 0 or not said:
        return f"see journalctl -u {UNIT}"
    return f"its last line: {said.splitlines()[-1]} (journalctl -u {UNIT} has more)"
