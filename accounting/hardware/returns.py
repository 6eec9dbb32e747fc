"""Returns to the maker (RMA): which incidents may have one, its state, and when an inventory shows it is over."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from gpuvigil.model import SEEN, GpuIdentity, Incident, Inventory, Rma, RmaState

from .repeat_offenders import HARDWARE

LONGEST_NOTE = 500


def can_be_returned(incident: Incident) -> bool:
    """Return whether the incident is about a part that a maker would take back; a selftest's is not."""
    return incident.fault in HARDWARE and not incident.marked


def newest(steps: Iterable[Rma]) -> Mapping[str, Rma]:
    """Return the newest step of each return, by incident."""
    found: dict[str, Rma] = {}
    for step in sorted(steps, key=lambda it: (it.at, it.id)):
        found[step.incident] = step
    return found


def step(incident: Incident, state: RmaState, by: str, note: str, at: datetime) -> Rma:
    """Return the record of a new step that somebody reports."""
    return Rma(
        incident=incident.id,
        subject=incident.subject,
        state=state,
        by=by,
        at=at,
        note=note[:LONGEST_NOTE],
        serial=incident.serial,
        slot=incident.slot,
    )


def step_line(one: Rma) -> str:
    """Return the step in one line: `shipped by alice, case 4711`."""
    note = f", {one.note}" if one.note else ""
    return f"{one.state.value} by {one.by}{note}"


def replaced_parts(pending: Iterable[Rma], inventory: Inventory) -> list[Rma]:
    """Return the steps that an inventory shows by itself: another serial number sits in the slot.

    An empty slot, or a GPU without a serial number, proves nothing. Neither does a GPU that sits in
    another slot now: it may have been moved to find out which of the two is to blame.
    """
    slots = {
        _slot(gpu.pci_address): gpu for gpu in inventory.gpus if gpu.pci_address and gpu.serial
    }
    found = []
    for one in pending:
        here = slots.get(_slot(one.slot)) if one.slot and one.serial else None
        same_node = one.subject.of_node() == inventory.subject
        if not same_node or one.state is RmaState.REPLACED or here is None:
            continue
        if here.serial != one.serial and not _has(inventory.gpus, one.serial):
            found.append(
                Rma(
                    incident=one.incident,
                    subject=one.subject,
                    state=RmaState.REPLACED,
                    by=SEEN,
                    at=max(inventory.at, one.at),
                    note=f"serial {here.serial} sits in {one.slot}, where {one.serial} was",
                    serial=one.serial,
                    slot=one.slot,
                )
            )
    return found


def _slot(address: str) -> str:
    return address.lower()


def _has(gpus: Iterable[GpuIdentity], serial: str) -> bool:
    return any(gpu.serial == serial for gpu in gpus)
