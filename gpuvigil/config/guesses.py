"""Suggestions for misspelt settings."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from .channels import RECEIVERS

# The singular and the plural of a receivers' list are both accepted; one of them is documented.
_OTHERS: Mapping[str, str] = {
    (key.removesuffix("s") if key.endswith("s") else f"{key}s"): key for key in RECEIVERS
}
_HEADER = re.compile(r"^(\s*\[\[\s*alerts\s*\.\s*)(\w+)(\s*\]\])", re.MULTILINE)
_NEAR = 0.7
_UNITS: Mapping[str, Mapping[str, float]] = {
    "seconds": {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400},
    "hours": {"m": 1 / 60, "min": 1 / 60, "h": 1, "d": 24, "w": 168},
    "days": {"h": 1 / 24, "d": 1, "w": 7, "y": 365},
    "minutes": {"s": 1 / 60, "m": 1, "min": 1, "h": 60, "d": 1440},
    "percent": {"%": 1},
    "bytes": {
        "b": 1,
        "k": 1024,
        "m": 1024**2,
        "g": 1024**3,
        "t": 1024**4,
        "kb": 1000,
        "mb": 1000**2,
        "gb": 1000**3,
        "tb": 1000**4,
        "kib": 1024,
        "mib": 1024**2,
        "gib": 1024**3,
        "tib": 1024**4,
    },
}
_WRITTEN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z%]+)\s*", re.IGNORECASE)


def documented(text: str) -> str:
    """Return the text with the documented names of receivers' lists; line numbers do not change."""

    def renamed(found: re.Match[str]) -> str:
        return f"{found[1]}{_OTHERS.get(found[2], found[2])}{found[3]}"

    return _HEADER.sub(renamed, text)


def other_number(key: str, beside: Collection[str]) -> str:
    """Return the documented name of a receivers' list, unless that name is present as well."""
    name = _OTHERS.get(key, key)
    return key if name in beside else name


def meant(key: str, known: Collection[str]) -> str:
    """Return `; did you mean X?`, also for a name that differs only in its unit; "" when no name is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - for what is wrong; a node keeps all it loads

    stem = key.rpartition("_")[0]
    alike = [one for one in known if stem and one.rpartition("_")[0] == stem]
    near = alike or get_close_matches(key.lower(), sorted(known), n=1, cutoff=_NEAR)
    return f"; did you mean {near[0]}?" if near else ""


def in_unit(key: str, value: Any) -> str:
    """Return `; write 1800, in seconds` for `30m` in `..._seconds`; "" for a key without a unit."""
    unit = key.rpartition("_")[2]
    found = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    if unit not in _UNITS:
        return ""
    factor = None if found is None else _UNITS[unit].get(found[2].lower())
    if found is None or factor is None:
        return f"; write a number, in {unit}"
    return f"; write {float(found[1]) * factor:.15g}, in {unit}"
