"""The three files that a node keeps after joining; none is replaced silently."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuvigil.config import load
from gpuvigil.errors import ConfigError
from gpuvigil.file_sync import sync
from gpuvigil.hub_client.authority import certificate_in
from gpuvigil.state_directory import SITE_CONFIG

CONFIGURATION, TOKEN, AUTHORITY = "collector.toml", "collector-token", "ca.pem"
PENDING = "collector-token.joining"
_FOR_ALL, _FOR_ROOT = 0o644, 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """The hub's address, and the node's identity there; an empty text means the default."""

    url: str
    token: str
    authority: str | None
    cluster: str
    node: str = ""
    rack: str = ""


def configuration(joining: Joining, directory: Path) -> str:
    """Return the text of `collector.toml`."""
    hub = {"url": joining.url}
    if joining.authority is not None:
        hub["ca_file"] = str(directory / AUTHORITY)
    names = {"cluster": joining.cluster, "node": joining.node, "rack": joining.rack}
    return "\n".join(
        [
            "# Written by gpuvigil join. Other settings: man gpuvigil, docs/settings.md.",
            *_table("hub", hub),
            "",
            *_table("collector", {key: value for key, value in names.items() if value}),
            "",
        ]
    )


def _table(name: str, values: Mapping[str, str]) -> list[str]:
    # A JSON string is also a TOML string.
    return [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]


def write(joining: Joining, directory: Path, *, replace: bool) -> list[str]:
    """Write the files; return what was done with each, in words.

    Raises ConfigError before anything is written when a different configuration exists and may not
    be replaced. What is replaced is kept beside it as `.old`.
    """
    check(joining, directory, replace=replace)
    wanted = {CONFIGURATION: (configuration(joining, directory), _FOR_ALL)}
    wanted[TOKEN] = (f"{joining.token}\n", _FOR_ROOT)
    if joining.authority is not None:
        wanted[AUTHORITY] = (joining.authority, _FOR_ALL)
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        said = [_put(directory / name, text, mode) for name, (text, mode) in wanted.items()]
        (directory / PENDING).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename}: {error.strerror}") from None
    return said


def check(joining: Joining, directory: Path, *, replace: bool) -> None:
    """Raise ConfigError when a different configuration exists and may not be replaced.

    Files that a hub on this machine reads are never replaced: no node could reach it any more.
    """
    _check_hubs_own(joining, directory)
    file = directory / CONFIGURATION
    before = _read(file)
    if not replace and before is not None and before != configuration(joining, directory):
        raise ConfigError(_refusal(file))


def _check_hubs_own(joining: Joining, directory: Path) -> None:
    site = directory / SITE_CONFIG.name
    try:
        hub = load(site, {}).hub
    except ConfigError:  # no hub's machine, or one whose hub does not start either
        return
    token, authority = directory / TOKEN, directory / AUTHORITY
    known = certificate_in(_read(authority) or "")
    replaced = {
        token: hub.collector_token_file == token
        and kept(directory, TOKEN) not in {"", joining.token},
        authority: hub.ca_file == authority
        and None not in {known, joining.authority}
        and known != joining.authority,
    }
    for file, is_replaced in replaced.items():
        if is_replaced:
            raise ConfigError(
                f"{file} is the hub's of this machine ({site}), and a join would replace it: join"
                " this machine with the line that 'gpuvigil server init' prints here"
            )


def kept(directory: Path, name: str) -> str:
    """Return the token in a file of this node, or an empty text."""
    return (_read(directory / name) or "").strip()


def keep_pending(token: str, directory: Path) -> None:
    """Save a token that this node made, before it is sent anywhere; ConfigError if that fails."""
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        _put(directory / PENDING, f"{token}\n", _FOR_ROOT)
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename}: {error.strerror}") from None


def forget_pending(directory: Path) -> None:
    """Delete the pending token, because the hub has refused it."""
    (directory / PENDING).unlink(missing_ok=True)


def _refusal(file: Path) -> str:
    try:
        of = f"is there already, for {load(file, {}).hub.url}, and says something else"
    except ConfigError:
        of = "is there already, and cannot be read"
    return f"{file} {of}: --replace writes it anew and keeps it as {file.name}.old"


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        return ""  # not a file that gpuvigil wrote


def _put(file: Path, text: str, mode: int) -> str:
    """Write one file in one step; a file with the same text keeps its owner and mode, too."""
    before = _read(file)
    if before == text:
        return f"unchanged  {file}"
    draft = file.with_name(f".{file.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    old = file.with_name(f"{file.name}.old")
    keeps = before is not None and mode == _FOR_ALL
    if keeps:
        file.replace(old)
    draft.replace(file)
    sync(file.parent)
    if before is None:
        return f"written    {file}"
    return f"replaced   {file}" + (f" (before: {old})" if keeps else "")
