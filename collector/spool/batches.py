"""Makes lines and records into the bodies that carry them to the hub."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gpuvigil import __version__
from gpuvigil.model import Record

from .body import RECORDS_PATH, Body

# The hub takes collectors' bodies without a bucket, so it may be renamed there alone.
WRITE_PATH = "/api/v2/write?precision=ns"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """The sender of bodies: a node, and one run of its collector."""

    cluster: str
    node: str
    boot: str

    def telemetry(self, lines: Iterable[str], at: datetime) -> Body:
        """Return a body of line protocol with times in nanoseconds."""
        content = "\n".join(lines).encode()
        return Body(path=WRITE_PATH, headers=self._headers(), content=content, at=at)

    def records(self, records: Iterable[Record], at: datetime) -> Body:
        """Return a body of records, which goes ahead of all telemetry."""
        content = "\n".join(json.dumps(record.to_json()) for record in records).encode()
        return Body(path=RECORDS_PATH, headers=self._headers(), content=content, at=at)

    def _headers(self) -> dict[str, str]:
        return {
            "Gpuvigil-Cluster": self.cluster,
            "Gpuvigil-Node": self.node,
            "Gpuvigil-Boot": self.boot,
            "Gpuvigil-Version": __version__,
        }
