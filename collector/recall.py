"""Asks the hub what this node had, when the node itself has forgotten it."""

import random
import threading
from collections.abc import Callable

from gpuvigil.clock import Clock
from gpuvigil.errors import GpuvigilError, HubRefused
from gpuvigil.hub import Hub
from gpuvigil.log import Log
from gpuvigil.model import Inventory, Subject

log = Log("collector")

_SHORTEST_DELAY_SECONDS = 1.0
_LONGEST_DELAY_SECONDS = 60.0
# A hub that has no such path, or does not let collectors ask: asking again is in vain.
_NEVER = frozenset({400, 403, 404, 405})


def recall(
    hub: Hub,
    node: Subject,
    tell: Callable[[Inventory | None], None],
    clock: Clock,
    stop: threading.Event,
) -> None:
    """Ask until the hub answers or `stop`; `tell` gets what it has, None when it has nothing."""
    delay = _SHORTEST_DELAY_SECONDS
    while not stop.is_set():
        try:
            had = _asked(hub, node)
        except GpuvigilError:
            # The shipper says that the hub is away. Spread, so that nodes do not ask all at once.
            clock.wait(stop, delay * (0.5 + random.random()))
            delay = min(2 * delay, _LONGEST_DELAY_SECONDS)
        else:
            tell(had)
            break
    hub.close()


def _asked(hub: Hub, node: Subject) -> Inventory | None:
    """The hub's answer; GpuvigilError when it may come later."""
    try:
        record = hub.inventory(node)
        return None if record is None else Inventory.from_record(record)
    except HubRefused as error:
        if error.status not in _NEVER:
            raise
        log.warning("hub does not say what this node had", why=str(error))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("what the hub says this node had cannot be read", why=str(error))
    return None
