"""Configuration: one TOML file plus `GPUVIGIL_<SECTION>_<KEY>` variables.

Both are checked against `gpuvigil.config.settings`. An unknown key, a wrong type or a secret file that
cannot be read gives one line and exit code 2.
"""

import os
import sys
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..log import Log
from .channels import (
    PROXY_EXAMPLE,
    RECEIVERS,
    ROUTING,
    AlertmanagerSettings,
    AlertsSettings,
    AppriseSettings,
    CommandSettings,
    DiscordSettings,
    EmailSettings,
    PagerdutySettings,
    PostSettings,
    ReceiverSettings,
    SlackSettings,
    TeamsSettings,
    WebhookSettings,
    is_proxy,
    web_parts,
)
from .checks import check, without_secret
from .guesses import documented, in_unit, meant, other_number
from .integrations import (
    InfinibandSettings,
    InfluxdbSettings,
    KubernetesSettings,
    SlurmSettings,
    SwitchesSettings,
)
from .people import PeopleSettings
from .place import Place
from .pricing import CostSettings, PriceSettings
from .reporting import ReportSettings
from .routing import IdleSettings, InhibitSettings, RouteSettings, TimesSettings
from .setting import STATE
from .settings import (
    STORES,
    ActionsSettings,
    AnalyzerSettings,
    CollectorSettings,
    Config,
    DashboardSettings,
    HubSettings,
    LogSettings,
    SimulatorSettings,
    StoreSettings,
    TopologySettings,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "PROXY_EXAMPLE",
    "RECEIVERS",
    "ROUTING",
    "STATE",
    "STORES",
    "ActionsSettings",
    "AlertmanagerSettings",
    "AlertsSettings",
    "AnalyzerSettings",
    "AppriseSettings",
    "CollectorSettings",
    "CommandSettings",
    "Config",
    "CostSettings",
    "DashboardSettings",
    "DiscordSettings",
    "EmailSettings",
    "HubSettings",
    "IdleSettings",
    "InfinibandSettings",
    "InfluxdbSettings",
    "InhibitSettings",
    "KubernetesSettings",
    "LogSettings",
    "PagerdutySettings",
    "PeopleSettings",
    "Place",
    "PostSettings",
    "PriceSettings",
    "ReceiverSettings",
    "ReportSettings",
    "RouteSettings",
    "SimulatorSettings",
    "SlackSettings",
    "SlurmSettings",
    "StoreSettings",
    "SwitchesSettings",
    "TeamsSettings",
    "TimesSettings",
    "TopologySettings",
    "WebhookSettings",
    "from_text",
    "is_proxy",
    "load",
    "read_secret",
    "secret_source",
    "text_of",
    "tree_of",
    "web_parts",
    "without_secret",
]


_LOG = Log("config")


def load(path: Path | None, environment: Mapping[str, str] = os.environ) -> Config:
    """Return the configuration in `path` (None: the defaults), overridden by environment variables.

    Relative paths in the file are relative to the file. Raises ConfigError with one line.
    """
    text, base = ("", Path()) if path is None else (text_of(path), path.parent)
    return from_text(text, Place(name=str(path), text=text, base=base, environment=environment))


def text_of(path: Path) -> str:
    """Return the file's text; raise ConfigError with one line when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; name it with --config") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None


def from_text(text: str, where: "Place") -> Config:
    """Return the configuration in a text; raise ConfigError for the first mistake in it."""
    tree = tree_of(text, where)
    config: Config = _build(Config, tree, where, ())
    check(config, where)
    return config


def tree_of(text: str, where: "Place") -> dict[str, Any]:
    """Return the values that the file and the variables set, not yet converted."""
    try:
        tree = tomllib.loads(documented(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where.name}: {error}") from None
    if isinstance(tree.get("alerts"), dict):
        alerts = tree["alerts"]
        tree["alerts"] = {other_number(key, alerts): value for key, value in alerts.items()}
    return _with_variables(tree, where.environment)


def sets_key(path: Path, section: str, key: str) -> bool:
    """Return whether the file itself sets this key; False for a file that cannot be read."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get(section)
    except (OSError, ValueError):  # ValueError: no TOML, no UTF-8
        return False
    return isinstance(found, Mapping) and key in found


def read_secret(path: Path, what: str) -> str:
    """Return the one line of a secret file; ConfigError names the file and never its content."""
    try:
        # Some editors write a byte-order mark at the beginning.
        secret = path.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        raise ConfigError(f"cannot read the {what} in {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the {what} in {path} is not text") from None
    if not secret or "\n" in secret:
        raise ConfigError(f"the {what} in {path} must be exactly one line")
    if not secret.isprintable():
        raise ConfigError(f"the {what} in {path} has a character that is not seen: type it anew")
    return secret


def secret_source(path: Path | None, key: str, what: str) -> Callable[[], str]:
    """Return a function that gives the current secret: the file is read again when it has changed.

    ConfigError at once when `key` names no file, or one that cannot be read.
    """
    if path is None:
        raise ConfigError(f"{key} is not set: name the file that holds the {what}")
    file = path

    def read() -> str:
        try:
            return read_secret(file, what)
        except ConfigError as error:
            closed = os.access(file, os.F_OK) and not os.access(file, os.R_OK)
            todo = (
                "put sudo before the command, let the service's user read it"
                if closed
                else "put it there"
            )
            raise ConfigError(f"{error}; {todo}, or name another file in {key}") from None

    version, kept = "", read()

    def secret() -> str:
        nonlocal version, kept
        now = ""
        with suppress(OSError):
            found = os.stat(file)
            now = f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
        if not now or now != version:
            kept = read()
            version = now
        return kept

    return secret


def _with_variables(tree: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return `tree` overridden by variables, as `GPUVIGIL_HUB_PORT=8428` sets `[hub] port`; values stay text."""
    sections = {section.name: section for section in fields(Config)}
    for variable, value in environment.items():
        section, _, key = variable.removeprefix("GPUVIGIL_").lower().partition("_")
        if variable.startswith("GPUVIGIL_") and section in sections:
            if section == "reports" or not isinstance(tree.setdefault(section, {}), dict):
                raise ConfigError(f"[{section}] must be a table")
            tree[section] = {**tree[section], key: _Text(value)}
    return tree


class _Text(str):
    """A value from a variable: text that may stand for a number, or with commas for a list."""

    __slots__ = ()


# Settings of older versions: a file that still has one works, and the log says what replaced it.
_RETIRED = {
    (
        "actions",
        "resume_after_seconds",
    ): "a node is given back once it is accepted: gpuvigil node accept",
}


def _build(cls: Any, tree: Any, where: Place, keys: tuple[str, ...]) -> Any:
    """Build a settings object from a TOML table."""
    if not isinstance(tree, dict):
        raise ConfigError(f"{where.of(keys)}: must be a table")
    known = {setting.name for setting in fields(cls)}
    for key in list(tree):
        if (*keys, key) in _RETIRED:
            _LOG.warning(
                "setting ignored", setting=where.of((*keys, key)), reason=_RETIRED[(*keys, key)]
            )
            del tree[key]
        elif key not in known:
            raise ConfigError(
                f"{where.of((*keys, key))}: unknown key{meant(key, known)};"
                f" known are {', '.join(sorted(known))}"
            )
    hints = typing.get_type_hints(cls)
    values = {key: _value(hints[key], tree[key], where, (*keys, key)) for key in tree}
    return cls(**values)


def _value(kind: Any, value: Any, where: Place, keys: tuple[str, ...]) -> Any:
    """Return `value` converted to `kind`; ConfigError names the place and what was expected."""
    if typing.get_origin(kind) is types.UnionType:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is tuple:
        of_what = typing.get_args(kind)[0]
        if isinstance(value, _Text) and not is_dataclass(of_what):
            value = [_Text(part.strip()) for part in value.split(",") if part.strip()]
        if not isinstance(value, list):
            raise ConfigError(f"{where.of(keys)}: must be a list")
        return tuple(
            _value(of_what, item, where.entry(index), keys) for index, item in enumerate(value)
        )
    if is_dataclass(kind):
        return _build(kind, value, where, keys)
    if kind is Path and isinstance(value, str):
        return where.base / Path(value).expanduser()
    return _scalar(kind, value, where, keys)


def _scalar(kind: Any, value: Any, where: Place, keys: tuple[str, ...]) -> Any:
    if isinstance(value, _Text) and kind is not str:
        try:
            return {"true": True, "false": False}[value.lower()] if kind is bool else kind(value)
        except (ValueError, KeyError):
            raise ConfigError(
                f"{where.of(keys)}: {value!r} is not {_NAMES[kind]}{in_unit(keys[-1], value)}"
            ) from None
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is kind or (kind is str and isinstance(value, _Text)):
        return str(value) if kind is str else value
    raise ConfigError(
        f"{where.of(keys)}: {value!r} is not {_NAMES[kind]}{in_unit(keys[-1], value)}"
    )


_NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path",
}
