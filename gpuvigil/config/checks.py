"""Checks of settings beyond their types: names, addresses, limits, and combinations."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from ipaddress import ip_network
from typing import Any

from ..errors import ConfigError
from ..model import RESERVED_CLUSTERS
from .channels import RECEIVERS, ROUTING
from .people import PeopleSettings
from .place import Place
from .pricing import CostSettings
from .settings import STORES, Config, StoreSettings


def without_secret(url: str) -> str:
    """Return an address that may be shown: user and password are masked."""
    return re.sub(r"//[^/?#]*@", "//***@", url)


def check(config: Config, where: Place) -> None:
    """Raise ConfigError for the first mistake that types do not catch."""
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
    _check_address(where, "influxdb", "url", config.influxdb.url)
    _check_networks(where, ("dashboard", "trusted_proxies"), config.dashboard.trusted_proxies)
    _check_people(where, config.people)
    _check_sections(config, where)
    for key in (*RECEIVERS, *ROUTING):
        for number, entry in enumerate(getattr(config.alerts, key)):
            _check_entry(where.entry(number), ("alerts", key), entry)
    _check_cost(where, config.cost)
    for table, number, key, sentence in config.alerts.wrong():
        keys = ("alerts", table, key) if table else ("alerts", key)
        raise ConfigError(f"{where.entry(number).of(keys)}: {sentence}")


def _check_sections(config: Config, where: Place) -> None:
    for section in fields(Config):
        settings = getattr(config, section.name)
        if is_dataclass(settings):
            _check_numbers(where, (section.name,), settings)
    for number, report in enumerate(config.reports):
        _check_entry(where.entry(number), ("reports",), report)


def _check_people(where: Place, people: PeopleSettings) -> None:
    for key, why in people.wrong():
        raise ConfigError(f"{where.of(('people', key))}: {why}")


def _check_overrides(where: Place, key: str, entries: Sequence[str]) -> None:
    form, example = _OVERRIDES[key]
    for number, entry in enumerate(entries):
        if not form.fullmatch(entry):
            raise ConfigError(
                f"{where.entry(number).of(('analyzer', key))}: {entry!r} is not like {example};"
                " severities are critical, warning, info and ignore"
            )


def _check_networks(where: Place, keys: tuple[str, ...], entries: Sequence[str]) -> None:
    for number, entry in enumerate(entries):
        try:
            ip_network(entry)
        except ValueError as error:
            raise ConfigError(
                f"{where.entry(number).of(keys)}: {entry!r} is no address like 10.0.0.5 and no network"
                f" like 10.0.0.0/24: {error}"
            ) from None


_WORDS = "(critical|warning|info|ignore)"
# What an entry of a list of codes with severities looks like. SXids have five digits.
_OVERRIDES: Mapping[str, tuple[re.Pattern[str], str]] = {
    "xid_overrides": (re.compile(rf"\d{{1,4}}={_WORDS}"), "63=warning"),
    "sxid_overrides": (re.compile(rf"\d{{5}}={_WORDS}"), "12028=warning"),
}
# The name travels in headers and tags, so it must be safe there.
_NAME = re.compile(r"[!-~]+( [!-~]+)*(?<!\\)")
# Bounds of numbers, by the last word of their names; larger times would overflow Python's.
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


def _check_address(where: Place, section: str, key: str, url: str, *, needed: bool = False) -> None:
    if (url or needed) and not _URL.fullmatch(url):
        raise ConfigError(
            f"{where.of((section, key))}: {without_secret(url)!r} is not an http or https address"
            f" (a user goes into {section}.user)"
        )


def _check_store(where: Place, store: StoreSettings) -> None:
    _check_one_of(where, ("store", "kind"), store.kind, STORES)
    for key in ("url", "write_url"):
        needed = key == "url" and store.kind != "hub"
        _check_address(where, "store", key, getattr(store, key), needed=needed)
    if store.user and (store.password_file is None or store.token_file is not None):
        raise ConfigError(
            f"{where.of(('store', 'user'))}: goes with store.password_file and without a token"
        )


def _check_numbers(where: Place, keys: tuple[str, ...], settings: Any) -> None:
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


def _check_cost(where: Place, cost: CostSettings) -> None:
    for number, price in enumerate(cost.prices):
        _check_entry(where.entry(number), ("cost", "prices"), price)
    _check_entry(where, ("cost",), cost)


def _check_entry(where: Place, keys: tuple[str, ...], entry: Any) -> None:
    _check_numbers(where, keys, entry)
    for key, sentence in entry.wrong():
        raise ConfigError(f"{where.of((*keys, key) if key else keys)}: {sentence}")


def _check_one_of(where: Place, keys: tuple[str, ...], value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ConfigError(f"{where.of(keys)}: {value!r} is not one of {', '.join(allowed)}")
