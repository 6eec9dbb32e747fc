"""One cause is one incident, and says who waits for it."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from types import FrameType

import pytest

from analyzer.correlation.all_detectors import DETECTORS
from analyzer.correlation.correlate import observe
from analyzer.correlation.impact import impact
from analyzer.correlation.observation import Observation
from gpuvigil.faults import FAULTS
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import (
    CoveredBy,
    Ended,
    EndedBy,
    EventKind,
    Evidence,
    Finding,
    Incident,
    Severity,
    Subject,
    fingerprint,
)

from .scene import (
    NOON,
    SETTINGS,
    Scene,
    allocation,
    event,
    gpu,
    healthy,
    incident,
    inventory,
    node,
    port,
)

SECOND = timedelta(seconds=1)
PEERS = healthy(nodes=8, gpus=4)
SLOWED = (Evidence(name="slowed down by heat", value="60 s of the last 60 s"),)
PATIENT = replace(SETTINGS, silent_after_seconds=60.0)
LOST = {"up": 0, "unmeasured_reason": 3}
IDLE = {"utilization_percent": 0, "memory_utilization_percent": 0}
SILENT = {"up": None, "utilization_percent": None, "unmeasured_reason": 4}


def seen(scene: Scene, active: Sequence[Incident] = (), *, again: bool = True) -> Observation:
    """What a look says; `again`: all that is found had been seen before."""
    window = scene.window()
    findings: list[Finding] = [found for d in DETECTORS for found in d.find(window)]
    believed = {finding.fingerprint for finding in findings} if again else set()
    return observe(window, findings, active, believed)


def finding(fault: str, subject: Subject) -> Finding:
    return Finding(
        fault=fault,
        subject=subject,
        severity=FAULTS[fault].severity,
        since=NOON,
        evidence=(),
        detector=fault,
        action="",
        source="",
    )


def lost(scene: Scene) -> Scene:
    return scene.changed(gpu(), LOST, 15)


# --- impact ---------------------------------------------------------------------------------------


def test_all_gpus_of_a_job_wait_for_the_broken_one() -> None:
    held = [allocation(gpu(n, i), "job 1042") for n in (1, 2) for i in (0, 1)]
    (found,) = seen(replace(lost(healthy()), allocations=tuple(held))).candidates.values()
    assert found.impact.gpus == 4
    assert found.impact.holders == ("job 1042",)
    assert found.impact.users == ("alice",)
    assert found.impact.text == "job 1042 of alice: 4 GPUs on 2 nodes wait for this one"
    assert found.label == "node-1 GPU 0"


def test_a_job_of_very_many_gpus_is_counted_once_for_all_its_faults() -> None:
    """How often the node of a GPU is asked for: with every fault for every GPU, it is 10,000."""
    gpus = [gpu(n, i) for n in range(50) for i in range(4)]
    window = Scene(allocations=tuple(allocation(one, "job 7") for one in gpus)).window()
    asked: Counter[str] = Counter()

    def count(frame: FrameType, what: str, _: object) -> None:
        asked[frame.f_code.co_name] += what == "call"

    sys.setprofile(count)
    hits = [impact(window, finding("gpu_lost", one)) for one in gpus[::4]]
    sys.setprofile(None)
    assert {hit.text for hit in hits} == {"job 7 of alice: 200 GPUs on 50 nodes wait for this one"}
    assert asked["of_node"] < 5 * len(gpus)


def test_a_process_is_another_one_on_another_node() -> None:
    held = [allocation(gpu(n, i), "pid 7") for n in (1, 2) for i in (0, 1)]
    (found,) = seen(replace(lost(healthy()), allocations=tuple(held))).candidates.values()
    assert found.impact.text == "pid 7 of alice: 2 GPUs on 1 node wait for this one"


def test_the_sentence_fits_the_number_of_holders_and_gpus() -> None:
    one = replace(lost(healthy()), allocations=(allocation(gpu(), "job 1"),))
    (found,) = seen(one).candidates.values()
    assert found.impact.text == "job 1 of alice: waits for this GPU"
    hung = healthy().with_events(event(EventKind.DRIVER_SILENT, node(), NOON - SECOND))
    held = (allocation(gpu(), "job 1"), allocation(gpu(1, 1), "job 2", user=None))
    (found,) = seen(replace(hung, allocations=held)).candidates.values()
    assert found.impact.text == "job 1 of alice and 1 more: 2 GPUs on 1 node wait for this node"
    idle = {"utilization_percent": 0, "memory_utilization_percent": 0}
    both = [allocation(gpu(1, i), "job 1") for i in (0, 1)]
    (found,) = seen(
        replace(healthy().changed(gpu(), idle), allocations=tuple(both))
    ).candidates.values()
    assert (found.impact.gpus, found.impact.text) == (1, "1 GPU allocated to job 1 of alice")


def test_a_gpu_that_nobody_holds_blocks_itself() -> None:
    (found,) = seen(lost(healthy())).candidates.values()
    assert (found.impact.gpus, found.impact.text) == (1, "not allocated to anybody")


def test_the_holder_that_ended_with_the_fault_is_still_named() -> None:
    ended = allocation(gpu(), "job 7", ended_at=NOON - 5 * SECOND)
    before = allocation(gpu(), "job 6", user="bob", ended_at=NOON - 500 * SECOND)
    (found,) = seen(replace(lost(healthy()), allocations=(ended, before))).candidates.values()
    assert found.impact.holders == ("job 7",)
    assert found.impact.text == "was allocated to job 7 of alice, ended since"
    assert found.impact.gpus == 1


def test_simulated_and_real_holders_are_never_counted_together() -> None:
    other = [allocation(gpu(2, i, "simulated"), "job 1042", user="sim") for i in (0, 1)]
    real = allocation(gpu(), "job 1042")
    (found,) = seen(replace(lost(healthy()), allocations=(real, *other))).candidates.values()
    assert (found.impact.gpus, found.impact.users) == (1, ("alice",))


def test_of_a_silent_node_only_what_it_said_last_is_known() -> None:
    scene = replace(healthy(), heard={**healthy().heard, node().key: NOON - 60 * SECOND})
    (free,) = seen(scene).candidates.values()
    assert free.impact.text == "not allocated when last heard"
    held = (allocation(gpu(), "job 9"), allocation(gpu(2), "job 9"))
    (found,) = seen(replace(scene, allocations=held)).candidates.values()
    assert found.impact.text == "1 GPU allocated to job 9 of alice when last heard"


def test_a_port_that_is_down_touches_the_jobs_of_its_node() -> None:
    scene = healthy().with_events(event(EventKind.PORT_DOWN, port(), NOON - SECOND))
    (free,) = seen(scene).candidates.values()
    assert (free.impact.gpus, free.label) == (0, "node-1 mlx5_0")
    held = (allocation(gpu(), "job 9"), allocation(gpu(2), "job 9"))
    (found,) = seen(replace(scene, allocations=held)).candidates.values()
    assert found.impact.text == "job 9 of alice: 2 GPUs on 2 nodes may suffer from this port"


def test_a_job_on_one_node_does_not_suffer_from_the_fabric() -> None:
    scene = healthy().with_events(event(EventKind.PORT_DOWN, port(), NOON - SECOND))
    alone = replace(scene, allocations=(allocation(gpu(), "job 9"), allocation(gpu(1, 1), "job 9")))
    (found,) = seen(alone).candidates.values()
    assert (found.impact.text, found.impact.holders, found.impact.running) == (
        "no job over several nodes runs there",
        (),
        False,
    )
    # Of a process nobody knows whether it is one of many, and over other ports all may go.
    (found,) = seen(replace(alone, allocations=(allocation(gpu()),))).candidates.values()
    assert found.impact.text == "pid 4711 of alice: 1 GPU on 1 node may suffer from this port"
    first, *others = alone.inventories
    storage = replace(first, ports=(replace(first.ports[0], role="storage"),))
    (found,) = seen(replace(alone, inventories=(storage, *others))).candidates.values()
    assert found.impact.holders == ("job 9",)


# --- root causes ----------------------------------------------------------------------------------


def test_a_silent_node_hides_everything_below_it_and_is_as_urgent_as_what_it_hides() -> None:
    scene = lost(healthy()).with_events(event(EventKind.PORT_DOWN, port(), NOON - SECOND))
    scene = replace(scene, heard={**scene.heard, node().key: NOON - 60 * SECOND})
    found = seen(scene)
    (candidate,) = found.candidates.values()
    assert candidate.finding.fault == "node_silent"
    assert candidate.severity is Severity.CRITICAL
    assert candidate.covers == (
        "node-1 GPU 0: GPU fell off the bus",
        "node-1 mlx5_0: Network port is down",
    )
    assert set(candidate.members) == {s.key for s in (node(), gpu(), gpu(1, 1), port())}
    silence = fingerprint("node_silent", node())
    by_node = CoveredBy(fingerprint=silence, what="node-1: Node stopped reporting")
    assert found.covered == {
        fingerprint("gpu_lost", gpu()): by_node,
        fingerprint("port_down", port()): by_node,
    }


def test_what_stands_is_hidden_also_when_it_can_no_longer_be_seen() -> None:
    scene = healthy().without(lambda sample: sample.subject.node == "node-1")
    scene = replace(scene, heard={**scene.heard, node().key: NOON - 60 * SECOND})
    old = incident("gpu_silent", gpu())
    found = seen(scene, [old])
    assert set(found.covered) == {old.fingerprint}
    (candidate,) = found.candidates.values()
    assert candidate.covers == ("node-1 GPU 0: GPU does not answer",)
    assert candidate.severity is Severity.CRITICAL


def test_a_cause_hides_nothing_before_it_is_believed() -> None:
    scene = lost(healthy())
    scene = replace(scene, heard={**scene.heard, node().key: NOON - 60 * SECOND})
    first = seen(scene, [incident("gpu_lost", gpu())], again=False)
    assert sorted(c.finding.fault for c in first.candidates.values()) == ["gpu_lost", "node_silent"]
    assert first.covered == {}


def test_a_silent_driver_hides_its_silent_gpus_and_no_port() -> None:
    scene = healthy().changed(node(), {"driver_answering": 0}, 15)
    scene = scene.changed(gpu(), SILENT, 25).changed(gpu(1, 1), SILENT, 25)
    scene = scene.with_events(event(EventKind.PORT_DOWN, port(), NOON - SECOND))
    faults = sorted(c.finding.fault for c in seen(scene).candidates.values())
    assert faults == ["driver_silent", "port_down"]


def test_a_lost_gpu_hides_its_other_faults_only() -> None:
    xids = [event(EventKind.XID, gpu(1, i), NOON - 5 * SECOND, 48) for i in (0, 1)]
    found = seen(lost(healthy()).with_events(*xids))
    candidates = {c.label: c for c in found.candidates.values()}
    assert candidates["node-1 GPU 0"].finding.fault == "gpu_lost"
    what = "Xid 48: uncorrectable double-bit ECC error"
    assert candidates["node-1 GPU 0"].covers == (f"node-1 GPU 0: {what}",)
    assert candidates["node-1 GPU 1"].title == what


def test_a_critical_xid_explains_why_its_gpu_is_silent() -> None:
    scene = healthy().changed(gpu(), SILENT, 25)
    assert [c.finding.fault for c in seen(scene).candidates.values()] == ["gpu_silent"]
    xid = event(EventKind.XID, gpu(), NOON - 30 * SECOND, 119)
    faults = [c.finding.fault for c in seen(scene.with_events(xid)).candidates.values()]
    assert faults == ["gpu_xid"]


def test_a_chain_of_causes_ends_at_the_first() -> None:
    scene = healthy().changed(node(), {"driver_answering": 0}, 15).changed(gpu(), SILENT, 25)
    scene = replace(scene, heard={**scene.heard, node().key: NOON - 60 * SECOND})
    found = seen(scene)
    (candidate,) = found.candidates.values()
    assert candidate.finding.fault == "node_silent"
    assert len(candidate.covers) == 2
    assert all("Node stopped reporting" in cause.what for cause in found.covered.values())


# --- what is not there ----------------------------------------------------------------------------


def test_without_data_nothing_can_be_said() -> None:
    old = incident("gpu_silent", gpu())
    assert seen(healthy(), [old]).unknown == frozenset()
    rowless = healthy().without(lambda sample: sample.subject == gpu())
    assert seen(rowless, [old]).unknown == {old.fingerprint}
    slow = replace(healthy(), heard={node().key: NOON - 31 * SECOND}, settings=PATIENT)
    assert seen(slow, [old]).unknown == {old.fingerprint}
    unheard = replace(healthy(), heard={}, listening_since=NOON - SECOND)
    assert seen(unheard, [old]).unknown == {old.fingerprint}


def test_a_gpu_that_was_taken_out_is_no_longer_waited_for() -> None:
    old = incident("gpu_silent", gpu())
    rowless = healthy().without(lambda sample: sample.subject == gpu())
    other = replace(inventory(node()), gpus=inventory(node()).gpus[1:])
    assert seen(replace(rowless, inventories=(other,)), [old]).unknown == frozenset()


def test_a_cure_is_named() -> None:
    old = incident("gpu_lost", gpu())
    scene = healthy().with_events(event(EventKind.GPU_BACK, gpu(), NOON - SECOND))
    assert seen(scene, [old]).cured == {
        old.fingerprint: Ended(by=EndedBy.EVENT, event=EventKind.GPU_BACK, at=NOON - SECOND)
    }
    earlier = healthy().with_events(event(EventKind.GPU_BACK, gpu(), NOON - 90 * SECOND))
    assert seen(earlier, [old]).cured == {}


@pytest.mark.medium
def test_a_node_that_is_heard_again_has_a_cure() -> None:
    old = incident("node_silent", node())
    assert seen(healthy(), [old]).cured == {
        old.fingerprint: Ended(by=EndedBy.REPORTS_AGAIN, at=NOON - 4 * SECOND)
    }
    silent = replace(healthy(), heard={node().key: NOON - 60 * SECOND})
    assert seen(silent, [old]).cured == {}


# --- several GPUs of one holder -------------------------------------------------------------------


def test_what_a_rack_suffers_is_no_fan_of_one_node_and_any_of_its_nodes_tells_when_it_is_over() -> (
    None
):
    hot = healthy().rising(gpu(2, 0), "hardware_thermal_slowdown_seconds", 1.0)
    hot = hot.rising(gpu(2, 1), "hardware_thermal_slowdown_seconds", 1.0)
    old = replace(incident("gpu_hot", node()), members=(node().key, node(2).key), evidence=SLOWED)
    old = replace(old, severity=Severity.CRITICAL)
    # What is graver than the rack's own incident is told for itself.
    mild = replace(old, severity=Severity.WARNING)
    assert set(seen(hot, [mild]).candidates) == {fingerprint("gpu_hot", node(2))}
    found = seen(hot, [old])
    assert found.candidates == {}
    assert fingerprint("gpu_hot", node(2)) in found.covered
    assert set(seen(hot).candidates) == {fingerprint("gpu_hot", node(2))}
    away = replace(healthy(), heard={**healthy().heard, node().key: NOON - timedelta(minutes=5)})
    assert old.fingerprint not in seen(away, [old]).unknown
    assert replace(old, members=()).fingerprint in seen(away, [replace(old, members=())]).covered


def test_what_is_left_of_a_racks_air_on_the_node_it_is_called_by_goes_on_in_its_words() -> None:
    hot = healthy().rising(gpu(1, 0), "software_thermal_slowdown_seconds", 1.0)
    hot = hot.rising(gpu(1, 1), "software_thermal_slowdown_seconds", 1.0)
    rack = CONDITIONS["rack_hot"]
    members = (node().key, node(2).key)
    old = replace(
        incident("gpu_hot", node()), severity=Severity.WARNING, title=rack.title, members=members
    )
    old = replace(old, condition=rack.key)
    (one,) = seen(hot, [old]).candidates.values()
    assert (one.finding.fingerprint, one.title) == (old.fingerprint, rack.title)
    assert one.finding.action == old.action
    # A node that never was a rack's has words of its own, and so has what is graver.
    (alone,) = seen(hot, [replace(old, members=())]).candidates.values()
    assert alone.title == CONDITIONS["node_hot"].title
    graver = hot
    for index in range(2):
        graver = graver.rising(gpu(1, index), "hardware_thermal_slowdown_seconds", 1.0)
    (grave,) = seen(graver, [old]).candidates.values()
    assert (grave.title, grave.severity) == (CONDITIONS["node_hot"].title, Severity.CRITICAL)


def test_a_worn_heatsink_in_a_warm_rack_is_a_matter_of_its_own() -> None:
    hot = PEERS.changed(gpu(), {"temperature_celsius": 75})
    members = (node().key, node(2).key, gpu().key, gpu(1, 1).key)
    rack = replace(incident("gpu_hot", node(2)), severity=Severity.WARNING, members=members)
    assert [c.finding.subject for c in seen(hot, [rack]).candidates.values()] == [gpu()]
    # What the driver holds back there follows from the air.
    slowed = PEERS.rising(gpu(), "software_thermal_slowdown_seconds", 1.0)
    assert fingerprint("gpu_hot", gpu()) in seen(slowed, [rack]).covered


@pytest.mark.medium
def test_that_a_gpu_at_rest_is_not_hot_says_nothing() -> None:
    old = incident("gpu_hot", gpu())
    assert old.fingerprint not in seen(PEERS, [old]).unknown
    assert old.fingerprint in seen(healthy(), [old]).unknown  # too few to hold it against
    rests = PEERS
    for number in range(1, 9):
        rests = rests.changed(gpu(number), {"power_watts": 90.0})
    assert old.fingerprint in seen(rests, [old]).unknown
    slow = incident("gpu_clocks", gpu())
    idles = healthy().changed(gpu(), {"utilization_percent": 0})
    assert slow.fingerprint in seen(idles, [slow]).unknown
    assert slow.fingerprint not in seen(healthy(), [slow]).unknown
    in_slices = healthy().changed(gpu(), {"utilization_percent": None})
    assert slow.fingerprint not in seen(in_slices, [slow]).unknown


def warm(scene: Scene, gpus: Iterable[Subject]) -> Scene:
    for subject in gpus:
        scene = scene.changed(subject, {"temperature_celsius": 76})
    return scene


def heat(scene: Scene) -> Incident:
    """The incident that stands after a look at this scene."""
    (one,) = seen(scene).candidates.values()
    said = one.finding
    old = incident(said.fault, said.subject)
    return replace(old, condition=said.condition, evidence=said.evidence, members=one.members)


@pytest.mark.medium
@pytest.mark.parametrize("nodes", [0, 1, 3], ids=["heatsink", "fan", "air"])
@pytest.mark.parametrize(
    ("before", "after", "seconds"), [(550.0, 100.0, 60), (90.0, 650.0, 100)], ids=["end", "start"]
)
def test_heat_is_not_over_because_a_job_ends_or_starts(
    nodes: int, before: float, after: float, seconds: float
) -> None:
    racks = tuple(replace(i, rack="r1" if i.subject < node(4) else "r2") for i in PEERS.inventories)
    cool = replace(PEERS, inventories=racks)
    hit = [gpu(n, i) for n in range(1, nodes + 1) for i in range(4)] or [gpu()]
    hot = warm(cool, hit)
    old = heat(hot)
    assert old.fingerprint in seen(hot, [old]).candidates
    changing = hot
    for subject in hit:
        changing = changing.changed(subject, {"power_watts": before})
        changing = changing.changed(subject, {"power_watts": after}, seconds)
    found = seen(changing, [old])
    # These cores stay as warm whatever they draw, which their sensors are told of.
    assert {it.finding.fault for it in found.candidates.values()} <= {"gpu_sensor"}
    assert found.unknown == {old.fingerprint}
    assert seen(cool, [old]).unknown == frozenset()
    if nodes:  # its GPUs were replaced
        left = [member for member in old.members if "/gpu/" not in member]
        gone = replace(old, members=(*left, gpu(1, 99).key))
        assert seen(cool, [gone]).unknown == frozenset()


def test_air_is_not_better_because_most_of_the_rack_changes_its_load() -> None:
    racks = tuple(replace(i, rack="r1" if i.subject < node(4) else "r2") for i in PEERS.inventories)
    hit = [gpu(n, i) for n in (1, 2, 3) for i in range(4)]
    hot = warm(replace(PEERS, inventories=racks), hit)
    old = heat(hot)
    for subject in hit[:8]:
        hot = hot.changed(subject, {"power_watts": 100.0}, 60)
    assert old.fingerprint in seen(hot, [old]).unknown


def test_a_small_gpu_at_work_shows_whether_it_is_hot() -> None:
    """A T4 has 70 W: it never draws what a large one draws at rest."""
    small = PEERS
    for number in range(1, 9):
        for index in range(4):
            fields = {"power_limit_watts": 70.0, "power_watts": 50.0}
            small = small.changed(gpu(number, index), fields)
    old = heat(warm(small, [gpu()]))
    assert seen(small, [old]).unknown == frozenset()
    resting = small.changed(gpu(), {"power_watts": 12.0, "temperature_celsius": 33})
    assert old.fingerprint in seen(resting, [old]).unknown


def test_a_slowdown_is_over_when_its_counter_stands_while_the_gpu_works() -> None:
    old = replace(incident("gpu_hot", gpu()), evidence=SLOWED)
    for watts in (None, 600.0):
        assert seen(healthy().changed(gpu(), {"power_watts": watts}), [old]).unknown == frozenset()
    # One that rests is not slowed down, whatever its heatsink is like.
    resting = healthy().changed(gpu(), {"power_watts": 60.0})
    assert seen(resting, [old]).unknown == {old.fingerprint}
    # Of several it is the air, which is warm also around GPUs that rest.
    several = replace(incident("gpu_hot", node()), evidence=SLOWED)
    assert seen(resting, [several]).unknown == frozenset()
    # Without power nothing is held against peers: its lines are all that there is.
    unread = PEERS.changed(gpu(), {"power_watts": None})
    assert seen(unread, [incident("gpu_hot", gpu())]).unknown == frozenset()


def idle(scene: Scene, *gpus: Subject) -> Scene:
    for subject in gpus:
        scene = scene.changed(subject, IDLE)
    return scene


def test_idle_gpus_of_one_holder_are_one_incident_that_names_them() -> None:
    held = (allocation(gpu(), "job 9", "judy"), allocation(gpu(1, 1), "job 9", "judy"))
    scene = replace(idle(healthy(), gpu(), gpu(1, 1)), allocations=held)
    found = seen(scene, [incident("gpu_idle_held", gpu())])
    (candidate,) = found.candidates.values()
    assert candidate.title == "2 GPUs allocated to job 9 of judy and idle"
    assert (candidate.finding.subject, candidate.label) == (node(), "node-1")
    assert (candidate.gpus, candidate.covers) == ("2 GPUs (GPU 0-1)", ())
    assert (candidate.impact.gpus, candidate.impact.text) == (
        2,
        "2 GPUs allocated to job 9 of judy",
    )
    assert candidate.members == (node().key, gpu().key, gpu(1, 1).key)
    assert candidate.finding.fingerprint == fingerprint("gpu_idle_held", node(), "job 9")
    assert set(found.covered) == {fingerprint("gpu_idle_held", gpu(1, i)) for i in (0, 1)}


def test_idle_gpus_of_different_holders_are_different_incidents() -> None:
    held = (allocation(gpu(), "job 8"), allocation(gpu(1, 1), "job 9"))
    scene = replace(idle(healthy(), gpu(), gpu(1, 1)), allocations=held)
    assert sorted(c.label for c in seen(scene).candidates.values()) == [
        "node-1 GPU 0",
        "node-1 GPU 1",
    ]


def test_a_gap_in_the_numbers_does_not_end_that_a_gpu_idles_and_work_does() -> None:
    old = incident("gpu_idle_held", gpu())
    held = (allocation(gpu(), "job 9"),)
    gap = replace(idle(healthy(seconds=60), gpu()), allocations=held)
    assert seen(gap, [old]).unknown == {old.fingerprint}
    assert seen(replace(healthy(), allocations=held), [old]).unknown == frozenset()
    left = healthy(seconds=60).changed(gpu(), {**IDLE, "compute_processes": 0})
    assert seen(left, [old]).unknown == frozenset()


def test_a_programs_error_says_that_it_is_the_programs_alone() -> None:
    held = (allocation(gpu(), "job 9"), allocation(gpu(2), "job 9"))
    scene = replace(healthy(), allocations=held)
    error = event(EventKind.XID, gpu(), NOON - SECOND, 31)
    (found,) = seen(scene.with_events(error)).candidates.values()
    assert found.impact.gpus == 1
    assert found.impact.text == "job 9 of alice: the one program that ran on this GPU"


def test_the_gpus_of_a_silent_node_are_counted_and_numbered() -> None:
    scene = replace(healthy(), heard={**healthy().heard, node().key: NOON - 60 * SECOND})
    (found,) = seen(scene).candidates.values()
    assert found.gpus == "2 GPUs (GPU 0-1)"


@pytest.mark.parametrize(("tick", "seconds"), [(1.0, 3.0), (60.0, 180.0)])
def test_an_incident_is_absent_for_three_readings_of_its_node(tick: float, seconds: float) -> None:
    stands = incident("gpu_clocks", gpu())
    read = tuple(replace(it, tick_seconds=tick) for it in PEERS.inventories)
    said = seen(replace(PEERS, inventories=read), [stands])
    assert said.seldom[stands.fingerprint] == timedelta(seconds=seconds)
