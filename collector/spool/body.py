"""One request to the hub, and the file in which it waits.

A file is written aside and renamed. Its checksum reveals one that a power cut tore.
"""

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpuvigil.clock import from_text, to_text
from gpuvigil.file_sync import sync

RECORDS_PATH = "/api/v1/records"
# The headers by which the hub recognises a repeated body; the spool adds them.
IDENTITY = frozenset({"Gpuvigil-Lane", "Gpuvigil-Sequence"})
_BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """One request to the hub, as it will be sent; `at` is when its content was measured.

    `headers` carry the `Gpuvigil-*` headers of its node. The spool adds `Gpuvigil-Lane` and
    `Gpuvigil-Sequence`, which then stay the same in every attempt, and `number`, the body's place
    in the spool.
    """

    path: str
    headers: Mapping[str, str]
    content: bytes
    at: datetime
    number: int = 0


def bytes_on_disk(size: int) -> int:
    """Return the bytes that a file of this size takes on most file systems."""
    return max(-(-size // _BLOCK_BYTES), 1) * _BLOCK_BYTES


def write(file: Path, content: bytes, *, durable: bool) -> None:
    """Write a whole file or none, or raise OSError; `durable` survives a power cut, too."""
    draft = file.with_suffix(".draft")
    try:
        with draft.open("wb") as stream:
            stream.write(content)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        draft.replace(file)
        if durable:
            sync(file.parent)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def encode(body: Body) -> bytes:
    """Return one line of checksum, one of JSON, and the content compressed."""
    head = {"path": body.path, "headers": dict(body.headers), "at": to_text(body.at)}
    rest = json.dumps(head).encode() + b"\n" + zlib.compress(body.content, 1)
    return b"%08x\n" % zlib.crc32(rest) + rest


def decode(content: bytes) -> Body:
    """Return the body that `encode` wrote; ValueError when a byte is missing or wrong."""
    checksum, _, rest = content.partition(b"\n")
    if checksum != b"%08x" % zlib.crc32(rest):
        raise ValueError("checksum does not match")
    head, _, compressed = rest.partition(b"\n")
    values = json.loads(head)
    return Body(
        path=values["path"],
        headers=values["headers"],
        content=zlib.decompress(compressed),
        at=from_text(values["at"]),
    )
