"""The current state of a flapping incident, and when it will be closed."""

from datetime import datetime, timedelta

from gpuvigil.clock import duration
from gpuvigil.config import AnalyzerSettings
from gpuvigil.faults import Link, where
from gpuvigil.lifecycle import Patience, State
from gpuvigil.model import Event, Incident

_FLAPS = where(lambda row: row.link is Link.FLAPS)


def comes_and_goes(incident: Incident) -> bool:
    """Return whether the incident flaps, by its state or its fault."""
    return incident.state == State.FLAPPING.value or incident.fault in _FLAPS


def flapping(
    incident: Incident,
    port: str | None,
    last: Event | None,
    settings: AnalyzerSettings,
    now: datetime,
) -> str:
    """Return `up again, quiet for 11 min; closes after 30 quiet minutes`; empty if it does not flap.

    `port` is the state of the incident's port, `last` that port's last event.
    """
    if not comes_and_goes(incident):
        return ""
    flaps = incident.state == State.FLAPPING.value
    wait = Patience().flap_window if flaps else timedelta(seconds=settings.clear_seconds)
    if incident.fault in _FLAPS:
        # The port's downs must first leave the span in which they are counted.
        wait += timedelta(seconds=settings.port_flap_events_seconds)
    minutes = -(-wait // timedelta(minutes=1))
    closes = f"closes after {minutes} quiet minute{'' if minutes == 1 else 's'}"
    said = [_now(port, last, now)] if port is not None else []
    return "; ".join([*said, closes])


def _now(port: str, last: Event | None, now: datetime) -> str:
    if last is None or port == "unknown":
        return f"port {port} now"
    span = duration(now - last.at)
    return f"up again, quiet for {span}" if port == "up" else f"down for {span} now"
