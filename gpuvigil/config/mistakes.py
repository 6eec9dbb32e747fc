"""All mistakes in a configuration, and the origin of each limit in force.

The first mistake is the one that `load` reports. Its lines are then blanked and the rest is read again,
so that each mistake is reported once and line numbers stay the same.
"""

import os
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..private_files import as_owner_of
from . import RECEIVERS, Config, Place, from_text, text_of, tree_of

_MOST = 200
_WRITTEN = frozenset({"tokens_file", "faults_file"})
_ANY_HEADER = re.compile(r"\s*\[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A number in force, and where it was set."""

    key: str
    value: float | int | bool
    origin: str


def mistakes(path: Path | None, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return one line for each mistake; an empty list for a valid configuration."""
    try:
        text = "" if path is None else text_of(path)
    except ConfigError as error:
        return [str(error)]
    base = Path() if path is None else path.parent
    where = Place(name=str(path), text=text, base=base, environment=dict(environment))
    found: list[str] = []
    left_out = False
    for _ in range(_MOST):
        where.asked.clear()
        try:
            config = from_text(where.text, where)
        except ConfigError as error:
            said, follows = str(error), _follows(where, left_out)
            rest = _without(where)
            found += [] if follows or said in found else [said]
            left_out |= _is_receiver(where)
            if rest is None:
                return found
            where = rest
            continue
        return [*found, *_unreadable(config, where)]
    return found


def _is_receiver(where: Place) -> bool:
    return (
        bool(where.asked) and where.asked[-1][0][:1] == ("alerts",) and _list_of(where) is not None
    )


def _follows(where: Place, left_out: bool) -> bool:
    """Return whether the mistake exists only because a receiver that a route names was left out."""
    return left_out and bool(where.asked) and where.asked[-1][0][:2] == ("alerts", "routes")


def _list_of(where: Place) -> str | None:
    """Return the receivers' list that contains the last mistake; None if it is elsewhere."""
    keys, _ = where.asked[-1]
    return keys[1] if len(keys) > 1 and keys[0] == "alerts" and keys[1] in RECEIVERS else None


def _without(where: Place) -> Place | None:
    """Return the configuration without the last mistake; None where its place is unknown."""
    if not where.asked:
        return None
    keys, _ = where.asked[-1]
    variable = "GPUVIGIL_" + "_".join(keys).upper()
    if variable in where.environment:
        rest = {name: value for name, value in where.environment.items() if name != variable}
        return replace(where, environment=rest, asked=[])
    lines = where.text.split("\n")
    first = where.line_of(where.asked[-1])
    if first is None:
        return None
    start = first - 1
    if len(keys) > 2 or _ANY_HEADER.match(lines[start]):
        start = _header_above(lines, start)
        end = next((n for n in range(start + 1, len(lines)) if _ANY_HEADER.match(lines[n])), None)
        return _emptied(where, lines, start, len(lines) if end is None else end)
    for end in range(start + 1, len(lines) + 1):
        rest_ = _emptied(where, lines, start, end)
        if _is_toml(rest_):
            return rest_
    return None


def _header_above(lines: Sequence[str], line: int) -> int:
    return next((n for n in range(line, -1, -1) if _ANY_HEADER.match(lines[n])), line)


def _emptied(where: Place, lines: Sequence[str], start: int, end: int) -> Place:
    text = "\n".join([*lines[:start], *[""] * (end - start), *lines[end:]])
    return replace(where, text=text, asked=[])


def _is_toml(where: Place) -> bool:
    try:
        tree_of(where.text, where)
    except ConfigError:
        return False
    return True


def _unreadable(config: Config, where: Place) -> list[str]:
    """Return a line for each file that settings name and that the caller cannot read.

    Root reads everything, and the services do not run as root: for root it is the user whose the hub's data is.
    """
    try:
        with as_owner_of(config.hub.data_directory):
            return list(_closed(config, where))
    except ConfigError:  # root may not become another user here
        return list(_closed(config, where))


def _closed(config: Config, where: Place) -> Iterator[str]:
    for keys, index, path in files_of(config):
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            place = replace(where, index=index, asked=[]).of(keys)
            yield f"{place}: {_who()}cannot read {path}: {error.strerror}"


def _who() -> str:
    """Return the user that root has become, as the beginning of a sentence; empty for the caller."""
    if os.geteuid() == os.getuid():
        return ""
    try:
        return f"user {pwd.getpwuid(os.geteuid()).pw_name} "
    except KeyError:
        return f"user {os.geteuid()} "


def files_of(settings: Any, keys: tuple[str, ...] = (), index: int = 0) -> Iterator[Any]:
    """Yield the key, the entry's number and the path of every file that a setting names."""
    for setting in fields(settings):
        value, here = getattr(settings, setting.name), (*keys, setting.name)
        if is_dataclass(value):
            yield from files_of(value, here)
        elif isinstance(value, tuple):
            for number, one in enumerate(value):
                if is_dataclass(one):
                    yield from files_of(one, here, number)
        elif isinstance(value, Path) and _is_input(setting, value):
            yield here, index, value


def _is_input(setting: Field[Any], value: Path) -> bool:
    """Return whether the file must exist: gpuvigil's own output and default paths need not."""
    usual = None if setting.default_factory is MISSING else setting.default_factory()
    return setting.name.endswith("_file") and setting.name not in _WRITTEN and value != usual


def limits(path: Path | None, environment: Mapping[str, str] = os.environ) -> list[Limit]:
    """Return every number and switch in force; raise ConfigError for an invalid configuration."""
    text = "" if path is None else text_of(path)
    base = Path() if path is None else path.parent
    where = Place(name=str(path), text=text, base=base, environment=environment)
    config, tree = from_text(text, where), tree_of(text, where)
    found = []
    for section in fields(Config):
        settings, written = getattr(config, section.name), tree.get(section.name, {})
        for setting in fields(settings) if is_dataclass(settings) else ():
            value = getattr(settings, setting.name)
            if isinstance(value, bool | int | float):
                keys = (section.name, setting.name)
                place = where.of(keys).rpartition(", ")[0] or where.of(keys)
                origin = place if setting.name in written else "default"
                found.append(Limit(key=".".join(keys), value=value, origin=origin))
    return found
