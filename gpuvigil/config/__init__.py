"""One TOML file plus `GPUVIGIL_<SECTION>_<KEY>` variables, checked against `gpuvigil.config.settings`.

An unknown key, a wrong type or a secret file that cannot be read gives one line and exit code 2.
"""

import os
import re
import sys
import types
import typing
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..log import Log
from ..model import RESERVED_CLUSTERS
from .channels import (
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
)
from .integrations import InfinibandSettings, KubernetesSettings, SlurmSettings, SwitchesSettings
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
    "InhibitSettings",
    "KubernetesSettings",
    "LogSettings",
    "PagerdutySettings",
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
    "load",
    "read_secret",
    "secret_source",
    "without_secret",
]


_LOG = Log("config")


def load(path: Path | None, environment: Mapping[str, str] = os.environ) -> Config:
    """The configuration of `path` (none: defaults), with variables laid over it.

    Relative paths in the file are relative to the file. Raises ConfigError with one line.
    """
    text, base = "", Path()
    if path is not None:
        try:
            text, base = path.read_text(encoding="utf-8"), path.parent
        except OSError as error:
            raise ConfigError(
                f"cannot read {path}: {error.strerror}; name it with --config"
            ) from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is not UTF-8 text") from None
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    where = _Where(name=str(path), text=text, base=base, environment=environment)
    config: Config = _build(Config, _with_variables(tree, environment), where, ())
    _check(config, where)
    return config


def says(path: Path, section: str, key: str) -> bool:
    """Whether the file sets this itself; one that cannot be read says nothing."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get(section)
    except (OSError, ValueError):  # ValueError: no TOML, no UTF-8
        return False
    return isinstance(found, Mapping) and key in found


def read_secret(path: Path, what: str) -> str:
    """The one line of a secret file; ConfigError names the file and never its content."""
    try:
        # With the mark at its beginning that some editors write.
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


def without_secret(url: str) -> str:
    """An address as it may be shown: without a user and a password in it."""
    return re.sub(r"//[^/?#]*@", "//***@", url)


def secret_source(path: Path | None, key: str, what: str) -> Callable[[], str]:
    """The secret as it is now, since it may be rotated: the file is read again when it has changed.

    ConfigError at once when `key` names no file, or one that cannot be read.
    """
    if path is None:
        raise ConfigError(f"{key} is not set: name the file that holds the {what}")
    file = path

    def read() -> str:
        try:
            return read_secret(file, what)
        except ConfigError as error:
            raise ConfigError(f"{error}; put it there, or name another file in {key}") from None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    """The file that is read, to say in which line a key stands."""

    name: str
    text: str
    base: Path
    environment: Mapping[str, str]
    index: int = 0  # of the entry in a list of tables

    def entry(self, index: int) -> "_Where":
        return replace(self, index=index)

    def of(self, keys: tuple[str, ...]) -> str:
        variable = "GPUVIGIL_" + "_".join(keys).upper()
        if variable in self.environment:
            return variable
        number = self._in_its_table(keys) or self._anywhere(keys[-1])
        line = f", line {number}" if number else ""
        return f"{self.name}{line}, {'.'.join(keys)}"

    def _in_its_table(self, keys: tuple[str, ...]) -> int | None:
        """The line of the key below its table's header, or of that header itself."""
        wanted, above = ".".join(keys), ".".join(keys[:-1])
        inside, seen = False, Counter[str]()
        for number, line in enumerate(self.text.splitlines(), 1):
            header = _HEADER.match(line)
            if header is None:
                if inside and re.match(rf"\s*{re.escape(keys[-1])}\s*=", line):
                    return number
                continue
            table = header["name"]
            is_it = header["list"] is None or seen[table] == self.index
            seen[table] += 1
            inside = is_it and table == above
            if is_it and table == wanted:
                return number
        return None

    def _anywhere(self, key: str) -> int | None:
        """The first line that gives the key, however it is spelled."""
        for number, line in enumerate(self.text.splitlines(), 1):
            if re.match(rf"\s*\[*\s*[\w.]*\b{re.escape(key)}\b\s*(=|\])", line):
                return number
        return None


_HEADER = re.compile(r"\s*\[(?P<list>\[)?\s*(?P<name>[\w.]+)\s*\]")


def _with_variables(tree: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """`tree` with `GPUVIGIL_HUB_PORT=8428` laid over `[hub] port`; values stay text."""
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


# Settings of an older version: a file that still has one works, and a line says what has become of it.
_RETIRED = {
    (
        "actions",
        "resume_after_seconds",
    ): "a node is given back once it is accepted: gpuvigil node accept",
}


def _build(cls: Any, tree: Any, where: _Where, keys: tuple[str, ...]) -> Any:
    """A settings object from a TOML table."""
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
                f"{where.of((*keys, key))}: unknown key; known are {', '.join(sorted(known))}"
            )
    hints = typing.get_type_hints(cls)
    values = {key: _value(hints[key], tree[key], where, (*keys, key)) for key in tree}
    return cls(**values)


def _value(kind: Any, value: Any, where: _Where, keys: tuple[str, ...]) -> Any:
    """`value` as `kind`, or ConfigError with the place and what was expected."""
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


def _scalar(kind: Any, value: Any, where: _Where, keys: tuple[str, ...]) -> Any:
    if isinstance(value, _Text) and kind is not str:
        try:
            return {"true": True, "false": False}[value.lower()] if kind is bool else kind(value)
        except (ValueError, KeyError):
            raise ConfigError(f"{where.of(keys)}: {value!r} is not {_NAMES[kind]}") from None
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is kind or (kind is str and isinstance(value, _Text)):
        return str(value) if kind is str else value
    raise ConfigError(f"{where.of(keys)}: {value!r} is not {_NAMES[kind]}")


_NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path",
}


def _check(config: Config, where: _Where) -> None:
    """What types cannot say."""
    if config.collector.cluster in RESERVED_CLUSTERS:
        raise ConfigError(
            f"{where.of(('collector', 'cluster'))}: {config.collector.cluster!r} is the name of"
            " data that no machine sends; choose another"
        )
    for key in ("cluster", "node"):
        name = getattr(config.collector, key)
        is_name = _NAME.fullmatch(name) and name not in {".", ".."}
        if not is_name and (name or key == "cluster"):
            raise ConfigError(
                f"{where.of(('collector', key))}: {name!r} is not a name; use ASCII letters,"
                " digits and signs"
            )
    _check_one_of(where, ("log", "level"), config.log.level, _LEVELS)
    _check_overrides(where, "xid_overrides", config.analyzer.xid_overrides)
    _check_overrides(where, "sxid_overrides", config.analyzer.sxid_overrides)
    _check_store(where, config.store)
    _check_networks(where, ("dashboard", "trusted_proxies"), config.dashboard.trusted_proxies)
    _check_sections(config, where)
    for key in (*RECEIVERS, *ROUTING):
        for number, entry in enumerate(getattr(config.alerts, key)):
            _check_entry(where.entry(number), ("alerts", key), entry)
    _check_cost(where, config.cost)
    for table, number, key, sentence in config.alerts.wrong():
        keys = ("alerts", table, key) if table else ("alerts", key)
        raise ConfigError(f"{where.entry(number).of(keys)}: {sentence}")


def _check_sections(config: Config, where: _Where) -> None:
    for section in fields(Config):
        settings = getattr(config, section.name)
        if is_dataclass(settings):
            _check_numbers(where, (section.name,), settings)
    for number, report in enumerate(config.reports):
        _check_entry(where.entry(number), ("reports",), report)


def _check_overrides(where: _Where, key: str, entries: Sequence[str]) -> None:
    form, example = _OVERRIDES[key]
    for number, entry in enumerate(entries):
        if not form.fullmatch(entry):
            raise ConfigError(
                f"{where.entry(number).of(('analyzer', key))}: {entry!r} is not like {example};"
                " severities are critical, warning, info and ignore"
            )


def _check_networks(where: _Where, keys: tuple[str, ...], entries: Sequence[str]) -> None:
    for number, entry in enumerate(entries):
        try:
            ip_network(entry)
        except ValueError as error:
            raise ConfigError(
                f"{where.entry(number).of(keys)}: {entry!r} is no address like 10.0.0.5 and no network"
                f" like 10.0.0.0/24: {error}"
            ) from None


_WORDS = "(critical|warning|info|ignore)"
# Of a list of codes with severities, what an entry is like. SXids have five digits.
_OVERRIDES: Mapping[str, tuple[re.Pattern[str], str]] = {
    "xid_overrides": (re.compile(rf"\d{{1,4}}={_WORDS}"), "63=warning"),
    "sxid_overrides": (re.compile(rf"\d{{5}}={_WORDS}"), "12028=warning"),
}
# It travels in headers and tags, whatever stands in it.
_NAME = re.compile(r"[!-~]+( [!-~]+)*(?<!\\)")
# Of numbers, by the last word of their names; Python's times end where more would lead.
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "seconds": (0, 1e9),
    "hours": (0, 1e6),
    "days": (0, 4e4),
    "percent": (0, 100),
    "bytes": (1, 2**62),
    "port": (0, 65535),
    "nodes": (0, 1e6),
    "node": (1, 256),
    "threads": (1, 1024),
    "count": (1, 1e6),
}
_POSITIVE = frozenset(
    {
        *("tick_seconds", "commit_seconds", "refresh_seconds", "port_poll_seconds"),
        *("window_seconds", "timeout_seconds", "driver_timeout_seconds"),
        *("dead_man_seconds", "resend_seconds"),
        *("reader_patience_seconds", "session_hours", "span_hours"),
    }
)
_URL = re.compile(r"https?://[^\s/@?#]+(/[^\s?#]*)?")
_LEVELS = ("debug", "info", "warning", "error")


def _check_store(where: _Where, store: StoreSettings) -> None:
    _check_one_of(where, ("store", "kind"), store.kind, STORES)
    for key in ("url", "write_url"):
        url = getattr(store, key)
        needed = key == "url" and store.kind != "hub"
        if (url or needed) and not _URL.fullmatch(url):
            raise ConfigError(
                f"{where.of(('store', key))}: {without_secret(url)!r} is not an http or https address"
                " (a user goes into store.user)"
            )
    if store.user and (store.password_file is None or store.token_file is not None):
        raise ConfigError(
            f"{where.of(('store', 'user'))}: goes with store.password_file and without a token"
        )


def _check_numbers(where: _Where, keys: tuple[str, ...], settings: Any) -> None:
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        bounds = _BOUNDS.get(setting.name.rpartition("_")[2])
        if bounds is None or not isinstance(value, int | float):
            continue
        lowest, highest = bounds if setting.name != "metrics_port" else (-1, bounds[1])
        place = where.of((*keys, setting.name))
        if setting.name in _POSITIVE and value <= 0:
            raise ConfigError(f"{place}: must be more than 0")
        if not lowest <= value <= highest:
            raise ConfigError(f"{place}: must be from {lowest:g} to {highest:g}")


def _check_cost(where: _Where, cost: CostSettings) -> None:
    for number, price in enumerate(cost.prices):
        _check_entry(where.entry(number), ("cost", "prices"), price)
    _check_entry(where, ("cost",), cost)


def _check_entry(where: _Where, keys: tuple[str, ...], entry: Any) -> None:
    _check_numbers(where, keys, entry)
    for key, sentence in entry.wrong():
        raise ConfigError(f"{where.of((*keys, key) if key else keys)}: {sentence}")


def _check_one_of(where: _Where, keys: tuple[str, ...], value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ConfigError(f"{where.of(keys)}: {value!r} is not one of {', '.join(allowed)}")
