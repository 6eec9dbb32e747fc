"""The configuration that `up` runs with: its own choices, overridden by the user's settings."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from gpuvigil.config import Config, Place, from_text, text_of, tree_of

Tree = dict[str, Any]  # tables by section, and lists of tables

# On one machine telemetry is read, sent, analyzed and shown every second.
TICK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports that the children listen on."""

    hub: int
    dashboard: int
    metrics: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The user's settings from file and variables: the keys that are set, and all values with defaults."""

    config: Config
    keys: frozenset[tuple[str, str]]

    def has(self, section: str, key: str) -> bool:
        return (section, key) in self.keys


def given(path: Path | None, environment: Mapping[str, str] = os.environ) -> Given:
    """Return the user's settings; ConfigError with one line if they are wrong."""
    where = Place(
        name=str(path),
        text="" if path is None else text_of(path),
        base=Path() if path is None else path.parent,
        environment=environment,
    )
    config = from_text(where.text, where)
    tree = tree_of(where.text, where)
    # Only today's names count: a file may contain unknown or retired keys.
    keys = {
        (section, key)
        for section, table in tree.items()
        if isinstance(table, dict)
        for key in table
        if hasattr(getattr(config, section), key)
    }
    return Given(config=config, keys=frozenset(keys))


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` without the variables that are settings: the written file holds their values."""
    sections = tuple(f"GPUVIGIL_{section.name}_".upper() for section in fields(Config))
    return {key: value for key, value in environment.items() if not key.startswith(sections)}


def choices(state: Path, ports: Ports, nodes: int, listen: tuple[str, str]) -> Tree:
    """Return the settings that `up` chooses; `listen` are the addresses of hub and dashboard."""
    secrets = state / "secrets"
    return {
        "hub": {
            "url": address(listen[0], ports.hub),
            "data_directory": state / "data",
            "collector_token_file": secrets / "collector-token",
            "service_token_file": secrets / "service-token",
            "scheduler_token_file": secrets / "scheduler-token",
        },
        "collector": {
            "tick_seconds": TICK_SECONDS,
            "spool_directory": state / "spool",
        },
        "simulator": {
            "nodes": nodes,
            "tick_seconds": TICK_SECONDS,
            "faults_file": state / "simulator" / "faults.json",
            "spool_directory": state / "simulator" / "spool",
        },
        "analyzer": {"tick_seconds": TICK_SECONDS},
        "alerts": {
            "external_url": address(listen[1], ports.dashboard),
            "link_key_file": secrets / "link-key",
        },
        "dashboard": {"secrets_directory": secrets, "refresh_seconds": TICK_SECONDS},
    }


def effective(user: Given, chosen: Tree, ports: Ports, nodes: int) -> Tree:
    """Return the choices with the user's settings laid over them, and the ports and nodes really used."""
    tree: Tree = {section: dict(table) for section, table in chosen.items()}
    for section, key in sorted(user.keys):
        value = getattr(getattr(user.config, section), key)
        tree.setdefault(section, {})[key] = _absolute(value)
    for section, key, value in (
        ("hub", "port", ports.hub),
        ("dashboard", "port", ports.dashboard),
        ("collector", "metrics_port", ports.metrics),
        ("simulator", "nodes", nodes),
    ):
        tree.setdefault(section, {})[key] = value
    tree["reports"] = _absolute(user.config.reports)
    return tree


def _absolute(value: Any) -> Any:
    """Make paths absolute, since the written file lies elsewhere, and dataclasses mappings."""
    if isinstance(value, Path):
        return value.absolute()
    if isinstance(value, tuple):
        return [_absolute(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {key: _absolute(item) for key, item in asdict(value).items()}
    return value


def to_toml(tree: Tree) -> str:
    """Return the tree as TOML; values that are None are left out."""
    blocks = [f"{key} = []\n" for key, rows in tree.items() if rows == []]
    for section, table in tree.items():
        if isinstance(table, list):
            blocks += [_block(f"[[{section}]]", row) for row in table]
            continue
        plain = {key: value for key, value in table.items() if not isinstance(value, list)}
        blocks.append(_block(f"[{section}]", plain))
        for key, rows in table.items():
            if isinstance(rows, list):
                blocks += [_block(f"[[{section}.{key}]]", row) for row in rows]
    return "\n".join(blocks)


def _block(head: str, table: Mapping[str, Any]) -> str:
    lines = [f"{key} = {_toml(value)}" for key, value in table.items() if value is not None]
    return "\n".join([head, *lines]) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, Path):
        value = str(value)
    # JSON strings, numbers and booleans are valid TOML, except for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def address(listen: str, port: int) -> str:
    """Return the URL by which this machine reaches a server that listens at this address and port."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(listen, listen)
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"http://{host}:{port}"
