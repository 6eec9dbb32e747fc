"""What VictoriaMetrics and Prometheus have in common: selectors, times, numbers as text."""

import json
import math
import re
from collections.abc import Mapping, Sequence

from ..metrics import Measurement

Selector = str
Tags = tuple[str, ...]


def selector(names: Sequence[str], labels: Mapping[str, str], more: Sequence[str] = ()) -> Selector:
    """The series of these names whose labels are equal to `labels`; empty is absent.

    `more` are further matchers as they are.
    """
    name = "|".join(re.escape(name) for name in names)
    matches = [f"__name__=~{quoted(name)}"]
    matches += [f"{label}={quoted(value)}" for label, value in labels.items()]
    return "{" + ",".join([*matches, *more]) + "}"


def quoted(text: str) -> str:
    """A string as the query language reads it: Go's escapes are a superset of JSON's."""
    return json.dumps(text, ensure_ascii=False)


def subject(catalogue: Measurement, labels: Mapping[str, str]) -> tuple[Tags, str]:
    """Whose series this is, and of which field, by names `<measurement>_<field>`."""
    tags = tuple(labels.get(tag, "") for tag in catalogue.tags)
    return tags, labels["__name__"].removeprefix(f"{catalogue.name}_")


def seconds(milliseconds: int) -> str:
    """A time as the server reads it, exact to the millisecond."""
    whole, rest = divmod(milliseconds, 1000)
    return f"{whole}.{rest:03d}"


def number(text: str, *, whole: bool) -> int | float | None:
    """A number that a server wrote; None for none, or for one that a column cannot hold."""
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
