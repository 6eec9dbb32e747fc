"""A mapping file: what Prometheus is asked of switches, and what its answers mean (docs/switches.md)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib

from gpuvigil.errors import ConfigError
from gpuvigil.model import ErrorCount

COUNTERS = tuple(name for name in ErrorCount.__dataclass_fields__ if name != "at")
STATE, ADMIN, SPEED, NAME, NEIGHBOUR = "state", "admin", "speed", "name", "neighbour"
# Of each table the keys that it must have, and those that it may have.
_KEYS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    STATE: (("query", "up", "down"), ("value_label",)),
    ADMIN: (("query", "disabled"), ("value_label",)),
    SPEED: (("query",), ("value_label", "times", "values")),
    NAME: (("query", "label"), ()),
    NEIGHBOUR: (("query", "system", "port"), ()),
    **dict.fromkeys(COUNTERS, (("query",), ("times",))),
}
_LABELS = ("switch", "port")
_LISTS = frozenset({"up", "down", "disabled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One query and what its answer means; which fields it has says its name.

    `value_label` is the label that holds the value as a text; without it the sample's number is it.
    `values` say what a text is in numbers, `times` makes it bits per second or a count.
    """

    query: str
    value_label: str = ""
    times: float = 1.0
    values: Mapping[str, float] = field(default_factory=dict)
    up: tuple[str, ...] = ()
    down: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    label: str = ""
    system: str = ""
    port: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchMapping:
    """One file; `switch` and `port` are the labels that name these in every answer."""

    file: str
    switch: str
    port: str
    tables: Mapping[str, Table]

    def where(self, name: str) -> str:
        """A table of it, for people."""
        return f"{self.file}: [{name}]"


def load(file: Path) -> SwitchMapping:
    """What a file says; ConfigError in one line for what is wrong, where, and what is known."""
    return parse(read(file), str(file))


def read(file: Path) -> str:
    """The text of a mapping file; ConfigError in one line where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}; switches.mappings names it"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text") from None


def parse(text: str, file: str) -> SwitchMapping:
    """The same of a text; `file` is its name in messages."""
    try:
        whole = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: {error}") from None
    check_keys(file, whole, (*_LABELS, STATE), tuple(_KEYS))
    labels = {key: text_of_key(file, key, whole[key]) for key in _LABELS}
    tables = {
        name: _table(f"{file}: [{name}]", name, said)
        for name, said in whole.items()
        if name in _KEYS
    }
    return SwitchMapping(file=file, **labels, tables=tables)


def meant(text: str) -> str:
    """A value as it is compared: in small letters, without the module that YANG puts before it."""
    return text.rpartition(":")[2].strip().casefold()


def _table(where: str, name: str, said: Any) -> Table:
    if not isinstance(said, dict):
        raise ConfigError(f"{where} must be a table")
    needed, more = _KEYS[name]
    check_keys(where, said, needed, more)
    return Table(**{key: _value(where, key, value) for key, value in said.items()})


def check_keys(
    where: str, said: Mapping[str, Any], needed: tuple[str, ...], more: tuple[str, ...]
) -> None:
    """Raise ConfigError for a key that is unknown, or for one of `needed` that is missing."""
    known = sorted({*needed, *more})
    if unknown := sorted(set(said) - set(known)):
        raise ConfigError(f"{where}: {unknown[0]} is unknown; known are {', '.join(known)}")
    if missing := [key for key in needed if key not in said]:
        raise ConfigError(f"{where}: {missing[0]} is missing")


def _value(where: str, key: str, value: Any) -> Any:
    if key in _LISTS:
        if not isinstance(value, list) or not value:
            raise ConfigError(f"{where}: {key} must be a list of values, as [1] or ['UP']")
        return tuple(meant(str(it)) for it in value)
    if key == "times":
        return _number(where, key, value)
    if key == "values":
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: {key} must be a table, as {{ SPEED_400GB = 400e9 }}")
        return {meant(text): _number(where, text, number) for text, number in value.items()}
    return text_of_key(where, key, value)


def text_of_key(where: str, key: str, value: Any) -> str:
    """Return the value of a key that must be a text; ConfigError if it is none, or empty."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{where}: {key} must be a text that is not empty")
    return value


def _number(where: str, key: str, value: Any) -> float:
    if type(value) not in {int, float} or not math.isfinite(value) or value <= 0:
        raise ConfigError(f"{where}: {key} must be a number above 0")
    return float(value)
