"""Parses times and durations that people type for a command; a wrong one gives one clear line."""

import re
from datetime import datetime, timedelta, timezone

from .clock import from_text
from .errors import ConfigError

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def length(text: str, option: str) -> timedelta:
    """Parse a duration such as `15m`, `6h`, `7d` or `2w`; raise ConfigError for anything else."""
    found = re.fullmatch(r"([1-9][0-9]{0,4})([mhdw])", text.strip().lower())
    if found is None:
        raise ConfigError(f"{option} {text!r} is no length: write 15m, 6h, 7d or 2w")
    number, unit = found.groups()
    return timedelta(**{_UNITS[unit]: int(number)})


def moment(text: str, option: str) -> datetime:
    """Parse a day (its start) or a time, in UTC; raise ConfigError for anything else."""
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=timezone.utc)
        return from_text(text)
    except ValueError:
        raise ConfigError(
            f"{option} {text!r} is no time: write 2026-11-14 or 2026-11-14T06:00:00Z, in UTC"
        ) from None
