"""Collect a site's names and secrets, so that none of them leaves the site."""

import getpass
import os
import pwd
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from gpuvigil.config import Config
from gpuvigil.model import Allocation, Incident, Inventory, RecordKind, readable

from .reading import Site
from .redaction import Redactor

_SECRET_WORDS = ("url", "token", "password", "secret", "key", "user")
_MOST_BYTES = 64 * 1024
_LEAST_PART = 6  # characters; a shorter part of an address may be a word of ours, such as `api`


def redactor(site: Site) -> Redactor:
    """Return a redactor that knows the names and secrets of this site."""
    told = set(_secrets(site.config, site.environment))
    names, parts = {*_names(site)}, set(told)
    for address in filter(None, map(_address, told)):
        names |= {address.hostname or "", address.username or ""}
        # An error message may name one part of an address without the others.
        of_it = (address.password or "", address.query, *address.path.split("/"))
        parts |= {one for one in (*of_it, *map(unquote, of_it)) if len(one) >= _LEAST_PART}
    return Redactor(names=names, secrets=parts)


def _address(text: str) -> SplitResult | None:
    try:
        found = urlsplit(text) if "://" in text else None
    except ValueError:
        return None
    return found


def _names(site: Site) -> Iterator[str]:
    yield from (socket.gethostname(), socket.getfqdn(), site.config.collector.cluster)
    yield from (site.config.collector.node, site.config.collector.rack, str(Path.home()))
    with suppress(KeyError, OSError):
        yield getpass.getuser()
    yield from (one.pw_name for one in pwd.getpwall() if one.pw_uid >= 1000 or one.pw_uid == 0)
    for one in readable(site.records(RecordKind.INVENTORY), Inventory.from_record):
        yield from (one.subject.cluster, one.subject.node or "", one.rack or "")
        yield from (gpu.uuid for gpu in one.gpus)
    for held in readable(site.records(RecordKind.ALLOCATION), Allocation.from_record):
        yield from (held.holder.name, held.user or "", held.account or "", held.pod or "")
        yield from (held.command or "", held.partition or "")
    for incident in readable(site.records(RecordKind.INCIDENT), Incident.from_record):
        yield from (incident.label, incident.serial, incident.acknowledged_by)
        yield from (*incident.impact.holders, *incident.impact.users)


def _secrets(config: Config, environment: Mapping[str, str]) -> Iterator[str]:
    yield from _of_settings(config)
    for variable, value in environment.items():
        if any(word in variable.lower() for word in _SECRET_WORDS):
            yield value


def _of_settings(settings: Any) -> Iterator[str]:
    """Yield settings that may be secret, and the lines of the files that settings name."""
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        for one in value if isinstance(value, tuple) else (value,):
            if is_dataclass(one):
                yield from _of_settings(one)
            elif isinstance(one, Path) and setting.name.endswith("_file"):
                yield from _lines(one)
            elif isinstance(one, str) and any(word in setting.name for word in _SECRET_WORDS):
                yield one
                yield os.environ.get(one, "") if setting.name.endswith("_variable") else ""


def _lines(file: Path) -> Iterator[str]:
    with suppress(OSError, UnicodeDecodeError):
        if file.is_file() and file.stat().st_size <= _MOST_BYTES:
            yield from (line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines())
