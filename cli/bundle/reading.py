"""The inputs of a bundle, each read once; an input that cannot be read is listed in `unread`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from gpuvigil.config import Config
from gpuvigil.errors import GpuvigilError
from gpuvigil.hub_client import Hub
from gpuvigil.model import Record, RecordKind

_MOST_RECORDS = 100_000
# The records that name nodes, users, jobs and pods.
_NAMING = (RecordKind.INVENTORY, RecordKind.ALLOCATION, RecordKind.INCIDENT)


@dataclass(slots=True, kw_only=True)
class Site:
    """A site's configuration, and its hub unless it cannot be reached."""

    config: Config
    file: Path | None
    hub: Hub | None
    now: datetime
    most_records: int = _MOST_RECORDS
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    unread: dict[str, str] = field(default_factory=dict)  # by input: why it was not read in full
    _kept: dict[RecordKind, tuple[Record, ...]] = field(default_factory=dict)

    def records(self, kind: RecordKind) -> tuple[Record, ...]:
        """Return the records of a kind; empty, with an entry in `unread`, if the hub does not answer."""
        if kind not in self._kept:
            self._kept[kind] = ()
            if self.hub is not None:
                try:
                    self._kept[kind] = self.hub.records(kind, limit=self.most_records)
                except GpuvigilError as error:
                    self.unread[_records_of(kind)] = type(error).__name__
                if len(self._kept[kind]) >= self.most_records:
                    self.unread[_records_of(kind)] = f"only the newest {self.most_records} are read"
        return self._kept[kind]

    def knows_names(self) -> bool:
        """Return whether all records that name somebody or something were read."""
        for kind in _NAMING:
            self.records(kind)
        unread = [kind for kind in _NAMING if _records_of(kind) in self.unread]
        return self.hub is not None and not unread

    def status(self) -> Mapping[str, Any]:
        """Return the hub's own status; empty if the hub does not answer."""
        if self.hub is None:
            return {}
        try:
            return self.hub.status()
        except GpuvigilError as error:
            self.unread["hub"] = type(error).__name__
            return {}


def _records_of(kind: RecordKind) -> str:
    return f"records of kind {kind.value}"
