"""The simulated switches: both ends of a cable say the same, and what is lost shows beside it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from gpuvigil.model import Switch, SwitchPort
from simulator.fabric.cabling import SPINES, UPLINKS, Cabling, PortDeviation, guids_of, names_of
from simulator.fabric.reader import Reader

NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)
NAMES = names_of(33, 2)
CABLING = Cabling(
    cluster="simulated",
    names=NAMES,
    guids=guids_of(NAMES),
    hosts=tuple(f"n{number}" for number in range(33)),
    devices=("mlx5_0", "mlx5_1"),
    bits_per_second=400_000_000_000,
)
FIRST = CABLING.uplink(0, 0)


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def port(switches: Sequence[Switch], place: int) -> SwitchPort:
    end = CABLING.ports[place]
    [switch] = [it for it in switches if it.subject.node == CABLING.names[end.switch]]
    return next(it for it in switch.ports if it.number == end.number)


def test_two_racks_full_of_hosts_have_a_leaf_for_each_rail() -> None:
    assert NAMES[:4] == ("leaf-01-0", "leaf-01-1", "leaf-02-0", "leaf-02-1")
    assert len(NAMES) == 4 + SPINES
    assert CABLING.ports[CABLING.downlink(32, 1)].host == "n32 mlx5_1"
    assert CABLING.ports[CABLING.downlink(32, 1)].switch == 3
    assert len(CABLING.of(0)) == 32 + UPLINKS


def test_each_cable_between_switches_has_two_ends() -> None:
    between = [place for place, it in enumerate(CABLING.ports) if it.far is not None]
    assert len(between) == 2 * 4 * UPLINKS
    assert all(CABLING.far(CABLING.far(place)) == place for place in between)


def test_all_is_well_at_first_and_no_unused_port_is_told() -> None:
    told = Reader("simulated").look(CABLING.seen({}, ()), NOON)
    ports = [it for switch in told for it in switch.ports]
    assert len(ports) == len(CABLING.ports)
    assert all(it.up and it.bits_per_second == 400_000_000_000 for it in ports)


@pytest.mark.parametrize("end", [FIRST, CABLING.far(FIRST)])
def test_both_ends_tell_what_is_wrong_with_either(end: int) -> None:
    reader = Reader("simulated")
    reader.look(CABLING.seen({}, ()), NOON)
    slow = reader.look(CABLING.seen({end: PortDeviation(speed=0.25, lanes=1)}, ()), later(60.0))
    for place in (FIRST, CABLING.far(FIRST)):
        found = port(slow, place)
        assert (found.bits_per_second, found.best_bits_per_second) == (
            100_000_000_000,
            400_000_000_000,
        )
    down = reader.look(CABLING.seen({end: PortDeviation(up=False)}, ()), later(120.0))
    assert not port(down, FIRST).up
    assert not port(down, CABLING.far(FIRST)).up


def test_a_port_that_somebody_switched_off_says_so_at_its_own_end() -> None:
    reader = Reader("simulated")
    reader.look(CABLING.seen({}, ()), NOON)
    told = reader.look(CABLING.seen({FIRST: PortDeviation(disabled=True)}, ()), later(60.0))
    states = [port(told, place).physical_state for place in (FIRST, CABLING.far(FIRST))]
    assert states == ["Disabled", "Polling"]


def test_a_lost_spine_takes_its_cables_and_no_host_with_it() -> None:
    reader = Reader("simulated")
    reader.look(CABLING.seen({}, ()), NOON)
    told = reader.look(CABLING.seen({}, {CABLING.spine(0)}), later(60.0))
    [lost] = [it for it in told if it.lost_at is not None]
    assert lost.subject.node == "spine-1"
    down = [it for switch in told if switch is not lost for it in switch.ports if not it.up]
    assert len(down) == 4 * UPLINKS // SPINES
    assert {it.peer for it in down} == {"spine-1"}


@pytest.mark.parametrize("more", [0, 1])
def test_where_most_switches_are_gone_at_once_nothing_is_told(more: int) -> None:
    reader = Reader("simulated")
    reader.look(CABLING.seen({}, ()), NOON)
    told = reader.look(CABLING.seen({}, set(range(len(NAMES) // 2 + more))), later(60.0))
    assert bool(told) == (more == 0)


def test_a_switch_of_infiniband_counts_no_drops_and_one_of_ethernet_does() -> None:
    odd = {FIRST: PortDeviation(counted={"transmit_discards": 7, "symbol_errors": 2})}
    ethernet = replace(CABLING, is_ethernet=True)
    for cabling, drops, name in ((CABLING, None, ""), (ethernet, 7, "Ethernet33")):
        found = port(Reader("simulated").look(cabling.seen(odd, ()), NOON), FIRST)
        assert (found.counts[-1].transmit_discards, found.name) == (drops, name)
        assert found.counts[-1].symbol_errors == 2
