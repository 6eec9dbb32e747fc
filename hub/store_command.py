"""`gpuvigil store`: backup, restore, verify and stats, through a running hub or on its files."""

import argparse
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from gpuvigil.config import Config, HubSettings, secret_source
from gpuvigil.config.startup import configured_anywhere, parser, run_command
from gpuvigil.errors import HubUnavailable, StoreError
from gpuvigil.hub_client import Hub
from gpuvigil.hub_client.tls import trust
from gpuvigil.private_files import UMASK, owned_as

from .embedded import Embedded
from .endpoints import store as store_endpoint
from .http.bearer import tokens_file
from .records import (
    ends_file,
    in_postgresql,
    mark_restored,
    merge_ends,
    set_records_aside,
    wrong_inside,
)

# Request timeout: copying a year of telemetry takes long.
_PATIENCE_SECONDS = 3600.0
STORE = "telemetry.duckdb"


def main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil store`; return 0 when done, 1 on failure or damage, 2 for a wrong config."""
    options = parser("store", "The telemetry that the hub keeps, and its records in SQLite.")
    verbs = options.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, text in (
        ("backup", "copy everything into a directory on the hub's machine, also while it runs"),
        (
            "restore",
            "put a backup into the data directory of a hub that has none yet; of a file"
            " records-NUMBER.sqlite the records alone, in the place of those that are there",
        ),
    ):
        added = verbs.add_parser(verb, help=text)
        added.add_argument("directory", type=Path, metavar="DIR")
    verbs.add_parser("verify", help="read every byte, and set aside what is damaged")
    verbs.add_parser("stats", help="show lines, files and bytes")
    configured_anywhere(verbs.choices.values())
    return run_command(options, arguments, _run)


def _run(config: Config, chosen: argparse.Namespace) -> int:
    os.umask(UMASK)
    with owned_as(config.hub.data_directory):
        return _VERBS[chosen.verb](config.hub, chosen)


def _backup(settings: HubSettings, chosen: argparse.Namespace) -> int:
    to = chosen.directory.absolute()
    done = _query(
        settings,
        ("POST", "/api/v1/store/backup", {"directory": str(to)}),
        lambda store: store_endpoint.backup(store, settings, to),
    )
    records = "telemetry and records" if done["records"] else "telemetry"
    print(f"copied {records} into {done['directory']}: {_bytes(done['bytes'])}")
    if not done["records"]:
        print("the records are in PostgreSQL: back them up with pg_dump")
    return 0


def _restore(settings: HubSettings, chosen: argparse.Namespace) -> int:
    source, target = chosen.directory, settings.data_directory
    if _remote(settings) is not None:
        raise StoreError(f"the hub at {settings.url} runs; stop it first")
    if source.is_file():
        return _restore_records(settings, source)
    if not (source / STORE).is_file():
        raise StoreError(f"{source} holds no backup: there is no {STORE} in it")
    places = {
        source / STORE: target / STORE,
        source / store_endpoint.RECORDS: target / store_endpoint.RECORDS,
        source / store_endpoint.TOKENS: tokens_file(settings),
        (source / STORE).with_suffix(".sealed"): (target / STORE).with_suffix(".sealed"),
    }
    for place in places.values():
        if place.exists():
            raise StoreError(f"{place} is there already; move it away first")
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        _copy(places)
        # Merged, never overwritten: a token that has ended stays ended.
        if ends_file(source).exists():
            merge_ends(ends_file(source), ends_file(target))
    except OSError as error:
        raise StoreError(f"cannot write to {target}: {error.strerror or error}") from error
    with closing(_opened(settings)) as store:
        return _print_verification(store_endpoint.verify(store))


def _restore_records(settings: HubSettings, source: Path) -> int:
    """Replace the records with one backup of them, and set the old files aside."""
    if in_postgresql(settings):
        raise StoreError("the records are in PostgreSQL: restore them with pg_restore")
    if (wrong := wrong_inside(source, thorough=True)) is not None:
        raise StoreError(f"{source} holds no records: {wrong}")
    place = settings.data_directory / store_endpoint.RECORDS
    # Opening the store fails while any hub, whatever its address, has it open.
    store = _opened(settings) if (settings.data_directory / STORE).exists() else None
    try:
        for file, aside in set_records_aside(place).items():
            print(f"set {file} aside as {aside}")
        shutil.copyfile(source, place)
        place.chmod(0o600)
        mark_restored(place)
    except OSError as error:
        raise StoreError(f"cannot write {place}: {error.strerror or error}") from error
    finally:
        if store is not None:
            store.close()
    print(f"restored the records from {source}; what came after it is in the journal, which the")
    print("hub reads at its next start")
    return 0


def _copy(places: Mapping[Path, Path]) -> None:
    """Copy files without the modes of the backup, which may have come from anywhere."""
    for source, place in places.items():
        found = [source] if source.is_file() else source.rglob("*")
        for file in found:
            if file.is_file():
                to = place / file.relative_to(source)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, to)


def _verify(settings: HubSettings, _chosen: argparse.Namespace) -> int:
    return _print_verification(
        _query(settings, ("POST", "/api/v1/store/verify", {}), store_endpoint.verify)
    )


def _print_verification(found: Mapping[str, Any]) -> int:
    print(f"read {found['units']} sealed units of {found['lines']:,} lines", end="")
    print(f", {found['damaged']} damaged and set aside" if found["damaged"] else ", all as written")
    return 1 if found["damaged"] else 0


def _stats(settings: HubSettings, _chosen: argparse.Namespace) -> int:
    found = _query(settings, ("GET", "/api/v1/store", None), store_endpoint.stats)
    names = ("measurement", "lines", "sealed", "files", "sealed bytes", "roll-ups")
    rows = [names] + [
        (
            name,
            f"{it['lines']:,}",
            f"{it['sealed_lines']:,}",
            str(it["files"]),
            _bytes(it["sealed_bytes"]),
            _bytes(it["rolled_bytes"]),
        )
        for name, it in found["measurements"].items()
    ]
    widths = [max(len(row[index]) for row in rows) for index in range(len(names))]
    for row in rows:
        print("  ".join(f"{it:>{width}}" for it, width in zip(row, widths, strict=True)))
    print(f"in all {_bytes(found['bytes'])}")
    for row in found["damaged"]:
        print(f"damaged since {row['at']}: {row['file']}: {row['reason']}; now {row['moved_to']}")
    return 0


def _query(
    settings: HubSettings,
    request: tuple[str, str, Mapping[str, Any] | None],
    here: Callable[[Embedded], dict[str, Any]],
) -> Mapping[str, Any]:
    """Return the answer of the running hub, or else of the files in its data directory."""
    hub = _remote(settings)
    if hub is not None:
        method, path, body = request
        content = None if body is None else json.dumps(body).encode()
        found: Mapping[str, Any] = json.loads(hub.request(method, path, content).body)
        return found
    if not (settings.data_directory / STORE).exists():
        raise StoreError(
            f"no hub answers at {settings.url}, and {settings.data_directory} holds no store"
        )
    with closing(_opened(settings)) as store:
        return here(store)


def _remote(settings: HubSettings) -> Hub | None:
    """Return a client of the configured hub; None when it has no token file or does not answer."""
    if settings.service_token_file is None or not settings.service_token_file.exists():
        return None
    token = secret_source(settings.service_token_file, "hub.service_token_file", "service token")
    believed = trust(settings)
    hub = Hub(settings.url, token, timeout_seconds=_PATIENCE_SECONDS, trust=believed)
    try:
        hub.status()
    except HubUnavailable:
        return None
    return hub


def _opened(settings: HubSettings) -> Embedded:
    return Embedded(settings.data_directory / STORE, settings.memory_limit_bytes, settings.threads)


def _bytes(number: float) -> str:
    """Format a number of bytes in the units of the dashboard's pipeline page."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.3g} TiB"


_VERBS = {"backup": _backup, "restore": _restore, "verify": _verify, "stats": _stats}
