"""What whoever reads a whole fabric says of one switch: its ports, and what is at their other ends."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..clock import from_text, micros, to_text
from .record import Record, RecordKind, known, plain
from .subject import Subject

# What stands where a node's port has its device: a switch has ports and no devices.
SWITCH_DEVICE = "switch"


# Of an `ErrorCount`, what a cable or a port does wrong; the others come with traffic.
ERROR_COUNTS = ("symbol_errors", "receive_errors", "link_recoveries", "local_integrity_errors")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCount:
    """What a port had counted at one moment, since its counters began: see `perfquery(8)`.

    None is not measured. Discards are packets that the switch could not send; frames of pause count
    those of every priority.
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
    """One port that once had a link.

    `since`: from when on it is up or down, at this speed and with this peer. A port that is down keeps
    the peer that it had. `best_bits_per_second` is the most that the link to this peer ever had.
    """

    number: int
    up: bool
    since: datetime
    name: str = ""  # where the switch calls it so, and not by its number
    physical_state: str = ""  # as the tools write it: LinkUp, Polling, Disabled
    peer: str = ""  # a switch's name, or `host device`
    peer_guid: str = ""  # of the port or the switch there: a name may be changed
    peer_port: int = 0
    peer_port_name: str = ""
    at_switch: bool = False
    bits_per_second: int | None = None
    lanes: int | None = None
    best_bits_per_second: int | None = None
    counts: tuple[ErrorCount, ...] = ()
    """The count before the last hour and each that differs since, the oldest first."""

    @property
    def id(self) -> str:
        """What the switch calls it: its name, or its number."""
        return self.name or str(self.number)

    @property
    def peer_id(self) -> str:
        """The same of the port at the other end; empty where that is not known."""
        return self.peer_port_name or (str(self.peer_port) if self.peer_port else "")

    @property
    def host(self) -> tuple[str, str] | None:
        """The host and the device at the other end, where it is described as `rdma-ndd` does."""
        words = () if self.at_switch else tuple(self.peer.split())
        return (words[0], words[1]) if len(words) == len(("host", "device")) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One switch at one look; `lost_at`: since when it does not answer, while others do.

    Without ports it goes by another name now, or was forgotten.
    """

    subject: Subject
    at: datetime
    guid: str
    lost_at: datetime | None = None
    ports: tuple[SwitchPort, ...] = ()

    def port_subject(self, id_: str | int) -> Subject:
        """A port of it, as incidents name it; port 0 is the switch itself, as InfiniBand has it."""
        return Subject(
            cluster=self.subject.cluster,
            node=self.subject.node,
            device=SWITCH_DEVICE,
            port=str(id_),
        )

    def to_record(self) -> Record:
        """Kind `switch`, named after itself; its version is the time in microseconds."""
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


# A record is another program's word: detectors calculate with these.
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
    """TypeError for a value that is none of its kind."""
    for name, value in fields.items():
        if name in _NUMBERS and not (value is None or type(value) is int):
            raise TypeError(f"{name} of a switch's port is no whole number")
        if name in _TEXTS and not isinstance(value, str):
            raise TypeError(f"{name} of a switch's port is no text")
    return fields


def without_domain(name: str) -> str:
    """A switch's name without its domain; an address is no name with a domain."""
    return name if name.replace(".", "").isdigit() else name.partition(".")[0]
