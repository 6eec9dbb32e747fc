"""What VictoriaMetrics and Prometheus have in common: selectors, times, numbers as text."""

import json
import math
import re
from collections.abc import Mapping, Sequence

from ..metrics import Measurement

Selector = str
Tags = tuple[str, ...]


def selector(names: Sequence[str], labels: Mapping[str, str], more: Sequence[str] = ()) -> Selector:
    """Return a selector for the series of these names whose labels equal `labels`; "" means absent.

    `more` are further matchers, used as they are.
    """
    name = "|".join(re.escape(name) for name in names)
    matches = [f"__name__=~{quoted(name)}"]
    matches += [f"{label}={quoted(value)}" for label, value in labels.items()]
    return "{" + ",".join([*matches, *more]) + "}"


def quoted(text: str) -> str:
    """Return a string literal for the query language: Go's escapes are a superset of JSON's."""
    return json.dumps(text, ensure_ascii=False)


def subject(catalogue: Measurement, labels: Mapping[str, str]) -> tuple[Tags, str]:
    """Return the subject and the field of a series that is named `<measurement>_<field>`."""
    tags = tuple(labels.get(tag, "") for tag in catalogue.tags)
    return tags, labels["__name__"].removeprefix(f"{catalogue.name}_")


def seconds(milliseconds: int) -> str:
    """Format a time for the server in seconds, exact to the millisecond."""
    whole, rest = divmod(milliseconds, 1000)
    return f"{whole}.{rest:03d}"


def number(text: str, *, whole: bool) -> int | float | None:
    """Parse a server's number; None for an invalid one, or one that a column cannot hold."""
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    if not whole:
        return value
    exact = int(text) if re.fullmatch(r"-?\d+", text) else int(value)
    return exact if -(2**63) <= exact < 2**63 else None
