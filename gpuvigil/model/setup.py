"""What a node ran on from a time on: versions, its model and its place.

A node's inventory says what it has now. Whether a roll-out did harm is only known by what each node
had when something failed, so every change of these few values is a record that stays.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from ..clock import to_text
from .collected import Inventory
from .record import Record, RecordKind
from .subject import Subject


class Attribute(str, Enum):
    """By what nodes are compared; the value is its name for people and in records."""

    DRIVER = "driver"
    VBIOS = "vbios"
    KERNEL = "kernel"
    NIC_FIRMWARE = "nic-firmware"
    MODEL = "model"
    RACK = "rack"

    @property
    def lasts(self) -> bool:
        """Whether what is said first was so before: nobody rolls it out."""
        return self in {Attribute.MODEL, Attribute.RACK}


# As they are listed for people.
TITLES: Mapping[Attribute, str] = {
    Attribute.MODEL: "GPU model",
    Attribute.DRIVER: "Driver",
    Attribute.VBIOS: "VBIOS",
    Attribute.KERNEL: "Kernel",
    Attribute.NIC_FIRMWARE: "Network firmware",
    Attribute.RACK: "Rack",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """From `at` until the next one of the same node; what nobody has said yet is absent."""

    node: Subject
    at: datetime
    values: Mapping[Attribute, str] = field(default_factory=dict)

    @classmethod
    def of(cls, inventory: Inventory, before: "Setup | None" = None) -> "Setup":
        """What an inventory says, and of what it leaves open what was said before.

        A driver that is being reloaded, or a port that has gone, is no change of version.
        """
        fabric = [port for port in inventory.ports if port.role == "fabric"]
        said = {
            Attribute.DRIVER: inventory.driver,
            Attribute.VBIOS: _joined(gpu.vbios for gpu in inventory.gpus),
            Attribute.KERNEL: inventory.kernel,
            Attribute.NIC_FIRMWARE: _joined(port.firmware for port in fabric or inventory.ports),
            Attribute.MODEL: _joined(gpu.model for gpu in inventory.gpus),
            Attribute.RACK: inventory.rack,
        }
        values = {} if before is None else dict(before.values)
        values |= {attribute: value for attribute, value in said.items() if value}
        return cls(node=inventory.subject, at=inventory.at, values=values)

    def to_record(self) -> Record:
        """Kind `setup`, named after its node and time; it never changes."""
        return Record(
            kind=RecordKind.SETUP,
            id=f"{self.node.key}|{to_text(self.at)}",
            at=self.at,
            subject=self.node.key,
            body={attribute.value: value for attribute, value in self.values.items()},
        )

    @classmethod
    def from_record(cls, record: Record) -> "Setup":
        """What another version tells beside them is left out."""
        values = {
            attribute: str(value)
            for attribute in Attribute
            if (value := record.body.get(attribute.value)) is not None
        }
        return cls(node=Subject.parse(record.subject), at=record.at, values=values)


def _joined(values: Iterable[str | None]) -> str:
    """Those of several parts that differ are one value: a mixed node is like no other."""
    return ", ".join(sorted({value for value in values if value}))
