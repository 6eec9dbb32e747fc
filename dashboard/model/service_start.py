"""The first minute of the hub, in which services and nodes that have not reported may still be starting."""

from datetime import datetime, timedelta

from gpuvigil.clock import duration

# Ours: on two busy cores the analyzer's first pass came within half a minute of the hub's start.
_STARTING = timedelta(minutes=1)


def hub_age(hub_since: datetime | None, last: datetime | None, now: datetime) -> timedelta | None:
    """Return the age of a hub that started within the last minute, for whoever reported `last`; else None.

    None, too, for whoever has reported to this hub.
    """
    if hub_since is None or now - hub_since > _STARTING:
        return None
    return now - hub_since if last is None or last < hub_since else None


def still_starting(
    hub_since: datetime | None, service: str, now: datetime, last: datetime | None = None
) -> str:
    """Return in words that a service which reported `last` may be starting; empty if it is late or that is not known."""
    age = hub_age(hub_since, last, now)
    if age is None:
        return ""
    return f"the hub started {duration(age)} ago, and the {service} service has yet to report"
