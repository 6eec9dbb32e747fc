"""Dataclasses as plain values, which JSON can hold."""

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from .clock import to_text


def plain(value: Any) -> dict[str, Any]:
    """Return a dataclass's own fields as JSON values: times as text, enums as values, tuples as lists."""
    values: dict[str, Any] = {}
    for name in value.__dataclass_fields__:
        item = getattr(value, name)
        if isinstance(item, datetime):
            item = to_text(item)
        elif isinstance(item, Enum):
            item = item.value
        elif isinstance(item, tuple):
            item = list(item)
        values[name] = item
    return values


def known(cls: type[Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the keys that are fields of `cls`: a newer version may have written more."""
    fields = cls.__dataclass_fields__
    return {key: value[key] for key in value if key in fields}
