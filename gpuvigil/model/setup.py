"""A node's versions, model and place, from a time on.

A node's inventory says what it has now. Whether a roll-out did harm can only be told from what each
node had when something failed, so every change of these few values is a record that is kept.
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
    """An attribute by which nodes are compared; the value is its name for people and in records."""

    DRIVER = "driver"
    VBIOS = "vbios"
    KERNEL = "kernel"
    NIC_FIRMWARE = "nic-firmware"
    MODEL = "model"
    RACK = "rack"

    @property
    def lasts(self) -> bool:
        """Whether the first known value also held before: this attribute is not rolled out."""
        return self in {Attribute.MODEL, Attribute.RACK}


# In the order in which people see them.
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
    """A node's attributes from `at` until its next setup; unknown attributes are absent."""

    node: Subject
    at: datetime
    values: Mapping[Attribute, str] = field(default_factory=dict)

    @classmethod
    def of(cls, inventory: Inventory, before: "Setup | None" = None) -> "Setup":
        """Return an inventory's attributes; those that it leaves open are taken from `before`.

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
        """Return a record of kind `setup`, named after its node and time; it never changes."""
        return Record(
            kind=RecordKind.SETUP,
            id=f"{self.node.key}|{to_text(self.at)}",
            at=self.at,
            subject=self.node.key,
            body={attribute.value: value for attribute, value in self.values.items()},
        )

    @classmethod
    def from_record(cls, record: Record) -> "Setup":
        """Parse a setup from a record; attributes of other versions are ignored."""
        values = {
            attribute: str(value)
            for attribute in Attribute
            if (value := record.body.get(attribute.value)) is not None
        }
        return cls(node=Subject.parse(record.subject), at=record.at, values=values)


def _joined(values: Iterable[str | None]) -> str:
    """Join the differing values of several parts into one: a mixed node is like no other."""
    return ", ".join(sorted({value for value in values if value}))
