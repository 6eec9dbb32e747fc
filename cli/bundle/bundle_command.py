"""`gpuvigil support` and `gpuvigil evidence`: one file for somebody outside, without a secret or a name."""

import io
import json
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuvigil.clock import SystemClock
from gpuvigil.config import Config, load
from gpuvigil.config.startup import fail, parser
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.private_files import write_private_bytes
from gpuvigil.state_directory import config_of_up
from gpuvigil.store.configured import hubs
from gpuvigil.typed_times import length

from .contents import evidence, support
from .reading import Site
from .redaction import Redactor
from .site import redactor

_DEFAULT = "30d"
_NO_NAMES = (
    "not all names could be read from the hub, so logs and the doctor's texts are left out,"
    " and all other names are hashed"
)


def support_main(arguments: Sequence[str]) -> int:
    """Write settings without secrets, status, log tails, doctor and versions; return the exit code."""
    commands = parser(
        "support", "Write a bundle for a support case: no secret in it, names hashed."
    )
    commands.add_argument("--out", type=Path, required=True, metavar="FILE", help="support.tar.gz")
    chosen = commands.parse_args(arguments)

    def made(site: Site, hide: Redactor) -> Mapping[str, Any]:
        return support(site, hide, site.file.parent if site.file else None)

    return _run(commands.prog, chosen.config, chosen.out, made)


def evidence_main(arguments: Sequence[str]) -> int:
    """Write a pilot's fleet, versions, coverage, verdicts and feedback; return the exit code."""
    commands = parser("evidence", "Write what a pilot has shown: no secret in it, names hashed.")
    commands.add_argument("--out", type=Path, required=True, metavar="FILE", help="evidence.tar.gz")
    commands.add_argument(
        "--last", default=_DEFAULT, metavar="LENGTH", help=f"7d or 4w; {_DEFAULT}"
    )
    chosen = commands.parse_args(arguments)

    def made(site: Site, hide: Redactor) -> Mapping[str, Any]:
        return evidence(site, hide, length(chosen.last, "--last"))

    return _run(commands.prog, chosen.config, chosen.out, made)


def _run(
    program: str,
    config: Path | None,
    out: Path,
    made: Callable[[Site, Redactor], Mapping[str, Any]],
) -> int:
    try:
        if not out.parent.is_dir():
            raise ConfigError(f"--out {out}: there is no directory {out.parent}")
        file = config_of_up(config)
        site = _site(file)
        try:
            found = made(site, redactor(site))
        finally:
            if site.hub is not None:
                site.hub.close()
        write_private_bytes(out, packed(found))
    except GpuvigilError as error:
        return fail(program, error)
    sys.stdout.write("".join(f"  {name}\n" for name in found))
    hidden = "names in it are hashed" if site.knows_names() else _NO_NAMES
    sys.stdout.write(f"wrote {out}; {hidden}. Look through it before you send it.\n")
    return 0


def _site(file: Path | None) -> Site:
    """Return the site even if its configuration is wrong or its hub does not answer, as in a support case."""
    now = SystemClock().now()
    try:
        config = load(file)
    except ConfigError as error:
        return Site(
            config=Config(), file=file, hub=None, now=now, unread={"settings": type(error).__name__}
        )
    try:
        return Site(config=config, file=file, hub=hubs(config)(), now=now)
    except GpuvigilError as error:
        return Site(
            config=config, file=file, hub=None, now=now, unread={"hub": type(error).__name__}
        )


def packed(found: Mapping[str, Any]) -> bytes:
    """Return the files as a tar.gz: logs as lines of text, all else as JSON."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in found.items():
            is_log = name.startswith("log/")
            text = "\n".join(content) if is_log else json.dumps(content, indent=1)
            data = f"{text}\n".encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()
