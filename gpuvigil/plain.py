"""Dataclasses as plain values, which JSON can hold."""

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from .clock import to_text

# Most values are of these types: an incident has dozens of fields and is written at each change.
_AS_IT_IS = frozenset({str, int, float, bool, type(None)})


def plain(value: Any) -> dict[str, Any]:
    """Return a dataclass's own fields as JSON values: times as text, enums as values, tuples as lists."""
    values = ((name, getattr(value, name)) for name in value.__dataclass_fields__)
    return {name: it if type(it) in _AS_IT_IS else _plain(it) for name, it in values}


def _plain(item: Any) -> Any:
    if isinstance(item, datetime):
        return to_text(item)
    if isinstance(item, Enum):
        return item.value
    return list(item) if isinstance(item, tuple) else item


def known(cls: type[Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the keys that are fields of `cls`: a newer version may have written more."""
    fields = cls.__dataclass_fields__
    return {key: value[key] for key in value if key in fields}
