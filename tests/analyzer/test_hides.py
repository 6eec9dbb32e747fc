"""Which finding follows from which: a table of causes and of what they explain, and of what they do not."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.correlation.causes import (
    by_root,
    hides,
    is_apart,
    multi_node,
    rebooted_for,
    root_of,
    stood_before,
)
from analyzer.correlation.halted_jobs import stalled_by
from gpuvigil.model import Evidence, Finding, Severity, Subject
from gpuvigil.silence_conditions import NodeSilence

from .scene import NOON, Scene, allocation, gpu, healthy, incident, node, port
from .test_correlate import finding

MINUTE, MICROSECOND = timedelta(minutes=1), timedelta(microseconds=1)
INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL


def told(fault: str, subject: Subject, *members: Subject, **more: Any) -> Finding:
    return replace(finding(fault, subject), members=members, **more)


RACK = told("node_silent", node(1), node(1), node(2))
SWITCH = told("switch_down", port(1), port(2), port(3), node(3))
FULL_LEAF = told("switch_congested", port(1), port(2), port(3))
HOT_RACK = told("gpu_hot", node(1), node(1), node(2), gpu(2))
LOW_CLOCK = (Evidence(name="SM clock", value="-3.0 % in 10 min, beside what it was"),)
FAN = told("host_fan", node())
BRAKE = told("gpu_power", node(1), gpu(1), gpu(1, 1), condition="power_brake")


@pytest.mark.parametrize(
    ("cause", "what", "follows"),
    [
        # What explains nothing, what does so once it is critical, and what always does.
        (told("gpu_settings", gpu()), told("gpu_slow", gpu()), False),
        (told("gpu_xid", gpu(), severity=CRITICAL), told("gpu_silent", gpu()), True),
        (told("gpu_xid", gpu(), severity=WARNING), told("gpu_silent", gpu()), False),
        (told("gpu_memory", gpu(), severity=WARNING), told("gpu_slow", gpu()), True),
        (told("gpu_memory", gpu(), severity=CRITICAL), told("gpu_slow", gpu()), True),
        (told("gpu_memory", gpu()), told("gpu_settings", gpu()), False),
        (told("gpu_memory", gpu()), told("gpu_slow", gpu(1, 1)), False),
        # A switch of the node and its own codes, on its own GPUs.
        (told("nvswitch_error", node()), told("gpu_xid", gpu(), xid=74), True),
        (told("nvswitch_error", node()), told("gpu_xid", gpu(), xid=79), False),
        (told("nvswitch_error", node()), told("gpu_xid", gpu(2), xid=74), False),
        (told("nvswitch_error", node()), told("gpu_nvlink", gpu()), True),
        (told("nvswitch_error", node()), told("gpu_nvlink", gpu(2)), False),
        # A node and what is on it.
        (told("node_silent", node()), told("gpu_xid", gpu(), xid=79), True),
        (told("node_silent", node()), told("gpu_lost", gpu()), True),
        (told("host_memory_full", node()), told("gpu_slow", gpu()), True),
        (told("host_memory_full", node()), told("gpu_slow", node(), gpu()), True),
        (told("host_memory_full", node(2)), told("gpu_slow", gpu()), False),
        (told("host_memory_full", node()), told("gpu_hung", gpu()), False),
        (told("host_throttled", node()), told("gpu_slow", node(), gpu()), True),
        (told("host_throttled", node()), told("gpu_slow", gpu()), True),
        (told("host_throttled", node(2)), told("gpu_slow", gpu()), False),
        (told("host_throttled", node()), told("gpu_hot", gpu()), False),
        (told("node_silent", node()), told("port_down", port()), True),
        (told("node_silent", node()), told("gpu_lost", gpu(2)), False),
        (told("node_silent", node()), HOT_RACK, False),
        (told("node_silent", node()), told("gpu_hot", node(), gpu(), gpu(1, 1)), True),
        (told("gpu_hot", gpu()), told("gpu_clocks", gpu()), True),
        (told("gpu_hot", node()), told("gpu_clocks", gpu()), True),
        (told("gpu_hot", gpu()), told("gpu_clocks", gpu(1, 1)), False),
        (told("gpu_hung", node()), told("gpu_slow", gpu()), False),
        # Tasks that wait for a file server that does not answer, on the same node.
        (told("host_mount", node()), told("host_hang", node()), True),
        (told("host_mount", node()), told("host_hang", node(2)), False),
        (told("host_hang", node()), told("host_mount", node()), False),
        (told("host_storage", node()), told("host_hang", node()), False),
        # A supply that failed, and the power that its node's GPUs lack for it; a rack's feed is no node's.
        (told("host_power", node()), told("gpu_power", node(), gpu(), gpu(1, 1)), True),
        (told("host_power", node()), told("gpu_power", gpu()), True),
        (told("host_power", node()), told("gpu_power", gpu(2)), False),
        (told("host_power", node()), told("gpu_power", node(), node(2), gpu(2)), False),
        (told("host_power", node()), told("gpu_hot", gpu()), False),
        (told("gpu_power", node(), gpu()), told("host_power", node()), False),
        # What is wrong with one GPU says why several of its node are slow.
        (told("gpu_nvlink", gpu()), told("gpu_slow", node()), True),
        (told("gpu_nvlink", gpu(2)), told("gpu_slow", node()), False),
        (told("gpu_nvlink", gpu(), severity=INFO), told("gpu_slow", node()), False),
        (told("gpu_memory", gpu()), told("gpu_slow", node()), False),
        (told("gpu_nvlink", gpu()), told("gpu_slow", gpu(1, 1)), False),
        (told("gpu_power", gpu()), told("gpu_clocks", node()), False),
        # A silent rack: nothing that is about others, and nothing that stood before.
        (RACK, told("gpu_lost", gpu(2)), True),
        (RACK, told("gpu_lost", gpu(2), since=NOON - 2 * MINUTE), True),
        (RACK, told("gpu_lost", gpu(2), since=NOON - 2 * MINUTE - MICROSECOND), False),
        (RACK, told("gpu_settings", gpu(2), since=NOON - 60 * MINUTE), True),
        (RACK, told("gpu_lost", gpu(3)), False),
        (RACK, HOT_RACK, False),
        (RACK, told("gpu_hot", node(2), gpu(2), gpu(2, 1)), True),
        (RACK, SWITCH, False),
        # A switch: its ports, the nodes that went with it, and those that lost no others.
        (SWITCH, told("port_down", port(2)), True),
        (SWITCH, told("port_errors", port(2)), True),
        (SWITCH, told("port_down", port(4)), False),
        (SWITCH, told("node_silent", node(3)), True),
        (SWITCH, told("node_silent", node(2)), False),
        (SWITCH, told("node_silent", node(3), node(3), node(4)), False),
        (SWITCH, told("port_down", node(2), port(2)), True),
        (SWITCH, told("port_down", node(2), port(1), port(2)), True),
        (SWITCH, told("port_down", node(2), port(2), port(4)), False),
        (told("switch_down", port(1), port(2)), told("port_down", node(2), port(1), port(2)), True),
        (SWITCH, told("port_down", node(2)), False),
        (SWITCH, told("gpu_slow", node(2), port(2)), False),
        # A node whose job waits for it, and nobody knows why.
        (SWITCH, told("gpu_slow", node(1), condition="whole_node"), True),
        (SWITCH, told("gpu_slow", node(2), condition="whole_node"), True),
        (SWITCH, told("gpu_slow", node(4), condition="whole_node"), False),
        (SWITCH, told("gpu_slow", node(2), condition="node_clocks"), False),
        (SWITCH, told("gpu_slow", gpu(2)), False),
        (FULL_LEAF, told("gpu_slow", node(1), condition="whole_node"), True),
        (FULL_LEAF, told("gpu_slow", node(2), condition="whole_node"), True),
        # What waits at it is its own, and what is wrong with a link is not.
        (FULL_LEAF, told("port_congested", port(2)), True),
        (FULL_LEAF, told("port_packet_loss", port(2)), True),
        (FULL_LEAF, told("port_degraded", port(2)), False),
        (FULL_LEAF, told("port_errors", port(2)), False),
        (FULL_LEAF, told("port_module", port(2)), False),
        (FULL_LEAF, told("port_down", port(2)), False),
        (FULL_LEAF, told("port_errors", port(2), condition="port_flapping"), False),
        # At another leaf, or for a reason of its own.
        (FULL_LEAF, told("gpu_slow", node(4), condition="whole_node"), False),
        (FULL_LEAF, told("gpu_slow", node(2), condition="node_clocks"), False),
        (FULL_LEAF, told("gpu_slow", gpu(2)), False),
        # A fan, and what gets hot on its node alone.
        (FAN, told("gpu_hot", node(), gpu(), gpu(1, 1), condition="node_hot"), True),
        (FAN, told("gpu_hot", gpu(), condition="hardware_thermal", severity=CRITICAL), True),
        (FAN, told("host_throttled", node()), True),
        (FAN, told("gpu_hot", gpu(2)), False),
        (FAN, HOT_RACK, False),
        (FAN, told("gpu_power", gpu()), False),
        # What is about several says what there is to say of each, but for what is another matter.
        (BRAKE, told("gpu_power", gpu()), True),
        (BRAKE, told("gpu_power", gpu(), condition="power_limit"), False),
        (BRAKE, told("gpu_power", gpu(1, 2)), False),
        (BRAKE, told("gpu_settings", gpu()), False),
        (BRAKE, told("gpu_clocks", gpu()), True),
        (HOT_RACK, told("gpu_hot", gpu(2)), True),
        (HOT_RACK, told("gpu_hot", gpu(2), condition="heatsink"), False),
        # A rack's air lowers the clocks on each of its nodes. Who is slow at a usual clock is so for another reason.
        (HOT_RACK, told("gpu_slow", gpu(2), evidence=LOW_CLOCK), True),
        (HOT_RACK, told("gpu_slow", node(2), condition="whole_node", evidence=LOW_CLOCK), True),
        (HOT_RACK, told("gpu_slow", gpu(2)), False),
        (HOT_RACK, told("gpu_slow", node(2), condition="whole_node"), False),
        (HOT_RACK, told("gpu_slow", gpu(3), evidence=LOW_CLOCK), False),
        (HOT_RACK, told("gpu_clocks", gpu(2), evidence=LOW_CLOCK), False),
        (told("host_fan", node(1), gpu(2)), told("gpu_slow", gpu(2), evidence=LOW_CLOCK), False),
    ],
    ids=str,
)
def test_one_follows_from_the_other(cause: Finding, what: Finding, follows: bool) -> None:
    assert hides(cause, what) is follows


@pytest.mark.parametrize(
    ("cause", "what", "apart"),
    [
        (("gpu_hot", "rack_hot", True), ("gpu_hot", "heatsink"), True),
        (("gpu_hot", "rack_hot", True), ("gpu_hot", "cooling"), True),
        (("gpu_hot", "rack_hot", True), ("gpu_hot", "software_thermal"), False),
        (("gpu_hot", "node_hot", False), ("gpu_hot", "heatsink"), False),
        (("gpu_power", "power_brake", False), ("gpu_power", "power_limit"), True),
        (("gpu_power", "node_power_limit", False), ("gpu_power", "power_limit"), False),
        (("gpu_power", "rack_power_limit", True), ("gpu_power", "power_brake"), True),
        (("gpu_power", "power_brake", False), ("gpu_power", "power_brake"), False),
    ],
)
def test_under_one_fault_are_matters_apart(
    cause: tuple[str, str, bool], what: tuple[str, str], apart: bool
) -> None:
    fault, condition, of_several = cause
    members = (gpu(), gpu(2)) if of_several else (gpu(), gpu(1, 1))
    first = told(fault, node(), *members, condition=condition)
    assert multi_node(first) is of_several
    assert is_apart(first, told(what[0], gpu(), condition=what[1])) is apart
    # A node's own heat is no heatsink's.
    assert not is_apart(HOT_RACK, told("gpu_hot", node(), condition="heatsink"))


def test_the_last_cause_is_the_one_that_nothing_else_explains() -> None:
    silent, driver = told("node_silent", node()), told("driver_silent", node())
    gone, elsewhere = told("gpu_silent", gpu()), told("node_silent", node(2))
    slow = told("gpu_hung", gpu())
    chain = [driver, gone, silent, elsewhere]
    for order in (chain, chain[::-1]):
        assert root_of(slow, order) is silent
        assert root_of(silent, order) is None
        explained = by_root([slow, gone, elsewhere], order)
        assert explained == {id(silent): [slow, gone]}
    assert root_of(slow, [driver, gone]) is driver
    assert root_of(slow, [elsewhere]) is None


# --- a node that is mended ------------------------------------------------------------------------

GONE = told("node_silent", node(), since=NOON - 5 * MINUTE)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("silence", "stood", "is_mended"),
    [
        ({}, {}, True),
        ({"since": NOON - 30 * MINUTE}, {}, True),
        ({"since": NOON - 30 * MINUTE - MICROSECOND}, {}, False),
        ({}, {"since": NOON - 7 * MINUTE - MICROSECOND}, True),
        ({}, {"since": NOON - 7 * MINUTE}, False),
        ({"members": (node(1), node(2))}, {}, False),
        ({"fault": "driver_silent"}, {}, False),
        ({}, {"subject": gpu(2)}, False),
        ({}, {"fault": "gpu_memory", "severity": CRITICAL}, True),
        ({}, {"fault": "gpu_memory", "severity": WARNING}, False),
        ({}, {"fault": "gpu_pcie", "severity": CRITICAL}, False),
        ({}, {"fault": "of_tomorrow", "severity": CRITICAL}, False),
        # That nobody misses it yet takes over nothing, but for what is about others, too.
        ({"severity": INFO}, {"fault": "gpu_settings"}, True),
        ({"severity": WARNING}, {"fault": "gpu_settings"}, False),
        ({"severity": INFO, "condition": NodeSilence.TAKEN_AWAY}, {"fault": "gpu_settings"}, True),
        ({"severity": INFO, "condition": NodeSilence.SHUT_DOWN}, {"fault": "gpu_settings"}, False),
        ({"severity": INFO}, {"fault": "gpu_hot", "members": (gpu().key, gpu(2).key)}, False),
    ],
)
def test_a_node_is_mended_for_what_stood_before_it_went(
    silence: Mapping[str, Any], stood: Mapping[str, Any], is_mended: bool
) -> None:
    old = replace(incident("gpu_lost", gpu(), since=-60 * MINUTE), **stood)
    found = rebooted_for(healthy().window(), replace(GONE, **silence), [old])
    assert found == (old if is_mended else None)


def test_what_somebody_was_woken_for_two_minutes_before_a_silence_stood_before_it() -> None:
    for after, before in ((0 * MINUTE, False), (-MICROSECOND, True)):
        since = GONE.since - 2 * MINUTE + after
        assert stood_before(GONE, told("gpu_lost", gpu(), since=since)) is before
        assert not stood_before(GONE, told("gpu_settings", gpu(), since=since))


# --- a job that waits for something ---------------------------------------------------------------


def of_job(*gpus: Subject) -> Scene:
    return replace(healthy(), allocations=tuple(allocation(one, "job 7") for one in gpus))


@pytest.mark.parametrize(
    ("gpus", "halted", "is_stalled"),
    [
        ((gpu(1), gpu(2)), told("gpu_lost", gpu(2)), True),
        ((gpu(1), gpu(2)), told("driver_silent", node(2)), True),
        ((gpu(1), gpu(2)), told("port_down", node(2)), True),
        ((gpu(1), gpu(1, 1)), told("port_down", node(1)), False),
        ((gpu(1), gpu(1, 1)), told("gpu_lost", gpu(1, 1)), True),
        ((gpu(1),), told("gpu_lost", gpu(1, 1)), False),
        ((), told("gpu_lost", gpu(1)), True),
        ((), told("port_down", node(1)), True),
    ],
)
def test_a_job_waits_for_what_halts_one_of_its_gpus(
    gpus: tuple[Subject, ...], halted: Finding, is_stalled: bool
) -> None:
    hung = told("gpu_hung", gpu(1))
    cause = stalled_by(of_job(*gpus).window(), hung, {halted.subject: halted})
    assert cause is (halted if is_stalled else None)


def test_of_a_node_its_gpus_that_spin_are_asked() -> None:
    lost = told("gpu_lost", gpu(2))
    hung = told("gpu_hung", node(), gpu(1), gpu(2))
    assert stalled_by(healthy().window(), hung, {gpu(2): lost}) is lost
    assert stalled_by(healthy().window(), told("gpu_hung", node()), {node(): lost}) is None
