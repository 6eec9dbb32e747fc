"""Restores from the hub what this node had and who held it, when the node has lost its saved state."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from gpuvigil.clock import Clock
from gpuvigil.errors import GpuvigilError, HubRefused
from gpuvigil.hub_client import Hub
from gpuvigil.log import Log
from gpuvigil.model import Allocation, Inventory, RecordKind, Subject, readable

log = Log("collector")

_SHORTEST_DELAY_SECONDS = 1.0
_LONGEST_DELAY_SECONDS = 60.0
# Status codes of a hub without this path, or that refuses collectors: asking again is useless.
_NEVER = frozenset({400, 403, 404, 405})


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredState:
    """A node's last inventory in the hub, and the allocations held when it last reported."""

    inventory: Inventory | None = None
    held: tuple[Allocation, ...] = ()


def restore(
    hub: Hub,
    node: Subject,
    deliver: Callable[[RestoredState], None],
    clock: Clock,
    stop: threading.Event,
) -> None:
    """Ask the hub until it answers or `stop` is set; pass the answer to `deliver`."""
    delay = _SHORTEST_DELAY_SECONDS
    while not stop.is_set():
        try:
            state = _ask_hub(hub, node)
        except GpuvigilError:
            # The shipper logs that the hub is away. Spread, so that nodes do not ask all at once.
            clock.wait(stop, delay * (0.5 + random.random()))
            delay = min(2 * delay, _LONGEST_DELAY_SECONDS)
        else:
            deliver(state)
            break
    hub.close()


def _ask_hub(hub: Hub, node: Subject) -> RestoredState:
    """Return the hub's answer; GpuvigilError when asking again may help."""
    try:
        records = hub.had(node)
        inventories = [one for one in records if one.kind is RecordKind.INVENTORY]
        held = (one for one in records if one.kind is RecordKind.ALLOCATION)
        return RestoredState(
            inventory=Inventory.from_record(inventories[0]) if inventories else None,
            held=tuple(readable(held, Allocation.from_record)),
        )
    except HubRefused as error:
        if error.status not in _NEVER:
            raise
        log.warning("hub does not say what this node had", why=str(error))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("what the hub says this node had cannot be read", why=str(error))
    return RestoredState()
