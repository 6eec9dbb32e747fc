"""Reads a topology file in any of the known formats."""

import re
from collections.abc import Callable
from pathlib import Path

from ..errors import ConfigError
from .infiniband import from_ibnetdiscover
from .labels import from_json
from .model import Imported
from .own_file import from_toml
from .slurm import from_conf, from_yaml

_BY_NAME: dict[str, Callable[[str], Imported]] = {
    ".toml": from_toml,
    ".json": from_json,
    ".yaml": from_yaml,
    ".yml": from_yaml,
    ".conf": from_conf,
}
_BY_WORDS: tuple[tuple[re.Pattern[str], Callable[[str], Imported]], ...] = (
    (re.compile(r'^(Switch|Ca)\s+\d+\s+"', re.MULTILINE), from_ibnetdiscover),
    (re.compile(r"^\s*(switch|block)name\s*=", re.MULTILINE | re.IGNORECASE), from_conf),
    (re.compile(r"^\s*\{"), from_json),
    (re.compile(r"^\s*(---\s*)?(#.*\s*)*- ", re.MULTILINE), from_yaml),
)
_FORMS = (
    "Slurm's topology.conf and topology.yaml, ibnetdiscover's output, kubectl's and topograph's JSON"
    " and TOML (docs/topology.md)"
)


def read(path: Path) -> Imported:
    """Return the file's content; ConfigError names the file, and says what is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    parse = _BY_NAME.get(path.suffix.lower()) or _guessed(text)
    if parse is None:
        raise ConfigError(f"{path} is none of the forms that are read: {_FORMS}")
    try:
        found = parse(text)
    # A file in no known format may fail anywhere: a JSON without names, a list for a table.
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not (found.wires or found.uplinks or found.places):
        raise ConfigError(f"{path} says nothing of any port or switch")
    return found


def _guessed(text: str) -> Callable[[str], Imported] | None:
    return next((parse for words, parse in _BY_WORDS if words.search(text)), None)
