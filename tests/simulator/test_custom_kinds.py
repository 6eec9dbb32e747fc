"""Kinds of fault from a file that the project does not know."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from simulator.custom_kinds import CHANGES, DELIVERY, PHYSICS, WORK, Fault, KindsError, kind, load
from simulator.fleet import FaultOrder, Fleet, FleetSettings, build
from simulator.fleet.chance import Floats
from simulator.fleet.site import FaultKind

_HEAD = "from simulator.custom_kinds import Fault, kind\n"
_PUMP = """
@kind("pump stops", of="gpu", cause="the pump of a cold plate stops", severity="critical",
      right=("cooling", "hardware_thermal"), sizes=(3.0, 3.0), unit="times thermal resistance")
def pump_stops(fault: Fault) -> None:
    fault.physics("resistance", times=fault.size)
    fault.gpu("ecc_corrected_errors", per_second=2.0, start=60.0)
    fault.node("load_average", add=40.0)
    fault.event("machine_check", of="node", at=30.0, message="pump of board 2 stopped")
    fault.costs(0.4)
"""
_START, _SECONDS = 900.0, 1800.0


def _file(folder: Path, text: str) -> Path:
    path = folder / "kinds.py"
    path.write_text(_HEAD + text, encoding="utf-8")
    return path


def _fleet(*kinds: FaultKind) -> Fleet:
    orders = [
        FaultOrder(
            kind=it.key,
            node=1,
            start_seconds=_START,
            seconds=_SECONDS,
            gpu=3 if it.target == "gpu" else None,
            port=3 if it.target == "port" else None,
        )
        for it in kinds
    ]
    return build(
        FleetSettings(
            seed=4, nodes=3, days=1 / 24, life=False, faults=tuple(orders), more_kinds=kinds
        )
    )


def _seen(fleet: Fleet, measurement: str, field: str) -> Floats:
    """[ticks] of the second node, or of its fourth GPU."""
    [block] = fleet.blocks()
    topology = fleet.plan.topology
    subject = topology.gpu_subject(11) if measurement == "gpu" else topology.node_subject(1)
    table = block.tables[measurement]
    mine = pc.equal(table.column("node"), subject.node)
    if subject.gpu is not None:
        mine = pc.and_(mine, pc.equal(table.column("uuid"), subject.gpu))
    found: Floats = table.filter(mine).sort_by("at").column(field).to_numpy().astype(np.float64)
    return found


def test_a_kind_of_a_file_changes_what_sensors_read_and_says_what_it_cost(tmp_path: Path) -> None:
    [pump] = load(_file(tmp_path, _PUMP))
    fleet, sound = _fleet(pump), _fleet()
    [truth] = fleet.truths()
    assert (truth.fault, truth.cause) == ("pump stops", "the pump of a cold plate stops")
    assert truth.named_by == ("cooling", "hardware_thermal")
    assert (truth.magnitude, truth.pace_lost) == (3.0, 0.4)
    errors = _seen(fleet, "gpu", "ecc_corrected_errors") - _seen(
        sound, "gpu", "ecc_corrected_errors"
    )
    assert errors[:96].max() == 0  # 900 s and 60 s of 10 s ticks
    assert 0.5 * 2.0 * (_SECONDS - 60.0) < errors[-1] < 1.5 * 2.0 * (_SECONDS - 60.0)
    load_average = _seen(fleet, "node", "load_average") - _seen(sound, "node", "load_average")
    assert load_average[100] == pytest.approx(40.0)
    assert load_average[-1] == pytest.approx(0.0)
    [block] = fleet.blocks()
    [event] = [it for it in block.events if "pump" in it.message]
    assert (event.at - truth.start).total_seconds() == pytest.approx(30.0, abs=10.0)


def test_the_same_seed_gives_the_same_fleet(tmp_path: Path) -> None:
    [one], [other] = (load(_file(tmp_path, _PUMP)) for _ in range(2))
    [first], [second] = _fleet(one).blocks(), _fleet(other).blocks()
    assert all(first.tables[name].equals(second.tables[name]) for name in first.tables)
    assert _fleet(one).truths() == _fleet(other).truths()


def test_a_kind_may_be_of_the_hosts_own_sensors_in_any_fleet() -> None:
    @kind("fan", of="node", cause="c", severity="warning", right=("host_fan",))
    def fan(fault: Fault) -> None:
        fault.node("fans_failed", add=1.0)

    failed = _seen(_fleet(fan._gpuvigil_kind), "node", "fans_failed")  # type: ignore[attr-defined]
    assert failed[:90].max() == 0
    assert failed[91:270].min() == 1
    [without] = _fleet().blocks()
    assert "fans_failed" not in without.tables["node"].column_names


@pytest.mark.medium
@pytest.mark.parametrize("verb", CHANGES)
def test_every_way_to_change_a_number_is_played(verb: str) -> None:
    @kind("any", of="gpu", cause="c", severity="info", right=("gpu_hot",))
    def anything(fault: Fault) -> None:
        fault.gpu("temperature_celsius", **{verb: 3.0})

    fleet = _fleet(anything._gpuvigil_kind)  # type: ignore[attr-defined]
    differ = _seen(fleet, "gpu", "temperature_celsius") != _seen(
        _fleet(), "gpu", "temperature_celsius"
    )
    assert not differ[:90].any()
    assert differ[91:270].any()


@pytest.mark.medium
@pytest.mark.parametrize(
    ("call", "name"),
    [
        *(("physics", name) for name in PHYSICS),
        *(("work", name) for name in WORK),
        *(("delivery", name) for name in DELIVERY),
        ("port", "throughput"),
        ("nvlink", "crc_errors"),
    ],
)
def test_every_name_is_played(call: str, name: str) -> None:
    @kind("any", of="node", cause="c", severity="info", right=("gpu_hot",))
    def anything(fault: Fault) -> None:
        getattr(fault, call)(name, set=0.5)

    [change] = _fleet(anything._gpuvigil_kind).plan.changes  # type: ignore[attr-defined]
    assert change.name == name
    [block] = _fleet(anything._gpuvigil_kind).blocks()  # type: ignore[attr-defined]
    assert block.tables


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no kinds; put @kind(...) above a function"),
        ("def broken(:\n", "kinds.py:2: "),
        ("import not_there_at_all\n", "ModuleNotFoundError: No module named 'not_there_at_all'"),
        (
            _PUMP.replace("cooling", "coolin"),
            "right 'coolin' is not known; did you mean 'cooling'?",
        ),
        (_PUMP.replace('of="gpu"', 'of="card"'), "of 'card' is not known; one of gpu, node, port"),
        (_PUMP.replace('"critical"', '"severe"'), "severity 'severe' is not known"),
        (_PUMP.replace('"pump stops"', '"heatsink"'), "there is a kind 'heatsink' already"),
        (_PUMP.replace("(3.0, 3.0)", "(3.0, 2.0)"), "sizes are the lowest and the highest"),
        (_PUMP.replace('("cooling", "hardware_thermal")', "()"), "right=() would let no cause"),
        (_PUMP.replace("unit=", "no_fault=True, unit="), "what is no fault has neither severity"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(
    tmp_path: Path, text: str, words: str
) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(KindsError) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('fault.gpu("temperature", add=3)', "name 'temperature' is not known; did you mean"),
        ('fault.gpu("power_watts", plus=3)', "change 'plus' is not known; one of add"),
        ('fault.gpu("power_watts")', "power_watts: give one of set, add"),
        ('fault.event("bot")', "event 'bot' is not known; did you mean 'boot'?"),
        ('fault.event("xid")', "event 'xid' needs a code: say fault.xid(code)"),
        ('fault.event("sxid")', "event 'sxid' needs a code: say fault.sxid(code)"),
        ("fault.costs(1.5)", "a share from 0 to 1, not 1.5"),
        ("fault.size", "a kind that asks for fault.size needs sizes"),
        (
            'fault.physics("inlet", add=5, gpus=[2, fault.gpu_count])',
            "gpus=[2, 8]: the GPUs of this fleet's nodes are 0 to 7",
        ),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_a_function_is_said_with_its_kind(
    tmp_path: Path, line: str, words: str
) -> None:
    head = '@kind("k", of="gpu", cause="c", severity="info", right=("gpu_hot",))\n'
    [found] = load(_file(tmp_path, f"{head}def k(fault):\n    {line}\n"))
    with pytest.raises(KindsError) as caught:
        _fleet(found)
    assert "kind 'k': " in str(caught.value)
    assert words in str(caught.value)


def test_a_driver_logs_any_xid_and_sxid(tmp_path: Path) -> None:
    head = '@kind("k", of="gpu", cause="c", severity="critical", right=("gpu_xid",))\n'
    lines = (
        "xid(79)",
        "xid(120, at=5)",
        'xid(79, message="gone")',
        "xid(999)",
        "sxid(20034, at=9)",
    )
    body = "".join(f"    fault.{it}\n" for it in lines)
    fleet = _fleet(*load(_file(tmp_path, f"{head}def k(fault):\n{body}")))
    [(_, site)] = fleet.plan.sites
    assert [it.xid or it.sxid for it in site.planned_events] == [79, 120, 79, 999, 20034]
    assert [it.at - _START for it in site.planned_events] == [0.0, 5.0, 0.0, 0.0, 9.0]
    address = fleet.plan.topology.pci_address(11)
    said = [it.message.removesuffix(f" [{address}]") for it in site.planned_events]
    assert said[:4] == [
        "Xid 79: GPU has fallen off the bus.",
        "Xid 120: GSP_ERROR",
        "Xid 79: gone",
        "Xid 999: UNKNOWN",
    ]
    assert said[4].startswith("SXid 20034: fatal: Link ")
    assert site.planned_events[-1].subject == ("node", 1)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KindsError, match="no such file"):
        load(tmp_path / "nothing.py")


def _random(fault_kind: FaultKind) -> Fleet:
    """Faults that come by themselves, in a fleet of which nobody uses much."""
    settings = FleetSettings(
        seed=5,
        nodes=12,
        days=1.0,
        demand=0.2,
        life=False,
        fault_rate=2000.0,
        more_kinds=(fault_kind,),
    )
    return build(replace(settings, kinds=(fault_kind.key,)))


def _kind(*, of: str, needs_work: bool, ends_jobs: bool = False) -> FaultKind:
    @kind("any", of=of, cause="c", severity="info", right=("gpu_hot",), needs_work=needs_work)
    def anything(fault: Fault) -> None:
        fault.physics("speed", times=0.5)
        if ends_jobs:
            fault.ends_jobs()

    found: FaultKind = anything._gpuvigil_kind  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("of", ["gpu", "node", "port"])
def test_what_needs_work_begins_where_some_is_and_is_asked_of_nobody_elsewhere(of: str) -> None:
    anywhere, at_work = (_random(_kind(of=of, needs_work=needs)) for needs in (False, True))
    assert any(not site.peers for _, site in anywhere.plan.sites)
    assert not any(truth.hidden for truth in anywhere.truths())
    assert at_work.plan.sites
    assert all(site.peers for _, site in at_work.plan.sites)
    # An order is where it is.
    for needs in (False, True):
        nobody = replace(_fleet(_kind(of=of, needs_work=needs)).settings, demand=0.001)
        assert [truth.hidden for truth in build(nobody).truths()] == [needs]


def test_what_ends_the_jobs_that_it_needs_is_asked_for() -> None:
    fleet = _random(_kind(of="gpu", needs_work=True, ends_jobs=True))
    assert not any(truth.hidden for truth in fleet.truths())


def test_one_rank_that_sleeps_reads_idle_beside_those_that_spin() -> None:
    @kind("sleeps", of="gpu", cause="c", severity="warning", right=("gpu_hung",))
    def sleeps(fault: Fault) -> None:
        fault.work("spin", set=1)
        fault.work("stall", set=1)

    used = _seen(_fleet(sleeps._gpuvigil_kind), "gpu", "utilization_percent")  # type: ignore[attr-defined]
    assert used[91:270].max() == 0


def test_errors_of_a_link_count_for_its_gpu() -> None:
    @kind("link", of="gpu", cause="c", severity="warning", right=("gpu_nvlink",))
    def link(fault: Fault) -> None:
        fault.nvlink("crc_errors", link=2, per_second=1.0, start=60.0)
        fault.nvlink("up", link=2, set=0, start=600.0)

    fleet, sound = _fleet(link._gpuvigil_kind), _fleet()  # type: ignore[attr-defined]
    for name in ("nvlink_crc_errors", "nvlink_errors"):
        more = _seen(fleet, "gpu", name) - _seen(sound, "gpu", name)
        assert more[:96].max() == 0
        assert 0.5 * (_SECONDS - 60.0) < more[-1] < 1.5 * (_SECONDS - 60.0)
    lost = _seen(sound, "gpu", "nvlink_links_up") - _seen(fleet, "gpu", "nvlink_links_up")
    assert lost[:150].max() == 0
    assert (lost[151:269].min(), lost[151:269].max()) == (1, 1)
    assert _seen(fleet, "gpu", "nvlink_worst_link")[200] == 2
    assert not (
        _seen(fleet, "gpu", "nvlink_replay_errors") - _seen(sound, "gpu", "nvlink_replay_errors")
    ).any()


def test_a_boot_is_one_in_the_inventory_too() -> None:
    @kind("panics", of="node", cause="c", severity="critical", right=("node_crashes",))
    def panics(fault: Fault) -> None:
        fault.event("boot", at=300.0)

    [block] = _fleet(panics._gpuvigil_kind).blocks()  # type: ignore[attr-defined]
    boots = [(it.at, it.boot) for it in block.inventories if it.boot.startswith("boot-1-")]
    assert {name for _, name in boots} == {"boot-1-0", "boot-1-1"}
    assert {name for at, name in boots if at >= block.start + timedelta(seconds=1200)} == {
        "boot-1-1"
    }


def test_work_counts_until_another_fault_ends_it() -> None:
    """As a large job has it that dies hours later."""
    sleeps = _kind(of="gpu", needs_work=True)

    @kind("dies", of="node", cause="c", severity="critical", right=("node_silent",))
    def dies(fault: Fault) -> None:
        fault.ends_jobs()

    hidden = []
    for kinds in ((sleeps,), (sleeps, dies._gpuvigil_kind)):  # type: ignore[attr-defined]
        fleet = _fleet(*kinds)
        orders = [
            replace(it, start_seconds=3000.0 if it.kind == "dies" else 900.0)
            for it in fleet.settings.faults
        ]
        first, *_ = build(replace(fleet.settings, faults=tuple(orders), demand=3.0)).truths()
        hidden.append(first.hidden)
    assert hidden[0] == hidden[1]
