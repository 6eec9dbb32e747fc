"""What changed on a node before an incident, with old and new value; pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from gpuvigil.model.setup import TITLES, Setup

# An older roll-out is seldom to blame, and `gpuvigil compare` judges those.
LOOKED_BACK = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One value that replaced another."""

    at: datetime
    what: str
    old: str
    new: str


def changed(setups: Iterable[Setup], until: datetime) -> Sequence[Changed]:
    """Return what changed on a node in the 30 days up to `until`, newest first.

    A value reported for the first time has no old value, and is no change.
    """
    ordered = sorted((one for one in setups if one.at <= until), key=lambda one: one.at)
    found = [
        Changed(at=after.at, what=TITLES[attribute], old=before.values[attribute], new=value)
        for before, after in pairwise(ordered)
        for attribute, value in after.values.items()
        if before.values.get(attribute, value) != value and after.at > until - LOOKED_BACK
    ]
    return sorted(found, key=lambda one: (one.at, one.what), reverse=True)
