"""A mapping file about power and cooling: what Prometheus is asked of nodes or racks (docs/switches.md)."""

import math
from dataclasses import dataclass
from typing import Any

import tomllib

from gpuvigil.errors import ConfigError
from gpuvigil.model.equipment import PartKind

from .mapping import check_keys, text_of_key

NODE, RACK, PARTS = "node", "rack", "parts"
_NEEDED, _MORE = ("kind", "query", "name"), ("unit", "failed", "above", "below")
_LIMITS = ("failed", "above", "below")
_KINDS = {kind.value: kind for kind in PartKind}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTable:
    """One query, a series of whose answer is one part; exactly one of the last three is set."""

    kind: PartKind
    query: str
    name: str  # the label that names the part
    unit: str = ""
    failed: tuple[float, ...] = ()
    above: float | None = None
    below: float | None = None

    def is_failed(self, value: float) -> bool:
        if self.above is not None:
            return value > self.above
        if self.below is not None:
            return value < self.below
        return value in self.failed

    def text_of(self, value: float) -> str:
        """The value as people read it, with the limit that it is beyond."""
        unit = f" {self.unit}" if self.unit else ""
        if self.above is not None:
            return f"{value:g}{unit} (limit {self.above:g}{unit})"
        if self.below is not None:
            return f"{value:g}{unit} (at least {self.below:g}{unit})"
        return f"state {value:g}{unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EquipmentMapping:
    """One file; the label `whose` names the node in every answer, or the rack if `of_racks`."""

    file: str
    whose: str
    of_racks: bool
    parts: tuple[PartTable, ...]

    def where(self, number: int) -> str:
        """A table of it, for people; the first is number 1."""
        return f"{self.file}: [[{PARTS}]] {number}"


def is_of_equipment(text: str) -> bool:
    """Whether a file is about equipment: it has `[[parts]]`, which none about switches has."""
    try:
        return PARTS in tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False  # whoever reads it as one about switches says where it is wrong


def parse(text: str, file: str) -> EquipmentMapping:
    """What a text says; ConfigError in one line for what is wrong, where, and what is known."""
    whole = tomllib.loads(text)
    if unknown := sorted(set(whole) - {NODE, RACK, PARTS}):
        raise ConfigError(f"{file}: {unknown[0]} is unknown; known are {NODE}, {PARTS}, {RACK}")
    if (NODE in whole) == (RACK in whole):
        raise ConfigError(f"{file}: name the label of either {NODE} or {RACK}")
    key = NODE if NODE in whole else RACK
    tables = whole[PARTS]
    if not isinstance(tables, list) or not tables:
        raise ConfigError(f"{file}: {PARTS} must be tables: [[{PARTS}]]")
    return EquipmentMapping(
        file=file,
        whose=text_of_key(file, key, whole[key]),
        of_racks=key == RACK,
        parts=tuple(
            _table(f"{file}: [[{PARTS}]] {number}", it) for number, it in enumerate(tables, 1)
        ),
    )


def _table(where: str, said: Any) -> PartTable:
    if not isinstance(said, dict):
        raise ConfigError(f"{where} must be a table")
    check_keys(where, said, _NEEDED, _MORE)
    if sum(key in said for key in _LIMITS) != 1:
        raise ConfigError(f"{where}: say when it has failed by one of {', '.join(_LIMITS)}")
    if said["kind"] not in _KINDS:
        raise ConfigError(f"{where}: kind must be one of {', '.join(sorted(_KINDS))}")
    return PartTable(
        kind=_KINDS[said["kind"]],
        query=text_of_key(where, "query", said["query"]),
        name=text_of_key(where, "name", said["name"]),
        unit=text_of_key(where, "unit", said["unit"]) if "unit" in said else "",
        failed=_numbers(where, said["failed"]) if "failed" in said else (),
        above=_number(where, "above", said["above"]) if "above" in said else None,
        below=_number(where, "below", said["below"]) if "below" in said else None,
    )


def _numbers(where: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        raise ConfigError(f"{where}: failed must be a list of numbers, as [2, 3]")
    return tuple(_number(where, "failed", it) for it in value)


def _number(where: str, key: str, value: Any) -> float:
    if type(value) not in {int, float} or not math.isfinite(value):
        raise ConfigError(f"{where}: {key} must be a number")
    return float(value)
