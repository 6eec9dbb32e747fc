"""One switch as the reader of a fabric reports it: its ports, and what is at their other ends."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..clock import from_text, micros, to_text
from ..plain import known, plain
from .record import Record, RecordKind
from .subject import Subject

# The device of a switch's port, since only nodes' ports have a real one.
SWITCH_DEVICE = "switch"


# Fields of `ErrorCount` that are faults of a cable or a port; the others come with traffic.
ERROR_COUNTS = ("symbol_errors", "receive_errors", "link_recoveries", "local_integrity_errors")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCount:
    """A port's counters at one moment, since they were last reset: see `perfquery(8)`.

    None means not measured. Discards are packets that the switch could not send; pause frames are
    summed over all priorities.
    """

    at: datetime
    symbol_errors: int | None = 0
    receive_errors: int | None = 0
    link_recoveries: int | None = 0
    local_integrity_errors: int | None = 0
    transmit_discards: int | None = None
    pause_frames_received: int | None = None
    pause_frames_sent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPort:
    """A switch's port that has had a link at some time.

    `since`: from when on it has been up or down, at this speed and with this peer. A port that is down
    keeps its last peer. `best_bits_per_second` is the highest speed that the link to this peer has had.
    """

    number: int
    up: bool
    since: datetime
    name: str = ""  # if the switch names it, rather than numbers it
    physical_state: str = ""  # as the tools write it: LinkUp, Polling, Disabled
    peer: str = ""  # a switch's name, or `host device`
    peer_guid: str = ""  # of the port or the switch there: names may change
    peer_port: int = 0
    peer_port_name: str = ""
    at_switch: bool = False
    bits_per_second: int | None = None
    lanes: int | None = None
    best_bits_per_second: int | None = None
    counts: tuple[ErrorCount, ...] = ()
    """The last count from over an hour ago and each that differs since, oldest first."""

    @property
    def id(self) -> str:
        """The switch's own name for the port, or its number."""
        return self.name or str(self.number)

    @property
    def peer_id(self) -> str:
        """The name or number of the port at the other end; empty when not known."""
        return self.peer_port_name or (str(self.peer_port) if self.peer_port else "")

    @property
    def host(self) -> tuple[str, str] | None:
        """The host and device at the other end, if described as `rdma-ndd` does; None otherwise."""
        words = () if self.at_switch else tuple(self.peer.split())
        return (words[0], words[1]) if len(words) == len(("host", "device")) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One switch at one look; `lost_at`: since when it does not answer while others do.

    Without ports, the switch now has another name, or was forgotten.
    """

    subject: Subject
    at: datetime
    guid: str
    lost_at: datetime | None = None
    ports: tuple[SwitchPort, ...] = ()

    def port_subject(self, id_: str | int) -> Subject:
        """Return a port's subject as incidents name it; port 0 is the switch itself, as in InfiniBand."""
        return Subject(
            cluster=self.subject.cluster,
            node=self.subject.node,
            device=SWITCH_DEVICE,
            port=str(id_),
        )

    def to_record(self) -> Record:
        """Return a record of kind `switch`, named after itself; its version is the time in microseconds."""
        return Record(
            kind=RecordKind.SWITCH,
            id=self.subject.key,
            at=self.at,
            subject=self.subject.key,
            version=micros(self.at),
            body={
                "guid": self.guid,
                "lost_at": None if self.lost_at is None else to_text(self.lost_at),
                "ports": [
                    {**plain(port), "counts": [plain(count) for count in port.counts]}
                    for port in self.ports
                ],
            },
        )

    @classmethod
    def from_record(cls, record: Record) -> "Switch":
        body = record.body
        lost_at = body.get("lost_at")
        return cls(
            subject=Subject.parse(record.subject),
            at=record.at,
            guid=str(body["guid"]),
            lost_at=None if lost_at is None else from_text(lost_at),
            ports=tuple(map(_port, body["ports"])),
        )


# Checked, since another program wrote the record and detectors calculate with these.
_NUMBERS = frozenset(
    {"number", "peer_port", "bits_per_second", "lanes", "best_bits_per_second"}
    | (ErrorCount.__dataclass_fields__.keys() - {"at"})
)
_TEXTS = frozenset({"name", "physical_state", "peer", "peer_guid", "peer_port_name"})


def _port(said: Mapping[str, Any]) -> SwitchPort:
    counts = tuple(
        ErrorCount(**{**_checked(known(ErrorCount, count)), "at": from_text(count["at"])})
        for count in said["counts"]
    )
    fields = _checked(known(SwitchPort, said))
    return SwitchPort(**{**fields, "since": from_text(said["since"]), "counts": counts})


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields; raise TypeError for a value of the wrong type."""
    for name, value in fields.items():
        if name in _NUMBERS and not (value is None or type(value) is int):
            raise TypeError(f"{name} of a switch's port is no whole number")
        if name in _TEXTS and not isinstance(value, str):
            raise TypeError(f"{name} of a switch's port is no text")
    return fields


def without_domain(name: str) -> str:
    """Return a switch's name without its domain; an address is returned whole."""
    return name if name.replace(".", "").isdigit() else name.partition(".")[0]
