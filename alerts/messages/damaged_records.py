"""Incidents about damaged records that the hub has repaired; pure."""

from collections.abc import Mapping, Sequence

from gpuvigil.clock import from_text, moment
from gpuvigil.model import UNREADABLE, Record, Severity

from .self_monitoring import Trouble

# The hub's pulse with its repairs, by its id.
PULSE = "hub-records"


def repairs(pulse: Record | None) -> Sequence[tuple[str, Trouble | None]]:
    """Return each repair in the hub's pulse: its trouble's name, and the trouble while it stands."""
    told = None if pulse is None else pulse.body.get("repairs")
    found: list[tuple[str, Trouble | None]] = []
    for one in told if isinstance(told, list) else ():
        try:
            trouble = _trouble(one)
            found.append((trouble.name, None if one["over"] else trouble))
        except UNREADABLE:  # what another version wrote
            continue
    return found


def _trouble(repair: Mapping[str, str | bool | None]) -> Trouble:
    at, aside = from_text(str(repair["at"])), repair["moved_to"]
    complete = repair["missing_since"] is None and not repair["empty"]
    look = f" Look at {aside}, then move it away: that ends this." if aside else ""
    return Trouble(
        name=f"records-{at:%Y%m%dT%H%M%S}",
        fault="gpuvigil_records",
        title="The hub's records were damaged",
        value=f"{repair['file']}: {repair['reason']}; {_made_of(repair)}; {_missing(repair)}",
        action=f"Check the hub's disk.{look}",
        place="hub",
        severity=Severity.WARNING if complete else Severity.CRITICAL,
    )


def _made_of(repair: Mapping[str, str | bool | None]) -> str:
    if repair["backup_at"] is None:
        return "no backup was needed" if repair["commits"] else "there was no backup"
    return f"restored from the backup of {moment(from_text(str(repair['backup_at'])))}"


def _missing(repair: Mapping[str, str | bool | None]) -> str:
    if repair["empty"]:
        return "all that was recorded before is missing"
    if repair["missing_since"] is None:
        return "nothing is missing: the rest came from the journal"
    since, until = (
        moment(from_text(str(repair[key]))) for key in ("missing_since", "missing_until")
    )
    return f"records from {since} to {until} may be missing"
