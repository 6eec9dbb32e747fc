"""The effects of injected faults on the switches of a simulated cluster. Pure."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from integrations.fabric.seen import SeenSwitch

from .fabric.cabling import SPINES, UPLINKS, Cabling, PortDeviation
from .faults import Effect, InjectedFault
from .sensors import is_down

# Counters that grow at both ends of a host's cable.
_BOTH_COUNT = frozenset({"symbol_errors"})
# Packets a second that each cable from a full leaf to a spine drops, for each host that sends there: few,
# as credit holds back the others [chosen].
_DROPS = 0.1


def odd_ports(
    cabling: Cabling, faults: Iterable[InjectedFault], now: datetime
) -> Mapping[int, PortDeviation]:
    """Return how switch ports differ, by place; counters keep what a fault added."""
    found: dict[int, PortDeviation] = {}
    for fault in faults:
        for place in _places(cabling, fault):
            found[place] = _bent(found.get(place, PortDeviation()), fault, now)
    return found


def lost(cabling: Cabling, faults: Iterable[InjectedFault], now: datetime) -> Collection[int]:
    """Return the switches that do not answer."""
    found = set()
    for fault in faults:
        where = _where(cabling, fault) if fault.active(now) else None
        if where is not None and fault.kind.loses_leaf:
            found.add(cabling.leaf(*where))
        elif where is not None and fault.kind.effect is Effect.SPINE:
            found.add(cabling.spine(SPINES - 1))
    return found


def with_drops(
    cabling: Cabling,
    seen: Mapping[str, SeenSwitch],
    faults: Iterable[InjectedFault],
    now: datetime,
) -> dict[str, SeenSwitch]:
    """Return the switches with the drops of each port: a full leaf drops some traffic to the spines."""
    counted: dict[tuple[str, int], int] = defaultdict(int)
    for fault in faults:
        where = _where(cabling, fault) if fault.kind.fills_leaf else None
        if where is not None:
            leaf, gained = cabling.leaf(*where), _DROPS * fault.lasted_seconds(now)
            for number in range(UPLINKS):
                port = cabling.ports[cabling.uplink(leaf, number)]
                counted[cabling.names[leaf], port.number] += math.floor(gained)
    return {
        name: replace(
            switch,
            ports={
                number: replace(
                    port,
                    counters={**(port.counters or {}), "transmit_discards": counted[name, number]},
                )
                for number, port in switch.ports.items()
            },
        )
        for name, switch in seen.items()
    }


def _where(cabling: Cabling, fault: InjectedFault) -> tuple[int, int] | None:
    """Return the host and the rail; None for a port outside of the fabric."""
    if fault.node not in cabling.hosts or fault.device not in cabling.devices:
        return None
    return cabling.hosts.index(fault.node), cabling.devices.index(fault.device)


def _places(cabling: Cabling, fault: InjectedFault) -> Collection[int]:
    where = _where(cabling, fault)
    if where is None or fault.kind.effect is Effect.SPINE:
        return ()
    if fault.kind.effect is Effect.UPLINK:
        place = cabling.uplink(cabling.leaf(*where), 0)
        return (place, cabling.far(place))
    return (cabling.downlink(*where),)


def _bent(odd: PortDeviation, fault: InjectedFault, now: datetime) -> PortDeviation:
    kind = fault.kind
    gained = {
        name: odd.counted.get(name, 0) + math.floor(rate * fault.lasted_seconds(now))
        for name, rate in kind.grows.items()
        if name in _BOTH_COUNT
    }
    odd = replace(odd, counted={**odd.counted, **gained})
    if not fault.active(now):
        return odd
    loses = kind.effect in {Effect.PORT_DOWN, Effect.PORT_FLAP} and is_down(fault, now)
    return replace(
        odd,
        up=odd.up and not loses and kind.sets.get("up") != 0,
        speed=odd.speed * kind.times.get("speed_bits_per_second", 1.0),
        lanes=max(round(odd.lanes * kind.times.get("width_lanes", 1.0)), 1),
    )
