"""The collector's systemd unit, through systemctl."""

from gpuvigil.errors import GpuvigilError
from gpuvigil.systemd import Run, last_line, run

UNIT = "gpuvigil-collector"


def check(call: Run = run) -> None:
    """Raise GpuvigilError unless systemd knows the unit."""
    code, _ = call(["systemctl", "cat", f"{UNIT}.service"])
    if code != 0:
        raise GpuvigilError(
            f"systemd knows no {UNIT}.service: install the package gpuvigil-collector first"
        )


def start(call: Run = run) -> None:
    """Enable the unit and start it; a running one is restarted with the new configuration."""
    call(["systemctl", "reset-failed", f"{UNIT}.service"])
    for verb in ("enable", "restart"):
        code, said = call(["systemctl", verb, f"{UNIT}.service"])
        if code != 0:
            last = said.splitlines()[-1] if said else f"exit code {code}"
            raise GpuvigilError(f"systemctl {verb} {UNIT}: {last}; {last_line(UNIT, call)}")
