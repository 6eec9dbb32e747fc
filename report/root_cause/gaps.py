"""What a manufacturer's page cannot say, and why."""

from collections.abc import Iterator

from gpuvigil.model import Inventory

from .page_inputs import MOST_EVENTS, RootCauseInputs


def unmeasured(inputs: RootCauseInputs, part: str | None = None) -> Iterator[str]:
    """Yield what this page cannot say, and why."""
    had = inputs.inventory
    if had is None:
        yield "The node has no inventory any more: its parts are those that its incidents name."
    else:
        yield from _of_inventory(had, part)
    if not inputs.setups:
        yield "Since when it runs on these versions: no change of them was kept."
    yield "Since when each GPU sits in its slot: only incidents keep the serial number of their time."
    if not inputs.jobs:
        yield "Jobs by a scheduler's word: only those are known that the node saw, with its own GPUs."
    if inputs.events_cut:
        yield f"Kernel lines and events before {inputs.events[0].at:%d %b %H:%M} UTC: only the newest {MOST_EVENTS:,} were read."
    yield "Drains by people and by the scheduler itself: only those by gpuvigil are kept."
    yield "Temperatures, power and clocks around each incident are on the dashboard, not in this file."


def _of_inventory(had: Inventory, part: str | None) -> Iterator[str]:
    if not had.collected:
        yield "Kernel lines and firmware: no collector of gpuvigil runs on the node."
    if had.driver is None:
        yield f"The driver's version: {had.driver_state}."
    for uuid, since in had.missing.items():
        if part in {None, uuid}:
            yield f"GPU {uuid} is gone since {since:%d %b %H:%M} UTC: what is said of it is from before."
    gpus = [one for one in had.gpus if part in {None, one.uuid}]
    for name, field in (("Serial number", "serial"), ("VBIOS", "vbios"), ("InfoROM", "inforom")):
        without = [str(one.index) for one in gpus if getattr(one, field) is None]
        if without:
            yield f"{name} of GPU {', '.join(without)}: the driver did not tell it."
