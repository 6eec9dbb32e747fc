"""The collector's unit, by systemctl."""

from gpuvigil.errors import GpuvigilError
from gpuvigil.systemd import Run, last_line, run

UNIT = "gpuvigil-collector"


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
            raise GpuvigilError(f"systemctl {verb} {UNIT}: {last}; {last_line(UNIT, call)}")


def gives_up(call: Run = run) -> bool:
    """Whether it ended by itself and waits for its next try, as with a wrong configuration."""
    asked = ["systemctl", "show", "-p", "SubState", "--value", f"{UNIT}.service"]
    return call(asked)[1] in {"auto-restart", "failed"}
